//! Searches the volume for crashes that it does not survive: the volume, over
//! directory stores, over simulated disks ([`braid_testkit::crash`]).
//!
//! `cargo test -p braid-volume --test crash` runs a short search; with
//! arguments (`-- --help` tells them) a longer one, or repeats a failure.

mod subject;

use braid_testkit::crash::{Arguments, run_cli};
use std::process::ExitCode;
use subject::Braid;

fn main() -> ExitCode {
    let arguments = match Arguments::parse(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(usage) => {
            eprintln!("{usage}");
            return ExitCode::FAILURE;
        }
    };
    match Braid::new(arguments.plant.as_deref()) {
        Ok(subject) => run_cli(&arguments, &subject),
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
