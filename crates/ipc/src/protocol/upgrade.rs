//! The exchange of the program that serves a mount.

use serde::{Deserialize, Serialize};

/// Another process is about to go on with the mount. The next connection is answered by
/// it, or by this one if it could not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Upgrading {
    /// Its process id.
    pub pid: u32,
    /// Its version.
    pub version: String,
}

/// A module was exchanged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModuleUpgraded {
    /// The module.
    pub module: String,
    /// The version before.
    pub from: String,
    /// The version now.
    pub to: String,
    /// How long operations were held up, in nanoseconds.
    pub paused_ns: u64,
}

/// Crashes of the daemon that a mount has lived through.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restarts {
    /// How many.
    pub count: u64,
    /// How the last one ended the process.
    pub how: String,
    /// How long requests waited then, in nanoseconds.
    pub paused_ns: u64,
}

/// How an upgrade went.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Upgrade {
    /// The version of the program before.
    pub from: String,
    /// The version of the program that was to take over.
    pub to: String,
    /// How long requests were held up, in nanoseconds.
    pub paused_ns: u64,
    /// How many upgrades the mount has lived through, this one included.
    pub count: u64,
    /// Why the program before goes on, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}
