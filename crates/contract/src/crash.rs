//! What modules are told when another process goes on with a mount after a crash.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A crash of the process that served a mount, as the next process tells its modules
/// (LabStor §3.3, `StateRepair`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Crash {
    /// How many there were since the mount, with this one: at least 1.
    pub count: u64,
    /// How old the state is that the module took over just before: what it did since is not
    /// in it. `None` if it took none over.
    pub state_age: Option<Duration>,
}

/// How a module went on after the last crash of the daemon.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AfterCrash {
    /// How old the state was that it took over, in seconds; `None` if it took none over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_age_seconds: Option<f64>,
    /// What failed: it could not take its state over, or not repair what it has to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}
