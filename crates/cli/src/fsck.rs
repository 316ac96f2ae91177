//! `braid fsck`.

use crate::args::FsckArgs;
use crate::failure::Result;
use crate::{mount, table};
use braid_daemon::check::{self, Report};
use std::fmt::Write as _;
use std::io::IsTerminal;
use std::process::ExitCode;

/// The check found problems and repaired all of them.
const REPAIRED: u8 = 1;
/// Problems are left.
const LEFT: u8 = 4;
/// The check could not be carried out.
const FAILED: u8 = 8;

/// Exit statuses are those of `fsck(8)`, except that a wrong call is 2 as
/// everywhere in this command.
pub(crate) fn run(args: &FsckArgs) -> ExitCode {
    let config = match mount::stack(&args.stack) {
        Ok(config) => config,
        Err(failure) => {
            let usage = failure.report();
            return if failure.is_usage() { usage } else { ExitCode::from(FAILED) };
        }
    };
    let tty = std::io::stderr().is_terminal();
    let mut progress = |what: &str| {
        if tty {
            eprint!("\r\x1b[K{what}");
        }
    };
    let checked = check::run(&config, args.repair, &mut progress);
    if tty {
        eprint!("\r\x1b[K");
    }
    let report = match checked {
        Ok(report) => report,
        Err(refusal) => {
            eprintln!("braid: {refusal}");
            return ExitCode::from(FAILED);
        }
    };
    match print(&report, args) {
        Ok(()) => ExitCode::from(status(&report)),
        Err(failure) => {
            failure.report();
            ExitCode::from(FAILED)
        }
    }
}

fn status(report: &Report) -> u8 {
    match (report.problems.len(), report.left()) {
        (0, _) => 0,
        (_, 0) => REPAIRED,
        _ => LEFT,
    }
}

fn print(report: &Report, args: &FsckArgs) -> Result<()> {
    if args.json { table::print_json(report) } else { table::print(&render(report, args.repair)) }
}

fn render(report: &Report, repair: bool) -> String {
    let mut text = String::new();
    for problem in &report.problems {
        let subject = match (&problem.path, &problem.object) {
            (Some(path), _) => path.display().to_string(),
            (None, Some(object)) => format!("object {object}"),
            (None, None) => "volume".into(),
        };
        let done = if problem.repaired { " (repaired)" } else { "" };
        // Writing to a string does not fail.
        _ = writeln!(text, "{subject}: {}{done}", problem.what);
    }
    let Report { files, spread_files, ranges, objects, .. } = report;
    _ = writeln!(
        text,
        "{files} files, {spread_files} of them spread over {ranges} ranges in {objects} objects"
    );
    let (found, left) = (report.problems.len(), report.left());
    text.push_str(&match (found, left) {
        (0, _) => "no problems\n".into(),
        (found, 0) => format!("problems: {found}, all repaired\n"),
        (found, left) if repair => format!("problems: {found}, of which {left} left\n"),
        (found, _) => format!("problems: {found}; nothing was changed (repair with --repair)\n"),
    });
    text
}
