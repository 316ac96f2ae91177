//! The progress of a check, passed on to the caller.

use braid_contract::{Environment, Errno, Error, Result};
use std::sync::Arc;

/// The progress of a check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CheckProgress {
    /// The current phase: `tiers`, `objects`, `files`, `indexes`, `orphans`.
    pub phase: &'static str,
    /// Items of the phase that are done.
    pub done: u64,
    /// All items of the phase, where their number is known.
    pub total: Option<u64>,
}

/// Least time between two reports on one phase.
const PACE_NS: u64 = 100_000_000;

/// Passes progress on, but not too often.
pub(crate) struct ProgressReporter<'a> {
    environment: Arc<dyn Environment>,
    tell: &'a mut dyn FnMut(&CheckProgress) -> bool,
    now: CheckProgress,
    told_ns: u64,
}

impl<'a> ProgressReporter<'a> {
    pub(crate) fn new(
        environment: Arc<dyn Environment>,
        tell: &'a mut dyn FnMut(&CheckProgress) -> bool,
    ) -> Self {
        let now = CheckProgress { phase: "", done: 0, total: None };
        Self { environment, tell, now, told_ns: 0 }
    }

    /// Begins the next phase.
    pub(crate) fn phase(&mut self, phase: &'static str, total: Option<u64>) -> Result<()> {
        self.now = CheckProgress { phase, done: 0, total };
        self.told_ns = self.environment.monotonic_ns();
        self.tell()
    }

    /// Counts one more of the phase as done.
    pub(crate) fn step(&mut self) -> Result<()> {
        self.now.done += 1;
        let now_ns = self.environment.monotonic_ns();
        if now_ns.saturating_sub(self.told_ns) < PACE_NS {
            return Ok(());
        }
        self.told_ns = now_ns;
        self.tell()
    }

    fn tell(&mut self) -> Result<()> {
        if (self.tell)(&self.now) { Ok(()) } else { Err(Error::new(Errno::EINTR, "the check was ended")) }
    }
}
