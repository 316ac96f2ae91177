//! Syncs that begin together, so that the file systems below make them durable by one
//! commit, with one flush of the device, in place of one each.
//!
//! Each caller has its own file synced: it hears its own errors, and what it is promised is
//! what it would be without. Whoever comes while others are being synced waits for these,
//! and whoever comes while nobody is, for as many as there were before; but each for so
//! long at most.

use crate::sync::{Condvar, Instant, Mutex};
use std::time::Duration;

/// Where callers gather.
pub(super) struct Together {
    within: Duration,
    state: Mutex<State>,
    begins: Condvar,
}

#[derive(Default)]
struct State {
    /// The number of the group that gathers.
    group: u64,
    gathered: usize,
    /// Callers whose files are being synced.
    under_way: usize,
    /// Callers there were at a time, lately.
    expected: usize,
    /// Groups that began.
    groups: u64,
}

impl Together {
    pub(super) fn new(within: Duration) -> Self {
        Self { within, state: Mutex::default(), begins: Condvar::new() }
    }

    /// Calls `sync` together with those of others.
    pub(super) fn sync<T>(&self, sync: impl FnOnce() -> T) -> T {
        self.gather();
        let _end = End(self);
        sync()
    }

    fn gather(&self) {
        let mut state = self.state.lock();
        let group = state.group;
        state.gathered += 1;
        let until = Instant::now() + self.within;
        self.begin_if_complete(&mut state);
        while state.group == group {
            if self.begins.wait_until(&mut state, until).timed_out() && state.group == group {
                self.begin(&mut state);
            }
        }
    }

    fn begin_if_complete(&self, state: &mut State) {
        if state.under_way == 0 && state.gathered > 0 && state.gathered >= state.expected {
            self.begin(state);
        }
    }

    fn begin(&self, state: &mut State) {
        // Those that are still under way will be there next time, too.
        state.expected = state.gathered + state.under_way;
        state.under_way += std::mem::take(&mut state.gathered);
        state.group += 1;
        state.groups += 1;
        self.begins.notify_all();
    }

    /// How many groups began.
    pub(super) fn groups(&self) -> u64 {
        self.state.lock().groups
    }

    /// Callers that wait for others.
    #[cfg(test)]
    pub(super) fn gathered(&self) -> usize {
        self.state.lock().gathered
    }
}

/// Ends a caller's sync, whatever becomes of it.
struct End<'a>(&'a Together);

impl Drop for End<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.under_way -= 1;
        if state.under_way == 0 {
            // Who came meanwhile was there beside those that are done.
            self.0.begin_if_complete(&mut state);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::channel;
    use std::thread;

    /// Until a test that hangs fails.
    const PATIENCE: Duration = Duration::from_secs(60);

    fn wait_for(condition: impl Fn() -> bool) {
        let begun = Instant::now();
        while !condition() {
            assert!(begun.elapsed() < PATIENCE);
            thread::yield_now();
        }
    }

    #[test]
    fn one_alone_does_not_wait() {
        let together = Together::new(PATIENCE * 10);
        for turn in 0..3 {
            assert_eq!(together.sync(|| turn), turn);
        }
        assert_eq!(together.groups(), 3);
    }

    #[test]
    fn those_that_come_meanwhile_begin_at_once_when_the_others_are_done() {
        let together = &Together::new(PATIENCE * 10);
        let inside = &AtomicUsize::new(0);
        let (go, first) = channel::<()>();
        thread::scope(|scope| {
            scope.spawn(move || {
                together.sync(|| {
                    inside.fetch_add(1, Ordering::SeqCst);
                    first.recv_timeout(PATIENCE).unwrap();
                    inside.fetch_sub(1, Ordering::SeqCst);
                });
            });
            wait_for(|| inside.load(Ordering::SeqCst) == 1);
            for _ in 0..3 {
                scope.spawn(move || {
                    together.sync(|| {
                        inside.fetch_add(1, Ordering::SeqCst);
                        // All are here at the same time.
                        wait_for(|| inside.load(Ordering::SeqCst) >= 3);
                    });
                });
            }
            wait_for(|| together.gathered() == 3);
            assert_eq!(inside.load(Ordering::SeqCst), 1);
            go.send(()).unwrap();
        });
        assert_eq!(together.groups(), 2);
    }

    #[test]
    fn nobody_waits_longer_than_that_for_one_that_hangs() {
        let together = &Together::new(Duration::from_millis(10));
        let (go, hangs) = channel::<()>();
        let (tell, done) = channel();
        thread::scope(|scope| {
            scope.spawn(move || together.sync(|| hangs.recv_timeout(PATIENCE).unwrap()));
            wait_for(|| together.groups() == 1);
            let tell = tell.clone();
            scope.spawn(move || together.sync(|| tell.send(()).unwrap()));
            done.recv_timeout(PATIENCE).unwrap();
            go.send(()).unwrap();
        });
        // One that expects another, which does not come, goes on alone.
        assert_eq!(together.state.lock().expected, 2);
        together.sync(|| ());
        assert_eq!(together.state.lock().expected, 1);
    }

    #[test]
    fn a_sync_that_panics_keeps_nobody() {
        let together = Together::new(PATIENCE * 10);
        let panics = || together.sync(|| panic!("as the test wants"));
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).is_err());
        together.sync(|| ());
    }
}
