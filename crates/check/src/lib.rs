//! The check of a volume, mounted or not: every file against its index, every
//! index against the objects, and everything that no file refers to
//! (`docs/fsck.md`). [`check_unmounted`] looks at a volume that is not mounted,
//! [`check_mounted`] at the core of one that is; the volume calls them.
//!
//! `target` is the volume, `findings` has the problems and decides on repairs,
//! `dirs` checks the tiers' `.braid` directories and lists what is in them,
//! `files` goes through the namespace, `file` compares one file with
//! its index (`raw_index`) and objects, `whole` one without an index with its
//! object, `heal` puts right what the comparison found, `rebuild` makes lost
//! indexes anew, `orphans` judges what no file leads to.
//!
//! Without repair, nothing is opened for more than reading.
#![forbid(unsafe_code)]

mod dirs;
mod file;
mod files;
mod findings;
mod heal;
mod inference;
mod live;
mod orphans;
mod progress;
mod raw_index;
mod rebuild;
mod report;
mod target;
mod tree;
mod whole;

pub use progress::CheckProgress;
pub use report::{CheckOptions, CheckReport, Problem, Severity};
pub use target::{Mounted, Unmounted};

use braid_contract::{ObjectId, Result, TierId};
use braid_home::OpenError;
use dirs::counts::check_counts;
use dirs::listings::{Listings, check_dirs};
use dirs::marks::{check_intents, check_marks};
use files::Doubt;
use findings::{Findings, ProblemRef, When};
use progress::ProgressReporter;
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use target::CheckTarget;
use target::labels::read_target;

/// Checks a volume that is not mounted. With `repair`, what can be put right
/// without losing data is, but for what a mount recovers; without, nothing is
/// changed. Ends early, with `EINTR`, when `progress` answers `false`.
///
/// # Errors
/// An [`OpenError`] if what was given is not a volume.
pub fn check_unmounted(
    volume: &Unmounted<'_>,
    options: &CheckOptions,
    progress: &mut dyn FnMut(&CheckProgress) -> bool,
) -> std::result::Result<CheckReport, OpenError> {
    let mut progress = ProgressReporter::new(Arc::clone(&volume.environment), progress);
    progress.phase("tiers", None)?;
    let mut findings = Findings::new(options.repair, false);
    let (target, recreated_table) = read_target(volume, options, &mut findings)?;
    let mut check = Check::new(target, options, findings, progress);
    check.run()?;
    if let Some(table) = recreated_table {
        let obstacle = match (options.paths.is_empty(), check.names_unknown_tier) {
            (false, _) => Some("only some of the files were looked at"),
            (true, true) => Some("indexes name a tier that was not given"),
            (true, false) => None,
        };
        table.finish(&check.target.braid, &mut check.findings, obstacle);
    }
    Ok(check.into_report())
}

/// Checks a volume while it is used. What can't be repaired beside users is
/// left, and says so. Ends early, with `EINTR`, when `progress` answers `false`.
///
/// # Errors
/// Those of the tiers.
pub fn check_mounted(
    volume: &Mounted<'_>,
    options: &CheckOptions,
    progress: &mut dyn FnMut(&CheckProgress) -> bool,
) -> Result<CheckReport> {
    let mut progress = ProgressReporter::new(Arc::clone(&volume.core.environment), progress);
    progress.phase("tiers", None)?;
    let findings = Findings::new(options.repair, true);
    let mut check = Check::new(CheckTarget::of_mounted(volume, options)?, options, findings, progress);
    check.run()?;
    Ok(check.into_report())
}

/// One check under way.
struct Check<'a> {
    target: CheckTarget<'a>,
    options: &'a CheckOptions,
    findings: Findings,
    progress: ProgressReporter<'a>,
    report: CheckReport,
    listings: Listings,
    /// Ids with a mark.
    marked: HashSet<ObjectId>,
    /// Files that the namespace leads to, by id, with one of their paths and
    /// their inode number.
    live: HashMap<ObjectId, (PathBuf, u64)>,
    /// Files whose attribute can't be believed.
    doubts: Vec<Doubt>,
    /// Ids whose data is not to be removed although no file leads to it.
    spared: HashSet<ObjectId>,
    /// Part of the namespace could not be looked at.
    incomplete: bool,
    /// An index named a tier number that the volume does not have.
    names_unknown_tier: bool,
    /// Ranges on each tier number, by all indexes.
    counted: [u64; TierId::LIMIT as usize],
    /// The file being looked at is in use.
    in_use: bool,
}

impl<'a> Check<'a> {
    fn new(
        target: CheckTarget<'a>,
        options: &'a CheckOptions,
        findings: Findings,
        progress: ProgressReporter<'a>,
    ) -> Self {
        Self {
            listings: Listings::none(&target),
            target,
            options,
            findings,
            progress,
            report: CheckReport::default(),
            marked: HashSet::new(),
            live: HashMap::new(),
            doubts: Vec::new(),
            spared: HashSet::new(),
            incomplete: false,
            names_unknown_tier: false,
            counted: [0; TierId::LIMIT as usize],
            in_use: false,
        }
    }

    fn run(&mut self) -> Result<()> {
        let is_partial = !self.options.paths.is_empty();
        self.marked = check_marks(&self.target, is_partial, &mut self.findings)?;
        if !is_partial {
            check_intents(&self.target, &mut self.findings)?;
            self.listings = check_dirs(&self.target, &mut self.findings, &mut self.progress)?;
            self.spared.clone_from(&self.listings.irregular);
            self.report.objects = self.listings.object_count();
        }
        self.files()?;
        if !is_partial {
            self.orphan_indexes()?;
            self.orphan_objects()?;
            check_counts(&self.target, &self.counted, &mut self.findings)?;
        }
        Ok(())
    }

    fn into_report(self) -> CheckReport {
        CheckReport { problems: self.findings.into_problems(self.options.verbose), ..self.report }
    }

    fn is_mounted(&self) -> bool {
        self.target.is_mounted()
    }

    /// Reports a problem.
    fn found(&mut self, problem: Problem) -> ProblemRef {
        self.findings.found(problem)
    }

    /// Reports a problem, and repairs it by `act` if that was asked for and may
    /// be done now.
    fn mend(
        &mut self,
        problem: Problem,
        when: When,
        act: impl FnOnce(&mut Self) -> Result<()>,
    ) -> ProblemRef {
        if !self.findings.may_repair(when) {
            return self.findings.mend(problem, when, || Ok(()));
        }
        let done = act(self);
        self.findings.mend(problem, when, || done)
    }

    /// When the file that is looked at may be repaired.
    fn when_unused(&self) -> When {
        if self.in_use { When::Closed } else { When::Now }
    }
}
