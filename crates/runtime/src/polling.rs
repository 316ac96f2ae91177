//! How long a thread looks for something before it sleeps: it spins, then gives the processor
//! to others between two looks, and sleeps. Both sides of a queue do so.
//!
//! Where others want the processor, who gives it away waits for them for milliseconds, and
//! who sleeps is woken at once. So a thread that had to wait for others sleeps without
//! delay, now and some times after.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// For so long a thread looks without giving the processor away.
const SPIN_MAX: Duration = Duration::from_micros(20);
/// So many looks for one at the clock.
const LOOKS: u32 = 64;
/// Others had the processor if it came back so late.
const LATE: Duration = Duration::from_micros(200);
/// So many times a thread then sleeps without giving it away.
const WARY: u32 = 64;

/// What was learnt of others that want the processor.
#[derive(Debug, Default)]
pub(crate) struct Polling {
    wary: AtomicU32,
}

impl Polling {
    /// Looks until there is something, or for this long. Answers whether there is.
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
