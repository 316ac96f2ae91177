//! The health of a tier: its last error, since when, and when to probe it
//! again.

use braid_contract::{Environment, Errno, Error};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// Time between two probes of a tier in trouble.
const PROBE_EVERY_NS: u64 = 1_000_000_000;

/// The reason why a tier can't be relied on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Trouble {
    None,
    /// It refuses writes; its data can be read.
    ReadOnly,
    /// It answers errors, or is gone.
    Failing,
}

/// The state of a tier's trouble.
#[derive(Debug)]
pub struct Health {
    trouble: AtomicU8,
    /// The first error, and its time.
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

    /// Notes an error that means trouble; answers whether that is news.
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

    /// Notes that the tier can be relied on again.
    pub(super) fn recover(&self) {
        self.trouble.store(Trouble::None as u8, Ordering::Release);
        *self.began.lock() = None;
    }

    /// Whether a probe is due; if so, postpones the next one.
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

    /// The error that the trouble began with, and its duration in nanoseconds.
    pub fn detail(&self) -> Option<(String, u64)> {
        let now_ns = self.environment.monotonic_ns();
        self.began.lock().clone().map(|(error, since_ns)| (error, now_ns.saturating_sub(since_ns)))
    }
}
