//! One workload: runs it, crashes it everywhere, and examines the results.

use super::examine::{Examiner, Extras};
use super::history::{History, Moment, Rules};
use super::machine::{FrozenMachine, Machine, Setup};
use super::oracle::Expectation;
use super::recorder::{Cut, Recorder};
use super::replay::{Crash, Left, Replay};
use super::run::{Outcome, Run};
use super::states::for_each_state;
use super::workload::{Start, Workload};
use super::{Subject, tree};
use crate::sim::Scripted;
use braid_contract::SplitMix;
use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;

/// Seeds of the environments: of the state before a workload, of the workload,
/// of recoveries and of their recoveries. Ids made by one must not occur in the
/// next.
const SEEDS: [u64; 4] = [1, 2, 3, 4];

/// How far each workload is searched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// States built for one moment; about.
    pub states: usize,
    /// One of so many states is recovered a second time.
    pub recover_again: u64,
    /// One of so many is written to after recovery.
    pub use_again: u64,
    /// In one of so many, power is lost during recovery too.
    pub crash_again: u64,
    /// Modification times are looked at.
    pub times: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self { states: 16, recover_again: 8, use_again: 8, crash_again: 64, times: true }
    }
}

impl Limits {
    /// Draws the steps for a state beyond one recovery.
    fn extras(&self, random: &mut SplitMix) -> Extras {
        let mut one_in = |count: u64| count > 0 && random.below(count) == 0;
        let (recover_again, use_again) = (one_in(self.recover_again), one_in(self.use_again));
        // A second recovery, and writes after recovery, could not be
        // distinguished from the recovery that is recorded: a replay, which has
        // neither, would crash at another moment of the same number.
        let record = one_in(self.crash_again);
        Extras { recover_again: recover_again && !record, use_again: use_again && !record, record }
    }
}

/// The totals of an exploration.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// Workloads run.
    pub workloads: u64,
    /// Moments at which the power went.
    pub cuts: u64,
    /// Crash states that recovery ran on.
    pub states: u64,
    /// Those of them that are of crashes during recovery.
    pub again: u64,
}

impl Totals {
    /// Adds those of another search.
    pub fn add(&mut self, other: Self) {
        self.workloads += other.workloads;
        self.cuts += other.cuts;
        self.states += other.states;
        self.again += other.again;
    }
}

/// A failure, and how to repeat it.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Repeats it.
    pub replay: Replay,
    /// When the power went.
    pub when: String,
    /// The finding.
    pub found: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "found: {}", self.found)?;
        writeln!(f, "when:  {}", self.when)?;
        writeln!(f, "after:")?;
        for (step, op) in self.replay.workload.ops.iter().enumerate() {
            writeln!(f, "  {:3}  {op}", step + first_step(self.replay.workload.start))?;
        }
        write!(f, "replay: --replay '{}'", self.replay)
    }
}

/// The number of a workload's first step: its start takes some too.
fn first_step(start: Start) -> usize {
    // Blank: making the volume and `d`. Else also the steps of the start, a
    // clean unmount, and the mount of the workload itself.
    2 + if start == Start::Blank { 0 } else { start.ops().len() + 2 }
}

/// The start of many workloads, kept.
struct Prepared {
    machine: FrozenMachine,
    history: History,
    steps: usize,
}

/// Searches workloads. One for each thread.
pub struct Explorer<'a> {
    subject: &'a dyn Subject,
    limits: Limits,
    prepared: RefCell<HashMap<(Setup, Start), Rc<Prepared>>>,
}

/// The possible results of a crash, and of one during its recovery.
#[derive(Clone, Copy)]
struct Expected<'a> {
    first: &'a Expectation,
    second: &'a Expectation,
}

/// A workload that has run, with all moments at which it may have crashed.
struct Recorded {
    cuts: Vec<Cut>,
    history: History,
}

impl<'a> Explorer<'a> {
    /// A searcher of volumes of this kind.
    #[must_use]
    pub fn new(subject: &'a dyn Subject, limits: Limits) -> Self {
        Self { subject, limits, prepared: RefCell::default() }
    }

