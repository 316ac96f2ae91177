//! Facts about threads from `/proc`, asked for at most once a second for each: an id may come to
//! another process.

use crate::sync::{Instant, Mutex};
use std::collections::HashMap;
use std::fs;
use std::time::Duration;

/// How long the facts about a thread are trusted.
const KNOWN: Duration = Duration::from_secs(1);
/// Threads that are kept in mind at most.
const THREADS_MAX: usize = 4096;

/// The facts about each thread, and the time when they were found.
pub(crate) struct Threads<T> {
    known: Mutex<HashMap<u32, (Instant, T)>>,
}

impl<T> Default for Threads<T> {
    fn default() -> Self {
        Self { known: Mutex::default() }
    }
}

impl<T: Clone> Threads<T> {
    /// The facts about a thread, known or found out now.
    pub(crate) fn of(&self, tid: u32, find_out: impl FnOnce(u32) -> T) -> T {
        let now = Instant::now();
        let is_fresh = |at: &Instant| now.duration_since(*at) < KNOWN;
        let known = self.known.lock().get(&tid).filter(|(at, _)| is_fresh(at)).cloned();
        if let Some((_, known)) = known {
            return known;
        }
        let found = find_out(tid);
        let mut known = self.known.lock();
        if known.len() >= THREADS_MAX {
            known.retain(|_, (at, _)| is_fresh(at));
        }
        if known.len() < THREADS_MAX {
            known.insert(tid, (now, found.clone()));
        }
        found
    }
}

/// The process of a thread.
pub(crate) fn process_of(tid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()
}
