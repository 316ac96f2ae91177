//! Waiting for a word to change, within a process or between processes.

use rustix::io::Errno;
use rustix::thread::futex;
use rustix::time::Timespec;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::Duration;

/// The threads that share a futex.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FutexScope {
    /// Those of this process, which is cheaper.
    Process,
    /// Those of all processes that map the word.
    Shared,
}

impl FutexScope {
    fn flags(self) -> futex::Flags {
        match self {
            Self::Process => futex::Flags::PRIVATE,
            Self::Shared => futex::Flags::empty(),
        }
    }
}

/// Sleeps while the lower half of `word` equals that of `expected`, until it is
/// woken or the timeout expires; answers whether it expired. It may wake
/// spuriously, so callers check again.
pub fn futex_wait(word: &AtomicU64, expected: u64, timeout: Option<Duration>, scope: FutexScope) -> bool {
    let timeout = timeout.map(|timeout| Timespec {
        tv_sec: timeout.as_secs().cast_signed(),
        tv_nsec: timeout.subsec_nanos().into(),
    });
    let waited = futex::wait(lower_half(word), scope.flags(), expected as u32, timeout.as_ref());
    waited == Err(Errno::TIMEDOUT)
}

/// Wakes up to `count` threads that sleep on `word`.
pub fn futex_wake(word: &AtomicU64, count: u32, scope: FutexScope) {
    // It fails for addresses that are not mapped or not aligned; these always
    // are.
    let _ = futex::wake(lower_half(word), scope.flags(), count.min(i32::MAX as u32));
}

/// The half of a word that the kernel compares, and that identifies the futex.
fn lower_half(word: &AtomicU64) -> &AtomicU32 {
    let halves = std::ptr::from_ref(word).cast::<AtomicU32>();
    let lower = if cfg!(target_endian = "little") { 0 } else { 1 };
    // SAFETY: the half lies within the word, is aligned as the word is, and
    // lives as long. The reference never leaves this module but to the
    // kernel, which only loads through it, and at once.
    unsafe { &*halves.add(lower) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn a_wait_ends_by_a_change_a_wake_or_time() {
        for scope in [FutexScope::Process, FutexScope::Shared] {
            let word = AtomicU64::new(7 << 32 | 1);
            assert!(!futex_wait(&word, 2, None, scope), "it is another value already");
            assert!(futex_wait(&word, 1, Some(Duration::from_millis(1)), scope));
            std::thread::scope(|threads| {
                let waiter = threads.spawn(|| {
                    while word.load(Ordering::Acquire) as u32 == 1 {
                        futex_wait(&word, 1, None, scope);
                    }
                });
                word.store(0, Ordering::Release);
                futex_wake(&word, u32::MAX, scope);
                waiter.join().unwrap();
            });
        }
    }
}
