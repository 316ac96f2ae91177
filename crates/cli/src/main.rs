//! The `braid` command: reads arguments, calls the daemon crate or asks a
//! running daemon, and prints. Nothing of storage is decided here.
#![forbid(unsafe_code)]

mod affected;
mod args;
mod background;
mod drill;
mod explain;
mod failure;
mod fsck;
mod locate;
mod mount;
mod rehome;
mod status;
mod table;
mod tier;
mod umount;

use args::{Command, CommandLine, TierCommand};
use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let done = match CommandLine::parse().command {
        Command::Mount(args) => mount::run(&args),
        Command::Umount(args) => umount::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Tier(TierCommand::Replace(args)) => tier::replace(&args),
        Command::Drill(args) => drill::run(&args),
        Command::Fsck(args) => return fsck::run(&args),
        Command::Version => table::print(&format!("braid {}\n", env!("CARGO_PKG_VERSION"))),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
