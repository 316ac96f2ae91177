//! The load of a queue, for the policy and for people.

use braid_contract::Class;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The load of a queue so far.
#[derive(Debug)]
pub(crate) struct Load {
    /// The application's queue: the session's number, and the queue's.
    pub(crate) of: (u64, usize),
    pub(crate) class: Class,
    requests: AtomicU64,
    busy_ns: AtomicU64,
}

/// Counts since the session began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) requests: u64,
    pub(crate) busy_ns: u64,
}

impl Counts {
    /// The counts since `before`.
    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            requests: self.requests.wrapping_sub(before.requests),
            busy_ns: self.busy_ns.wrapping_sub(before.busy_ns),
        }
    }
}

impl Load {
    pub(crate) fn new(of: (u64, usize), class: Class) -> Self {
        Self { of, class, requests: AtomicU64::new(0), busy_ns: AtomicU64::new(0) }
    }

    /// A request was carried out in this time.
    pub(crate) fn served(&self, time: Duration) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.busy_ns.fetch_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    pub(crate) fn counts(&self) -> Counts {
        Counts {
            requests: self.requests.load(Ordering::Relaxed),
            busy_ns: self.busy_ns.load(Ordering::Relaxed),
        }
    }
}
