//! The project's own commands: `cargo xtask help` lists them.
//!
//! Nothing else in the house depends on this crate; it drives the others from
//! outside, through Cargo and through the `braid` command.
#![forbid(unsafe_code)]

mod check;
mod demo;
mod dist;
mod setup;
mod test;
mod tidy;

use braid_tests_support::error::Result;
use braid_tests_support::{paths, sh};
use clap::Parser;
use std::ffi::OsString;
use std::process::ExitCode;

/// The project's own commands
#[derive(Parser)]
#[command(bin_name = "cargo xtask")]
enum Command {
    /// A volume over two small devices, from nothing to nothing
    Demo,
    /// Installs what is missing, builds, runs all tests and suites
    Test(test::Command),
    /// The gate: format, lints, tidy, dependency policy, then test
    Check(test::Command),
    /// The house rules: edges between crates, lengths, unsafe code
    Tidy,
    /// Installs what the tests need
    Setup(setup::Command),
    /// The Debian package, in target/dist
    Dist(dist::Command),
    /// The benchmarks: bench/run.py
    Bench {
        /// Its arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
}

fn main() -> ExitCode {
    match run(Command::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // After an interrupt, the broken steps report all kinds of errors.
            let failure = sh::uninterrupted().err().unwrap_or(failure);
            eprintln!("error: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<()> {
    sh::catch_interrupts()?;
    match command {
        Command::Demo => demo::run(),
        Command::Test(command) => test::run(&command),
        Command::Check(command) => check::run(&command),
        Command::Tidy => tidy::run(),
        Command::Setup(command) => setup::run(&command),
        Command::Dist(command) => dist::run(&command),
        Command::Bench { arguments } => sh::cmd(paths::root().join("bench/run.py")).args(arguments).run(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn commands_are_read() {
        Command::command().debug_assert();
        for line in ["demo", "setup --demo", "dist --test-debian", "bench --bwlimit 3", "check --quick"] {
            let words = ["xtask"].into_iter().chain(line.split(' '));
            assert!(Command::try_parse_from(words).is_ok(), "{line}");
        }
        for line in ["demo now", "setup --demo --power", "dist --test --test-debian", "tidy --quick"] {
            let words = ["xtask"].into_iter().chain(line.split(' '));
            assert!(Command::try_parse_from(words).is_err(), "{line}");
        }
    }
}
