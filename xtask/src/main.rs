//! The project's own commands: `cargo xtask help` lists them.
//!
//! Nothing else in the house depends on this crate; it drives the others from
//! outside, through Cargo and through the `braid` command.
#![forbid(unsafe_code)]

mod check;
mod demo;
mod dist;
mod error;
mod lab;
mod paths;
mod random;
mod setup;
mod sh;
mod suites;
mod test;
mod tidy;

use error::{Result, fail};
use std::process::ExitCode;

const HELP: &str = "\
Usage: cargo xtask COMMAND

  demo                 a volume over two small devices, from nothing to nothing
  test [OPTIONS]       installs what is missing, builds, runs all tests and suites
  check [OPTIONS]      the gate: format, lints, tidy, dependency policy, then test
  tidy                 the house rules: edges between crates, lengths, unsafe code
  setup [--demo]       installs what the tests (or the demo alone) need
  dist [--test]        the Debian package, in target/dist; --test installs it in an
                       empty directory, --test-debian in a clean Debian
  bench [ARGS]         the benchmarks: bench/run.py

Options of test and check:
  --suite NAME         this suite only (may be repeated), without the unit tests
  --list               what suites there are
  --quick              a shorter run of each suite
  --long               a longer run of each suite
  --iterations N       rounds of kill9, cuts of power, states of crash
  --seed N             where random sequences start
  --on DIR             runs suites on this directory instead of a Braid mount
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // What an interrupt breaks reports all kinds of errors.
            let failure = sh::uninterrupted().err().unwrap_or(failure);
            eprintln!("error: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &[String]) -> Result<()> {
    let (command, rest) = args.split_first().map_or(("help", args), |(first, rest)| (first.as_str(), rest));
    sh::catch_interrupts()?;
    match command {
        "demo" => demo::run(rest),
        "test" => test::run(&test::Options::parse(rest)?),
        "check" => check::run(&test::Options::parse(rest)?),
        "tidy" => tidy::run(),
        "dist" => dist::run(rest),
        "setup" => setup::run(rest),
        // Not for people: what the power suite runs in its virtual machine.
        "power-guest" => suites::in_guest(),
        "bench" => sh::cmd(paths::root().join("bench/run.py")).args(rest).run(),
        "help" | "-h" | "--help" => {
            print!("{HELP}");
            Ok(())
        }
        other => fail(format!("no command {other:?}; `cargo xtask help` lists them")),
    }
}
