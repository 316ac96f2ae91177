//! `cargo xtask test`: all tests, from the unit tests to the suites.

use crate::setup;
use braid_tests_support::counts::{Counts, skipped_test, test_result};
use braid_tests_support::error::{Failure, Result, fail};
use braid_tests_support::options::Options;
use braid_tests_support::paths;
use braid_tests_support::room::Room;
use braid_tests_support::sh::{Cmd, cmd, uninterrupted};
use braid_tests_support::tools::build_braid;
use clap::Args;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// What was asked for.
#[derive(Args)]
pub(crate) struct Command {
    /// What suites there are
    #[arg(long)]
    list: bool,
    #[command(flatten)]
    options: Options,
}

/// Installs, builds, tests, and ends with the sum on a line of its own.
pub(crate) fn run(Command { list, options }: &Command) -> Result<()> {
    if *list {
        return suites()?.arg("--list-suites").run();
    }
    setup::all()?;
    if options.suites.iter().any(|name| name == "power") {
        setup::power()?;
    }
    let room = Room::make()?;
    let room = room.as_ref().map(Room::dir);
    let mut counts = Counts::default();
    let all = options.suites.is_empty() && options.on.is_none();
    if all {
        counts += cargo_test(room)?;
    } else if options.on.is_none() {
        build_braid()?;
    }
    counts += run_suites(options, all, room)?;
    println!("\n{counts}");
    if counts.failed > 0 { fail("there are failed tests") } else { Ok(()) }
}

/// The unit and integration tests of all crates.
fn cargo_test(room: Option<&Path>) -> Result<Counts> {
    println!("== cargo test");
    let (mut counts, mut skipped) = (Counts::default(), BTreeSet::new());
    let test = ["test", "--workspace", "--locked", "--no-fail-fast"];
    // A test of another crate needs the command. It is built with the tests; a
    // separate build would compile its crates again, with other features.
    let tests = cmd("cargo").args(test).dir(&paths::root()).env("BRAID_BIN", paths::built("braid"));
    // Many wait for daemons most of the time.
    let threads = std::thread::available_parallelism().map_or(2, |count| 2 * count.get()).to_string();
    let tests = room.into_iter().fold(tests, |tests, room| tests.env("TMPDIR", room));
    let status = tests.env("RUST_TEST_THREADS", threads).lines(|line| {
        println!("{line}");
        counts += test_result(line).unwrap_or_default();
        skipped.extend(skipped_test(line).map(str::to_owned));
    })?;
    // The test harness takes them for passed.
    counts.skipped += skipped.len() as u64;
    counts.passed -= counts.passed.min(skipped.len() as u64);
    uninterrupted()?;
    if !status.success() && counts.failed == 0 {
        counts.failed = 1;
    }
    skipped.iter().for_each(|test| println!("SKIPPED {test}"));
    println!("== cargo test: {counts}");
    Ok(counts)
}

/// The end-to-end suites, which count their checks; with `after_tests`, of the
/// `braid` that was built with the tests: a release takes minutes to build.
fn run_suites(options: &Options, after_tests: bool, room: Option<&Path>) -> Result<Counts> {
    println!("== suites");
    let mut counts = None;
    let mut suites = suites()?.args(options.arguments());
    if after_tests && std::env::var_os("BRAID").is_none() {
        suites = suites.env("BRAID", paths::built("braid"));
    }
    let suites = room.into_iter().fold(suites, |suites, room| suites.env("TMPDIR", room));
    let status = suites.lines(|line| {
        println!("{line}");
        counts = line.strip_prefix("checks: ").and_then(|sum| sum.parse::<Counts>().ok()).or(counts);
    })?;
    uninterrupted()?;
    let counts = counts.ok_or_else(|| Failure(format!("the suites ended with {status}")))?;
    // Any other failure counts as one.
    Ok(Counts { failed: counts.failed.max(u64::from(!status.success())), ..counts })
}

/// The test program of the suites. It runs by itself, not below Cargo, which
/// would not hand on an interrupt. Built of the whole workspace, it has the
/// features of `cargo test`, and compiles nothing again after that.
fn suites() -> Result<Cmd> {
    let build = ["test", "--workspace", "--test", "suites", "--locked", "--no-run"];
    let build = cmd("cargo").args(build).arg("--message-format=json-render-diagnostics");
    let mut program = None;
    let status = build.dir(&paths::root()).lines(|line| program = executable(line).or(program.take()))?;
    uninterrupted()?;
    match program {
        Some(program) if status.success() => Ok(cmd(program).dir(&paths::root())),
        _ => fail("the suites were not built"),
    }
}

/// Reads a message of Cargo: the path of a program.
fn executable(message: &str) -> Option<PathBuf> {
    let message: Value = serde_json::from_str(message).ok()?;
    message["executable"].as_str().map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_in_cargo_s_messages() {
        assert_eq!(executable(r#"{"reason":"compiler-artifact","executable":"/t/a"}"#), Some("/t/a".into()));
        assert_eq!(executable(r#"{"reason":"compiler-artifact","executable":null}"#), None);
        assert_eq!(executable("text"), None);
    }
}
