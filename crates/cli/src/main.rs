//! The `braid` command: reads arguments, calls the daemon crate or asks a
//! running daemon, and prints. Nothing of storage is decided here.
#![forbid(unsafe_code)]

mod affected;
mod args;
mod background;
mod bench;
mod drill;
mod explain;
mod failure;
mod fsck;
mod import;
mod interrupt;
mod job;
mod locate;
mod mount;
mod movers;
mod pin;
mod poll;
mod progress;
mod rehome;
mod simulate;
mod stack;
mod status;
mod table;
mod tier;
mod top;
mod trace;
mod umount;

use args::{BenchCommand, Command, CommandLine, PlacementCommand, StackCommand, TierCommand, TraceCommand};
use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let done = match CommandLine::parse().command {
        Command::Mount(args) => mount::run(&args),
        Command::Umount(args) => umount::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Stack(StackCommand::Dump(args)) => stack::dump(&args),
        Command::Tier(TierCommand::List(args)) => tier::list(&args),
        Command::Tier(TierCommand::Add(args)) => tier::add(&args),
        Command::Tier(TierCommand::Set(args)) => tier::set(&args),
        Command::Tier(TierCommand::Remove(args)) => tier::remove(&args),
        Command::Tier(TierCommand::Replace(args)) => tier::replace(&args),
        Command::Tier(TierCommand::Evacuate(args)) => movers::evacuate(&args),
        Command::Move(args) => movers::move_to(&args),
        Command::Promote(args) => movers::promote(&args),
        Command::Demote(args) => movers::demote(&args),
        Command::Import(args) => import::run(&args),
        Command::Rebalance(args) => movers::rebalance(&args),
        Command::Pin(args) => pin::pin(&args),
        Command::Unpin(args) => pin::unpin(&args),
        Command::Job(command) => job::run(&command),
        Command::Trace(TraceCommand::Record(args)) => trace::record(&args),
        Command::Placement(PlacementCommand::Simulate(args)) => simulate::run(&args),
        Command::Drill(args) => drill::run(&args),
        Command::Fsck(args) => return fsck::run(&args),
        Command::Bench(BenchCommand::Calibrate(args)) => bench::calibrate(&args),
        Command::Version => table::print(&format!("braid {}\n", env!("CARGO_PKG_VERSION"))),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
