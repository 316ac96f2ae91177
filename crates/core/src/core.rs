//! The state that every operation on a volume works on: the home tier's
//! namespace, the tiers, the indexes, the inodes and files in use. `file` and
//! `namespace` are the operations; services stand above them and hold the core,
//! which knows them as an [`Observer`] and a [`Placer`] only.

use crate::coord::{Barrier, WriterSlots};
use crate::failpoint::Failpoint;
use crate::live::{Freed, Handles, Inode, InodeTable, Learning, NameLocks, Removals};
use crate::observer::Observer;
use crate::placer::Placer;
use braid_contract::{Environment, Errno, FrontCache, InodeId, ObjectId, Result, VolumeId};
use braid_format::{RangeSize, VolumeTable};
use braid_home::Home;
use braid_index::IndexDir;
use braid_tiers::{Tiers, act_for, present};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// The core of an open volume.
pub struct Core {
    /// The volume's id.
    pub id: VolumeId,
    /// The range size of a new spread file, unless a rule says otherwise. An
    /// existing one has its own in its index.
    pub range_size: RangeSize,
    /// Braid's extended attributes are in the `user.` namespace.
    pub user_xattr: bool,
    /// The home tier's namespace.
    pub home: Home,
    /// All tiers.
    pub tiers: Tiers,
    /// Range indexes and marks.
    pub index: IndexDir,
    /// Locks of directories, against two changes of one name.
    pub names: NameLocks,
    /// The volume table as it is on the home tier. Held to change which tiers
    /// there are.
    pub table: Mutex<VolumeTable>,
    /// Held by operations that must not run beside one another: a check, an
    /// import, the replacement of home.
    pub maintenance: Mutex<()>,
    /// Inodes that the front end knows.
    pub inodes: InodeTable,
    /// The front end may know inodes that are not in `inodes`: it does since before a crash.
    pub finds_inodes: AtomicBool,
    /// Open files and directories.
    pub handles: Handles,
    /// Every operation enters it.
    pub barrier: Barrier,
    /// Ranges that are being written.
    pub slots: WriterSlots,
    /// Removed files that are not all gone yet.
    pub removals: Removals,
    /// Wakes operations that wait for space.
    pub freed: Freed,
    /// Streams that are learned.
    pub learning: Learning,
    /// Threads for work on several tiers at once; `None` without threads.
    pub pool: Option<rayon::ThreadPool>,
    /// Says where new ranges go.
    pub placer: Arc<dyn Placer>,
    /// Follows operations.
    pub observer: Arc<dyn Observer>,
    /// The front end's cache, once there is a front end.
    pub front_cache: OnceLock<Arc<dyn FrontCache>>,
    /// Time, chance and threads.
    pub environment: Arc<dyn Environment>,
    /// The bug that was set on purpose.
    #[cfg(feature = "failpoints")]
    pub failpoint: OnceLock<Failpoint>,
}

impl Core {
    /// Writes a changed volume table, which counts when this returns.
    ///
    /// # Errors
    /// Those of the home tier; the table is as it was then.
    pub fn switch_table(&self, table: &mut VolumeTable, next: VolumeTable) -> Result<()> {
        let braid = self.home.braid()?;
        if let Err(error) = braid.replace_small("volume", &next.encode()) {
            // It may be there all the same.
            if let Err(again) = braid.replace_small("volume", &table.encode()) {
                tracing::error!(error = %again, "the volume table on home may be that of a change that failed");
            }
            return Err(error);
        }
        *table = next;
        Ok(())
    }

    /// Does `work` for all `items` at the same time: one in this thread, the
    /// others in the pool's.
    pub fn side_by_side<T: Send>(
        &self,
        items: impl IntoIterator<Item = T>,
        work: impl Fn(T) -> Result<()> + Sync,
    ) -> Result<()> {
        let items: Vec<T> = items.into_iter().collect();
        let Some(pool) = &self.pool else { return items.into_iter().try_for_each(work) };
        let account = present();
        let mut results: Vec<Result<()>> = items.iter().map(|_| Ok(())).collect();
        pool.in_place_scope(|scope| {
            let mut pairs = items.into_iter().zip(&mut results);
            let first = pairs.next();
            for (item, result) in pairs {
                let work = &work;
                scope.spawn(move |_| {
                    let _for = act_for(account);
                    *result = work(item);
                });
            }
            if let Some((item, result)) = first {
                *result = work(item);
            }
        });
        results.into_iter().collect()
    }

    /// An id that no other object has.
    pub fn new_object_id(&self) -> Result<ObjectId> {
        let mut bytes = [0; 16];
        self.environment.fill_random(&mut bytes)?;
        Ok(ObjectId(bytes))
    }

    /// The inode that the front end means by this number. `ESTALE` if there is none.
    ///
    /// # Errors
    /// Those of the home tier, after a crash.
    pub fn inode(&self, ino: InodeId) -> Result<Arc<Inode>> {
        match self.inodes.get(ino) {
            Err(_) if self.finds_inodes.load(Ordering::Relaxed) => {
                let fd = self.home.open_number(ino)?;
                let identity = self.home.identify(&*fd)?;
                Ok(self.inodes.enter_found(&self.home, &identity, fd))
            }
            found => found,
        }
    }

    /// Makes everything on all tiers durable; home, which leads to the rest,
    /// last.
    pub fn sync_all_tiers(&self) -> Result<()> {
        let mut result = Ok(());
        for (tier, store) in self.tiers.stores().filter(|(tier, _)| !tier.is_absent()) {
            let synced = match store.sync_all() {
                // A read-only tier has nothing to be synced.
                Err(error) if error.errno() == Errno::EROFS => Ok(()),
                synced => synced.map_err(|error| tier.note_error(error)),
            };
            // A tier in trouble does not keep the others from being synced.
            result = result.and(synced);
        }
        let home = self.home.root().sync_fs();
        result.and(home)
    }

    /// Whether this bug is set.
    #[cfg(feature = "failpoints")]
    pub(crate) fn fails_at(&self, failpoint: Failpoint) -> bool {
        self.failpoint.get() == Some(&failpoint)
    }

    /// No bug is.
    #[cfg(not(feature = "failpoints"))]
    #[expect(clippy::unused_self, reason = "called as with the feature")]
    pub(crate) fn fails_at(&self, _: Failpoint) -> bool {
        false
    }
}
