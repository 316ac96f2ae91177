//! Damages the tiers of a volume that is not mounted, for drills and tests of
//! the check and of the rescue script.
#![forbid(unsafe_code)]

use braid_contract::ObjectId;
use braid_testkit::damage::{Kind, Target, Volume};
use clap::Parser;
use std::path::PathBuf;
use std::process::ExitCode;

/// Damage the tiers of a volume that is not mounted.
#[derive(Parser)]
struct Args {
    /// What to do, by name
    #[arg(required_unless_present = "list", requires = "home")]
    kind: Option<String>,
    /// Show what can be done
    #[arg(long, conflicts_with = "kind")]
    list: bool,
    /// Directory of the home tier
    #[arg(long, value_name = "DIR")]
    home: Option<PathBuf>,
    /// Directory of another tier; repeat for each
    #[arg(long = "tier", value_name = "DIR")]
    tiers: Vec<PathBuf>,
    /// The spread file to damage, below the volume's root
    #[arg(long, value_name = "FILE", conflicts_with = "id")]
    path: Option<PathBuf>,
    /// The id of the spread file to damage
    #[arg(long)]
    id: Option<ObjectId>,
    /// Decides which file, which byte and which bit
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn main() -> ExitCode {
    match run(Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("damage: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: Args) -> Result<(), String> {
    let (Some(name), Some(home)) = (args.kind, args.home) else {
        Kind::all().for_each(|kind| println!("{kind}"));
        return Ok(());
    };
    let kind = Kind::by_name(&name).ok_or_else(|| format!("there is no kind {name}; see --list"))?;
    let target = match (args.path, args.id) {
        (Some(path), _) => Target::Path(path),
        (None, Some(id)) => Target::Id(id),
        (None, None) => Target::Any,
    };
    let volume = Volume { home, others: args.tiers };
    let applied = kind.apply(&volume, &target, args.seed).map_err(|error| error.to_string())?;
    println!("{kind}");
    println!("place: {}", applied.place.display());
    if let Some(path) = applied.path {
        println!("file: {}", path.display());
    }
    if let Some(id) = applied.id {
        println!("id: {id}");
    }
    println!("answer: {:?}", applied.answer);
    Ok(())
}
