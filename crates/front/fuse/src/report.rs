//! Logging of failed requests, once, where the error leaves Braid.

use crate::convert;
use braid_contract::{Errno, Error, Operation, Result};
use std::any::Any;
use std::collections::HashSet;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Failures logged as warnings within one [`WINDOW`]; a tier that fails under
/// load would fill the log otherwise.
const WARNINGS_PER_WINDOW: u32 = 20;
const WINDOW: Duration = Duration::from_secs(10);

/// The current request, for messages.
#[derive(Clone, Copy)]
pub(crate) struct Op {
    pub(crate) operation: Operation,
    pub(crate) ino: u64,
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of inode {}", self.operation, self.ino)
    }
}

/// Logs failures, and limits how often.
#[derive(Default)]
pub(crate) struct Reporter {
    window: Mutex<Window>,
    /// Damage that was reported: it stays, and every call meets it.
    told: Mutex<HashSet<String>>,
}

/// Most reports of damage that are remembered.
const TOLD_MAX: usize = 4096;

#[derive(Default)]
struct Window {
    began: Option<Instant>,
    warned: u32,
    suppressed: u64,
}

impl Reporter {
    /// Runs `work`, which calls the file system for the request `op`. Errors
    /// are logged and become the number to answer; a panic becomes `EIO`, so
    /// that the request is answered and the thread continues.
    pub(crate) fn call<T>(
        &self,
        op: Op,
        work: impl FnOnce() -> Result<T>,
    ) -> std::result::Result<T, fuser::Errno> {
        match self.caught(op, work) {
            Some(Ok(value)) => Ok(value),
            Some(Err(error)) => {
                self.failed(op, &error);
                Err(convert::errno(error.errno()))
            }
            None => Err(fuser::Errno::EIO),
        }
    }

    /// Runs `work`; `None` if it panicked, which is logged.
    ///
    /// The file system guards state that a panic leaves half-changed, as for
    /// panics of its own threads.
    pub(crate) fn caught<T>(&self, op: Op, work: impl FnOnce() -> T) -> Option<T> {
        match catch_unwind(AssertUnwindSafe(work)) {
            Ok(value) => Some(value),
            Err(payload) => {
                self.panicked(op, payload.as_ref());
                None
            }
        }
    }

    /// Logs an error that is answered to an application.
    pub(crate) fn failed(&self, op: Op, error: &Error) {
        if !matches!(error.errno(), Errno::EIO | Errno::EUCLEAN) {
            tracing::debug!("{op}: {error}");
            return;
        }
        if error.errno() == Errno::EUCLEAN && !self.is_news(error.to_string()) {
            tracing::debug!("{op}: {error}");
            return;
        }
        match self.window.lock().unwrap_or_else(std::sync::PoisonError::into_inner).admit(Instant::now()) {
            Some(0) => tracing::warn!("{op}: {error}"),
            Some(suppressed) => tracing::warn!("{op}: {error} ({suppressed} such failures were not logged)"),
            None => {}
        }
    }

    /// Whether this was not reported before.
    fn is_news(&self, text: String) -> bool {
        let mut told = self.told.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if told.len() >= TOLD_MAX && !told.contains(&text) {
            told.clear();
        }
        told.insert(text)
    }

    /// Logs a panic, which is answered as `EIO`.
    pub(crate) fn panicked(&self, op: Op, payload: &(dyn Any + Send)) {
        let text = payload
            .downcast_ref::<&str>()
            .copied()
            .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
            .unwrap_or("no message");
        tracing::error!("{op} panicked, answered EIO: {text}");
    }
}

impl Window {
    /// Whether to log a failure at `now`; with the count of those not logged
    /// since the last one.
    fn admit(&mut self, now: Instant) -> Option<u64> {
        if self.began.is_none_or(|began| now.duration_since(began) >= WINDOW) {
            self.began = Some(now);
            self.warned = 0;
        }
        if self.warned == WARNINGS_PER_WINDOW {
            self.suppressed += 1;
            return None;
        }
        self.warned += 1;
        Some(std::mem::take(&mut self.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_is_told_once() {
        let reporter = Reporter::default();
        assert!(reporter.is_news("inode 1".into()) && reporter.is_news("inode 2".into()));
        assert!(!reporter.is_news("inode 1".into()));
        assert!((0..=TOLD_MAX).all(|inode| reporter.is_news(format!("index {inode}"))));
    }

    #[test]
    fn warnings_are_limited_and_the_rest_is_counted() {
        let mut window = Window::default();
        let start = Instant::now();
        for _ in 0..WARNINGS_PER_WINDOW {
            assert_eq!(window.admit(start), Some(0));
        }
        assert_eq!(window.admit(start), None);
        assert_eq!(window.admit(start + WINDOW / 2), None);
        assert_eq!(window.admit(start + WINDOW), Some(2));
        assert_eq!(window.admit(start + WINDOW), Some(0));
    }
}
