//! The check of a volume, with output for a command line. The command line
//! calls [`run`] for one that is not mounted, the control socket [`of_mounted`]
//! for one that is.

use crate::config::Config;
use crate::refusal::{Place, Refusal};
use crate::validate;
use crate::wire;
use braid_contract::{Errno, Error};
use braid_ipc::protocol::{FsckProblem, FsckProgress, FsckRequest, FsckSummary};
use braid_stores::native::open_dir;
use braid_volume::{CheckOptions, CheckProgress, CheckReport, Problem, Severity, Volume};
use std::path::{Component, Path, PathBuf};

/// The findings of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The problems, repaired ones too.
    pub problems: Vec<FsckProblem>,
    /// The summary.
    pub summary: FsckSummary,
}

/// Checks the volume that `config` describes, which must not be mounted.
/// `progress` is called for each step; the check ends when it returns `false`.
///
/// # Errors
/// If the volume can't be opened for checking.
pub fn run(
    config: &Config,
    request: &FsckRequest,
    progress: &mut dyn FnMut(FsckProgress) -> bool,
) -> Result<Report, Refusal> {
    let volume = config.stack.need_volume()?;
    // For a check without repair, file systems may be read-only.
    if request.repair {
        validate::tiers(volume)?;
    }
    let others = volume.tiers.iter().filter(|tier| tier.name != volume.home.value);
    let dirs = others.map(|tier| (tier.name.as_str(), tier.dir.value.as_path()));
    let options = options(request, dirs).map_err(|path| {
        Place::flag(path).refuse("PATHs are below the volume's root", "write it without '..'")
    })?;
    wire::check(volume, &options, &mut |now| progress(told(now))).map(report)
}

/// Checks a volume in use.
pub(crate) fn of_mounted(
    volume: &Volume,
    request: &FsckRequest,
    progress: &mut dyn FnMut(FsckProgress) -> bool,
) -> Result<Report, Error> {
    let status = volume.status();
    let dirs = status.tiers.iter().filter(|tier| !tier.home);
    let dirs = dirs.map(|tier| (tier.name.as_str(), Path::new(&tier.location)));
    let options = options(request, dirs).map_err(|path| {
        let what = format!("{path}: PATHs are below the volume's root, without '..'");
        Error::new(Errno::EINVAL, what)
    })?;
    volume.check(&options, &mut |now| progress(told(now))).map(report)
}

/// The options of a check; or the path that may lead out of the volume. A
/// directory that can't be opened is skipped: the tier itself reports its
/// error.
fn options<'a, 'r>(
    request: &'r FsckRequest,
    dirs: impl Iterator<Item = (&'a str, &'a Path)>,
) -> Result<CheckOptions, &'r str> {
    let below_root = |path: &'r String| {
        let below = Path::new(path).strip_prefix("/").unwrap_or(Path::new(path));
        let leaves = below.components().any(|part| part == Component::ParentDir);
        if leaves { Err(path.as_str()) } else { Ok(below.to_owned()) }
    };
    Ok(CheckOptions {
        repair: request.repair,
        verbose: request.verbose,
        paths: request.paths.iter().map(below_root).collect::<Result<Vec<PathBuf>, &str>>()?,
        roots: dirs.filter_map(|(name, dir)| Some((name.to_owned(), open_dir(dir).ok()?))).collect(),
    })
}

fn told(now: &CheckProgress) -> FsckProgress {
    FsckProgress { phase: now.phase.into(), done: now.done, total: now.total }
}

fn report(report: CheckReport) -> Report {
    let count =
        |severity| report.problems.iter().filter(|problem| problem.severity == severity).count() as u64;
    let repaired = report.problems.iter().filter(|problem| problem.repaired).count() as u64;
    let left =
        report.problems.iter().filter(|problem| !problem.repaired && problem.severity != Severity::Note);
    let summary = FsckSummary {
        files: report.files,
        spread_files: report.spread_files,
        ranges: report.ranges,
        objects: report.objects,
        damage: count(Severity::Damage),
        leaks: count(Severity::Leak),
        notes: count(Severity::Note),
        repaired,
        left: left.count() as u64,
    };
    Report { problems: report.problems.into_iter().map(problem).collect(), summary }
}

fn problem(problem: Problem) -> FsckProblem {
    FsckProblem {
        code: problem.code.into(),
        severity: problem.severity.name().into(),
        path: problem.path.map(|path| path.to_string_lossy().into_owned()),
        id: problem.id.map(|id| id.to_string()),
        tier: problem.tier,
        offset: problem.bytes.as_ref().map(|bytes| bytes.start),
        len: problem.bytes.as_ref().map(|bytes| bytes.end - bytes.start),
        what: problem.what,
        repair: problem.repair,
        repaired: problem.repaired,
    }
}
