//! Whose request it is.

use crate::sync::{Instant, Mutex};
use braid_contract::Caller;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fs;
use std::sync::Arc;
use std::time::Duration;

/// What makes two requests those of one client.
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

/// How long a thread is taken for what it was: an id may come to another process.
const KNOWN: Duration = Duration::from_secs(1);
/// Threads that are kept in mind at most.
const THREADS_MAX: usize = 4096;

/// Tells clients apart.
pub(super) struct Clients {
    by: By,
    /// The client of a thread, and when that was found out.
    threads: Mutex<HashMap<u32, (Instant, Client)>>,
}

impl Clients {
    pub(super) fn new(by: By) -> Self {
        Self { by, threads: Mutex::default() }
    }

    /// Whose a request of this caller is.
    pub(super) fn of(&self, caller: &Caller) -> Client {
        match self.by {
            By::Uid => Client::Number(caller.uid),
            By::Gid => Client::Number(caller.gid),
            By::Cgroup => self.of_thread(caller.tid, cgroup),
            By::Process => self.of_thread(caller.tid, process),
        }
    }

    fn of_thread(&self, tid: u32, find_out: fn(u32) -> Option<Client>) -> Client {
        if tid == 0 {
            return Client::Unknown;
        }
        let now = Instant::now();
        let known = self.threads.lock().get(&tid).filter(|(at, _)| now.duration_since(*at) < KNOWN).cloned();
        if let Some((_, client)) = known {
            return client;
        }
        let client = find_out(tid).unwrap_or(Client::Unknown);
        let mut threads = self.threads.lock();
        if threads.len() >= THREADS_MAX {
            threads.retain(|_, (at, _)| now.duration_since(*at) < KNOWN);
        }
        threads.insert(tid, (now, client.clone()));
        client
    }
}

fn process(tid: u32) -> Option<Client> {
    let status = fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
    let id = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
    id.trim().parse().ok().map(Client::Number)
}

fn cgroup(tid: u32) -> Option<Client> {
    let groups = fs::read_to_string(format!("/proc/{tid}/cgroup")).ok()?;
    let path = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    Some(Client::Cgroup(path.into()))
}
