//! `braid eject`: brings all data of a volume home, and removes Braid.

use crate::args::EjectArgs;
use crate::failure::{Failure, Result};
use crate::progress::{self, Progress};
use crate::{fsck, interrupt, mount, table};
use braid_contract::units::show_size;
use braid_contract::{Shown, counted};
use braid_daemon::config::Config;
use braid_daemon::eject::{self, EjectOptions};
use serde::Serialize;

/// Most files in the way that are named.
const NAMED_MAX: usize = 20;

#[derive(Serialize)]
struct Told {
    #[serde(flatten)]
    amounts: Amounts,
    /// The same with `--in-place`.
    in_place: Amounts,
    room: u64,
    done: bool,
    hindrance: Option<String>,
    left: Vec<Left>,
}

/// How much comes home, and how much stays where.
#[derive(Serialize)]
struct Amounts {
    files: u64,
    bytes: u64,
    /// Space that they take on home.
    space: u64,
    stays: Vec<Stays>,
}

#[derive(Serialize)]
struct Stays {
    tier: String,
    files: u64,
    bytes: u64,
}

impl From<eject::Amounts> for Amounts {
    fn from(amounts: eject::Amounts) -> Self {
        let stays = amounts.stays.into_iter().filter(|stays| stays.files > 0);
        let stays = stays.map(|stays| Stays { tier: stays.tier, files: stays.files, bytes: stays.bytes });
        Self { files: amounts.files, bytes: amounts.bytes, space: amounts.space, stays: stays.collect() }
    }
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
    let options = EjectOptions { dry_run: args.dry_run, in_place: args.in_place };
    let told = ejected(&config, options)?;
    if args.json {
        table::print_json(&told)?;
    } else {
        table::print(&render(&told, options))?;
    }
    let in_the_way = !told.left.is_empty() || told.hindrance.is_some();
    match in_the_way || !(told.done || args.dry_run) {
        false => Ok(()),
        true => Err(Failure::new(why(&told, options))),
    }
}

fn ejected(config: &Config, options: EjectOptions) -> Result<Told> {
    interrupt::watch();
    let mut progress = Progress::new();
    let ejection = eject::run(config, options, &mut |now| {
        let bar = progress::bar(now.done, now.total);
        progress.show(&format!("{bar} {} of {} are home", show_size(now.done), show_size(now.total)));
        !interrupt::came()
    })?;
    let left = ejection.left.into_iter();
    Ok(Told {
        amounts: ejection.amounts.into(),
        in_place: ejection.in_place.into(),
        room: ejection.room,
        done: ejection.done,
        hindrance: ejection.hindrance,
        left: left.map(|(path, why)| Left { path: path.to_string_lossy().into_owned(), why }).collect(),
    })
}

fn render(told: &Told, options: EjectOptions) -> String {
    let mut text = String::new();
    for Left { path, why } in told.left.iter().take(NAMED_MAX) {
        text.push_str(&format!("{}: {why}\n", path.shown()));
    }
    if told.left.len() > NAMED_MAX {
        text.push_str(&format!("… and {} more\n", told.left.len() - NAMED_MAX));
    }
    let amount = amount(told.amounts.bytes, told.amounts.files);
    if options.dry_run {
        let room = show_size(told.room);
        let holes = match told.amounts.space < told.amounts.bytes {
            true => format!(", which take {} of room", show_size(told.amounts.space)),
            false => String::new(),
        };
        text.push_str(&format!("to bring home: {amount}{holes}; home has room for {room}\n"));
        text.push_str(&staying(&told.amounts, "to stay on", ""));
        if !options.in_place {
            text.push_str(&staying(&told.in_place, "could stay on", " (--in-place)"));
        }
    } else if told.done {
        text.push_str(&staying(&told.amounts, "left on", ""));
        text.push_str(&format!("brought home: {amount}; nothing of Braid is left\n"));
    }
    text
}

fn amount(bytes: u64, files: u64) -> String {
    format!("{} of {}", show_size(bytes), counted(files, "file"))
}

/// A line for each tier on which files stay.
fn staying(amounts: &Amounts, word: &str, end: &str) -> String {
    let line = |stays: &Stays| format!("{word} {}: {}{end}\n", stays.tier, amount(stays.bytes, stays.files));
    amounts.stays.iter().map(line).collect()
}

fn why(told: &Told, options: EjectOptions) -> String {
    let what = match &told.hindrance {
        Some(hindrance) => hindrance.clone(),
        None => format!(
            "{} can't be brought home; see braid fsck, and remove or restore them",
            counted(told.left.len() as u64, "file")
        ),
    };
    let mut help = String::new();
    if !options.in_place && told.amounts.space > told.room && !told.in_place.stays.is_empty() {
        help = format!(
            "\n  help: with --in-place, what is wholly on another tier stays there, and home needs room for {}",
            show_size(told.in_place.space)
        );
    }
    if options.in_place && told.amounts.space > told.room {
        help.push_str(
            "\n  help: bring each of these to one tier (braid move, on the mounted volume), remove some, or \
             lower home's reserve",
        );
    }
    if !options.dry_run {
        help.push_str("\n  help: the volume is one still, and can be mounted");
        if told.left.is_empty() && told.amounts.space <= told.room {
            help.push_str("; go on with the same command");
        }
    }
    what + &help
}
