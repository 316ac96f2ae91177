//! Polls for an event before a thread sleeps: it spins, then yields the processor between two
//! looks, and sleeps. Both sides of a queue do so.
//!
//! Where others want the processor, a thread that yields it waits for them for milliseconds, and a
//! sleeping thread is woken at once. So a thread that had to wait for others sleeps without delay,
//! now and some times after.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Time for which a thread looks without yielding the processor.
const SPIN_MAX: Duration = Duration::from_micros(20);
/// Looks between two looks at the clock.
const LOOKS: u32 = 64;
/// Others had the processor if a yield took this long.
const LATE: Duration = Duration::from_micros(200);
/// How often a thread then sleeps without yielding first.
const WARY: u32 = 64;

/// Knowledge about others that want the processor.
#[derive(Debug, Default)]
pub(crate) struct Polling {
    wary: AtomicU32,
}

impl Polling {
    /// Looks until there is something, or for this long. Returns whether there is.
    pub(crate) fn until(&self, patience: Duration, look: impl Fn() -> bool) -> bool {
        let looked = |_| {
            std::hint::spin_loop();
            look()
        };
        let begun = Instant::now();
        loop {
            if (0..LOOKS).any(looked) {
                return true;
            }
            let now = Instant::now();
            let waited = now.duration_since(begun);
            if waited >= patience {
                return false;
            }
            if waited < SPIN_MAX {
                continue;
            }
            let wary = self.wary.load(Ordering::Relaxed);
            if wary > 0 {
                self.wary.store(wary - 1, Ordering::Relaxed);
                return false;
            }
            thread::yield_now();
            if now.elapsed() >= LATE {
                self.wary.store(WARY, Ordering::Relaxed);
                return look();
            }
        }
    }
}
