//! `braid fsck`: checks a volume here, or lets its daemon check it if it is
//! mounted, and prints the findings.

mod progress;

use crate::args::{FsckArgs, StackArgs};
use crate::failure::{Failure, Result};
use crate::progress::Progress;
use crate::{locate, mount, table};
use braid_contract::{Shown, counted};
use braid_daemon::check::{self, Report};
use braid_daemon::config::Config;
use braid_ipc::Client;
use braid_ipc::mounts::{self, Mount};
use braid_ipc::protocol::{FsckProblem, FsckRequest, FsckSummary, Reply, Request};
use serde::Serialize;
use std::fmt::Write as _;
use std::path::{Component, Path, PathBuf};
use std::process::ExitCode;

/// The check found problems and repaired all of them.
const REPAIRED: u8 = 1;
/// Problems are left.
const LEFT: u8 = 4;
/// The check failed.
const FAILED: u8 = 8;

/// Exit statuses are those of `fsck(8)`, except that a wrong call is 2 as for
/// all commands.
pub(crate) fn run(args: &FsckArgs) -> ExitCode {
    let done = checked(args).and_then(|report| {
        print(&report, args)?;
        Ok(status(&report.summary))
    });
    match done {
        Ok(status) => ExitCode::from(status),
        Err(failure) => {
            let usage = failure.report();
            if failure.is_usage() { usage } else { ExitCode::from(FAILED) }
        }
    }
}

fn status(summary: &FsckSummary) -> u8 {
    match (summary.left, summary.repaired) {
        (0, 0) => 0,
        (0, _) => REPAIRED,
        _ => LEFT,
    }
}

/// The volume to check.
enum Target {
    /// A volume that is not mounted.
    Tiers(Box<Config>),
    /// A mounted volume.
    Mount(Mount),
}

fn checked(args: &FsckArgs) -> Result<Report> {
    let (target, paths) = target(args)?;
    let mut progress = Progress::new();
    match target {
        Target::Tiers(config) => {
            let request = request(args, paths.iter().map(|path| Ok(path.clone())))?;
            Ok(check::run(&config, &request, &mut |now| {
                progress.show(&progress::render(&now));
                true
            })?)
        }
        Target::Mount(mount) => {
            let request = request(args, paths.iter().map(|path| within(&mount, path)))?;
            ask(locate::need_daemon(&mount)?, request, &mut progress)
        }
    }
}

/// Finds out whether the volume is mounted; also answers the paths to check.
fn target(args: &FsckArgs) -> Result<(Target, &[PathBuf])> {
    let (first, paths) = match args.targets.split_first() {
        Some((first, paths)) if args.tiers.is_empty() => (Some(first), paths),
        _ => (None, args.targets.as_slice()),
    };
    // A mount without a daemon does not identify its volume.
    let is_mount = |first: &&PathBuf| locate::mounted_at(first).is_ok() || first.is_dir();
    if let Some(point) = first.filter(is_mount) {
        return Ok((Target::Mount(locate::containing(point)?), paths));
    }
    let stack = StackArgs {
        stack: first.cloned(),
        tiers: args.tiers.clone(),
        home: args.home.clone(),
        policy: None,
        range: None,
    };
    let config = mount::stack(&stack)?;
    Ok(match serving(&config) {
        Some(mount) => (Target::Mount(mount), paths),
        None => (Target::Tiers(Box::new(config)), paths),
    })
}

/// The mount whose daemon has one of the stack's tiers.
pub(crate) fn serving(config: &Config) -> Option<Mount> {
    let tiers = &config.stack.volume()?.tiers;
    let dirs: Vec<PathBuf> =
        tiers.iter().filter_map(|tier| std::fs::canonicalize(&tier.dir.value).ok()).collect();
    let mounts = mounts::list().unwrap_or_default();
    mounts.into_iter().filter(Mount::is_braid).find(|mount| {
        let status = locate::daemon(mount).ok().and_then(|mut daemon| daemon.request(&Request::Status).ok());
        let Some(Reply::Status(status)) = status else { return false };
        status.tiers.iter().any(|tier| dirs.iter().any(|dir| dir.as_path() == Path::new(&tier.location)))
    })
}

/// A path of a mounted volume as one below the volume's root.
fn within(mount: &Mount, path: &Path) -> Result<PathBuf> {
    if !path.is_absolute() {
        return Ok(path.to_owned());
    }
    let resolved = mounts::resolve(path).unwrap_or_else(|_| path.to_owned());
    mount
        .path_within(&resolved)
        .ok_or_else(|| Failure::usage(format!("{} is not below {}", path.shown(), mount.point.shown())))
}

