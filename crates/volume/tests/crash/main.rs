//! Searches for crashes that a volume over directory stores on simulated disks
//! does not survive ([`braid_testkit::crash`]).
//!
//! `cargo test -p braid-volume --test crash` runs a short search; with
//! arguments (see `-- --help`) a longer one, or repeats a failure. With
//! `--features failpoints` it proves that the search finds each of the bugs
//! that can be planted.

mod known;
mod subject;

use braid_testkit::crash::{Arguments, run_cli};
use std::process::ExitCode;
use subject::{Braid, FAILPOINTS};

fn main() -> ExitCode {
    let arguments = match Arguments::parse(std::env::args().skip(1)) {
        Ok(Some(arguments)) => arguments,
        Ok(None) => return ExitCode::SUCCESS,
        Err(usage) => {
            eprintln!("{usage}");
            return ExitCode::FAILURE;
        }
    };
    let failpoints: Vec<&str> = match arguments.failpoint.as_deref() {
        Some("none") => Vec::new(),
        Some(name) => vec![name],
        None if arguments.replay.is_some() => Vec::new(),
        None => FAILPOINTS.to_vec(),
    };
    let sound = Braid::sound();
    let is_well = match &failpoints[..] {
        [] if arguments.replay.is_some() => run_cli(&arguments, &sound, None),
        [] => {
            let limits = arguments.search.limits;
            known::come_to_the_same(&sound, limits)
                && known::are_well(&sound, limits)
                && run_cli(&arguments, &sound, None)
        }
        failpoints => failpoints.iter().all(|name| find(&arguments, name, &sound)),
    };
    if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Whether the search finds a bug.
fn find(arguments: &Arguments, name: &str, sound: &Braid) -> bool {
    match Braid::planted(name) {
        Ok(subject) => run_cli(arguments, &subject, Some((name, sound))),
        Err(error) => {
            eprintln!("{error}");
            false
        }
    }
}
