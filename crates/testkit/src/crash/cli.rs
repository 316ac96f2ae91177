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
  --fail-at BUG     search with a bug planted, which must be found; `none` for
                   none, where all are planted in turn otherwise
  --help           say this
";

/// Seconds of a search of test-suite length.
const SECONDS_DEFAULT: u64 = 20;

/// The parsed command line.
#[derive(Clone, Debug)]
pub struct Arguments {
    /// The search.
    pub search: Search,
    /// The line to be repeated instead.
    pub replay: Option<String>,
    /// The bug to be planted.
    pub failpoint: Option<String>,
}

impl Arguments {
    /// Reads the command line, without the program's name. `None` if nothing is
    /// to be run: it asks for help, which is printed, or is a test runner's
    /// that selects no test of this target.
    ///
    /// # Errors
    /// Its error, with the usage.
    pub fn parse(mut words: impl Iterator<Item = String>) -> Result<Option<Self>, String> {
        let mut arguments = Self { search: search_default(), replay: None, failpoint: None };
        let (mut timed, mut counted, mut nothing) = (false, false, false);
        while let Some(word) = words.next() {
            let (flag, mut given) = match word.split_once('=') {
                Some((flag, value)) if word.starts_with('-') => (flag, Some(value.to_owned())),
                _ => (&*word, None),
            };
            let mut value =
                || given.take().or_else(|| words.next()).ok_or_else(|| wrong(flag, "needs a value"));
            let search = &mut arguments.search;
            match flag {
                "--states" => (search.states, counted) = (number(flag, &value()?)?, true),
                "--seconds" => {
                    (search.time, timed) = (Duration::from_secs(number(flag, &value()?)?), true);
                }
                "--seed" => search.seed = number(flag, &value()?)?,
                "--threads" => search.threads = number(flag, &value()?)?.max(1) as usize,
                "--per-cut" => search.limits.states = number(flag, &value()?)?.max(2) as usize,
                "--no-times" => search.limits.times = false,
                "--workload" => search.workloads = workloads(&value()?)?,
                "--replay" => arguments.replay = Some(value()?),
                "--fail-at" => arguments.failpoint = Some(value()?),
                "--help" | "-h" => {
                    print!("{USAGE}");
                    return Ok(None);
                }
                _ => match RunnerWord::of(flag, "crash") {
                    Some(RunnerWord::SelectsNothing) => nothing = true,
                    Some(RunnerWord::NeedsValue) => drop(value()?),
                    Some(RunnerWord::Alone) => {}
                    None => return Err(wrong(flag, "is no option")),
                },
            }
            if given.is_some() {
                return Err(wrong(flag, "takes no value"));
            }
        }
        if counted && !timed {
            arguments.search.time = Duration::MAX;
        }
        Ok((!nothing).then_some(arguments))
    }
}

/// A word that a test runner says to every test target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RunnerWord {
    /// Nothing of the target is to be run.
    SelectsNothing,
    /// A value follows, which does not matter here.
    NeedsValue,
    /// It does not matter here.
    Alone,
}

impl RunnerWord {
    /// The meaning of this word to a target of this name, which has one test and no
    /// ignored ones; `None` if no test runner says it.
    #[must_use]
    pub fn of(word: &str, target: &str) -> Option<Self> {
        Some(match word {
            "--list" | "--ignored" => Self::SelectsNothing,
            "--nocapture" | "--no-capture" | "--quiet" | "-q" | "--include-ignored" | "--exact"
            | "--show-output" => Self::Alone,
            "--test-threads" | "--format" | "--skip" | "--color" | "-Z" => Self::NeedsValue,
            option if option.starts_with('-') => return None,
            filter if target.contains(filter) => Self::Alone,
            _ => Self::SelectsNothing,
        })
    }
}

/// A search of test-suite length.
fn search_default() -> Search {
    Search {
        workloads: Workloads::Both,
        seed: 1,
        states: u64::MAX,
        time: Duration::from_secs(SECONDS_DEFAULT),
        threads: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        limits: Limits::default(),
    }
}

fn wrong(flag: &str, why: &str) -> String {
    format!("{flag} {why}\n\n{USAGE}")
}

fn number(flag: &str, value: &str) -> Result<u64, String> {
    value.replace('_', "").parse().map_err(|_| wrong(flag, &format!("{value}: that is no number")))
}

fn workloads(value: &str) -> Result<Workloads, String> {
    match value {
        "enumerated" => Ok(Workloads::Enumerated),
        "random" => Ok(Workloads::Random),
        "both" => Ok(Workloads::Both),
        _ => Err(wrong("--workload", &format!("{value}: there is no such kind"))),
    }
}

/// Carries out the command line; answers whether all is well. If `planted` is
/// the name of a bug that the subject has and `sound` has not, all is well if
/// it was found.
#[must_use]
pub fn run(arguments: &Arguments, subject: &dyn Subject, planted: Option<(&str, &dyn Subject)>) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Option<Arguments>, String> {
        Arguments::parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn a_value_may_be_the_next_word_or_follow_an_equals_sign() {
        for line in ["--seed 7 --replay policy=p,disks=2", "--seed=7 --replay=policy=p,disks=2"] {
            let arguments = parse(line).unwrap().unwrap();
            assert_eq!(arguments.search.seed, 7);
            assert_eq!(arguments.replay.as_deref(), Some("policy=p,disks=2"));
        }
    }

    #[test]
    fn what_a_test_runner_says_is_understood() {
        let said = "--test-threads=1 --format=pretty --color never -q --nocapture --include-ignored crash";
        assert!(parse(said).unwrap().is_some());
        for nothing in ["--list --format terse", "--ignored", "--exact another", "--help", "-h"] {
            assert!(parse(nothing).unwrap().is_none(), "{nothing}");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (line, named) in [
            ("--stats 10", "--stats is"),
            ("--seed", "--seed needs"),
            ("--seed x", "--seed x"),
            ("--no-times=1", "--no-times takes"),
            ("--workload all", "--workload all"),
        ] {
            assert!(parse(line).unwrap_err().starts_with(named), "{line}");
        }
    }
}
