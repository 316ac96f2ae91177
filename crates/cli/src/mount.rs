//! `braid mount`.

use crate::args::{FrontArgs, MountArgs, StackArgs};
use crate::failure::{Failure, Result};
use crate::kv;
use crate::{background, limits, serving, table, umount};
use braid_contract::Shown;
use braid_contract::units::parse_size;
use braid_daemon::config::{
    Cache, Config, INODES, MountSettings, THREADS, Transport, VolumeSettings, parse_poll,
};
use braid_daemon::elsewhere::{self, Elsewhere};
use braid_daemon::flags::{self, StackFlags};
use braid_daemon::kv::settings::KvSettings;
use braid_daemon::metrics::Address;
use braid_daemon::refusal::{Located, Place};
use braid_daemon::runtime::RuntimeSettings;
use braid_daemon::serve::Start;
use braid_daemon::upgrade::Launch;
use braid_daemon::{nice, own_files, stack_file, supervisor, validate};
use rustix::mount::mount_bind;
use rustix::process::geteuid;
use std::ffi::OsString;
use std::io;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

/// Mounts in this process or, usually, in a daemon; `words` are the command
/// line of `args`.
pub(crate) fn run(args: &MountArgs, words: &[OsString]) -> Result<()> {
    if args.front.foreground {
        let point = |config: &Config| clear_mount_point(args, config);
        return foreground(&args.front, (words, 1), || config(args), point);
    }
    // Errors are best reported before anything is started or logged.
    let config = config(args)?;
    let point = clear_mount_point(args, &config)?;
    start(&config, &point, &args.front, (words, 1))
}

/// Starts a daemon that mounts; `words` are the command line, of which the first `names`
/// name the command.
pub(crate) fn start(
    config: &Config,
    point: &Path,
    front: &FrontArgs,
    (words, names): (&[OsString], usize),
) -> Result<()> {
    let point = validate::mount(config, point, front.nonempty)?;
    if let Some(elsewhere) = config.stack.volume().and_then(elsewhere::find) {
        return mount_again(&elsewhere, &point.path);
    }
    limits::warn(config)?;
    background::start(front.log_file.as_deref(), words, names, &point.path)?;
    config.stack.volume().into_iter().for_each(tell_own_files);
    Ok(())
}

/// Checks whether this could be mounted.
pub(crate) fn look(args: &MountArgs) -> Result<()> {
    let config = config(args)?;
    validate::mount(&config, &clear_mount_point(args, &config)?, args.front.nonempty)?;
    Ok(())
}

/// The mount point, cleared of a dead daemon's mount.
fn clear_mount_point(args: &MountArgs, config: &Config) -> Result<PathBuf> {
    let in_file = || config.mount.point.as_ref().map(|point| point.value.clone());
    let point = args.mountpoint.clone().or_else(in_file).ok_or_else(|| {
        Failure::usage(
            "it is not said where to mount\n  \
             help: name a directory behind the stack file, or write mount: { point: DIRECTORY } in it",
        )
    })?;
    umount::clear_dead(&point)?;
    Ok(point)
}

/// Mounts a volume with a running daemon at one more place.
fn mount_again(elsewhere: &Elsewhere, point: &Path) -> Result<()> {
    let Some(first) = &elsewhere.now else {
        let (found, advice) = elsewhere.describe();
        return Err(Failure::new(format!("the volume {found}\n  help: {advice}")));
    };
    let (first, shown) = (first.shown(), point.shown());
    if !geteuid().is_root() {
        return Err(Failure::new(format!(
            "the volume is mounted at {first} already, and only root can mount it at a second place (a bind mount)\n  \
             help: use it there, or unmount it first: braid umount {first}"
        )));
    }
    let failed =
        |error| Failure::new(format!("{first} can't be bound to {shown}: {}", io::Error::from(error)));
    mount_bind(elsewhere.now.as_deref().unwrap_or(point), point).map_err(failed)?;
    table::print(&format!("the volume is mounted at {first} already; {shown} is the same (a bind mount)\n"))
}

/// Reports files that are not visible in the volume.
pub(crate) fn tell_own_files(volume: &VolumeSettings) {
    for tier in own_files::tiers(volume) {
        eprintln!("braid: {}", own_files::notice(tier));
    }
}

/// The stack that the arguments describe.
pub(crate) fn stack(args: &StackArgs) -> Result<Config> {
    stack_with(args, None)
}

/// The same with these movers, where it is described by flags.
fn stack_with(args: &StackArgs, movers: Option<&String>) -> Result<Config> {
    if let Some(path) = &args.stack {
        return Ok(stack_file::load(path)?);
    }
    if args.tiers.is_empty() {
        return Err(Failure::usage("give a stack file, or --tier NAME=DIR for each tier (see --help)"));
    }
    Ok(flags::parse(&StackFlags {
        tiers: args.tiers.clone(),
        home: args.home.clone(),
        policy: args.policy.clone(),
        range: args.range.clone(),
        movers: movers.cloned(),
    })?)
}

fn config(args: &MountArgs) -> Result<Config> {
    config_of(args, stack_with(&args.stack, args.movers.as_ref())?)
}

