//! A gate for users of the file system beside the kernel's requests. Their system calls may become
//! requests to this very process, so they leave before it stops answering those.

use parking_lot::{Condvar, Mutex};
use std::time::Instant;

/// Lets users in, or not.
#[derive(Debug, Default)]
pub struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Users who have not left.
    inside: usize,
    paused: bool,
    closed: bool,
}

/// A user inside.
#[must_use = "who is inside leaves when this is dropped"]
#[derive(Debug)]
pub struct Pass<'a>(&'a Gate);

impl Gate {
    /// Lets one more in, after a pause if there is one. `None` if there are to be no more.
    pub(crate) fn enter(&self) -> Option<Pass<'_>> {
        let mut state = self.state.lock();
        while state.paused && !state.closed {
            self.changed.wait(&mut state);
        }
        self.let_in(&mut state)
    }

    /// Lets one more in; `None` during a pause, too.
    pub fn try_enter(&self) -> Option<Pass<'_>> {
        let mut state = self.state.lock();
        if state.paused { None } else { self.let_in(&mut state) }
    }

    fn let_in(&self, state: &mut State) -> Option<Pass<'_>> {
        if state.closed {
            return None;
        }
        state.inside += 1;
        Some(Pass(self))
    }

    /// Closes it for a while. Returns whether all have left by this time; if not, users
    /// come in as before.
    pub fn pause(&self, until: Instant) -> bool {
        let mut state = self.state.lock();
        state.paused = true;
        while state.inside > 0 {
            if self.changed.wait_until(&mut state, until).timed_out() && state.inside > 0 {
                drop(state);
                self.resume();
                return false;
            }
        }
        true
    }

    /// Lets users in again after a pause.
    pub fn resume(&self) {
        self.state.lock().paused = false;
        self.changed.notify_all();
    }

    /// Closes it for good, and waits until all have left.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        self.changed.notify_all();
        while state.inside > 0 {
            self.changed.wait(&mut state);
        }
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        self.0.state.lock().inside -= 1;
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_pause_waits_for_users_and_they_for_its_end() {
        let gate = Gate::default();
        let pass = gate.enter().unwrap();
        assert!(!gate.pause(Instant::now()));
        let soon = || Instant::now() + Duration::from_secs(60);
        std::thread::scope(|scope| {
            let pause = scope.spawn(|| gate.pause(soon()));
            drop(pass);
            assert!(pause.join().unwrap());
            let next = scope.spawn(|| gate.enter().is_some());
            gate.resume();
            assert!(next.join().unwrap());
            assert!(gate.pause(soon()) && gate.try_enter().is_none());
            let last = scope.spawn(|| gate.enter().is_some());
            gate.close();
            assert!(!last.join().unwrap());
        });
        assert!(gate.enter().is_none() && gate.try_enter().is_none());
    }
}
