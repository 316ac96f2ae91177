//! `braid upgrade`, and `braid take-over`, by which the new program begins.

use crate::args::{Command, CommandLine, FrontArgs, LogCommand, UpgradeArgs};
use crate::failure::{Failure, Result};
use crate::{background, locate, mount, serving, table};
use braid_contract::Shown;
use braid_daemon::config::Config;
use braid_daemon::serve::Start;
use braid_daemon::upgrade::{Launch, Predecessor};
use braid_ipc::mounts::Mount;
use braid_ipc::protocol::{Reply, Request, Upgrade};
use clap::Parser;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

/// Has another program go on with a mount, or with all.
pub(crate) fn run(args: &UpgradeArgs) -> Result<()> {
    let program = program(args.to.clone())?.to_string_lossy().into_owned();
    if !args.all {
        return upgrade(&locate::given_or_only(args.mountpoint.as_deref())?, program, args.json);
    }
    let mut result = Ok(());
    for daemon in braid_ipc::daemons::list() {
        let upgraded = upgrade(&daemon.mount(), program.clone(), args.json);
        // One that is not does not keep the others from it.
        result = match (result, upgraded) {
            (Err(first), Err(other)) => {
                eprintln!("braid: {first}");
                Err(other)
            }
            (result, upgraded) => result.and(upgraded),
        };
    }
    result
}

fn upgrade(mount: &Mount, program: String, json: bool) -> Result<()> {
    let mut daemon = locate::need_daemon(mount)?;
    locate::ask(&mut daemon, &Request::Upgrade { program }, |reply| match reply {
        Reply::Upgrading(upgrading) => Some(upgrading),
        _ => None,
    })?;
    // The old process hangs up when it serves the mount no more. The new one answers
    // later connections.
    while daemon.receive().is_ok() {}
    let mut daemon = locate::need_daemon(mount)?;
    let hello = locate::ask(&mut daemon, &Request::Hello, |reply| match reply {
        Reply::Hello(hello) => Some(hello),
        _ => None,
    })?;
    let upgrade = hello.upgrade.ok_or_else(|| Failure::new("the daemon does not say how it went"))?;
    if json {
        table::print_json(&upgrade)?;
    }
    match &upgrade.error {
        Some(why) => Err(Failure::new(format!(
            "{} is served by the program before, which has gone on after {} ms: {why}",
            mount.point.shown(),
            milliseconds(&upgrade)
        ))),
        None if json => Ok(()),
        None => table::print(&format!(
            "{} is served by braid {} now, process {}; operations were held up for {} ms\n",
            mount.point.shown(),
            upgrade.to,
            hello.pid,
            milliseconds(&upgrade)
        )),
    }
}

fn milliseconds(upgrade: &Upgrade) -> u64 {
    upgrade.paused_ns.div_ceil(1_000_000)
}

/// The program that is asked for, or this one.
fn program(asked: Option<PathBuf>) -> Result<PathBuf> {
    let given = match asked {
        Some(path) => path,
        None => std::env::current_exe().map_err(|error| Failure::new(error.to_string()))?,
    };
    let found = std::fs::canonicalize(&given);
    found.map_err(|error| Failure::new(format!("the program {}: {error}", given.shown())))
}

/// Takes the mount over whose process is at the other end of the standard input.
pub(crate) fn take_over() -> Result<()> {
    let (predecessor, launch) = Predecessor::come().map_err(|error| {
        Failure::usage(format!("take-over is for braid upgrade, which starts it: {error}"))
    })?;
    let config = match prepare(&launch) {
        Ok(config) => config,
        Err(failure) => {
            predecessor.refuse(&failure.to_string());
            return Err(failure.told());
        }
    };
    let received = match predecessor.accept() {
        Ok(received) => received,
        // It went on by itself, and says why.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
        Err(error) => return Err(Failure::new(format!("the mount was not handed over: {error}"))),
    };
    serving::serve(&config, &launch, Start::TakeOver(Box::new(received)), |_| {})
}

/// Reads the stack to be mounted.
fn prepare(launch: &Launch) -> Result<Config> {
    let words = std::iter::once(OsString::from("braid")).chain(launch.words());
    let parsed = CommandLine::try_parse_from(words);
    let begin_log = |front: &FrontArgs| background::begin_log(&front.log_level, launch.log_file.as_deref());
    match parsed.map(|line| line.command) {
        Ok(Command::Mount(args)) => {
            let args = args.settled()?;
            begin_log(&args.front)?;
            mount::config_of(&args, launch.stack()?)
        }
        Ok(Command::Log(LogCommand::Mount(args))) => {
            begin_log(&args.front)?;
            let mut config = launch.stack()?;
            config.mount = mount::mount_settings(&args.front)?;
            Ok(config)
        }
        Ok(_) => Err(Failure::new("the mount was made by another command")),
        Err(error) => {
            Err(Failure::new(format!("this version does not know how the mount was made: {error}")))
        }
    }
}
