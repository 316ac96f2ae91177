//! What a suite found, counted and printed as it comes.

use crate::error::{Failure, Result};
use crate::sh::uninterrupted;
use std::fmt;
use std::ops::AddAssign;
use std::time::Instant;

/// How many tests ended how.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub(crate) struct Counts {
    /// As they should.
    pub(crate) passed: u64,
    /// Otherwise.
    pub(crate) failed: u64,
    /// Not run.
    pub(crate) skipped: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)?;
        if self.skipped > 0 { write!(f, ", {} skipped", self.skipped) } else { Ok(()) }
    }
}

/// Collects what a suite finds.
pub(crate) struct Report {
    counts: Counts,
    begun: Instant,
}

impl Report {
    /// Nothing found yet.
    pub(crate) fn new() -> Self {
        Self { counts: Counts::default(), begun: Instant::now() }
    }

    /// Carries out one test. A failure is counted and printed, and does not
    /// end the suite; an interrupt does.
    pub(crate) fn case(&mut self, name: &str, test: impl FnOnce() -> Result<()>) -> Result<()> {
        let begun = Instant::now();
        let result = test();
        self.judge(name, begun, result)
    }

    /// Counts a test that began then and has ended so.
    pub(crate) fn judge(&mut self, name: &str, begun: Instant, result: Result<()>) -> Result<()> {
        uninterrupted()?;
        match result {
            Ok(()) => {
                println!("ok      {name} ({:.1} s)", begun.elapsed().as_secs_f64());
                self.counts.passed += 1;
            }
            Err(Failure(reason)) => self.fail(name, &reason),
        }
        Ok(())
    }

    /// Counts a failed test.
    pub(crate) fn fail(&mut self, name: &str, reason: &str) {
        println!("FAILED  {name}: {reason}");
        self.counts.failed += 1;
    }

    /// Counts a test that can't be run here.
    pub(crate) fn skip(&mut self, name: &str, reason: &str) {
        println!("skipped {name}: {reason}");
        self.counts.skipped += 1;
    }

    /// Adds what a suite with counts of its own has found.
    pub(crate) fn add(&mut self, counts: Counts) {
        self.counts += counts;
    }

    /// What was found so far.
    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    /// Time since the suite began.
    pub(crate) fn seconds(&self) -> f64 {
        self.begun.elapsed().as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::fail;

    #[test]
    fn a_failed_case_is_counted_and_does_not_end_the_suite() {
        let mut report = Report::new();
        report.case("good", || Ok(())).unwrap();
        report.case("bad", || fail("reason")).unwrap();
        report.skip("none", "reason");
        assert_eq!(report.counts(), Counts { passed: 1, failed: 1, skipped: 1 });
        assert_eq!(report.counts().to_string(), "1 passed, 1 failed, 1 skipped");
    }
}
