//! The findings of a trial, counted and printed as they occur.

use braid_tests_support::counts::Counts;
use braid_tests_support::error::{Failure, Result};
use braid_tests_support::sh::uninterrupted;
use std::time::Instant;

/// How a trial ended.
pub enum Verdict {
    /// All checks passed.
    Passed,
    /// A check failed, or the trial could not be carried out.
    Failed(String),
    /// It can't be carried out here.
    Skipped(String),
}

/// Collects the findings of a trial.
#[derive(Default)]
pub(crate) struct Report {
    counts: Counts,
    failures: Vec<String>,
    /// The last reason why something was not checked.
    skipped: String,
    has_printed: bool,
}

impl Report {
    /// Carries out one check. A failure is counted and printed, and does not
    /// end the trial; an interrupt does.
    pub(crate) fn case(&mut self, name: &str, test: impl FnOnce() -> Result<()>) -> Result<()> {
        let begun = Instant::now();
        let result = test();
        self.judge(name, begun, result)
    }

    /// Counts a check with its start and its result.
    pub(crate) fn judge(&mut self, name: &str, begun: Instant, result: Result<()>) -> Result<()> {
        uninterrupted()?;
        match result {
            Ok(()) => {
                self.print(&format!("ok      {name} ({:.1} s)", begun.elapsed().as_secs_f64()));
                self.counts.passed += 1;
            }
            Err(Failure(reason)) => self.fail(name, &reason),
        }
        Ok(())
    }

    /// Carries out the only check of the trial.
    pub(crate) fn only_case(&mut self, test: impl FnOnce() -> Result<()>) -> Result<()> {
        test()?;
        self.counts.passed += 1;
        Ok(())
    }

    /// Counts a failed check.
    pub(crate) fn fail(&mut self, name: &str, reason: &str) {
        self.print(&format!("FAILED  {name}: {reason}"));
        self.failures.push(format!("{name}: {reason}"));
        self.counts.failed += 1;
    }

    /// Counts an error that ended the trial early.
    pub(crate) fn broke_off(&mut self, reason: &str) {
        self.print(&format!("FAILED  {reason}"));
        self.failures.push(reason.to_owned());
        self.counts.failed += 1;
    }

    /// Counts a check that can't be made here.
    pub(crate) fn skip(&mut self, name: &str, reason: &str) {
        self.print(&format!("skipped {name}: {reason}"));
        reason.clone_into(&mut self.skipped);
        self.counts.skipped += 1;
    }

    /// Counts the trial as one that can't be carried out here.
    pub(crate) fn skip_all(&mut self, reason: &str) {
        reason.clone_into(&mut self.skipped);
        self.counts.skipped += 1;
    }

    /// Adds the findings of a program with counts of its own.
    pub(crate) fn add(&mut self, counts: Counts) {
        self.counts += counts;
    }

    /// Prints a line. The first one follows the output of the harness.
    pub(crate) fn print(&mut self, line: &str) {
        let gap = if std::mem::replace(&mut self.has_printed, true) { "" } else { "\n" };
        println!("{gap}{line}");
    }

    /// The findings so far.
    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    /// How the trial has ended.
    pub(crate) fn verdict(mut self) -> (Verdict, Counts) {
        if self.counts == Counts::default() {
            self.broke_off("nothing was checked");
        }
        let verdict = match self.counts {
            Counts { failed: 1.., .. } => Verdict::Failed(self.failures.join("\n")),
            Counts { passed: 0, .. } => Verdict::Skipped(self.skipped),
            _ => Verdict::Passed,
        };
        (verdict, self.counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_tests_support::error::fail;

    #[test]
    fn a_failed_case_is_counted_and_does_not_end_the_trial() {
        let mut report = Report::default();
        report.case("good", || Ok(())).unwrap();
        report.case("bad", || fail("reason")).unwrap();
        report.skip("none", "reason");
        let (verdict, counts) = report.verdict();
        assert_eq!(counts, Counts { passed: 1, failed: 1, skipped: 1 });
        assert!(matches!(verdict, Verdict::Failed(text) if text == "bad: reason"));
    }
}
