//! Futexes for the model checker, of a lock and conditions.
//!
//! Time stands still: a sleeper that is not woken sleeps for ever, and the
//! checker finds that, although a real one would wake some time. Only a model
//! that kills a thread lets time pass: then each thread's next sleep on a word
//! ends once.

use super::Word;
use loom::sync::{Condvar, Mutex, MutexGuard};
use loom::thread::ThreadId;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

loom::lazy_static! {
    static ref SLEEPERS: Mutex<Sleepers> = Mutex::new(Sleepers::default());
}

#[derive(Default)]
struct Sleepers {
    /// How often time has passed.
    clock: u64,
    /// Words that threads slept on, by address.
    words: Vec<(usize, Arc<Condvar>)>,
    /// The clock at the last end of a thread's sleep on a word.
    looked: Vec<(ThreadId, usize, u64)>,
}

impl Sleepers {
    /// Whether time has passed since this thread last checked, for the word.
    fn is_late(&mut self, key: usize) -> bool {
        let (this, clock) = (loom::thread::current().id(), self.clock);
        match self.looked.iter_mut().find(|(thread, of, _)| (*thread, *of) == (this, key)) {
            Some((_, _, seen)) => std::mem::replace(seen, clock) != clock,
            None => {
                self.looked.push((this, key, clock));
                clock > 0
            }
        }
    }
}

fn lock() -> MutexGuard<'static, Sleepers> {
    SLEEPERS.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn wait(word: &Word, expected: u64, timeout: Option<Duration>, _: bool) -> bool {
    let mut sleepers = lock();
    if word.load(super::Ordering::Relaxed) as u32 != expected as u32 {
        return false;
    }
    let key = std::ptr::from_ref(word).addr();
    if timeout.is_some() && sleepers.is_late(key) {
        return true;
    }
    let found = sleepers.words.iter().find(|(of, _)| *of == key).map(|(_, woken)| Arc::clone(woken));
    let woken = found.unwrap_or_else(|| {
        let woken = Arc::new(Condvar::new());
        sleepers.words.push((key, Arc::clone(&woken)));
        woken
    });
    sleepers = woken.wait(sleepers).unwrap_or_else(PoisonError::into_inner);
    timeout.is_some() && sleepers.is_late(key)
}

pub(crate) fn wake(word: &Word, count: u32, _: bool) {
    let sleepers = lock();
    let key = std::ptr::from_ref(word).addr();
    if let Some((_, woken)) = sleepers.words.iter().find(|(of, _)| *of == key) {
        if count == 1 { woken.notify_one() } else { woken.notify_all() }
    }
}

/// Ends the sleeps of all threads.
#[cfg(test)]
pub(crate) fn time_passes() {
    let mut sleepers = lock();
    sleepers.clock += 1;
    sleepers.words.iter().for_each(|(_, woken)| woken.notify_all());
}
