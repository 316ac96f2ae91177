//! Words, fences and futexes: those of the machine, or, built with
//! `--cfg loom`, those of the model checker.

#[cfg(loom)]
mod modelled;

#[cfg(loom)]
pub(crate) use loom::{
    sync::atomic::{AtomicU64 as Word, Ordering, fence},
    thread::yield_now,
};
#[cfg(all(test, loom))]
pub(crate) use modelled::time_passes;
#[cfg(loom)]
pub(crate) use modelled::{wait, wake};
#[cfg(not(loom))]
pub(crate) use std::{
    sync::atomic::{AtomicU64 as Word, Ordering, fence},
    thread::yield_now,
};

use std::time::Duration;

/// Time that a thread waits before it asks whether the awaited owner is alive.
pub(crate) const LOOK: Duration = Duration::from_millis(5);

#[cfg(not(loom))]
pub(crate) fn wait(word: &Word, expected: u64, timeout: Option<Duration>, shared: bool) -> bool {
    braid_sys::futex_wait(word, expected, timeout, scope(shared))
}

#[cfg(not(loom))]
pub(crate) fn wake(word: &Word, count: u32, shared: bool) {
    braid_sys::futex_wake(word, count, scope(shared));
}

#[cfg(not(loom))]
fn scope(shared: bool) -> braid_sys::FutexScope {
    if shared { braid_sys::FutexScope::Shared } else { braid_sys::FutexScope::Process }
}

/// Where a thread begins to look for a free word: differs from thread to
/// thread, and is constant for one.
#[must_use]
pub fn place_of_this_thread() -> usize {
    thread_local! {
        static HERE: u8 = const { 0 };
    }
    HERE.with(|here| std::ptr::from_ref(here).addr().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40)
}
