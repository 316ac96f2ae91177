//! Locks, and the machine's own time. All of the volume's locks enter through
//! here, but for those of `braid-coord`, which the model checker runs.

use braid_contract::{Environment, Result};
use rustix::time::ClockId;
use std::sync::{self, PoisonError, TryLockError};
use std::time::Duration;

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

    /// `None` if somebody else holds it.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

/// A condition to wait for while a [`Mutex`] is given up.
#[derive(Debug, Default)]
pub(crate) struct Condvar(sync::Condvar);

impl Condvar {
    pub(crate) const fn new() -> Self {
        Self(sync::Condvar::new())
    }

    /// Waits to be notified, at most for so long.
    pub(crate) fn wait_for<'a, T>(&self, guard: MutexGuard<'a, T>, max_ns: u64) -> MutexGuard<'a, T> {
        let waited = self.0.wait_timeout(guard, Duration::from_nanos(max_ns));
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
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

    /// `None` if somebody holds it.
    pub(crate) fn try_write(&self) -> Option<WriteGuard<'_, T>> {
        match self.0.try_write() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    pub(crate) fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn read(&self) -> ReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn write(&self) -> WriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The machine as it is: its clocks, its random numbers, its threads.
#[derive(Clone, Copy, Debug)]
pub struct Machine;

impl Environment for Machine {
    fn wall_ns(&self) -> i64 {
        let now = rustix::time::clock_gettime(ClockId::RealtimeCoarse);
        now.tv_sec.saturating_mul(1_000_000_000).saturating_add(now.tv_nsec)
    }

    fn monotonic_ns(&self) -> u64 {
        let now = rustix::time::clock_gettime(ClockId::Monotonic);
        now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
    }

    fn fill_random(&self, bytes: &mut [u8]) -> Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            done += rustix::rand::getrandom(&mut bytes[done..], rustix::rand::GetRandomFlags::empty())?;
        }
        Ok(())
    }

    fn threads(&self) -> bool {
        true
    }
}