fn request(args: &FsckArgs, paths: impl Iterator<Item = Result<PathBuf>>) -> Result<FsckRequest> {
    let text = |path: Result<PathBuf>| {
        let path = path?;
        if path.components().any(|part| part == Component::ParentDir) {
            let what = format!("{}: PATHs are below the volume's root", path.shown());
            return Err(Failure::usage(what + "\n  help: write it without '..'"));
        }
        path.into_os_string().into_string().map_err(|path| {
            Failure::usage(format!("{} is not UTF-8; check the directory that it is in", path.shown()))
        })
    };
    Ok(FsckRequest {
        repair: args.repair,
        verbose: args.verbose,
        paths: paths.map(text).collect::<Result<Vec<String>>>()?,
    })
}

/// Lets the daemon check its volume.
fn ask(mut daemon: Client, request: FsckRequest, progress: &mut Progress) -> Result<Report> {
    let (mut problems, mut summary) = (Vec::new(), None);
    let asked = daemon.request_all(&Request::Fsck(request), &mut |reply| {
        match reply {
            Reply::FsckProgress(now) => progress.show(&progress::render(&now)),
            Reply::FsckProblem(problem) => problems.push(problem),
            Reply::FsckSummary(found) => summary = Some(found),
            _ => return false,
        }
        true
    });
    asked.map_err(|error| Failure::new(error.to_string()))?;
    let summary = summary.ok_or_else(|| Failure::new("the daemon did not finish the check"))?;
    Ok(Report { problems, summary })
}

/// The last line of `--json`.
#[derive(Serialize)]
struct SummaryLine<'a> {
    summary: &'a FsckSummary,
}

fn print(report: &Report, args: &FsckArgs) -> Result<()> {
    if !args.json {
        return table::print(&render(report, args.repair));
    }
    let mut text = String::new();
    for problem in &report.problems {
        text.push_str(&table::json_line(problem)?);
    }
    text.push_str(&table::json_line(&SummaryLine { summary: &report.summary })?);
    table::print(&text)
}

fn render(report: &Report, repair: bool) -> String {
    let mut text = String::new();
    for problem in &report.problems {
        text.push_str(&render_problem(problem));
    }
    let FsckSummary { files, spread_files, ranges, objects, damage, leaks, notes, repaired, left } =
        &report.summary;
    // Writing to a string does not fail.
    _ = writeln!(
        text,
        "{}, {spread_files} of them spread over {} in {}",
        counted(*files, "file"),
        counted(*ranges, "range"),
        counted(*objects, "object")
    );
    if damage + leaks + notes == 0 {
        text.push_str("no problems\n");
        return text;
    }
    _ = write!(text, "{damage} damaged, {leaks} leaked, {notes} noted");
    text.push_str(&match (repair, *left) {
        (false, _) => "; nothing was changed (repair with --repair)\n".to_owned(),
        (true, 0) => format!("; {repaired} repaired\n"),
        (true, left) => format!("; {repaired} repaired, {left} left\n"),
    });
    text
}

fn render_problem(problem: &FsckProblem) -> String {
    let mut subject = match (&problem.path, &problem.id) {
        (Some(path), _) => path.shown().to_string(),
        (None, Some(id)) => format!("object {id}"),
        (None, None) => "volume".into(),
    };
    if let (Some(offset), Some(len)) = (problem.offset, problem.len) {
        _ = write!(subject, ", bytes {offset} to {}", offset + len);
    }
    if let Some(tier) = &problem.tier {
        _ = write!(subject, ", tier {tier}");
    }
    let done = if problem.repaired { "repaired" } else { "repair" };
    format!(
        "{subject}: {} [{}: {}]\n    {done}: {}\n",
        problem.what, problem.severity, problem.code, problem.repair
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(repaired: bool) -> FsckProblem {
        FsckProblem {
            code: "object-missing".into(),
            severity: "damage".into(),
            path: Some("dir/file".into()),
            id: None,
            tier: Some("slow".into()),
            offset: Some(65536),
            len: Some(100),
            what: "its object is missing".into(),
            repair: "nothing is done".into(),
            repaired,
        }
    }

    #[test]
    fn a_problem_is_told_with_its_place_and_what_is_done_about_it() {
        let expected = "dir/file, bytes 65536 to 65636, tier slow: its object is missing \
                        [damage: object-missing]\n    repair: nothing is done\n";
        assert_eq!(render_problem(&problem(false)), expected);
        assert!(render_problem(&problem(true)).ends_with("    repaired: nothing is done\n"));
    }

    #[test]
    fn the_exit_status_says_what_is_left() {
        let summary = |repaired, left, notes| FsckSummary { repaired, left, notes, ..FsckSummary::default() };
        assert_eq!(status(&summary(0, 0, 0)), 0);
        assert_eq!(status(&summary(0, 0, 2)), 0);
        assert_eq!(status(&summary(3, 0, 1)), REPAIRED);
        assert_eq!(status(&summary(3, 1, 0)), LEFT);
    }
}
