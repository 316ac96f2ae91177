//! The runtime in figures, for people.

use crate::load::Class;
use serde::{Deserialize, Serialize};

/// The workers, queues and sessions of a runtime.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The workers that there are now.
    pub workers: Vec<WorkerReport>,
    /// The queues of all sessions.
    pub queues: Vec<QueueReport>,
    /// The applications.
    pub sessions: Vec<SessionReport>,
}

/// A worker, since it began.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkerReport {
    /// Queues that it serves.
    pub queues: usize,
    /// It serves only what wants to be answered soon.
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
pub struct QueueReport {
    /// The session's number.
    pub session: u64,
    /// Which of its queues.
    pub queue: usize,
    /// What its requests want.
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
pub struct SessionReport {
    /// Its number.
    pub session: u64,
    /// Its process.
    pub pid: u32,
    /// Its user.
    pub uid: u32,
}