    /// Runs a workload and checks the states after crashes of it, sampled by
    /// `seed`.
    ///
    /// # Errors
    /// The first failure.
    pub fn explore(&self, workload: &Workload, seed: u64) -> Result<Totals, Box<Failure>> {
        let failed = |when: &str, crash, second, found| {
            let replay = Replay { workload: workload.clone(), crash, second };
            Box::new(Failure { replay, when: when.to_owned(), found })
        };
        let recorded = self.record(workload).map_err(|found| failed("no crash yet", None, None, found))?;
        let mut totals = Totals { workloads: 1, cuts: recorded.cuts.len() as u64, ..Totals::default() };
        for (number, cut) in recorded.cuts.iter().enumerate() {
            let mut random = SplitMix::of(seed, number as u64);
            let crash = |left| Some(Crash { cut: number, left });
            let when = || describe(workload, cut);
            let all = self.expect(&recorded.history, cut.moment, workload.setup.rules_of_process());
            let synced = self.expect(&recorded.history, cut.moment, workload.setup.rules());
            let again = synced.and_recovery();
            let machine = cut.machine.after_process_crash(SEEDS[2]);
            let expected = Expected { first: &all, second: &again };
            self.examine(workload, machine, expected, self.limits.extras(&mut random), &mut totals)
                .map_err(|(second, found)| failed(&when(), crash(Left::Process), second, found))?;
            let expected = Expected { first: &synced, second: &again };
            let seed = random.next_u64();
            for_each_state::<Box<Failure>>(self.limits.states, seed, &mut |mut chooser, seen| {
                let machine = cut.machine.after_power_loss(&mut chooser, SEEDS[2]);
                if seen.insert(chooser.answers().to_vec()) {
                    let left = || crash(Left::Power(chooser.answers().to_vec()));
                    self.examine(workload, machine, expected, self.limits.extras(&mut random), &mut totals)
                        .map_err(|(second, found)| failed(&when(), left(), second, found))?;
                }
                Ok(chooser)
            })?;
        }
        Ok(totals)
    }

    /// Repeats a failure, and prints the effects on the disks until the crash
    /// and after it; `None` if it does not come again.
    ///
    /// # Errors
    /// The workload does not get as far as the crash.
    pub fn replay(&self, replay: &Replay) -> Result<Option<Failure>, String> {
        let failure = |when, found| Failure { replay: replay.clone(), when, found };
        let recorded = match self.record(&replay.workload) {
            Ok(recorded) => recorded,
            Err(found) => return Ok(Some(failure("no crash yet".into(), found))),
        };
        let Some(crash) = &replay.crash else { return Ok(None) };
        let cut = recorded.cuts.get(crash.cut).ok_or_else(|| {
            format!("the workload has {} moments to crash at, numbered from 0", recorded.cuts.len())
        })?;
        recorded.cuts[..=crash.cut].iter().for_each(|cut| println!("    {}", cut.next));
        let synced = self.expect(&recorded.history, cut.moment, replay.workload.setup.rules());
        let first = match crash.left {
            Left::Process => {
                self.expect(&recorded.history, cut.moment, replay.workload.setup.rules_of_process())
            }
            Left::Power(_) => synced.clone(),
        };
        let expected = Expected { first: &first, second: &synced.and_recovery() };
        let machine = || {
            println!("  crash");
            let machine = restarted(cut, &crash.left, SEEDS[2]);
            machine.trace();
            machine
        };
        let found = match &replay.second {
            None => self.recover_anyhow(&replay.workload, machine, expected.first),
            Some(second) => self.crash_recovery_at(&replay.workload, machine(), expected, second),
        };
        Ok(found.err().map(|found| failure(describe(&replay.workload, cut), found)))
    }

    fn expect(&self, history: &History, moment: Moment, rules: Rules) -> Expectation {
        let expected = Expectation::new(history, moment, rules);
        if self.limits.times { expected } else { expected.without_times() }
    }

    fn examiner<'w>(&'w self, workload: &'w Workload) -> Examiner<'w> {
        Examiner { subject: self.subject, setup: &workload.setup }
    }

    /// Runs recovery on a machine and examines the result; perhaps also the
    /// results of crashes during the recovery.
    fn examine(
        &self,
        workload: &Workload,
        machine: Machine,
        expected: Expected<'_>,
        extras: Extras,
        totals: &mut Totals,
    ) -> Result<(), (Option<Crash>, String)> {
        totals.states += 1;
        let examiner = self.examiner(workload);
        let cuts = examiner.examine(machine, expected.first, extras).map_err(|found| (None, found))?;
        for (number, cut) in cuts.iter().enumerate() {
            let choosers = [Scripted::keeping(), Scripted::new(), Scripted::sampling(number as u64)];
            for mut chooser in choosers {
                totals.states += 1;
                totals.again += 1;
                let machine = cut.machine.after_power_loss(&mut chooser, SEEDS[3]);
                examiner.examine(machine, expected.second, Extras::NONE).map_err(|found| {
                    let left = Left::Power(chooser.answers().to_vec());
                    let found = format!("{found} (after a crash of the recovery, {})", cut.next);
                    (Some(Crash { cut: number, left }), found)
                })?;
            }
        }
        Ok(())
    }

    /// Recovers with any extras that a state may have failed with. A line does
    /// not list them, and some may put right a state that fails without.
    fn recover_anyhow(
        &self,
        workload: &Workload,
        machine: impl Fn() -> Machine,
        expected: &Expectation,
    ) -> Result<(), String> {
        let examiner = self.examiner(workload);
        Extras::ALL
            .into_iter()
            .try_for_each(|extras| examiner.examine(machine(), expected, extras).map(|_| ()))
    }

