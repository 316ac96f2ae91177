//! Searches for power losses that a zoned store does not survive: random operations on
//! a small simulated device, with zones or cut into units, whose power is lost at each of its effects, in many
//! combinations of what is left, and again while it recovers.
//!
//! `cargo test -p braid-stores --test zoned_crash` searches for a short while; with
//! arguments (see `-- --help`) for longer, or repeats a failure.

mod disk;
mod explore;
mod model;
mod op;
mod run;

use braid_testkit::crash::RunnerWord;
use explore::{Case, Totals};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// How to call it.
const USAGE: &str = "\
Searches for power losses that a zoned store does not survive.

  --states N    end after about N crash states (5000)
  --seconds T   end after about T seconds
  --seed S      decides on everything that is drawn (1)
  --case N      only this case of the seed, which is told if it fails
  --per-cut N   crash states for each moment, at most (4)
  --help        say this
";

/// States of a search of test-suite length.
const STATES_DEFAULT: u64 = 5000;

/// The command line.
struct Arguments {
    states: u64,
    time: Duration,
    seed: u64,
    case: Option<u64>,
    per_cut: u64,
}

impl Arguments {
    /// Reads the command line; `None` if nothing is to be run: it asks for help, or is
    /// a test runner's that selects no test of this target.
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Option<Self>, String> {
        let (mut states, mut time, mut nothing) = (None, None, false);
        let mut arguments = Self { states: 0, time: Duration::MAX, seed: 1, case: None, per_cut: 4 };
        while let Some(word) = words.next() {
            let (flag, given) = match word.split_once('=') {
                Some((flag, value)) if word.starts_with('-') => (flag, Some(value.to_owned())),
                _ => (&*word, None),
            };
            let mut value = || given.clone().or_else(|| words.next());
            let mut number = || {
                let number = value().and_then(|value| value.replace('_', "").parse::<u64>().ok());
                number.ok_or_else(|| format!("{flag} needs a number\n\n{USAGE}"))
            };
            match flag {
                "--states" => states = Some(number()?),
                "--seconds" => time = Some(Duration::from_secs(number()?)),
                "--seed" => arguments.seed = number()?,
                "--case" => arguments.case = Some(number()?),
                "--per-cut" => arguments.per_cut = number()?.max(1),
                "--help" | "-h" => {
                    print!("{USAGE}");
                    return Ok(None);
                }
                _ => match RunnerWord::of(flag, "zoned_crash") {
                    Some(RunnerWord::SelectsNothing) => nothing = true,
                    Some(RunnerWord::NeedsValue) => drop(value()),
                    Some(RunnerWord::Alone) => {}
                    None => return Err(format!("{flag} is no option\n\n{USAGE}")),
                },
            }
        }
        arguments.states = states.unwrap_or(if time.is_some() { u64::MAX } else { STATES_DEFAULT });
        arguments.time = time.unwrap_or(Duration::MAX);
        Ok((!nothing).then_some(arguments))
    }
}

fn main() -> ExitCode {
    match Arguments::parse(std::env::args().skip(1)) {
        Ok(Some(arguments)) if search(&arguments) => ExitCode::SUCCESS,
        Ok(None) => ExitCode::SUCCESS,
        Ok(Some(_)) => ExitCode::FAILURE,
        Err(usage) => {
            eprintln!("{usage}");
            ExitCode::FAILURE
        }
    }
}

/// Searches; answers whether nothing was found.
fn search(arguments: &Arguments) -> bool {
    // A panic is a finding, and reported as one.
    std::panic::set_hook(Box::new(|panic| eprintln!("{panic}")));
    let (began, seed, mut totals) = (Instant::now(), arguments.seed, Totals::default());
    let mut failed = None;
    let cases = arguments.case.map_or(0..u64::MAX, |case| case..case.saturating_add(1));
    for which in cases {
        if totals.states >= arguments.states || began.elapsed() >= arguments.time {
            break;
        }
        let case = Case::draw(seed, which);
        if case.explore(arguments.per_cut, &mut totals).is_err() {
            failed = Some((which, case));
            break;
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    println!(
        "zoned_crash: {} cases ({} end with a fault), {} moments ({} of them before a zone was emptied or finished, {} KiB moved), {} crash states ({} of them after another one) in {seconds:.1} s: {:.0} a second, seed {seed}",
        totals.cases,
        totals.stuck,
        totals.moments,
        totals.emptied,
        totals.moved_bytes >> 10,
        totals.states,
        totals.again,
        totals.states as f64 / seconds,
    );
    let Some((which, case)) = failed else { return true };
    let shrunk = case.shrink(arguments.per_cut);
    let why = shrunk.explore(arguments.per_cut, &mut Totals::default()).err().unwrap_or_default();
    println!("zoned_crash: {:?}\n{why}", shrunk.setup);
    println!(
        "zoned_crash: again: cargo test --release -p braid-stores --test zoned_crash -- --seed {seed} --case {which} --per-cut {}",
        arguments.per_cut
    );
    false
}
