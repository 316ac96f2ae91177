//! Watches the disks while something runs on them, and keeps their state at
//! every moment at which the power may go.

use super::history::Moment;
use super::machine::{FrozenMachine, Machine};
use crate::sim::{Effect, ZoneEffect};
use std::sync::{Arc, Mutex, PoisonError};

/// The name of a moment between steps.
const BETWEEN: &str = "between two steps";

/// A moment at which the power may go.
#[derive(Debug)]
pub(crate) struct Cut {
    pub(crate) machine: FrozenMachine,
    pub(crate) moment: Moment,
    /// The next effect.
    pub(crate) next: String,
}

#[derive(Debug, Default)]
struct State {
    cuts: Vec<Cut>,
    /// Steps done; the next one is in flight between `begin` and `end`.
    done: usize,
    in_flight: bool,
}

/// Keeps cuts from when it is made until it is finished.
pub(crate) struct Recorder {
    machine: Arc<Machine>,
    state: Arc<Mutex<State>>,
}

impl Recorder {
    /// Begins to watch the disks of a machine, on which so many steps are done.
    pub(crate) fn watch(machine: &Arc<Machine>, done: usize) -> Self {
        let state = Arc::new(Mutex::new(State { done, ..State::default() }));
        for disk in &machine.disks {
            let (machine, state) = (Arc::downgrade(machine), Arc::clone(&state));
            disk.set_observer(Some(Arc::new(move |effect: &Effect| {
                if let Some(machine) = machine.upgrade() {
                    record(&state, &machine, || format!("before {effect}"));
                }
            })));
        }
        if let Some(zoned) = &machine.zoned {
            let (machine, state) = (Arc::downgrade(machine), Arc::clone(&state));
            zoned.set_observer(Some(Arc::new(move |effect: &ZoneEffect| {
                if let Some(machine) = machine.upgrade() {
                    record(&state, &machine, || format!("before {effect}"));
                }
            })));
        }
        Self { machine: Arc::clone(machine), state }
    }

    /// A step begins.
    pub(crate) fn begin(&self) {
        lock(&self.state).in_flight = true;
    }

    /// A step has returned.
    pub(crate) fn end(&self) {
        {
            let mut state = lock(&self.state);
            state.in_flight = false;
            state.done += 1;
        }
        self.cut_here();
    }

    /// Keeps this moment.
    pub(crate) fn cut_here(&self) {
        record(&self.state, &self.machine, || BETWEEN.into());
    }

    /// Stops watching; answers the recorded states.
    pub(crate) fn finish(self) -> Vec<Cut> {
        std::mem::take(&mut lock(&self.state).cuts)
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.machine.disks.iter().for_each(|disk| disk.set_observer(None));
        self.machine.zoned.iter().for_each(|zoned| zoned.set_observer(None));
    }
}

fn record(state: &Mutex<State>, machine: &Machine, next: impl FnOnce() -> String) {
    let machine_now = machine.freeze();
    let clock_ns = machine.clock().wall_ns();
    let mut state = lock(state);
    let moment = Moment { done: state.done, in_flight: state.in_flight, clock_ns };
    // The same disks a moment later, with a step begun: more is legal, and
    // nothing else to be seen.
    let is_kept = |last: &&mut Cut| {
        last.moment.done == moment.done && !last.moment.in_flight && last.machine.is_same(&machine_now)
    };
    match state.cuts.last_mut().filter(is_kept) {
        Some(last) => last.next = format!("{}, {}", BETWEEN, next()),
        None => state.cuts.push(Cut { machine: machine_now, moment, next: next() }),
    }
}

fn lock(state: &Mutex<State>) -> std::sync::MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
