//! The message to modules when another process goes on with a mount after a crash.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A crash of the process that served a mount, as the next process reports it to its modules
/// (LabStor §3.3, `StateRepair`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Crash {
    /// The number of crashes since the mount, with this one: at least 1.
    pub count: u64,
    /// The age of the state that the module took over just before: later work is not in it. `None`
    /// if it took none over.
    pub state_age: Option<Duration>,
}

/// How a module went on after the last crash of the daemon.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AfterCrash {
    /// The age of the state that it took over, in seconds; `None` if it took none over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_age_seconds: Option<f64>,
    /// The failure: it could not take its state over, or not make its repairs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}
