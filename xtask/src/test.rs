//! `cargo xtask test`: all tests, from the unit tests to the suites.

use crate::error::{Failure, Result, fail};
use crate::sh::{cmd, uninterrupted};
use crate::suites::{self, Counts};
use crate::{paths, setup};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// What was asked for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    /// Suites to run; none named: everything.
    pub(crate) suites: Vec<String>,
    /// Only print the names of the suites.
    pub(crate) list: bool,
    /// Shorter runs.
    pub(crate) quick: bool,
    /// Longer runs.
    pub(crate) long: bool,
    /// Rounds, where a suite counts in rounds.
    pub(crate) iterations: Option<u64>,
    /// Where random sequences start.
    pub(crate) seed: u64,
    /// A directory to run on instead of a Braid volume.
    pub(crate) on: Option<PathBuf>,
}

impl Options {
    /// Reads the command line.
    pub(crate) fn parse(args: &[String]) -> Result<Self> {
        let mut options = Self::default();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or_else(|| Failure(format!("{arg} needs a value")));
            match arg.as_str() {
                "--suite" => options.suites.push(value()?.clone()),
                "--list" => options.list = true,
                "--quick" => options.quick = true,
                "--long" => options.long = true,
                "--iterations" => options.iterations = Some(number(value()?)?),
                "--seed" => options.seed = number(value()?)?,
                "--on" => options.on = Some(PathBuf::from(value()?)),
                _ => return fail(format!("unknown option {arg:?}; `cargo xtask help` lists them")),
            }
        }
        Ok(options)
    }

    /// A measure of work: for `--quick`, as usual, for `--long`.
    pub(crate) fn scale(&self, quick: u64, usual: u64, long: u64) -> u64 {
        match (self.quick, self.long) {
            (true, _) => quick,
            (_, true) => long,
            _ => usual,
        }
    }
}

fn number(text: &str) -> Result<u64> {
    text.parse().map_err(|_| Failure(format!("{text:?} is not a number")))
}

/// Installs, builds, tests, and ends with the sum on a line of its own.
pub(crate) fn run(options: &Options) -> Result<()> {
    if options.list {
        suites::list();
        return Ok(());
    }
    setup::all()?;
    if options.on.is_none() {
        setup::build_braid()?;
    }
    let mut counts = Counts::default();
    if options.suites.is_empty() && options.on.is_none() {
        counts += cargo_test()?;
        counts += rescue_test()?;
    }
    counts += suites::run(options)?;
    println!("\n{counts}");
    if counts.failed > 0 { fail("there are failed tests") } else { Ok(()) }
}

/// The unit and integration tests of all crates.
fn cargo_test() -> Result<Counts> {
    println!("== cargo test");
    let mut counts = Counts::default();
    let mut skipped = BTreeSet::new();
    let test = ["test", "--workspace", "--locked", "--no-fail-fast"];
    // A test of another crate needs the command. It is built with the tests;
    // by itself it would be built anew, since its crates get other features.
    let tests = cmd("cargo").args(test).dir(&paths::root()).env("BRAID_BIN", paths::built("braid"));
    let status = tests.lines(|line| {
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

/// The tests of the rescue script.
fn rescue_test() -> Result<Counts> {
    println!("== rescue.py");
    let output = cmd("python3").arg("tools/test_rescue.py").dir(&paths::root()).output()?;
    let text = String::from_utf8_lossy(&output.stderr);
    print!("{text}");
    let ran = text.lines().find_map(ran_tests).unwrap_or_default();
    Ok(match output.status.success() && ran > 0 {
        true => Counts { passed: ran, ..Counts::default() },
        false => Counts { failed: 1, ..Counts::default() },
    })
}

/// Reads `Ran 25 tests in 0.5s`.
fn ran_tests(line: &str) -> Option<u64> {
    line.strip_prefix("Ran ")?.split(' ').next()?.parse().ok()
}

/// Reads `SKIPPED: test: needs root`, as a test says that was skipped.
fn skipped_test(line: &str) -> Option<&str> {
    Some(line.split_once("SKIPPED: ")?.1)
}

/// Reads `test result: ok. 3 passed; 0 failed; 1 ignored; …`.
fn test_result(line: &str) -> Option<Counts> {
    let (_, figures) = line.strip_prefix("test result: ")?.split_once(". ")?;
    let figure = |what: &str| {
        let part = figures.split(';').map(str::trim).find(|part| part.ends_with(what))?;
        part.split(' ').next()?.parse().ok()
    };
    Some(Counts { passed: figure("passed")?, failed: figure("failed")?, skipped: figure("ignored")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options> {
        Options::parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn options_are_read() {
        let options = parse("--suite fsx --suite kill9 --quick --iterations 50 --seed 3 --on /x").unwrap();
        assert_eq!(options.suites, ["fsx", "kill9"]);
        assert_eq!((options.iterations, options.seed, options.on), (Some(50), 3, Some("/x".into())));
        assert_eq!(parse("--quick").unwrap().scale(1, 2, 3), 1);
        assert_eq!(parse("").unwrap().scale(1, 2, 3), 2);
        assert_eq!(parse("--long").unwrap().scale(1, 2, 3), 3);
    }

    #[test]
    fn wrong_options_are_refused() {
        for line in ["--what", "--suite", "--seed x"] {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn results_of_cargo_test_are_read() {
        let line = "test result: FAILED. 12 passed; 2 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s";
        assert_eq!(test_result(line), Some(Counts { passed: 12, failed: 2, skipped: 1 }));
        assert_eq!(test_result("running 3 tests"), None);
        assert_eq!(skipped_test("SKIPPED: a_test: needs root"), Some("a_test: needs root"));
        assert_eq!(skipped_test("test a_test ... ok"), None);
    }
}
