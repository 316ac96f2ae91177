//! Processes that make and write files.

use crate::sync::SystemTime;
use crate::threads::{Threads, process_of};
use braid_contract::Caller;
use serde::{Deserialize, Serialize};
use std::fs;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

/// A process, as it was at the time of its operation.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Who {
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// 0 if it is not known.
    pub(super) pid: u32,
    /// Empty if it is not known.
    pub(super) command: Arc<str>,
}

/// A process and the time of its operation, as in a line.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Deed {
    pub(super) who: Who,
    /// Since 1970.
    pub(super) at: Duration,
}

impl Deed {
    pub(super) fn line(&self, what: &str) -> String {
        let Who { uid, gid, pid, command } = &self.who;
        let (secs, nanos) = (self.at.as_secs(), self.at.subsec_nanos());
        format!("{what} time={secs}.{nanos:09} uid={uid} gid={gid} pid={pid} command={command}\n")
    }
}

/// Since 1970.
pub(super) fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Knows the processes of callers.
#[derive(Default)]
pub(super) struct People {
    /// The process and the command of a thread.
    threads: Threads<(u32, Arc<str>)>,
}

impl People {
    /// The process of the caller.
    pub(super) fn of(&self, caller: &Caller) -> Who {
        let found = || self.threads.of(caller.tid, |tid| process(tid).unwrap_or((tid, "".into())));
        let (pid, command) = if caller.tid == 0 { (0, "".into()) } else { found() };
        Who { uid: caller.uid, gid: caller.gid, pid, command }
    }
}

fn process(tid: u32) -> Option<(u32, Arc<str>)> {
    let pid = process_of(tid)?;
    let name = fs::read(format!("/proc/{pid}/comm")).ok()?;
    let name = String::from_utf8_lossy(name.strip_suffix(b"\n").unwrap_or(&name));
    Some((pid, name.replace(char::is_control, "?").into()))
}
