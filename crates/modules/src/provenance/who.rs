//! Processes that make and write files.

use crate::sync::{Instant, Mutex, SystemTime};
use braid_contract::Caller;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fs;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

/// How long a thread is taken for what it was: an id may come to another process.
const KNOWN: Duration = Duration::from_secs(1);
/// Threads that are kept in mind at most.
const THREADS_MAX: usize = 4096;

/// A process, as it was when it did something.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Who {
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// 0 if it is not known.
    pub(super) pid: u32,
    /// Empty if it is not known.
    pub(super) command: Arc<str>,
}

/// A process and when it did something, as a line says it.
#[derive(Clone, PartialEq, Eq, Debug)]
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
    /// The process and the command of a thread, and when that was found out.
    threads: Mutex<HashMap<u32, (Instant, u32, Arc<str>)>>,
}

impl People {
    /// Who the caller is. Asks `/proc`, once a second for each thread at most.
    pub(super) fn of(&self, caller: &Caller) -> Who {
        let (pid, command) = if caller.tid == 0 { (0, "".into()) } else { self.process(caller.tid) };
        Who { uid: caller.uid, gid: caller.gid, pid, command }
    }

    fn process(&self, tid: u32) -> (u32, Arc<str>) {
        let now = Instant::now();
        let is_fresh = |at: &Instant| now.duration_since(*at) < KNOWN;
        if let Some((at, pid, command)) = self.threads.lock().get(&tid)
            && is_fresh(at)
        {
            return (*pid, Arc::clone(command));
        }
        let (pid, command) = found_out(tid).unwrap_or((tid, "".into()));
        let mut threads = self.threads.lock();
        if threads.len() >= THREADS_MAX {
            threads.retain(|_, (at, ..)| is_fresh(at));
        }
        if threads.len() < THREADS_MAX {
            threads.insert(tid, (now, pid, Arc::clone(&command)));
        }
        (pid, command)
    }
}

fn found_out(tid: u32) -> Option<(u32, Arc<str>)> {
    let status = fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
    let pid = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()?;
    let name = fs::read(format!("/proc/{pid}/comm")).ok()?;
    let name = String::from_utf8_lossy(name.strip_suffix(b"\n").unwrap_or(&name));
    Some((pid, name.replace(char::is_control, "?").into()))
}
