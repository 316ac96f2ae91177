//! Locks and time. All of the volume's enter through here, so that a model
//! checker or a simulated clock can take their place.

use std::sync::{self, PoisonError};

/// A mutual-exclusion lock. A panic while it is held does not poison it: the
/// operation that panicked has answered `EIO`, and what it guarded is kept
/// consistent by single assignments.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(sync::Mutex<T>);

pub(crate) type MutexGuard<'a, T> = sync::MutexGuard<'a, T>;

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A readers-writer lock, not poisoned by panics either.
#[derive(Debug, Default)]
pub(crate) struct RwLock<T>(sync::RwLock<T>);

pub(crate) type ReadGuard<'a, T> = sync::RwLockReadGuard<'a, T>;
pub(crate) type WriteGuard<'a, T> = sync::RwLockWriteGuard<'a, T>;

impl<T> RwLock<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(sync::RwLock::new(value))
    }

    pub(crate) fn read(&self) -> ReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn write(&self) -> WriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wall-clock time in nanoseconds since the epoch, as coarse as the kernel's
/// own timestamps: a time taken here is never later than one that a native file
/// system takes afterwards.
pub(crate) fn now_ns() -> i64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
    now.tv_sec.saturating_mul(1_000_000_000).saturating_add(now.tv_nsec)
}