/// The settings of a mount of this stack by the arguments.
pub(crate) fn config_of(args: &MountArgs, mut config: Config) -> Result<Config> {
    let flags =
        MountSettings { inodes: counted("--inodes", args.inodes, &INODES)?, ..mount_settings(&args.front)? };
    config.mount = flags.or(config.mount);
    config.create = args.create;
    if args.no_measure {
        config.without_measuring();
    }
    config.without(&args.without)?;
    Ok(config)
}

/// A count of a flag, within these bounds.
fn counted(
    flag: &str,
    count: Option<usize>,
    bounds: &RangeInclusive<usize>,
) -> Result<Option<Located<usize>>> {
    let Some(count) = count else { return Ok(None) };
    let place = Place::flag(format!("{flag} {count}"));
    if !bounds.contains(&count) {
        let advice = format!("write a whole number from {} to {}", bounds.start(), bounds.end());
        return Err(place.refuse("out of bounds", advice).into());
    }
    Ok(Some(Located::new(count, place)))
}

/// The value of a flag, if it is set.
fn flag(set: bool, name: &str, value: bool) -> Option<Located<bool>> {
    set.then(|| Located::new(value, Place::flag(name)))
}

/// The settings by the flags of every mount.
pub(crate) fn mount_settings(args: &FrontArgs) -> Result<MountSettings> {
    Ok(MountSettings {
        point: None,
        options: args.options.clone(),
        threads: counted("--threads", args.threads, &THREADS)?,
        nice: parsed("--nice", args.nice.as_ref(), "not a nice value", nice::parse)?,
        allow_other: flag(args.allow_other, "--allow-other", true).or(flag(
            args.no_allow_other,
            "--no-allow-other",
            false,
        )),
        cache: parsed("--cache", args.cache.as_ref(), "not a cache mode", Cache::parse)?,
        dirty: parsed("--dirty", args.dirty.as_ref(), "not a size", parse_size)?,
        inodes: None,
        xattr: flag(args.xattr, "--xattr", true).or(flag(args.no_xattr, "--no-xattr", false)),
        transport: parsed("--transport", args.transport.as_ref(), "not a transport", Transport::parse)?,
        poll: parsed("--poll", args.poll.as_ref(), "can't be used", parse_poll)?,
        restart: flag(args.restart, "--restart", true).or(flag(args.no_restart, "--no-restart", false)),
        runtime: match &args.runtime {
            Some(text) => Some(RuntimeSettings::from_flag(text)?),
            None => args.no_runtime.then(|| RuntimeSettings::off("--no-runtime")),
        },
        metrics: parsed(
            "--metrics",
            args.metrics.as_ref(),
            "not an address of this machine",
            Address::parse,
        )?,
        kv: KvSettings::from_flags(&kv::flags(&args.kv))?,
        modifiable_by: Vec::new(),
    })
}

/// The value of a flag, if it is given; `problem` is said of one that is none.
fn parsed<T>(
    flag: &str,
    text: Option<&String>,
    problem: &str,
    parse: impl FnOnce(&str) -> std::result::Result<T, String>,
) -> Result<Option<Located<T>>> {
    let Some(text) = text else { return Ok(None) };
    let place = Place::flag(format!("{flag} {text}"));
    match parse(text) {
        Ok(value) => Ok(Some(Located::new(value, place))),
        Err(advice) => Err(place.refuse(problem, advice).into()),
    }
}

/// Mounts and serves; this is the daemon, or where another process is to go on after a crash, its
/// guard. `words` are the command line, of which the first `names` name the command.
pub(crate) fn foreground(
    front: &FrontArgs,
    (words, names): (&[OsString], usize),
    config: impl FnOnce() -> Result<Config>,
    point: impl FnOnce(&Config) -> Result<PathBuf>,
) -> Result<()> {
    serve(front, |report| {
        let config = config()?;
        if config.mount.restarts() && !front.guarded {
            let ended = supervisor::run(&background::guarded(words, names))
                .map_err(|error| Failure::new(format!("the daemon can't be guarded: {error}")))?;
            // The daemon has said why.
            return if ended == 0 { Ok(()) } else { Err(Failure::new("the daemon failed").told()) };
        }
        let point = point(&config)?;
        let guard = front.guarded.then(background::guard).transpose()?;
        let start = Start::Mount { mountpoint: &point, nonempty: front.nonempty, guard };
        serve_at(&config, front, words, start, report)
    })
}

/// Begins to log, and reports a failure to the waiting command.
fn serve(front: &FrontArgs, serve: impl FnOnce(&background::Report) -> Result<()>) -> Result<()> {
    let report = background::Report::new(front.ready_on_stdout);
    let begun = background::begin_log(&front.log_level, front.log_file.as_deref());
    let served = begun.and_then(|()| serve(&report));
    served.map_err(|failure| if report.failed(&failure) { failure.told() } else { failure })
}

/// Serves a mount until it ends.
fn serve_at(
    config: &Config,
    front: &FrontArgs,
    words: &[OsString],
    start: Start<'_>,
    report: &background::Report,
) -> Result<()> {
    // The daemon leaves its working directory.
    let log_file = front.log_file.as_ref().map(std::path::absolute).transpose();
    let log_file = log_file.map_err(|error| Failure::new(error.to_string()))?;
    let launch = Launch::by(words, log_file, front.ready_on_stdout || front.guarded);
    serving::serve(config, &launch, start, |notices| report.ready(notices))
}
