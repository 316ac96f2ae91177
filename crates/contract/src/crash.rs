//! What file systems and modules learn when another process goes on with a mount after a crash.

use crate::file_system::OpenFlags;
use crate::id::{HandleId, InodeId};
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

/// A file or directory that was open when a process crashed, in the process that goes on.
#[derive(Clone, Copy, Debug)]
pub struct OpenBefore {
    /// Its handle, which it keeps.
    pub handle: HandleId,
    /// The inode.
    pub ino: InodeId,
    /// How a file was opened; `None` for a directory.
    pub flags: Option<OpenFlags>,
    /// The kernel does the I/O of the file by itself.
    pub passthrough: bool,
    /// User, group and thread of the opener.
    pub opener: [u32; 3],
}

/// The handle of the next file that a process opens after so many crashes, with these open: of a
/// request that an earlier process may have carried out, the handle must not be another file's
/// meanwhile.
#[must_use]
pub fn next_handle(open: &[OpenBefore], crashes: u64) -> u64 {
    let next = open.iter().map(|open| open.handle.0 + 1).max().unwrap_or(1);
    // No process opens so many files.
    next.max(crashes << 44)
}
