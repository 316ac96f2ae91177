//! Who of those that talk with applications may use the file system. What they ask of the
//! kernel may become a request to this very process, so they are done before it stops
//! answering those.

use parking_lot::{Condvar, Mutex};
use std::time::Instant;

/// Lets conversations begin, or not.
#[derive(Default)]
pub(crate) struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Conversations under way.
    talking: usize,
    paused: bool,
    closed: bool,
}

/// A conversation.
#[must_use = "it lasts as long as this value"]
pub(crate) struct Talk<'a>(&'a Gate);

impl Gate {
    /// Begins a conversation; waits during a pause. `None` if there are to be no more.
    pub(crate) fn talk(&self) -> Option<Talk<'_>> {
        let mut state = self.state.lock();
        while state.paused && !state.closed {
            self.changed.wait(&mut state);
        }
        if state.closed {
            return None;
        }
        state.talking += 1;
        Some(Talk(self))
    }

    /// Has conversations wait. Answers whether none is under way by this time; if not, they
    /// go on as before.
    pub(crate) fn pause(&self, until: Instant) -> bool {
        let mut state = self.state.lock();
        state.paused = true;
        while state.talking > 0 {
            if self.changed.wait_until(&mut state, until).timed_out() && state.talking > 0 {
                drop(state);
                self.resume();
                return false;
            }
        }
        true
    }

    pub(crate) fn resume(&self) {
        self.state.lock().paused = false;
        self.changed.notify_all();
    }

    /// Lets no conversation begin any more, and waits for the end of those under way.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        self.changed.notify_all();
        while state.talking > 0 {
            self.changed.wait(&mut state);
        }
    }
}

impl Drop for Talk<'_> {
    fn drop(&mut self) {
        self.0.state.lock().talking -= 1;
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_pause_waits_for_conversations_and_they_for_its_end() {
        let gate = Gate::default();
        let talk = gate.talk().unwrap();
        assert!(!gate.pause(Instant::now()));
        let soon = || Instant::now() + Duration::from_secs(60);
        std::thread::scope(|scope| {
            let pause = scope.spawn(|| gate.pause(soon()));
            drop(talk);
            assert!(pause.join().unwrap());
            let next = scope.spawn(|| gate.talk().is_some());
            gate.resume();
            assert!(next.join().unwrap());
            assert!(gate.pause(soon()));
            let last = scope.spawn(|| gate.talk().is_some());
            gate.close();
            assert!(!last.join().unwrap());
        });
        assert!(gate.talk().is_none());
    }
}
