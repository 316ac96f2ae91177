//! The open directory of a tier, and the data lost with the file system that it
//! was on before.

use super::tier::Tier;
use braid_contract::{Errno, Error, ObjectId, Result};
use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

/// The open directory of a tier.
pub(super) struct Held {
    /// `None` after its file system died, until it is mounted again: a
    /// descriptor of it would keep it from being unmounted.
    tier: RwLock<Option<Arc<Tier>>>,
    lost: Mutex<Lost>,
}

/// Data that was not durable when the file system beneath went away. The next
/// sync of it fails once, as the kernel's does after a failed write-back.
#[derive(Default)]
struct Lost {
    objects: HashSet<ObjectId>,
    /// The next sync of everything is to fail.
    any: bool,
}

impl Held {
    pub(super) fn new(tier: Tier) -> Self {
        Self { tier: RwLock::new(Some(Arc::new(tier))), lost: Mutex::default() }
    }

    /// The open directory. It is not locked while it is used: an operation that
    /// hangs on a device must not block others.
    ///
    /// # Errors
    /// `ESTALE` if its file system died and was released.
    pub(super) fn tier(&self) -> Result<Arc<Tier>> {
        self.get()
            .ok_or_else(|| Error::new(Errno::ESTALE, "the tier's file system failed, and was let go of"))
    }

    /// The same; `None` if it was released.
    pub(super) fn get(&self) -> Option<Arc<Tier>> {
        // A panic leaves no state half-changed, here and below.
        self.tier.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn lost(&self) -> MutexGuard<'_, Lost> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fails once if some of the objects were not durable when their file
    /// system went away.
    pub(super) fn tell_lost(&self, ids: &[ObjectId]) -> Result<()> {
        let mut lost = self.lost();
        // This error reports all of them: none must be left for the next sync.
        let told = ids.iter().filter(|id| lost.objects.remove(id)).count();
        if told > 0 { Err(lost_error()) } else { Ok(()) }
    }

    /// Fails once if any object was not durable when its file system went away.
    pub(super) fn tell_any_lost(&self) -> Result<()> {
        if std::mem::take(&mut self.lost().any) { Err(lost_error()) } else { Ok(()) }
    }

    /// Drops a removed object from the lost ones.
    pub(super) fn forget_lost(&self, id: ObjectId) {
        self.lost().objects.remove(&id);
    }

    /// Closes every descriptor of the file system. Operations in flight keep
    /// theirs until they end.
    pub(super) fn let_go(&self) {
        self.give_up_for(None);
    }

    /// Switches to `tier`, and remembers the losses of the previous one.
    pub(super) fn give_up_for(&self, tier: Option<Tier>) {
        // Held until the losses are known: the new file system comes with those
        // of the old one.
        let mut lost = self.lost();
        let before = self.use_from_now_on(tier);
        let unsynced = before.as_ref().map(|before| before.unsynced.give_up()).unwrap_or_default();
        lost.any |= !unsynced.is_empty();
        lost.objects.extend(unsynced);
        // Closing may take long.
        drop(lost);
        drop(before);
    }

    /// Switches to `tier`. Answers the previous one.
    pub(super) fn use_from_now_on(&self, tier: Option<Tier>) -> Option<Arc<Tier>> {
        let mut current = self.tier.write().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *current, tier.map(Arc::new))
    }
}

fn lost_error() -> Error {
    Error::new(Errno::EIO, "data that was not synced was lost when the tier's file system went away")
}
