//! `braid eject`: all data of a volume comes home, and Braid goes.

use crate::args::EjectArgs;
use crate::failure::{Failure, Result};
use crate::progress::{self, Progress};
use crate::{fsck, interrupt, mount, table};
use braid_contract::{Shown, counted};
use braid_daemon::config::Config;
use braid_daemon::eject;
use braid_daemon::units::show_size;
use serde::Serialize;

/// Files that are named where many are in the way.
const NAMED_MAX: usize = 20;

#[derive(Serialize)]
struct Told {
    files: u64,
    bytes: u64,
    room: u64,
    done: bool,
    hindrance: Option<String>,
    left: Vec<Left>,
}

/// A file that is in the way.
#[derive(Serialize)]
struct Left {
    path: String,
    why: String,
}

pub(crate) fn run(args: &EjectArgs) -> Result<()> {
    let config = mount::stack(&args.stack)?;
    if let Some(mount) = fsck::serving(&config) {
        let point = mount.point.shown();
        return Err(Failure::new(format!(
            "the volume is mounted at {point}\n  help: unmount it first: braid umount {point}"
        )));
    }
    let told = ejected(&config, args.dry_run)?;
    if args.json {
        table::print_json(&told)?;
    } else {
        table::print(&render(&told, args.dry_run))?;
    }
    let in_the_way = !told.left.is_empty() || told.hindrance.is_some();
    match in_the_way || !(told.done || args.dry_run) {
        false => Ok(()),
        true => Err(Failure::new(why(&told, args.dry_run))),
    }
}

fn ejected(config: &Config, dry_run: bool) -> Result<Told> {
    interrupt::watch();
    let mut progress = Progress::new();
    let ejection = eject::run(config, dry_run, &mut |now| {
        let bar = progress::bar(now.done, now.total);
        progress.show(&format!("{bar} {} of {} are home", show_size(now.done), show_size(now.total)));
        !interrupt::came()
    })?;
    let left = ejection.left.into_iter();
    Ok(Told {
        files: ejection.files,
        bytes: ejection.bytes,
        room: ejection.room,
        done: ejection.done,
        hindrance: ejection.hindrance,
        left: left.map(|(path, why)| Left { path: path.to_string_lossy().into_owned(), why }).collect(),
    })
}

fn render(told: &Told, dry_run: bool) -> String {
    let mut text = String::new();
    for Left { path, why } in told.left.iter().take(NAMED_MAX) {
        text.push_str(&format!("{}: {why}\n", path.shown()));
    }
    if told.left.len() > NAMED_MAX {
        text.push_str(&format!("… and {} more\n", told.left.len() - NAMED_MAX));
    }
    let amount = format!("{} of {}", show_size(told.bytes), counted(told.files, "file"));
    text.push_str(&match (dry_run, told.done) {
        (true, _) => format!("to bring home: {amount}; home has room for {}\n", show_size(told.room)),
        (false, true) => format!("brought home: {amount}; nothing of Braid is left\n"),
        (false, false) => String::new(),
    });
    text
}

fn why(told: &Told, dry_run: bool) -> String {
    let what = match (&told.hindrance, told.left.len()) {
        (Some(hindrance), 0) => hindrance.clone(),
        (_, files) => format!(
            "{} can't be brought home; see braid fsck, and remove or restore them",
            counted(files as u64, "file")
        ),
    };
    let still = if dry_run {
        ""
    } else {
        "\n  help: the volume can be mounted as before; go on with the same command"
    };
    what + still
}
