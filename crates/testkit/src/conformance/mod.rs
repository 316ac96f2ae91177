//! The promises of every implementation of a trait: one suite for
//! [`Store`](braid_contract::Store), one for
//! [`FileSystem`](braid_contract::FileSystem), one for
//! [`KeyValue`](braid_contract::KeyValue).
//!
//! A suite is a list of named cases, each of them for a subject of its own. The
//! capabilities that the subject declares select the cases: supported
//! operations are tried, and unsupported ones must be refused. A case fails by
//! panicking.

pub mod file_system;
pub mod key_value;
pub mod store;

use std::any::Any;
use std::fmt;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The outcome of a suite.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// The suite.
    pub suite: &'static str,
    /// The implementation that it ran on.
    pub implementation: String,
    /// The cases that passed.
    pub passed: Vec<&'static str>,
    /// The cases that are not for this implementation.
    pub not_applicable: Vec<&'static str>,
    /// The cases that failed, each with the reason.
    pub failed: Vec<(&'static str, String)>,
}

impl Report {
    fn new(suite: &'static str, implementation: &str) -> Self {
        let implementation = implementation.to_owned();
        Self { suite, implementation, passed: Vec::new(), not_applicable: Vec::new(), failed: Vec::new() }
    }

    /// Runs one case; `None` if it is not applicable.
    fn run(&mut self, name: &'static str, case: impl FnOnce() -> Option<()>) {
        match catch_unwind(AssertUnwindSafe(case)) {
            Ok(Some(())) => self.passed.push(name),
            Ok(None) => self.not_applicable.push(name),
            Err(panic) => self.failed.push((name, reason(&*panic))),
        }
    }

    /// Prints the line for this implementation, past the test harness, and fails
    /// if a case failed.
    ///
    /// # Panics
    /// With the cases that failed.
    pub fn conclude(&self) {
        // The macros' output is kept back of a test that passes.
        let _ = std::io::stdout().write_all(format!("\nCONFORMANCE: {self}\n").as_bytes());
        let failures: Vec<String> =
            self.failed.iter().map(|(case, reason)| format!("{case}: {reason}")).collect();
        assert!(failures.is_empty(), "{}:\n{}", self.implementation, failures.join("\n"));
    }

    /// Whether the case of this name failed.
    #[must_use]
    pub fn has_failed(&self, case: &str) -> bool {
        self.failed.iter().any(|(name, _)| *name == case)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (passed, failed) = (self.passed.len(), self.failed.len());
        write!(f, "{}: {}: {} cases", self.suite, self.implementation, passed + failed)?;
        if failed > 0 {
            write!(f, ", {failed} failed")?;
        }
        if !self.not_applicable.is_empty() {
            write!(f, ", {} not applicable", self.not_applicable.len())?;
        }
        Ok(())
    }
}

fn reason(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it panicked").to_owned()
}

/// `len` bytes that differ from place to place, and between seeds.
#[must_use]
pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut random = braid_contract::SplitMix::new(seed);
    (0..len.div_ceil(8)).flat_map(|_| random.next_u64().to_le_bytes()).take(len).collect()
}
