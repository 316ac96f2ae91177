//! The `braid` command: reads arguments, calls the daemon crate or asks a
//! running daemon, and prints. It makes no decisions about storage.
#![forbid(unsafe_code)]

mod affected;
mod args;
mod background;
mod bench;
mod create;
mod drill;
mod eject;
mod explain;
mod failure;
mod figures;
mod frames;
mod fsck;
mod health;
mod hints;
mod import;
mod interrupt;
mod job;
mod kv;
mod limits;
mod locate;
mod logfs;
mod manual;
mod modules;
mod mount;
mod mount_helper;
mod movers;
mod pin;
mod poll;
mod progress;
mod rehome;
mod runtime;
mod saved;
mod scrub;
mod served;
mod serving;
mod simulate;
mod stack;
mod status;
mod sync;
mod table;
mod tier;
mod top;
mod trace;
mod umount;
mod upgrade;
mod zoned;

use args::{
    BenchCommand, Command, CommandLine, FramesCommand, HintsCommand, LogCommand, ModuleCommand,
    PlacementCommand, StackCommand, TierCommand, TraceCommand, ZonedCommand,
};
use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut words = std::env::args_os();
    if let Some(done) = mount_helper::run(words.next().as_deref()) {
        return done;
    }
    let done = match CommandLine::parse().command {
        Command::Create(args) => create::run(&args),
        Command::Mount(args) => args.settled().and_then(|args| mount::run(&args, &words.collect::<Vec<_>>())),
        Command::Umount(args) => umount::run(&args),
        Command::Status(args) if args.check => return health::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Sync(args) => sync::run(&args),
        Command::Scrub(args) => scrub::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Reload(args) => stack::reload(&args),
        Command::Upgrade(args) => upgrade::run(&args),
        Command::TakeOver => upgrade::take_over(),
        Command::ModuleHost => modules::host(),
        Command::Stack(StackCommand::Check(args)) => stack::check(&args),
        Command::Stack(StackCommand::Dump(args)) => stack::dump(&args),
        Command::Stack(StackCommand::List(args)) => stack::list(&args),
        Command::Stack(StackCommand::Modify(args)) => stack::modify(&args),
        Command::Stack(StackCommand::Schema) => stack::schema(),
        Command::Module(ModuleCommand::List(args)) => modules::list(&args),
        Command::Module(ModuleCommand::Upgrade(args)) => modules::upgrade(&args),
        Command::Module(ModuleCommand::Repo(command)) => modules::repo(&command),
        Command::Module(ModuleCommand::Debug(args)) => modules::debug(&args),
        Command::Module(ModuleCommand::Header) => modules::header(),
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
        Command::Hints(HintsCommand::List(args)) => hints::list(&args),
        Command::Hints(HintsCommand::Explain(args)) => hints::explain(&args),
        Command::Hints(HintsCommand::Learn(args)) => hints::learn(&args),
        Command::Kv(command) => return kv::run(&command),
        Command::Frames(FramesCommand::Cat(args)) => frames::cat(&args),
        Command::Zoned(ZonedCommand::Emulate(args)) => zoned::emulate(&args),
        Command::Log(LogCommand::Create(args)) => logfs::create(&args),
        Command::Log(LogCommand::Mount(args)) => logfs::mount(&args, &words.collect::<Vec<_>>()),
        Command::Log(LogCommand::Check(args)) => logfs::check(&args),
        Command::Log(LogCommand::Show(args)) => logfs::show(&args),
        Command::Drill(args) => drill::run(&args),
        Command::Fsck(args) => return fsck::run(&args),
        Command::Eject(args) => eject::run(&args),
        Command::Bench(BenchCommand::Calibrate(args)) => bench::calibrate(&args),
        Command::Bench(BenchCommand::Runtime(args)) => runtime::bench(&args),
        Command::Runtime(args) => runtime::show(&args),
        Command::Manual(args) => manual::write(&args),
        Command::Version => table::print(&format!("braid {}\n", env!("CARGO_PKG_VERSION"))),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
