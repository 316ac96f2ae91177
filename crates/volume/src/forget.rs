//! Bounds how many inodes the front end knows, and so the memory that they
//! take. The oldest are given to the front end's cache to be forgotten; those
//! that are in use stay. Called in rounds by the background threads.

use crate::volume::Volume;
use braid_contract::{Errno, FrontCache};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Time until another attempt where the inodes are in use.
const PAUSE_NS: u64 = 5_000_000_000;

/// Has inodes forgotten if there are too many, in a thread of its own: the
/// kernel writes back the data of inodes that it forgets, which may wait for a
/// tier.
pub(crate) fn keep_bound(volume: &Arc<Volume>, known: u64) {
    let bound = &volume.threads.inode_bound;
    let now_ns = volume.core.environment.monotonic_ns();
    if bound.excess(known) == 0 || now_ns < bound.after_ns.load(Ordering::Relaxed) {
        return;
    }
    let Some(cache) = volume.core.front_cache.get() else { return };
    if bound.running.swap(true, Ordering::AcqRel) {
        return;
    }
    let (cache, weak) = (Arc::clone(cache), Arc::downgrade(volume));
    let work = move |_: &_| {
        if let Some(volume) = weak.upgrade() {
            forget_oldest(&volume, &*cache);
            volume.threads.inode_bound.running.store(false, Ordering::Release);
        }
    };
    if let Err(error) = volume.threads.start("braid-forget", work) {
        bound.running.store(false, Ordering::Release);
        tracing::warn!(%error, "no thread to have inodes forgotten");
    }
}

fn forget_oldest(volume: &Volume, cache: &dyn FrontCache) {
    let (inodes, bound) = (&volume.core.inodes, &volume.threads.inode_bound);
    let before = inodes.count();
    let oldest = inodes.oldest(bound.excess(before));
    match cache.forget(&oldest) {
        Ok(()) => {
            let known = inodes.count();
            tracing::debug!(before, known, asked = oldest.len(), "had the kernel forget inodes");
        }
        Err(error) if error.errno() != Errno::EINVAL => {
            tracing::warn!(%error, "the kernel could not be asked to forget inodes");
        }
        Err(error) => {
            tracing::info!(%error, "the kernel can't be asked to forget inodes: their number is not bounded");
            bound.set(u64::MAX);
        }
    }
    let pause = if bound.excess(inodes.count()) > 0 { PAUSE_NS } else { 0 };
    let now_ns = volume.core.environment.monotonic_ns();
    bound.after_ns.store(now_ns + pause, Ordering::Relaxed);
}
