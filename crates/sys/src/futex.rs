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
/// woken or the timeout expires; returns whether it expired. It may wake
/// spuriously, so callers check again.
pub fn futex_wait(word: &AtomicU64, expected: u64, timeout: Option<Duration>, scope: FutexScope) -> bool {
    let timeout = timeout.map(|timeout| Timespec {
        tv_sec: timeout.as_secs().cast_signed(),
        tv_nsec: timeout.subsec_nanos().into(),
    });
    let waited = futex::wait(lower_half(word), scope.flags(), expected as u32, timeout.as_ref());
    waited == Err(Errno::TIMEDOUT)
}

/// Most words for [`futex_wait_any`].
pub const FUTEX_WORDS_MAX: usize = 128;

/// Sleeps until one of the words is woken, or if the lower half of one differs from that of
/// the expected value: of at most [`FUTEX_WORDS_MAX`] words, each with that value and its
/// scope. Returns at once if there are more, or the kernel can't (Linux before 5.16); it may
/// wake spuriously too, so callers check again.
pub fn futex_wait_any(words: &[(&AtomicU64, u64, FutexScope)]) {
    let waiters: Vec<futex::Wait> = words
        .iter()
        .map(|(word, expected, scope)| {
            let mut wait = futex::Wait::new();
            wait.val = u64::from(*expected as u32);
            wait.uaddr = futex::WaitPtr::new(std::ptr::from_ref(lower_half(word)).cast_mut().cast());
            wait.flags = match scope {
                FutexScope::Process => futex::WaitFlags::SIZE_U32 | futex::WaitFlags::PRIVATE,
                FutexScope::Shared => futex::WaitFlags::SIZE_U32,
            };
            wait
        })
        .collect();
    // A word that differs is `EAGAIN`, and a signal `EINTR`: there is something to look at.
    let _ = futex::waitv(&waiters, futex::WaitvFlags::empty(), None, futex::ClockId::Monotonic);
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

    #[test]
    fn a_wait_for_several_ends_by_any_of_them() {
        let words = [const { AtomicU64::new(0) }; 2];
        let sleep = || {
            futex_wait_any(&[(&words[0], 0, FutexScope::Process), (&words[1], 0, FutexScope::Shared)]);
        };
        for (at, scope) in [(0, FutexScope::Process), (1, FutexScope::Shared)] {
            std::thread::scope(|threads| {
                let waiter = threads.spawn(|| {
                    while words[at].load(Ordering::Acquire) == 0 {
                        sleep();
                    }
                });
                words[at].store(1, Ordering::Release);
                futex_wake(&words[at], u32::MAX, scope);
                waiter.join().unwrap();
            });
            sleep();
            words[at].store(0, Ordering::Release);
        }
    }
}
