//! The shared part of a session's queues: its memory, and the socket that shows whether there is
//! still a runtime.

use crate::layout::{DOORBELL, Geometry};
use crate::polling::Polling;
use braid_sys::{FutexScope, SharedWords, futex_wake};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The shared part of a session's queues.
pub(super) struct Link {
    pub(super) memory: SharedWords,
    pub(super) geometry: Geometry,
    /// Requests name their callers.
    pub(super) for_others: bool,
    /// How long a thread polls for an answer before it sleeps.
    pub(super) poll: Duration,
    pub(super) polling: Polling,
    pub(super) socket: UnixStream,
    /// The runtime closes files that the next process does not know.
    pub(super) keeps: bool,
}

impl Link {
    /// The word that wakes sleeping workers.
    fn doorbell(&self) -> &AtomicU64 {
        &self.memory.words()[DOORBELL]
    }

    /// Wakes sleeping workers.
    pub(super) fn ring(&self) {
        self.doorbell().fetch_add(1, Ordering::AcqRel);
        futex_wake(self.doorbell(), u32::MAX, FutexScope::Shared);
    }

    /// Whether the runtime has gone.
    pub(super) fn is_over(&self) -> bool {
        let mut waited = [PollFd::new(&self.socket, PollFlags::RDHUP)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut waited, Some(&now)).is_ok_and(|ready| ready > 0)
    }
}
