//! Searches for power losses that the log file system does not survive: random operations
//! on a small simulated device, whose power is lost at each of its effects, with many combinations
//! of blocks that survive, and again while it recovers. The state found must be exactly that after
//! one of the operations, and not before the last synced one. The process is killed, too, and
//! another one goes on: then all that was answered must be there.
//!
//! `cargo test -p braid-log --test log_crash` searches for a short while, after it has
//! found each of the planted bugs: faults of the device, and with `--features failpoints`
//! also bugs in the code. With arguments (see `-- --help`) it searches for longer, or repeats
//! a failure.
#![allow(dead_code, reason = "the simulated device has more than this needs")]

#[path = "../common/mod.rs"]
mod common;
mod explore;
mod op;
mod run;
mod tree;

#[cfg(feature = "failpoints")]
use braid_log::{Failpoint, set_failpoint};
use braid_testkit::crash::RunnerWord;
use common::Fault;
use explore::{Case, Totals};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// How to call it.
const USAGE: &str = "\
Searches for power losses that the log file system does not survive.

  --states N    end after about N crash states (5000)
  --seconds T   end after about T seconds
  --seed S      decides on everything that is drawn (1)
  --case N      only this case of the seed, which is told if it fails
  --per-cut N   crash states for each moment, at most (4)
  --help        say this
";

/// States of a search of test-suite length.
const STATES_DEFAULT: u64 = 5000;
/// States within which a planted bug has to be found.
const STATES_PLANTED: u64 = 40_000;

/// The command line.
struct Arguments {
    states: u64,
    time: Duration,
    seed: u64,
    case: Option<u64>,
    per_cut: u64,
    is_default: bool,
}

impl Arguments {
    /// Reads the command line; `None` if nothing is to be run.
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Option<Self>, String> {
        let (mut states, mut time, mut nothing) = (None, None, false);
        let mut arguments =
            Self { states: 0, time: Duration::MAX, seed: 1, case: None, per_cut: 4, is_default: true };
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
                _ => match RunnerWord::of(flag, "log_crash") {
                    Some(RunnerWord::SelectsNothing) => nothing = true,
                    Some(RunnerWord::NeedsValue) => drop(value()),
                    Some(RunnerWord::Alone) => {}
                    None => return Err(format!("{flag} is no option\n\n{USAGE}")),
                },
            }
        }
        arguments.is_default = states.is_none() && time.is_none() && arguments.case.is_none();
        arguments.states = states.unwrap_or(if time.is_some() { u64::MAX } else { STATES_DEFAULT });
        arguments.time = time.unwrap_or(Duration::MAX);
        Ok((!nothing).then_some(arguments))
    }
}

fn main() -> ExitCode {
    match Arguments::parse(std::env::args().skip(1)) {
        Ok(Some(arguments)) => {
            let found = !arguments.is_default || finds_planted_bugs();
            if search(&arguments) && found { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Ok(None) => ExitCode::SUCCESS,
        Err(usage) => {
            eprintln!("{usage}");
            ExitCode::FAILURE
        }
    }
}

/// A search that finds nothing must be able to find something.
fn finds_planted_bugs() -> bool {
    let mut all = true;
    for fault in [Fault::SkipsFlushes, Fault::FlushesLate] {
        all &= finds(&format!("{fault:?}"), Some(fault));
    }
    #[cfg(feature = "failpoints")]
    for failpoint in [Failpoint::ReuseAtOnce, Failpoint::TrustData, Failpoint::ForgetTail] {
        set_failpoint(Some(failpoint));
        all &= finds(&format!("{failpoint:?}"), None);
        set_failpoint(None);
    }
    all
}

/// Searches with a bug planted, in the device or in the code; returns whether it is found.
fn finds(bug: &str, fault: Option<Fault>) -> bool {
    let mut totals = Totals::default();
    let found = (0..).find_map(|which| {
        let failed = Case::draw(1, which, fault).explore(4, &mut totals).is_err();
        (failed || totals.states > STATES_PLANTED).then_some(failed)
    });
    let states = totals.states;
    match found {
        Some(true) => println!("log_crash: {bug} is found after {states} crash states"),
        _ => println!("log_crash: {bug} is NOT found in {states} crash states"),
    }
    found == Some(true)
}

/// Searches; returns whether nothing was found.
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
        let case = Case::draw(seed, which, None);
        if case.explore(arguments.per_cut, &mut totals).is_err() {
            failed = Some((which, case));
            break;
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    println!(
        "log_crash: {} cases, {} moments, {} crash states ({} of them after another one), {} kills in {seconds:.1} s: {:.0} a second, seed {seed}",
        totals.cases,
        totals.moments,
        totals.states,
        totals.again,
        totals.kills,
        totals.states as f64 / seconds,
    );
    let Some((which, case)) = failed else { return true };
    let shrunk = case.shrink(arguments.per_cut);
    let why = shrunk.explore(arguments.per_cut, &mut Totals::default()).err().unwrap_or_default();
    println!("log_crash: {:?}\n{why}", shrunk.setup);
    println!(
        "log_crash: again: cargo test --release -p braid-log --test log_crash -- --seed {seed} --case {which} --per-cut {}",
        arguments.per_cut
    );
    false
}
