//! `braid log`: log-structured file systems.

use crate::args::{LogCheckArgs, LogCreateArgs, LogMountArgs, LogPathArgs};
use crate::failure::{Failure, Result};
use crate::{mount, table, umount};
use braid_contract::units::show_size;
use braid_contract::{Shown, counted};
use braid_daemon::config::Config;
use braid_daemon::logfs::settings::LogFlags;
use braid_daemon::logfs::{Checked, Repaired, Salvaged};
use braid_daemon::{flags, logfs};
use jiff::Timestamp;
use std::ffi::OsString;
use std::fmt::{Display, Write as _};
use std::path::PathBuf;

pub(crate) fn create(args: &LogCreateArgs) -> Result<()> {
    let size = logfs::create(&args.path, args.size, args.force)?;
    let (path, size) = (args.path.shown(), show_size(size));
    table::print(&format!(
        "{path} is a log file system of {size}\n  next: braid log mount {path} DIRECTORY\n"
    ))
}

/// Mounts in this process or, usually, in a daemon; `words` are the command line.
pub(crate) fn mount(args: &LogMountArgs, words: &[OsString]) -> Result<()> {
    let front = &args.front;
    let config = || -> Result<Config> {
        let (device, driver) = (args.path.clone(), args.driver.clone());
        let mut config =
            flags::log(&LogFlags { device, driver, workers: args.workers, salvage: args.salvage })?;
        config.mount = mount::mount_settings(front)?;
        if args.salvage {
            // The last of options that contradict each other counts.
            config.mount.options.push("ro".into());
        }
        Ok(config)
    };
    let point = || -> Result<PathBuf> {
        umount::clear_dead(&args.mountpoint)?;
        Ok(args.mountpoint.clone())
    };
    if front.foreground {
        return mount::foreground(front, (words, 2), config, |_| point());
    }
    mount::start(&config()?, &point()?, front, (words, 2))
}

pub(crate) fn check(args: &LogCheckArgs) -> Result<()> {
    let path = args.path.shown();
    if !args.repair {
        let checked = logfs::check(&args.path)?;
        return tell(
            &checked,
            &path,
            &format!(
                "mount it to be read only: braid log mount --salvage {path} DIRECTORY; \
                 copy what can be read, and make it anew, or repair it: braid log check --repair {path}"
            ),
        );
    }
    let Repaired { salvaged, checked } = logfs::repair(&args.path)?;
    if let Some(salvaged) = salvaged {
        tell_repair(&salvaged, &path)?;
    }
    tell(&checked, &path, "the repair left it; report this, with the device as it is")
}

/// Prints the result of a check, and fails if there are problems.
fn tell(checked: &Checked, path: &impl Display, help: &str) -> Result<()> {
    let mut text = String::new();
    // Writing to a string does not fail.
    checked.problems.iter().for_each(|problem| _ = writeln!(text, "{problem}"));
    let count = checked.problems.len();
    if count > 0 {
        table::print(&text)?;
        let problems = counted(count as u64, "problem");
        return Err(Failure::new(format!("{path}: {problems}\n  help: {help}")));
    }
    let sound = checked.figures.as_ref().map_or_else(String::new, |figures| {
        let files = figures.directories + figures.files + figures.others;
        format!("{path}: sound; {}, {} free", counted(files as u64, "inode"), show_size(figures.free))
    });
    table::print(&format!("{sound}\n"))
}

/// Prints what was wrong.
fn tell_repair(salvaged: &Salvaged, path: &impl Display) -> Result<()> {
    let mut text = String::new();
    for (trouble, found) in &salvaged.wrong {
        _ = writeln!(text, "{trouble}: {}", found.count);
        found.named.iter().for_each(|named| _ = writeln!(text, "  {named}"));
        if found.named.len() as u64 != found.count && !found.named.is_empty() {
            _ = writeln!(text, "  and more");
        }
    }
    _ = writeln!(text, "{path}: repaired");
    if let Some(name) = &salvaged.lost_and_found {
        _ = writeln!(text, "  next: what lost its name is in the directory {name}");
    }
    table::print(&text)
}

pub(crate) fn show(args: &LogPathArgs) -> Result<()> {
    let figures = logfs::figures(&args.path)?;
    let time = |ns: i64| {
        let moment = Timestamp::from_nanosecond(ns.into()).ok();
        moment.map_or_else(
            || "unknown".to_owned(),
            |moment| moment.strftime("%Y-%m-%d %H:%M:%S UTC").to_string(),
        )
    };
    let uuid: String = figures.uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    let state = if figures.is_clean { "closed" } else { "to be recovered at the next mount" };
    let segments: Vec<String> = figures.segments.iter().map(ToString::to_string).collect();
    let rows = [
        ("id", uuid),
        ("made", time(figures.made_ns)),
        ("state", state.to_owned()),
        ("size", show_size(figures.bytes)),
        ("free", show_size(figures.free)),
        ("data", show_size(figures.data)),
        (
            "inodes",
            format!(
                "{} directories, {} files, {} others",
                figures.directories, figures.files, figures.others
            ),
        ),
        ("unnamed", format!("{} files that were open and have no name", figures.orphans)),
        ("checkpoint", format!("number {}, {}", figures.generation, time(figures.checkpoint_ns))),
        ("image", format!("{} records in {} segments", figures.image_records, figures.image_segments)),
        (
            "workers",
            format!(
                "{}, with {} segments of {}",
                segments.len(),
                segments.join("+"),
                show_size(figures.segment_bytes)
            ),
        ),
        (
            "log",
            format!("{} records behind the image, {} that power loss cut off", figures.records, figures.lost),
        ),
    ];
    let mut text = String::new();
    rows.iter().for_each(|(name, value)| _ = writeln!(text, "{name:<11}{value}"));
    table::print(&text)
}
