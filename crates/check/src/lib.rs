//! The check of a volume, mounted or not: every file against its index, every
//! index against the objects, and everything that no file refers to
//! (`docs/fsck.md`). [`check_unmounted`] looks at a volume that is not mounted,
//! [`check_mounted`] at the core of one that is; the volume calls them.
//!
//! `ground` learns which volume it is, `shelves` what its directories hold,
//! `files` goes through the namespace, `file` compares one file with
//! its index (`raw_index`) and objects, `whole` one without an index with its
//! object, `heal` puts right what the comparison found, `rebuild` makes lost
//! indexes anew, `orphans` judges what no file leads to, `jobs` the jobs that
//! are kept, `marks` the rest.
//!
//! Without repair, nothing is opened for more than reading.
#![forbid(unsafe_code)]

mod file;
mod files;
mod ground;
mod heal;
mod inference;
mod jobs;
mod live;
mod marks;
mod orphans;
mod raw_index;
mod rebuild;
mod report;
mod shelves;
mod tree;
mod whole;

pub use report::{CheckOptions, CheckProgress, CheckReport, Problem, Severity};

use braid_contract::{Errno, Error, ObjectId, Result, TierId};
use braid_home::OpenError;
use files::Doubt;
use ground::Ground;
pub use ground::{Mounted, Unmounted};
use report::Reporter;
use shelves::Shelf;
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

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
    let mut reporter = Reporter::new(Arc::clone(&volume.environment), progress);
    reporter.phase("tiers", None)?;
    let (ground, problems) = Ground::survey(volume, options)?;
    let mut check = Check::new(ground, options, reporter);
    check.report.problems = problems;
    check.run()?;
    check.finish_table()?;
    Ok(check.report)
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
    let mut reporter = Reporter::new(Arc::clone(&volume.core.environment), progress);
    reporter.phase("tiers", None)?;
    let mut check = Check::new(Ground::of_mounted(volume, options)?, options, reporter);
    check.run()?;
    Ok(check.report)
}

/// One check under way.
struct Check<'a> {
    ground: Ground<'a>,
    options: &'a CheckOptions,
    reporter: Reporter<'a>,
    report: CheckReport,
    indexes: Shelf,
    /// By place in the ground's tiers.
    objects: Vec<Shelf>,
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
    fn new(ground: Ground<'a>, options: &'a CheckOptions, reporter: Reporter<'a>) -> Self {
        Self {
            objects: ground.tiers.iter().map(|_| Shelf::default()).collect(),
            ground,
            options,
            reporter,
            report: CheckReport::default(),
            indexes: Shelf::default(),
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
        self.marks()?;
        self.shelves()?;
        self.files()?;
        if self.options.paths.is_empty() {
            self.orphan_indexes()?;
            self.orphan_objects()?;
            self.counts()?;
        }
        // What was changed is told in any case.
        self.report.problems.retain(|problem| self.options.verbose || !problem.is_legal || problem.repaired);
        Ok(())
    }

    fn is_mounted(&self) -> bool {
        self.ground.mounted.is_some()
    }

    /// Reports a problem; answers where it is in the report.
    fn found(&mut self, problem: Problem) -> usize {
        self.report.problems.push(problem);
        self.report.problems.len() - 1
    }

    /// Reports a problem, and puts it right by `act` if that was asked for and
    /// may be done now.
    fn mend(&mut self, mut problem: Problem, when: When, act: impl FnOnce(&mut Self) -> Result<()>) -> usize {
        if let Some(why) = self.refusal(when) {
            problem.repair = format!("{}; {why}", problem.repair);
        } else if self.options.repair {
            match act(self) {
                Ok(()) => problem.repaired = true,
                Err(error) => problem.repair = format!("{}; that failed: {error}", problem.repair),
            }
        }
        self.found(problem)
    }

    /// Takes entries away, or puts others in their place. What was saved of how
    /// many ranges each tier holds must not be believed after that.
    fn change_placed(&self, act: impl FnOnce() -> Result<()>) -> Result<()> {
        if let Some(core) = self.ground.mounted {
            let done = act();
            core.tiers.distrust_counts();
            return done;
        }
        self.ground.braid.ensure_gone_at("counts")?;
        self.ground.braid.sync(false)?;
        act()
    }

    /// Why a repair can't be carried out now.
    fn refusal(&self, when: When) -> Option<&'static str> {
        match when {
            When::Always => None,
            When::Unused if !self.in_use => None,
            When::Unused => Some("the file is in use: close it, or unmount first"),
            When::Unmounted if !self.is_mounted() => None,
            When::Unmounted => Some("unmount first"),
        }
    }
}

/// When a repair may be carried out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    /// Beside users too.
    Always,
    /// When nobody uses the file.
    Unused,
    /// When the volume is not mounted.
    Unmounted,
}

/// An error that says that there is nothing of that name.
fn is_missing(error: &Error) -> bool {
    matches!(error.errno(), Errno::ENOENT | Errno::ESTALE)
}
