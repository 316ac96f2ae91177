//! How a volume is put together.

use crate::background::Background;
use crate::file::Handles;
use crate::index::IndexDir;
use crate::namespace::{Home, InodeTable};
use crate::placement::Policy;
use crate::reap::Reaper;
use crate::tiers::Tiers;
use braid_contract::{Errno, Result, VolumeId};

/// An open volume. [`open`](Volume::open) makes one.
pub struct Volume {
    pub(crate) id: VolumeId,
    /// Range size in bytes.
    pub(crate) range_size: u32,
    pub(crate) home: Home,
    pub(crate) tiers: Tiers,
    pub(crate) policy: Box<dyn Policy>,
    pub(crate) index: IndexDir,
    pub(crate) inodes: InodeTable,
    pub(crate) handles: Handles,
    pub(crate) reaper: Reaper,
    /// Threads for what goes on on several tiers at once.
    pub(crate) pool: rayon::ThreadPool,
    pub(crate) background: Background,
}

impl Volume {
    /// Brings everything to the tiers that must be there for the next mount:
    /// home inodes, removals, counts. Called once, after the front end ended.
    ///
    /// # Errors
    /// Those of the tiers. What could not be done is done at the next mount.
    pub fn shutdown(&self) -> Result<()> {
        self.background.stop();
        // The kernel does not release what was open when it was unmounted.
        for handle in self.handles.file_handles() {
            if let Err(error) = self.close_file(handle) {
                tracing::warn!(%error, "closing a file that was open at the unmount");
            }
        }
        self.reaper.reap_now(self);
        self.sync_all_tiers()?;
        if let Err(error) = self.save_counts() {
            tracing::warn!(%error, "the next mount counts the ranges anew");
        }
        Ok(())
    }

    /// Does `work` for all `items` at the same time: one in this thread, the
    /// others in the pool's.
    pub(crate) fn side_by_side<T: Send>(
        &self,
        items: impl IntoIterator<Item = T>,
        work: impl Fn(T) -> Result<()> + Sync,
    ) -> Result<()> {
        let items: Vec<T> = items.into_iter().collect();
        let mut results: Vec<Result<()>> = items.iter().map(|_| Ok(())).collect();
        self.pool.in_place_scope(|scope| {
            let mut pairs = items.into_iter().zip(&mut results);
            let first = pairs.next();
            for (item, result) in pairs {
                let work = &work;
                scope.spawn(move |_| *result = work(item));
            }
            if let Some((item, result)) = first {
                *result = work(item);
            }
        });
        results.into_iter().collect()
    }

    /// Makes everything on all tiers durable; home, which leads to the rest,
    /// last.
    pub(crate) fn sync_all_tiers(&self) -> Result<()> {
        for (tier, store) in self.tiers.stores() {
            match store.sync_all() {
                // What is read-only has nothing to be synced.
                Err(error) if error.errno() == Errno::EROFS => {}
                result => result.map_err(|error| tier.note_error(error))?,
            }
        }
        Ok(rustix::fs::syncfs(self.home.root())?)
    }
}
