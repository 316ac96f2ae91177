//! When zones are emptied, and how fast.
//!
//! As long as enough zones are free, not at all. Once they run short, each write moves
//! a share that is in proportion to it, so that a zone is there when one is needed; a
//! thread does the same at a steady rate, also when nothing is written. Zones that need
//! only a reset are the thread's, which may take long over one. Only a write that finds
//! no zone waits for a whole one.

use super::collect::{Collector, Step};
use super::index::Index;
use braid_contract::{Environment, Result, ZoneStatus};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Blocks that a write moves at most for each of its own, and one piece more.
const SHARE_MAX: u64 = 16;

/// Has zones emptied when that is due.
pub(super) struct Pace {
    turn: Mutex<Turn>,
    /// Nanoseconds in which zones were emptied.
    busy: AtomicU64,
    /// Writes that waited for it, and the nanoseconds of the longest wait.
    waits: AtomicU64,
    longest: AtomicU64,
    wake: Mutex<Wake>,
    woken: Condvar,
    /// There is a thread that empties zones.
    has_thread: bool,
    environment: Arc<dyn Environment>,
}

/// The turn, which one thread at a time has.
#[derive(Default)]
pub(super) struct Turn {
    collector: Collector,
    /// Blocks that writers are to gain, less those that they gained in advance.
    owed: f64,
}

#[derive(Default)]
struct Wake {
    /// Zones are short.
    due: bool,
    /// The store is closed.
    over: bool,
}

/// The thread that empties zones in the background.
pub(super) struct Background {
    pace: Arc<Pace>,
    thread: Option<JoinHandle<()>>,
}

impl Turn {
    /// Moves the share of a write of so many blocks.
    fn pay(&mut self, index: &Index, blocks: u64, short: u32) -> Result<()> {
        let mut left = blocks * SHARE_MAX;
        self.owed += (blocks * u64::from(short)) as f64;
        self.collector.begin();
        while self.owed > 0.0 && left > 0 && index.shared.zones.short_of() > 0 {
            match self.collector.step(index)? {
                Step::Moved { blocks, gain } => {
                    self.owed -= blocks as f64 * gain;
                    left = left.saturating_sub(blocks);
                }
                Step::Stays => {}
                // One zone is enough: a reset may take long.
                Step::Freed | Step::Nothing | Step::NoRoom => break,
            }
        }
        self.owed = self.owed.min(0.0);
        Ok(())
    }
}

impl Pace {
    pub(super) fn new(environment: Arc<dyn Environment>, has_thread: bool) -> Self {
        Self {
            turn: Mutex::default(),
            busy: AtomicU64::new(0),
            waits: AtomicU64::new(0),
            longest: AtomicU64::new(0),
            wake: Mutex::default(),
            woken: Condvar::new(),
            has_thread,
            environment,
        }
    }

    /// Keeps zones from being emptied, for all are to be reset.
    pub(super) fn hold(&self, index: &Index) -> MutexGuard<'_, Turn> {
        let mut turn = self.turn.lock();
        turn.collector.give_up(index);
        turn
    }

    /// Has a zone made free for a write, unless there is one; answers whether there is
    /// one then. Adds the time that took to `waited`. The caller holds no object.
    pub(super) fn make_room(&self, index: &Index, waited: &mut u64) -> Result<bool> {
        self.timed(waited, |turn| turn.collector.make_room(index))
    }

    /// Has a write of so many blocks move its share, if zones are short. Adds the time
    /// that took to `waited`. The caller holds no object.
    pub(super) fn pay(&self, index: &Index, blocks: u64, waited: &mut u64) {
        let short = index.shared.zones.short_of();
        if blocks == 0 || short == 0 {
            return;
        }
        self.wake(|wake| wake.due = true);
        let coming = if self.has_thread { index.shared.zones.to_be_reset() } else { 0 };
        let short = short.saturating_sub(coming);
        if short == 0 {
            return;
        }
        if let Err(error) = self.timed(waited, |turn| turn.pay(index, blocks, short)) {
            // A write that finds no zone reports it.
            tracing::debug!(%error, "no zone is emptied now");
        }
    }

    /// Something may be of no use any more.
    pub(super) fn freed(&self, index: &Index) {
        if index.shared.zones.short_of() > 0 {
            self.wake(|wake| wake.due = true);
        }
    }

    /// A write has waited for so long, in nanoseconds.
    pub(super) fn has_waited(&self, waited: u64) {
        if waited > 0 {
            self.waits.fetch_add(1, Ordering::Relaxed);
            self.longest.fetch_max(waited, Ordering::Relaxed);
        }
    }

    /// Adds its figures to those of the zones.
    pub(super) fn tell(&self, status: &mut ZoneStatus) {
        status.gc_ns = self.busy.load(Ordering::Relaxed);
        status.gc_waits = self.waits.load(Ordering::Relaxed);
        status.gc_longest_wait_ns = self.longest.load(Ordering::Relaxed);
    }

    fn timed<T>(&self, waited: &mut u64, work: impl FnOnce(&mut Turn) -> T) -> T {
        let began = self.environment.monotonic_ns();
        let mut turn = self.turn.lock();
        let got_it = self.environment.monotonic_ns();
        let result = work(&mut turn);
        drop(turn);
        let ended = self.environment.monotonic_ns();
        self.busy.fetch_add(ended - got_it, Ordering::Relaxed);
        *waited += ended - began;
        result
    }

    fn wake(&self, set: impl FnOnce(&mut Wake)) {
        set(&mut self.wake.lock());
        self.woken.notify_one();
    }

    /// Waits until zones are short; answers whether the store is closed.
    fn wait_until_due(&self) -> bool {
        let mut wake = self.wake.lock();
        while !wake.due && !wake.over {
            self.woken.wait(&mut wake);
        }
        wake.due = false;
        wake.over
    }

    /// Lets so much time go by, unless the store is closed.
    fn rest(&self, time: Duration) {
        let mut wake = self.wake.lock();
        if !wake.over {
            self.woken.wait_while_for(&mut wake, |wake| !wake.over, time);
        }
    }

    /// Empties zones until enough are free, or none can be emptied: so many bytes a second.
    fn catch_up(&self, index: &Index, rate: u64) {
        self.turn.lock().collector.begin();
        while index.shared.zones.short_of() > 0 && !self.wake.lock().over {
            match self.timed(&mut 0, |turn| turn.collector.step(index)) {
                Ok(Step::Moved { blocks, .. }) => {
                    self.rest(Duration::from_secs_f64((blocks * index.shared.block) as f64 / rate as f64));
                }
                Ok(Step::Freed | Step::Stays) => {}
                Ok(Step::Nothing | Step::NoRoom) => return,
                Err(error) => {
                    tracing::debug!(%error, "no zone is emptied now");
                    return;
                }
            }
        }
    }
}

impl Background {
    /// Begins the thread, which moves so many bytes a second.
    pub(super) fn begin(pace: &Arc<Pace>, index: &Arc<Index>, rate: u64) -> Result<Self> {
        let (of_thread, index) = (Arc::clone(pace), Arc::clone(index));
        let work = move || {
            while !of_thread.wait_until_due() {
                of_thread.catch_up(&index, rate);
            }
        };
        let thread = std::thread::Builder::new().name("zone-gc".into()).spawn(work)?;
        Ok(Self { pace: Arc::clone(pace), thread: Some(thread) })
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.pace.wake(|wake| wake.over = true);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that empties zones panicked");
        }
    }
}
