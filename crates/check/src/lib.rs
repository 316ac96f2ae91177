//! The check of a volume, mounted or not: files against indexes, indexes against
//! objects, and indexes and objects without a file (`docs/fsck.md`). [`check_unmounted`] checks a volume that is not mounted,
//! [`check_mounted`] the core of one that is; the volume calls them.
//!
//! At the bottom are the volume (`target`, `tree`, `id_attr`), and the problems
//! with their repairs (`findings`, `report`, `progress`). The passes stand on
//! them: `dirs` reads marks and lists indexes and objects, `namespace` goes
//! through the files and has each compared by `file`, and `orphans` judges
//! indexes and objects that no file leads to. `run` calls them in order, and hands the results of one
//! to the next.
//!
//! Without repair, files are only opened for reading.
#![forbid(unsafe_code)]

mod dirs;
mod file;
mod findings;
mod id_attr;
mod namespace;
mod orphans;
mod progress;
mod report;
mod target;
mod tree;

pub use progress::CheckProgress;
pub use report::{CheckOptions, CheckReport, Problem, Severity};
pub use target::{Mounted, Unmounted};

use braid_contract::Result;
use braid_home::OpenError;
use dirs::counts::check_counts;
use dirs::listings::{Listings, check_dirs};
use dirs::marks::{check_intents, check_marks};
use file::comparison::Comparison;
use file::tally::Totals;
use findings::Findings;
use namespace::files::check_files;
use orphans::indexes::check_orphan_indexes;
use orphans::objects::ObjectOrphans;
use progress::ProgressReporter;
use std::sync::Arc;
use target::CheckTarget;
use target::labels::read_target;

/// Checks a volume that is not mounted. With `repair`, it repairs all damage
/// that can be repaired without losing data, except for files that a mount
/// recovers; without, it changes nothing. Ends early, with `EINTR`, when
/// `progress` answers `false`.
///
/// # Errors
/// An [`OpenError`] if the tiers are not those of a volume.
pub fn check_unmounted(
    volume: &Unmounted<'_>,
    options: &CheckOptions,
    progress: &mut dyn FnMut(&CheckProgress) -> bool,
) -> std::result::Result<CheckReport, OpenError> {
    let mut progress = ProgressReporter::new(Arc::clone(&volume.environment), progress);
    progress.phase("tiers", None)?;
    let mut findings = Findings::new(options.repair, false);
    let (target, recreated_table) = read_target(volume, options, &mut findings)?;
    if options.repair {
        // What no name leads to goes: after a crash, that must not be undone by power loss.
        target.home.root().sync_fs()?;
    }
    let summary = run(&target, options, &mut findings, &mut progress)?;
    if let Some(table) = recreated_table {
        let obstacle = match (options.paths.is_empty(), summary.totals.names_unknown_tier) {
            (false, _) => Some("only some of the files were looked at"),
            (true, true) => Some("indexes name a tier that was not given"),
            (true, false) => None,
        };
        table.finish(&target.braid, &mut findings, obstacle);
    }
    Ok(summary.into_report(findings, options))
}

/// Checks a volume while it is used. Problems that can't be repaired beside
/// users are left, with a repair that says so. Ends early, with `EINTR`, when
/// `progress` answers `false`.
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
    let mut findings = Findings::new(options.repair, true);
    let target = CheckTarget::of_mounted(volume, options)?;
    let summary = run(&target, options, &mut findings, &mut progress)?;
    Ok(summary.into_report(findings, options))
}

/// The numbers of a check.
struct CheckSummary {
    files: u64,
    objects: u64,
    totals: Totals,
}

impl CheckSummary {
    fn into_report(self, findings: Findings, options: &CheckOptions) -> CheckReport {
        CheckReport {
            files: self.files,
            spread_files: self.totals.spread_files,
            ranges: self.totals.ranges,
            objects: self.objects,
            problems: findings.into_problems(options.verbose),
        }
    }
}

/// Runs all passes, or those on files if only some files are to be checked.
fn run(
    target: &CheckTarget<'_>,
    options: &CheckOptions,
    findings: &mut Findings,
    progress: &mut ProgressReporter<'_>,
) -> Result<CheckSummary> {
    let is_partial = !options.paths.is_empty();
    let marked = check_marks(target, is_partial, findings)?;
    let listings = if is_partial {
        Listings::none(target)
    } else {
        check_intents(target, findings)?;
        check_dirs(target, findings, progress)?
    };
    let mut totals = Totals::new();
    let mut comparison = Comparison { target, listings: &listings, findings, totals: &mut totals };
    let mut references = check_files(&mut comparison, &marked, &options.paths, progress)?;
    if !is_partial {
        let mut kept = &listings.irregular | &references.copied;
        check_orphan_indexes(&mut comparison, &marked, &mut references, &mut kept, progress)?;
        let orphans = ObjectOrphans {
            target,
            listings: &listings,
            marked: &marked,
            references: &references,
            kept: &kept,
        };
        orphans.check(findings, progress)?;
        check_counts(target, &totals.by_tier, findings)?;
    }
    Ok(CheckSummary { files: references.files, objects: listings.object_count(), totals })
}
