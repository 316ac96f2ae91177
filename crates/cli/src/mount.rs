//! `braid mount`.

use crate::args::{MountArgs, StackArgs};
use crate::background;
use crate::failure::{Failure, Result};
use braid_daemon::config::{Config, MountSettings, THREADS};
use braid_daemon::flags::{self, StackFlags};
use braid_daemon::metrics::Address;
use braid_daemon::refusal::{Located, Place};
use braid_daemon::serve::{self, ServeError};
use braid_daemon::{log, own_files, stack_file, validate};

/// Mounts in this process or, usually, in a daemon.
pub(crate) fn run(args: &MountArgs) -> Result<()> {
    if args.foreground {
        return foreground(args);
    }
    // What is wrong is best said before anything is started or logged.
    let config = config(args)?;
    let point = validate::mount(&config, &args.mountpoint, args.nonempty)?;
    background::start(args, &point.path)?;
    tell_own_files(&config);
    Ok(())
}

/// Tells of files that nobody sees.
fn tell_own_files(config: &Config) {
    for tier in own_files::tiers(config.stack.volume()) {
        eprintln!("braid: {}", own_files::notice(tier));
    }
}

/// The stack that the arguments describe.
pub(crate) fn stack(args: &StackArgs) -> Result<Config> {
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
    })?)
}

fn config(args: &MountArgs) -> Result<Config> {
    let mut config = stack(&args.stack)?;
    config.mount = mount_settings(args)?.or(config.mount);
    config.without(&args.without)?;
    Ok(config)
}

fn mount_settings(args: &MountArgs) -> Result<MountSettings> {
    let threads = match args.threads {
        Some(count) if !THREADS.contains(&count) => {
            let advice = format!("write a whole number from {} to {}", THREADS.start(), THREADS.end());
            return Err(Place::flag(format!("--threads {count}")).refuse("out of bounds", advice).into());
        }
        Some(count) => Some(Located::new(count, Place::flag(format!("--threads {count}")))),
        None => None,
    };
    let metrics = args.metrics.as_ref().map(|text| {
        let place = Place::flag(format!("--metrics {text}"));
        match Address::parse(text) {
            Ok(address) => Ok(Located::new(address, place)),
            Err(advice) => Err(place.refuse("not an address of this machine", advice)),
        }
    });
    let flag = |set: bool, name: &str, value: bool| set.then(|| Located::new(value, Place::flag(name)));
    Ok(MountSettings {
        threads,
        allow_other: flag(args.allow_other, "--allow-other", true).or(flag(
            args.no_allow_other,
            "--no-allow-other",
            false,
        )),
        passthrough: flag(args.no_passthrough, "--no-passthrough", false),
        metrics: metrics.transpose()?,
    })
}

/// Mounts and serves; this is the daemon.
fn foreground(args: &MountArgs) -> Result<()> {
    let report = background::Report::new(args.ready_on_stdout);
    let served = prepare(args).and_then(|config| {
        let served = serve::run(&config, &args.mountpoint, args.nonempty, || report.ready());
        served.map_err(|error| match error {
            ServeError::Refused(refusal) => refusal.into(),
            ServeError::Failed(what) => Failure::new(what),
        })
    });
    served.map_err(|failure| if report.failed(&failure) { failure.told() } else { failure })
}

fn prepare(args: &MountArgs) -> Result<Config> {
    let file = match &args.log_file {
        Some(path) => Some(log::open(path).map_err(|error| background::no_log(path, &error))?),
        None => None,
    };
    log::start(&args.log_level, file)?;
    config(args)
}
