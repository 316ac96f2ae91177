//! The problems that a check found so far, and which of them it may repair.

use super::report::{Problem, Severity};
use braid_contract::Result;
use std::path::Path;

/// Earliest time at which a repair may be carried out.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    /// Beside users too.
    Now,
    /// When the file, which is in use, has been closed.
    Closed,
    /// When the volume is not mounted.
    Unmounted,
}

/// A problem in the report.
#[derive(Clone, Copy)]
pub(crate) struct ProblemRef(usize);

/// The problems found so far.
pub(crate) struct Findings {
    problems: Vec<Problem>,
    /// Repairs were asked for.
    repair: bool,
    is_mounted: bool,
}

impl Findings {
    pub(crate) fn new(repair: bool, is_mounted: bool) -> Self {
        Self { problems: Vec::new(), repair, is_mounted }
    }

    /// Reports a problem.
    pub(crate) fn found(&mut self, problem: Problem) -> ProblemRef {
        self.problems.push(problem);
        ProblemRef(self.problems.len() - 1)
    }

    /// Reports a problem, and repairs it by `act` if that was asked for and may
    /// be done now.
    pub(crate) fn mend(
        &mut self,
        problem: Problem,
        when: When,
        act: impl FnOnce() -> Result<()>,
    ) -> ProblemRef {
        let problem = self.attempt(problem, when, act);
        self.found(problem)
    }

    /// As [`Self::mend`], but leaves it to the caller to report the problem.
    pub(crate) fn attempt(
        &self,
        mut problem: Problem,
        when: When,
        act: impl FnOnce() -> Result<()>,
    ) -> Problem {
        if let Some(why) = self.refusal(when) {
            problem.repair = format!("{}; {why}", problem.repair);
        } else if self.repair {
            match act() {
                Ok(()) => problem.repaired = true,
                Err(error) => problem.repair = format!("{}; that failed: {error}", problem.repair),
            }
        }
        problem
    }

    /// Whether a repair would be carried out now.
    pub(crate) fn may_repair(&self, when: When) -> bool {
        self.repair && self.refusal(when).is_none()
    }

    /// Why a repair can't be carried out now.
    fn refusal(&self, when: When) -> Option<&'static str> {
        match when {
            When::Now => None,
            When::Closed => Some("the file is in use: close it, or unmount first"),
            When::Unmounted if !self.is_mounted => None,
            When::Unmounted => Some("unmount first"),
        }
    }

    pub(crate) fn get_mut(&mut self, at: ProblemRef) -> &mut Problem {
        &mut self.problems[at.0]
    }

    pub(crate) fn is_repaired(&self, at: ProblemRef) -> bool {
        self.problems[at.0].repaired
    }

    /// Whether damage was found, repaired or not.
    pub(crate) fn has_damage(&self) -> bool {
        self.problems.iter().any(|problem| problem.severity == Severity::Damage)
    }

    /// Marks the problems of a file with this code as repaired by the repair of
    /// another one.
    pub(crate) fn settle(&mut self, code: &str, path: &Path) {
        let settled = |problem: &&mut Problem| problem.code == code && problem.path.as_deref() == Some(path);
        self.problems.iter_mut().filter(settled).for_each(|problem| problem.repaired = true);
    }

    /// The problems to report: legal states only if `verbose`, or if they were
    /// repaired.
    pub(crate) fn into_problems(mut self, verbose: bool) -> Vec<Problem> {
        self.problems.retain(|problem| verbose || !problem.is_legal || problem.repaired);
        self.problems
    }
}
