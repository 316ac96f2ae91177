//! Has requests wait for their turn. Each waits on a signal of its own; one of them watches the
//! clock for all.

use super::settings::Settings;
use super::share::{Debts, Next, Shares, Ticket};
use super::who::Client;
use crate::count::{Count, held_up};
use crate::sync::{Condvar, Instant, Mutex};
use braid_contract::Figure;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

pub(super) struct Gate {
    begun: Instant,
    state: Mutex<State>,
    waits: Count,
    waited_ns: Count,
}

struct State {
    shares: Shares,
    waiting: HashMap<Ticket, Arc<Condvar>>,
    /// The request that watches the clock, and until when.
    watcher: Option<(Ticket, u64)>,
    /// Nothing waits any more.
    is_open: bool,
}

impl Gate {
    pub(super) fn new(settings: &Settings) -> Self {
        let shares = Shares::new(settings.all, settings.each, settings.weights.clone(), 0);
        let state = State { shares, waiting: HashMap::new(), watcher: None, is_open: false };
        Self {
            begun: Instant::now(),
            state: Mutex::new(state),
            waits: Count::default(),
            waited_ns: Count::default(),
        }
    }

    /// Waits for the turn of a request of the client with so many bytes.
    pub(super) fn enter(&self, client: &Client, bytes: u64) {
        let mut state = self.state.lock();
        if state.is_open {
            return;
        }
        let now_ns = self.now_ns();
        let ticket = state.shares.arrive(client, bytes, now_ns);
        let (goes, wait_ns) = state.let_go(now_ns, Some(ticket));
        if goes {
            return;
        }
        self.waits.one();
        let turn = Arc::new(Condvar::new());
        state.waiting.insert(ticket, Arc::clone(&turn));
        state.tell_watcher(now_ns + wait_ns);
        while state.waiting.contains_key(&ticket) {
            let (watcher, _) = *state.watcher.get_or_insert((ticket, 0));
            if watcher != ticket {
                turn.wait(&mut state);
                continue;
            }
            let now_ns = self.now_ns();
            let (_, wait_ns) = state.let_go(now_ns, Some(ticket));
            if state.waiting.contains_key(&ticket) {
                state.watcher = Some((ticket, now_ns + wait_ns));
                turn.wait_for(&mut state, Duration::from_nanos(wait_ns));
            }
        }
        if state.watcher.is_some_and(|(watcher, _)| watcher == ticket) {
            state.watcher = None;
            // Another one watches on.
            state.waiting.values().next().map(|turn| turn.notify_one());
        }
        self.waited_ns.add(self.now_ns().saturating_sub(now_ns));
    }

    pub(super) fn figures(&self) -> Vec<Figure> {
        let waiting = self.state.lock().waiting.len() as u64;
        let now = Figure::gauge("waiting", "Operations that wait now", waiting);
        held_up(&self.waits, &self.waited_ns).into_iter().chain([now]).collect()
    }

    /// Gives back the part that a request of the client did not use.
    pub(super) fn give_back(&self, client: &Client, bytes: u64) {
        let mut state = self.state.lock();
        state.shares.give_back(client, bytes);
        // Those that wait may go sooner now.
        let now_ns = self.now_ns();
        let (_, wait_ns) = state.let_go(now_ns, None);
        state.tell_watcher(now_ns + wait_ns);
    }

    /// The debts of clients now.
    pub(super) fn debts(&self) -> Debts {
        let now_ns = self.now_ns();
        self.state.lock().shares.debts(now_ns)
    }

    /// Gives clients the debts that they had to another one.
    pub(super) fn owe(&self, debts: &Debts) {
        let now_ns = self.now_ns();
        self.state.lock().shares.owe(debts, now_ns);
    }

    /// So much time has passed since they had these debts.
    pub(super) fn pay(&self, time: Duration) {
        self.state.lock().shares.pay(time.as_secs_f64());
    }

    /// Lets all waiting and coming requests go on.
    pub(super) fn open(&self) {
        let mut state = self.state.lock();
        state.is_open = true;
        state.waiting.drain().for_each(|(_, turn)| _ = turn.notify_one());
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

impl State {
    /// Lets all requests go on whose turn it is. Answers whether this one does, and the time until
    /// the next can.
    fn let_go(&mut self, now_ns: u64, this: Option<Ticket>) -> (bool, u64) {
        let mut goes = false;
        loop {
            match self.shares.next(now_ns) {
                Next::Go(ticket) => {
                    goes |= Some(ticket) == this;
                    if let Some(turn) = self.waiting.remove(&ticket) {
                        turn.notify_one();
                    }
                }
                Next::Wait(wait_ns) => return (goes, wait_ns),
                Next::Idle => return (goes, 0),
            }
        }
    }

    /// Wakes the watcher, if it would sleep beyond this time.
    fn tell_watcher(&self, at_ns: u64) {
        if let Some((watcher, until)) = self.watcher
            && at_ns < until
            && let Some(turn) = self.waiting.get(&watcher)
        {
            turn.notify_one();
        }
    }
}
