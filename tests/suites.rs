//! The test harness of the suites: `cargo test -p braid-tests --test suites`.
//! Arguments after `--` are as for Rust's own harness, and `--help` lists them
//! with the suites' options.
//!
//! Trials run one after the other: they make mounts and loads, and would wait
//! for one another. Those that mainly compute, and those that mainly wait, run
//! beside them, one at a time too.
#![forbid(unsafe_code)]

use braid_tests::report::Verdict;
use braid_tests::suites;
use braid_tests::trial::{Suite, Trial, Turn};
use braid_tests_support::counts::Counts;
use braid_tests_support::error::Result;
use braid_tests_support::options::Options;
use braid_tests_support::sh::{catch_interrupts, uninterrupted};
use clap::Parser;
use libtest_mimic::{Arguments, Completion, Failed, run};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The end-to-end suites: the braid command, real mounts, real file systems
#[derive(Parser)]
struct Command {
    #[command(flatten)]
    options: Options,
    /// List the suites, and what they do
    #[arg(long)]
    list_suites: bool,
    #[command(flatten)]
    harness: Arguments,
}

fn main() -> ExitCode {
    // Not for people: the power suite runs it in its virtual machine.
    let in_guest = std::env::args().nth(1).is_some_and(|first| first == "power-guest");
    let ended = if in_guest { suites::in_power_guest().map(|()| ExitCode::SUCCESS) } else { test() };
    ended.unwrap_or_else(|failure| {
        eprintln!("error: {failure}");
        ExitCode::FAILURE
    })
}

fn test() -> Result<ExitCode> {
    let mut command = Command::parse();
    if command.list_suites {
        suites::ALL.iter().for_each(|suite| println!("{:14} {}", suite.name, suite.about));
        return Ok(ExitCode::SUCCESS);
    }
    catch_interrupts()?;
    let (machine, processor, waiting) = Default::default();
    let named = suites::named(&command.options.suites)?;
    let turn = |suite: &Suite| match suite.turn {
        Turn::Machine => &machine,
        Turn::Processor => &processor,
        Turn::Waiting => &waiting,
    };
    let mut sums: Vec<Sum> = named.into_iter().map(|suite| Sum::of(suite, turn(suite))).collect();
    let is_beside = |suite: &Suite| suite.turn != Turn::Machine;
    sums.sort_by_key(|sum| !is_beside(sum.suite));
    let (mut trials, mut beside) = (Vec::new(), 0);
    for sum in &sums {
        // Naming a suite enables it.
        let is_ignored = sum.suite.on_request && command.options.suites.is_empty();
        let of_suite = sum.suite.trials(&command.options).into_iter();
        beside += if is_beside(sum.suite) { of_suite.len() } else { 0 };
        trials.extend(of_suite.map(|trial| sum.count(trial).with_ignored_flag(is_ignored)));
    }
    // While these take their turns, a thread of its own goes on with the others.
    command.harness.test_threads = Some(beside + 1);
    let conclusion = run(&command.harness, trials);
    if !command.harness.list {
        let mut all = Counts::default();
        for sum in sums {
            all += sum.print();
        }
        println!("checks: {all}");
    }
    uninterrupted()?;
    Ok(conclusion.exit_code())
}

/// The results of a suite's checks.
struct Sum {
    suite: &'static Suite,
    found: Arc<Mutex<(Counts, Duration)>>,
    /// Held by a trial while it runs.
    turn: Arc<Mutex<()>>,
}

impl Sum {
    fn of(suite: &'static Suite, turn: &Arc<Mutex<()>>) -> Self {
        Self { suite, found: Arc::default(), turn: Arc::clone(turn) }
    }

    /// The trial as the harness runs it, with its checks counted.
    fn count(&self, trial: Trial) -> libtest_mimic::Trial {
        let found = Arc::clone(&self.found);
        let turn = Arc::clone(&self.turn);
        libtest_mimic::Trial::ignorable_test(format!("{}::{}", self.suite.name, trial.name()), move || {
            let _turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
            let begun = Instant::now();
            let (verdict, counts) = trial.run();
            let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
            found.0 += counts;
            found.1 += begun.elapsed();
            match verdict {
                Verdict::Passed => Ok(Completion::Completed),
                Verdict::Skipped(reason) => Ok(Completion::ignored_with(reason)),
                Verdict::Failed(reason) => Err(Failed::from(reason)),
            }
        })
    }

    /// Prints the counts, unless nothing of the suite was run.
    fn print(self) -> Counts {
        let (counts, time) = *self.found.lock().unwrap_or_else(PoisonError::into_inner);
        if counts != Counts::default() {
            println!("{:14} {counts} in {:.0} s", self.suite.name, time.as_secs_f64());
        }
        counts
    }
}
