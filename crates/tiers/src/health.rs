//! How a tier is doing: what it last failed with, since when, and when to ask
//! it again.

use braid_contract::{Environment, Errno, Error};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// How often a tier in trouble is asked whether it is back.
const PROBE_EVERY_NS: u64 = 1_000_000_000;

/// What keeps a tier from being relied on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Trouble {
    None,
    /// It refuses writes; what is on it can be read.
    ReadOnly,
    /// It answers errors, or is gone.
    Failing,
}

/// What is remembered of a tier's trouble.
#[derive(Debug)]
pub struct Health {
    trouble: AtomicU8,
    /// The error that began it, and when that was.
    began: Mutex<Option<(String, u64)>>,
    probe_at_ns: AtomicU64,
    environment: Arc<dyn Environment>,
}

impl Health {
    pub fn new(environment: Arc<dyn Environment>) -> Self {
        Self {
            trouble: AtomicU8::new(Trouble::None as u8),
            began: Mutex::new(None),
            probe_at_ns: AtomicU64::new(0),
            environment,
        }
    }

    pub(crate) fn trouble(&self) -> Trouble {
        match self.trouble.load(Ordering::Acquire) {
            1 => Trouble::ReadOnly,
            2 => Trouble::Failing,
            _ => Trouble::None,
        }
    }

    /// The tier answered an error that says it is in trouble; answers whether
    /// that is news.
    pub(super) fn fail(&self, error: &Error) -> bool {
        let trouble = if error.errno() == Errno::EROFS { Trouble::ReadOnly } else { Trouble::Failing };
        if self.trouble.swap(trouble as u8, Ordering::AcqRel) == trouble as u8 {
            return false;
        }
        let now_ns = self.environment.monotonic_ns();
        *self.began.lock() = Some((error.to_string(), now_ns));
        self.probe_at_ns.store(now_ns + PROBE_EVERY_NS, Ordering::Release);
        true
    }

    /// The tier can be relied on again.
    pub(super) fn recover(&self) {
        self.trouble.store(Trouble::None as u8, Ordering::Release);
        *self.began.lock() = None;
    }

    /// Whether it is time to ask the tier again; if so, the next time is later.
    pub(super) fn probe_is_due(&self) -> bool {
        if self.trouble() == Trouble::None {
            return false;
        }
        let now_ns = self.environment.monotonic_ns();
        let at_ns = self.probe_at_ns.load(Ordering::Acquire);
        now_ns >= at_ns
            && self
                .probe_at_ns
                .compare_exchange(at_ns, now_ns + PROBE_EVERY_NS, Ordering::AcqRel, Ordering::Acquire)
                .is_ok()
    }

    /// The error that the trouble began with, and for how many nanoseconds it
    /// has lasted.
    pub fn detail(&self) -> Option<(String, u64)> {
        let now_ns = self.environment.monotonic_ns();
        self.began.lock().clone().map(|(error, since_ns)| (error, now_ns.saturating_sub(since_ns)))
    }
}
