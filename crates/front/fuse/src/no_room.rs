//! Write-backs that found no room. Where the kernel keeps writes back, a
//! `write` succeeds on a full volume, and only `fsync` and `close` say that its
//! data went nowhere. A program that writes until it is refused would never
//! end. So the next `write` through a handle whose data was refused fails too:
//! the kernel asks for the attributes before it takes one, once it has none,
//! and gets the error instead. Used by `ops`.

use fuser::{Errno, FileHandle};
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Handles whose data was refused since, and why.
#[derive(Default)]
pub(crate) struct NoRoom {
    refused: Mutex<HashMap<u64, Errno>>,
    /// How many there are: in general none, and then there is nothing to lock.
    count: AtomicUsize,
}

impl NoRoom {
    /// Notes an error of writing back, if it says that there is no room.
    /// Answers whether it does.
    pub(crate) fn note(&self, handle: FileHandle, error: Errno) -> bool {
        let full = [Errno::ENOSPC, Errno::EDQUOT].into_iter().any(|full| full.code() == error.code());
        if full {
            self.change(|refused| refused.insert(handle.0, error));
        }
        full
    }

    /// The error for the next write, which is told once.
    pub(crate) fn take(&self, handle: FileHandle) -> Option<Errno> {
        match self.count.load(Ordering::Acquire) {
            0 => None,
            _ => self.change(|refused| refused.remove(&handle.0)),
        }
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
    fn only_a_lack_of_room_is_told_and_once() {
        let no_room = NoRoom::default();
        let (one, other) = (FileHandle(1), FileHandle(2));
        assert!(!no_room.note(one, Errno::EIO) && no_room.take(one).is_none());
        assert!(no_room.note(one, Errno::ENOSPC) && no_room.note(one, Errno::EDQUOT));
        assert!(no_room.take(other).is_none());
        assert_eq!(no_room.take(one).map(Errno::code), Some(Errno::EDQUOT.code()));
        assert!(no_room.take(one).is_none());
    }
}
