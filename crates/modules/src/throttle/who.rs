//! The client of a request.

use crate::threads::{Threads, process_of};
use braid_contract::Caller;
use serde::{Deserialize, Serialize};
use std::fs;
use std::sync::Arc;

/// The property by which two requests are of one client.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum By {
    Uid,
    Gid,
    Cgroup,
    Process,
}

/// A client.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub(super) enum Client {
    /// A user, a group or a process.
    Number(u32),
    Cgroup(Arc<str>),
    /// The kernel itself, and processes that are not visible from here.
    Unknown,
}

impl Client {
    /// Its name in the settings.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Cgroup(path) => path.to_string(),
            Self::Unknown => String::new(),
        }
    }
}

/// Tells clients apart.
pub(super) struct Clients {
    by: By,
    /// The client of a thread.
    threads: Threads<Client>,
}

impl Clients {
    pub(super) fn new(by: By) -> Self {
        Self { by, threads: Threads::default() }
    }

    /// The client of a request of this caller.
    pub(super) fn of(&self, caller: &Caller) -> Client {
        match self.by {
            By::Uid => Client::Number(caller.uid),
            By::Gid => Client::Number(caller.gid),
            By::Cgroup => self.of_thread(caller.tid, cgroup),
            By::Process => self.of_thread(caller.tid, |tid| process_of(tid).map(Client::Number)),
        }
    }

    fn of_thread(&self, tid: u32, find_out: fn(u32) -> Option<Client>) -> Client {
        if tid == 0 {
            return Client::Unknown;
        }
        self.threads.of(tid, |tid| find_out(tid).unwrap_or(Client::Unknown))
    }
}

fn cgroup(tid: u32) -> Option<Client> {
    let groups = fs::read_to_string(format!("/proc/{tid}/cgroup")).ok()?;
    let path = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    Some(Client::Cgroup(path.into()))
}
