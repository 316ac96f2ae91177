//! Figures of the runtime's workers, queues and sessions, and the classes of requests.

use serde::{Deserialize, Serialize};

/// The class of a queue's requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// By measurement: short requests are to be answered soon.
    #[default]
    Auto,
    /// To be answered soon.
    Latency,
    /// To be answered many at a time.
    Throughput,
}

impl Class {
    const NAMES: [(&str, Self); 3] =
        [("auto", Self::Auto), ("latency", Self::Latency), ("throughput", Self::Throughput)];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, class)| *class == self).map_or("auto", |(name, _)| name)
    }

    /// The one of this name.
    ///
    /// # Errors
    /// Advice, if there is none.
    pub fn parse(text: &str) -> Result<Self, String> {
        let known = Self::NAMES.iter().find(|(name, _)| *name == text);
        known.map(|(_, class)| *class).ok_or_else(|| "write auto, latency or throughput".to_owned())
    }
}

/// The workers, queues and sessions of a runtime.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RuntimeStatus {
    /// How workers are found for queues: `dynamic` or `round-robin`.
    pub policy: String,
    /// In which order a worker serves its queues: `blk-switch` or `noop`.
    pub scheduler: String,
    /// Workers, at most.
    pub workers_max: usize,
    /// The workers that there are now.
    pub workers: Vec<WorkerStatus>,
    /// The queues of all sessions.
    pub queues: Vec<QueueStatus>,
    /// The applications.
    pub sessions: Vec<SessionStatus>,
}

/// A worker, since it began.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkerStatus {
    /// Queues that it serves.
    pub queues: usize,
    /// It serves only requests that are to be answered soon.
    pub latency: bool,
    /// Requests that it carried out.
    pub requests: u64,
    /// Time that it took for them, in nanoseconds.
    pub busy_ns: u64,
    /// How often it went to sleep.
    pub slept: u64,
    /// It sleeps now.
    pub asleep: bool,
}

/// A queue, since its session began.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueueStatus {
    /// The session's number.
    pub session: u64,
    /// The number of the queue within the session.
    pub queue: usize,
    /// The class of its requests.
    pub class: Class,
    /// Requests that were carried out.
    pub requests: u64,
    /// Time that workers took for them, in nanoseconds.
    pub busy_ns: u64,
    /// Requests that wait.
    pub waiting: u64,
}

/// An application.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionStatus {
    /// Its number.
    pub session: u64,
    /// Its process, in the daemon's pid namespace.
    pub pid: u32,
    /// Its user.
    pub uid: u32,
}