    fn crash_recovery_at(
        &self,
        workload: &Workload,
        machine: Machine,
        expected: Expected<'_>,
        second: &Crash,
    ) -> Result<(), String> {
        let examiner = self.examiner(workload);
        let extras = Extras { record: true, ..Extras::NONE };
        let cuts = examiner.examine(machine, expected.first, extras)?;
        let cut = cuts.get(second.cut).ok_or_else(|| format!("recovery has {} effects", cuts.len()))?;
        let machine = restarted(cut, &second.left, SEEDS[3]);
        let expected = match second.left {
            Left::Process => expected.first,
            Left::Power(_) => expected.second,
        };
        machine.trace();
        examiner.examine(machine, expected, Extras::NONE).map(|_| ())
    }

    /// Runs a workload once, and keeps every moment of it.
    fn record(&self, workload: &Workload) -> Outcome<Recorded> {
        catch_unwind(AssertUnwindSafe(|| self.record_unguarded(workload)))
            .unwrap_or_else(|panic| Err(describe_panic(panic.as_ref())))
    }

    fn record_unguarded(&self, workload: &Workload) -> Outcome<Recorded> {
        let setup = &workload.setup;
        let (machine, before) = if workload.start == Start::Blank {
            (Arc::new(Machine::new(setup, SEEDS[1])), (History::default(), 0))
        } else {
            let prepared = self.prepare(workload)?;
            let machine = prepared.machine.after_process_crash(SEEDS[1]);
            (Arc::new(machine), (prepared.history.clone(), prepared.steps))
        };
        let recorder = Recorder::watch(&machine, before.1);
        let mut run = Run::new(self.subject, setup, Arc::clone(&machine), before);
        run.mount(Some(&recorder))?;
        if workload.start == Start::Blank {
            run.make_dir(Some(&recorder))?;
        }
        for op in &workload.ops {
            run.apply(op, Some(&recorder))?;
        }
        let cuts = recorder.finish();
        run.machine.heal();
        // The history must be right before it is compared with anything.
        self.look_at_live(&run)?;
        let violations = machine.violations();
        if let Some(violation) = violations.first() {
            return Err(format!("a process would have been killed: {violation}"));
        }
        Ok(Recorded { cuts, history: run.history })
    }

    fn look_at_live(&self, run: &Run<'_>) -> Outcome {
        let clock_ns = run.machine.clock().wall_ns();
        let moment = Moment { done: run.steps, in_flight: false, clock_ns };
        let expected = self.expect(&run.history, moment, Rules::ProcessCrash);
        let seen: tree::Seen = run.look()?;
        expected.check(&seen).map_err(|found| format!("without a crash, {found}"))
    }

    /// The state before a workload.
    fn prepare(&self, workload: &Workload) -> Outcome<Rc<Prepared>> {
        let key = (workload.setup.clone(), workload.start);
        if let Some(prepared) = self.prepared.borrow().get(&key) {
            return Ok(Rc::clone(prepared));
        }
        let machine = Arc::new(Machine::new(&workload.setup, SEEDS[0]));
        let mut run = Run::new(self.subject, &workload.setup, Arc::clone(&machine), (History::default(), 0));
        run.mount(None)?;
        run.make_dir(None)?;
        for op in workload.start.ops() {
            run.apply(&op, None)?;
        }
        run.unmount()?;
        let (history, steps) = (run.history, run.steps);
        let prepared = Rc::new(Prepared { machine: machine.freeze(), history, steps });
        self.prepared.borrow_mut().insert(key, Rc::clone(&prepared));
        Ok(prepared)
    }
}

/// The machine that starts again after a crash.
fn restarted(cut: &Cut, left: &Left, seed: u64) -> Machine {
    match left {
        Left::Process => cut.machine.after_process_crash(seed),
        Left::Power(answers) => {
            cut.machine.after_power_loss(&mut Scripted::starting_with(answers.clone()), seed)
        }
    }
}

fn describe(workload: &Workload, cut: &Cut) -> String {
    let step = cut.moment.done;
    let op = step.checked_sub(first_step(workload.start)).and_then(|at| workload.ops.get(at));
    match (cut.moment.in_flight, op) {
        (true, Some(op)) => format!("in step {step}, {op}, {}", cut.next),
        (true, None) => format!("in step {step}, while mounting, {}", cut.next),
        (false, _) => format!("after step {} had returned", step.wrapping_sub(1)),
    }
}

/// The message of a panic.
pub(super) fn describe_panic(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a word");
    format!("it panicked: {text}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recovery_that_is_recorded_is_done_once_and_nothing_after_it() {
        let limits = Limits { recover_again: 2, use_again: 2, crash_again: 2, ..Limits::default() };
        let mut random = SplitMix::new(1);
        let drawn: Vec<Extras> = (0..200).map(|_| limits.extras(&mut random)).collect();
        let recorded = Extras { record: true, ..Extras::NONE };
        assert!(drawn.iter().filter(|extras| extras.record).all(|extras| *extras == recorded));
        assert!(Extras::ALL.into_iter().chain([recorded]).all(|extras| drawn.contains(&extras)));
    }
}
