//! The command line of a crash search, for test targets without the standard
//! harness.

use super::Subject;
use super::explore::{Explorer, Failure, Limits};
use super::search::{Search, Workloads};
use std::time::Duration;

/// How to call it.
const USAGE: &str = "\
Searches for crashes after which a volume has lost what it promised to keep.

  --states N       end after about N crash states
  --seconds T      end after about T seconds
  --seed S         decides on everything that is drawn
  --workload KIND  enumerated, random or both
  --threads N      threads to search with
  --per-cut N      crash states for each moment, about
  --no-times       do not look at modification times
  --replay LINE    repeat what was found
  --plant BUG      search with a bug planted, which must be found; `none` for
                   none, where all are planted in turn otherwise
";

/// What a search of test-suite length looks at.
const SECONDS_DEFAULT: u64 = 20;

/// What the command line asks for.
#[derive(Clone, Debug)]
pub struct Arguments {
    /// The search.
    pub search: Search,
    /// The line to be repeated instead.
    pub replay: Option<String>,
    /// The bug to be planted.
    pub plant: Option<String>,
    /// The command line is a test runner's, and asks for nothing to be run.
    nothing: bool,
}

impl Arguments {
    /// Reads the command line, without the program's name.
    ///
    /// # Errors
    /// What is wrong with it, or how to call it if that was asked for.
    pub fn parse(words: impl Iterator<Item = String>) -> Result<Self, String> {
        let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let mut arguments = Self {
            search: Search {
                workloads: Workloads::Both,
                seed: 1,
                states: u64::MAX,
                time: Duration::from_secs(SECONDS_DEFAULT),
                threads,
                limits: Limits::default(),
            },
            replay: None,
            plant: None,
            nothing: false,
        };
        let (mut words, mut timed, mut counted) = (words, false, false);
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{word} needs a value\n\n{USAGE}"));
            match word.as_str() {
                "--states" => (arguments.search.states, counted) = (number(&word, &value()?)?, true),
                "--seconds" => {
                    arguments.search.time = Duration::from_secs(number(&word, &value()?)?);
                    timed = true;
                }
                "--seed" => arguments.search.seed = number(&word, &value()?)?,
                "--threads" => arguments.search.threads = number(&word, &value()?)?.max(1) as usize,
                "--per-cut" => arguments.search.limits.states = number(&word, &value()?)?.max(2) as usize,
                "--no-times" => arguments.search.limits.times = false,
                "--workload" => arguments.search.workloads = workloads(&value()?)?,
                "--replay" => arguments.replay = Some(value()?),
                "--plant" => arguments.plant = Some(value()?),
                // What a test runner says to every test target.
                "--list" => arguments.nothing = true,
                "--nocapture" | "--quiet" | "-q" | "--include-ignored" | "--exact" | "--show-output" => {}
                "--test-threads" | "--format" | "--skip" | "--color" | "-Z" => drop(value()?),
                filter if !filter.starts_with('-') => arguments.nothing |= !"crash".contains(filter),
                _ => return Err(USAGE.to_owned()),
            }
        }
        if counted && !timed {
            arguments.search.time = Duration::MAX;
        }
        Ok(arguments)
    }
}

fn number(word: &str, value: &str) -> Result<u64, String> {
    value.replace('_', "").parse().map_err(|_| format!("{word}: {value} is no number\n\n{USAGE}"))
}

fn workloads(value: &str) -> Result<Workloads, String> {
    match value {
        "enumerated" => Ok(Workloads::Enumerated),
        "random" => Ok(Workloads::Random),
        "both" => Ok(Workloads::Both),
        _ => Err(format!("--workload: there is no kind {value}\n\n{USAGE}")),
    }
}

/// Does what the command line asks for; answers whether all is well. If
/// `planted` is the name of a bug that the subject has and `sound` has not, all
/// is well if that was found.
#[must_use]
pub fn run(arguments: &Arguments, subject: &dyn Subject, planted: Option<(&str, &dyn Subject)>) -> bool {
    if arguments.nothing {
        return true;
    }
    // A panic is a finding, and reported as one.
    std::panic::set_hook(Box::new(|_| {}));
    if let Some(line) = &arguments.replay {
        return replay(line, arguments.search.limits, subject);
    }
    let found = search(&arguments.search, subject);
    match (planted, &found) {
        (None, found) => found.is_none(),
        (Some((bug, _)), None) => {
            println!("crash: the planted bug {bug} was not found");
            false
        }
        (Some((bug, sound)), Some(failure)) => {
            let again = Explorer::new(sound, arguments.search.limits);
            let is_the_bug = again.explore(&failure.replay.workload, arguments.search.seed).is_ok();
            println!("crash: {} the planted bug {bug}", if is_the_bug { "that is" } else { "that is not" });
            is_the_bug
        }
    }
}

fn replay(line: &str, limits: Limits, subject: &dyn Subject) -> bool {
    let replayed = line
        .parse()
        .map_err(|error: super::ParseError| error.to_string())
        .and_then(|replay| Explorer::new(subject, limits).replay(&replay));
    match &replayed {
        Ok(None) => println!("crash: nothing wrong is found there"),
        Ok(Some(failure)) => println!("{failure}"),
        Err(error) => println!("crash: {error}"),
    }
    matches!(replayed, Ok(None))
}

fn search(search: &Search, subject: &dyn Subject) -> Option<Failure> {
    let found = search.run(subject);
    let (totals, seconds) = (found.totals, found.time.as_secs_f64());
    println!(
        "crash: {} workloads, {} moments, {} crash states ({} of them during recovery) in {seconds:.1} s: {:.0} a second, seed {}",
        totals.workloads,
        totals.cuts,
        totals.states,
        totals.again,
        totals.states as f64 / seconds,
        search.seed,
    );
    if let Some(failure) = &found.failure {
        println!("{failure}");
    }
    found.failure
}
