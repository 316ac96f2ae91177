//! Write-backs that found no room. Where the kernel keeps writes back, a
//! `write` succeeds on a full volume, and only `fsync` and `close` report that
//! its data was lost. A program that writes until it is refused would never
//! end. So the next `write` to a file whose data was refused fails too: the
//! kernel asks for the attributes before it takes one, once it has none, and
//! gets the error instead. And new files of a volume that is nearly full bypass
//! the cache, so that not even a small one is lost by a program that does not
//! check the result of `close`. Used by `ops`, `open` and `session`.

use fuser::{Errno, INodeNo};
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The kernel keeps at most this part of a volume's size without writing it
/// back.
const DIRTY_PART: u64 = 64;

/// The most bytes that the kernel may keep back on a volume of `total` bytes,
/// of those that the administrator allows.
pub(crate) fn dirty_max(total: u64, allowed: u64) -> u64 {
    allowed.min(total / DIRTY_PART)
}

/// Whether a volume with so many bytes available may be too full for data that
/// the kernel keeps back. The other half of it is for data that comes
/// meanwhile.
fn is_nearly_full(available: u64, dirty_max: u64) -> bool {
    available < 2 * dirty_max
}

/// With this many more bytes available, a volume is not looked at again for
/// [`FAR_FOR`]: no tiers are so fast that they could be full by then.
const FAR: u64 = 1 << 30;
const FAR_FOR: Duration = Duration::from_millis(10);

/// Inodes whose data was refused since, and why. Not handles: the kernel writes
/// back by any that can write.
#[derive(Default)]
pub(crate) struct NoRoom {
    /// When the volume was seen to be far from full.
    was_far: Mutex<Option<Instant>>,
    refused: Mutex<HashMap<u64, Errno>>,
    /// How many there are: in general none, and then there is nothing to lock.
    count: AtomicUsize,
}

impl NoRoom {
    /// Notes an error of writing back, if it says that there is no room.
    /// Answers whether it does.
    pub(crate) fn note(&self, ino: INodeNo, error: Errno) -> bool {
        let full = [Errno::ENOSPC, Errno::EDQUOT].into_iter().any(|full| full.code() == error.code());
        if full {
            self.change(|refused| refused.insert(ino.0, error));
        }
        full
    }

    /// The error for the next write, which is reported once.
    pub(crate) fn take(&self, ino: INodeNo) -> Option<Errno> {
        match self.count.load(Ordering::Acquire) {
            0 => None,
            _ => self.change(|refused| refused.remove(&ino.0)),
        }
    }

    /// The errors not reported yet, for the process that goes on with the
    /// mount.
    pub(crate) fn give(&self) -> Vec<(u64, i32)> {
        self.change(|refused| refused.iter().map(|(ino, error)| (*ino, error.code())).collect())
    }

    /// Goes on with the unreported errors of an earlier process.
    pub(crate) fn go_on(&self, all: &[(u64, i32)]) {
        self.change(|refused| refused.extend(all.iter().map(|(ino, code)| (*ino, Errno::from_i32(*code)))));
    }

    /// Whether the volume is nearly full; `available` asks how many bytes it
    /// has.
    pub(crate) fn is_near(&self, dirty_max: u64, available: impl FnOnce() -> Option<u64>) -> bool {
        let mut was_far = self.was_far.lock().unwrap_or_else(PoisonError::into_inner);
        if was_far.is_some_and(|when| when.elapsed() < FAR_FOR) {
            return false;
        }
        let Some(available) = available() else { return false };
        *was_far = (available >= 2 * dirty_max + FAR).then(Instant::now);
        is_nearly_full(available, dirty_max)
    }

    fn change<T>(&self, change: impl FnOnce(&mut HashMap<u64, Errno>) -> T) -> T {
        let mut refused: MutexGuard<'_, _> = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = change(&mut refused);
        self.count.store(refused.len(), Ordering::Release);
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_is_nearly_full_before_what_is_kept_back_does_not_fit() {
        assert_eq!(dirty_max(u64::MAX, 256 << 20), 256 << 20);
        let small = dirty_max(64 << 20, 256 << 20);
        assert_eq!(small, 1 << 20);
        assert!(is_nearly_full((2 << 20) - 1, small) && !is_nearly_full(2 << 20, small));
    }

    #[test]
    fn only_a_lack_of_room_is_told_and_once() {
        let no_room = NoRoom::default();
        let (one, other) = (INodeNo(1), INodeNo(2));
        assert!(!no_room.note(one, Errno::EIO) && no_room.take(one).is_none());
        assert!(no_room.note(one, Errno::ENOSPC) && no_room.note(one, Errno::EDQUOT));
        assert!(no_room.take(other).is_none());
        assert_eq!(no_room.take(one).map(Errno::code), Some(Errno::EDQUOT.code()));
        assert!(no_room.take(one).is_none());
    }
}
