//! Finding the fault that an operation meets, and the handle for changing the
//! rules.

use super::rule::{FaultKind, FaultOp, FaultRule};
use braid_contract::{Error, ObjectId, Result};
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Changes the rules of a [`FaultStore`](super::FaultStore) in use.
#[derive(Clone)]
pub struct FaultControl {
    shared: Arc<Shared>,
}

struct Shared {
    /// Whether there are rules: if not, an operation looks no further.
    armed: AtomicBool,
    state: Mutex<State>,
    rules_changed: Condvar,
}

#[derive(Default)]
struct State {
    rules: Vec<Counted>,
    /// Changes whenever the rules are set.
    generation: u64,
    /// Number of hanging operations.
    hanging: usize,
    /// Objects whose failed sync was reported, and that were not changed since.
    told: HashSet<ObjectId>,
    /// The same for everything.
    told_all: bool,
}

/// A rule and its counters.
struct Counted {
    rule: FaultRule,
    seen: u64,
    hits: u64,
}

impl Counted {
    /// Counts an operation; answers whether it fails.
    fn hits(&mut self) -> bool {
        let FaultRule { after, every, count, .. } = self.rule;
        let since = self.seen.checked_sub(after);
        self.seen += 1;
        let hit = since.is_some_and(|since| since.is_multiple_of(every.max(1)))
            && count.is_none_or(|count| self.hits < count);
        self.hits += u64::from(hit);
        hit
    }
}

/// How an operation that does not fail at once is carried out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Course {
    Whole,
    /// Half of its bytes.
    Short,
}

impl FaultControl {
    pub(super) fn new(rules: Vec<FaultRule>) -> Self {
        let shared =
            Shared { armed: AtomicBool::new(false), state: Mutex::default(), rules_changed: Condvar::new() };
        let control = Self { shared: Arc::new(shared) };
        control.set(rules);
        control
    }

    /// Replaces all rules, which start to count from zero. Hanging operations
    /// continue under the new ones. If several rules match an operation, the
    /// first counts.
    pub fn set(&self, rules: Vec<FaultRule>) {
        let mut state = self.state();
        self.shared.armed.store(!rules.is_empty(), Ordering::Release);
        let hanging = state.hanging;
        *state = State {
            rules: rules.into_iter().map(|rule| Counted { rule, seen: 0, hits: 0 }).collect(),
            generation: state.generation + 1,
            hanging,
            ..State::default()
        };
        self.shared.rules_changed.notify_all();
    }

    /// Lifts every fault.
    pub fn clear(&self) {
        self.set(Vec::new());
    }

    /// Each rule, and the number of operations it made fail.
    #[must_use]
    pub fn rules(&self) -> Vec<(FaultRule, u64)> {
        self.state().rules.iter().map(|counted| (counted.rule, counted.hits)).collect()
    }

    /// Number of operations that hang now.
    #[must_use]
    pub fn hanging(&self) -> usize {
        self.state().hanging
    }

    /// Applies the rules to an operation: answers the error, or how it is to be
    /// carried out.
    pub(super) fn meet(&self, op: FaultOp, ids: &[ObjectId]) -> Result<Course> {
        if !self.shared.armed.load(Ordering::Acquire) {
            return Ok(Course::Whole);
        }
        let mut state = self.state();
        loop {
            match state.fault_of(op, ids) {
                None => return Ok(Course::Whole),
                Some(FaultKind::Short) => return Ok(Course::Short),
                Some(FaultKind::Fail(errno)) => return Err(Error::new(errno, "a fault that was asked for")),
                Some(FaultKind::Hang) => state = self.hang(state),
            }
        }
    }

    /// Waits until the rules change.
    fn hang<'a>(&self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let generation = state.generation;
        state.hanging += 1;
        state = self
            .shared
            .rules_changed
            .wait_while(state, |state| state.generation == generation)
            .unwrap_or_else(PoisonError::into_inner);
        state.hanging -= 1;
        state
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere can't leave it half-changed.
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The fault of an operation. Each matching rule counts it.
    fn fault_of(&mut self, op: FaultOp, ids: &[ObjectId]) -> Option<FaultKind> {
        if op.changes() {
            for id in ids {
                self.told.remove(id);
            }
            self.told_all = false;
        }
        let told = if ids.is_empty() { self.told_all } else { ids.iter().all(|id| self.told.contains(id)) };
        let write_back =
            |rule: &FaultRule| rule.op == FaultOp::Sync && matches!(rule.kind, FaultKind::Fail(_));
        let mut fault: Option<FaultRule> = None;
        for counted in self.rules.iter_mut().filter(|counted| counted.rule.op.covers(op)) {
            if told && write_back(&counted.rule) {
                continue;
            }
            match fault {
                None => fault = counted.hits().then_some(counted.rule),
                // It fails already, and is only counted.
                Some(_) => counted.seen += 1,
            }
        }
        let fault = fault?;
        if write_back(&fault) {
            self.told.extend(ids);
            self.told_all |= ids.is_empty();
        }
        Some(fault.kind)
    }
}
