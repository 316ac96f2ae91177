//! How a volume is put together.

use crate::background::Background;
use crate::config::{PolicyConfig, RuleConfig};
use crate::coord::{Barrier, WriterSlots};
use crate::file::Handles;
use crate::heat::Heat;
use crate::index::IndexDir;
use crate::jobs::Jobs;
use crate::migrate::{Pace, Paces};
use crate::movers::{IoClass, MoveRate, Movers};
use crate::namespace::{Home, InodeTable, NameLocks};
use crate::need::Freed;
use crate::placement::Policy;
use crate::reap::Reaper;
use crate::rehome::Changes;
use crate::rules::Rules;
use crate::strays::Strays;
use crate::sync::{Mutex, RwLock};
use crate::tiers::{Tiers, act_for, present};
use crate::trace::Tracing;
use braid_contract::{
    AccessTimes, EntryCache, Environment, Errno, Error, InodeId, ObjectId, Result, VolumeId,
};
use braid_format::{RangeSize, Reason, VolumeTable};
use std::sync::Arc;

/// An open volume. [`open`](Volume::open) makes one.
pub struct Volume {
    pub(crate) id: VolumeId,
    /// How long the ranges of a new spread file are, unless a rule says
    /// otherwise. Those of one that exists are as its index says.
    pub(crate) range_size: RangeSize,
    pub(crate) home: Home,
    pub(crate) tiers: Tiers,
    pub(crate) policy: RwLock<Arc<dyn Policy>>,
    pub(crate) policy_config: RwLock<PolicyConfig>,
    pub(crate) rules: RwLock<Arc<Rules>>,
    pub(crate) rules_config: RwLock<Vec<RuleConfig>>,
    pub(crate) epoch_ns: u64,
    /// The volume table as it is on the home tier.
    pub(crate) table: Mutex<VolumeTable>,
    pub(crate) user_xattr: bool,
    /// Tiers that were given at the mount and left out, since they were
    /// removed from the volume.
    pub(crate) left_out: Mutex<Vec<String>>,
    /// What remembers names, and is to be told of those that come by another
    /// way than through it.
    pub(crate) entry_cache: std::sync::OnceLock<Arc<dyn EntryCache>>,
    /// What of other volumes was in the tree when this one was made.
    pub(crate) strays: std::sync::OnceLock<Strays>,
    pub(crate) index: IndexDir,
    pub(crate) names: NameLocks,
    pub(crate) inodes: InodeTable,
    pub(crate) handles: Handles,
    /// Every operation goes through it.
    pub(crate) barrier: Barrier,
    /// What changes while home is copied.
    pub(crate) changes: Changes,
    /// Held by what must not be done beside another such thing: a check, the
    /// replacement of home.
    pub(crate) overhaul: Mutex<()>,
    pub(crate) reaper: Reaper,
    pub(crate) freed: Freed,
    /// Threads for what goes on on several tiers at once; `None` where there
    /// may be none.
    pub(crate) pool: Option<rayon::ThreadPool>,
    /// What is being written at this moment.
    pub(crate) slots: WriterSlots,
    pub(crate) background: Background,
    pub(crate) heat: Heat,
    pub(crate) movers: Movers,
    /// Whether latencies and threads are watched.
    pub(crate) monitor: bool,
    /// What records operations, if anybody wants them recorded.
    pub(crate) tracing: Tracing,
    pub(crate) jobs: Arc<Jobs>,
    /// What all paces share.
    pub(crate) paces: Arc<Paces>,
    pub(crate) environment: Arc<dyn Environment>,
    #[cfg(feature = "failpoints")]
    pub(crate) failpoint: std::sync::OnceLock<crate::failpoint::Failpoint>,
}

impl Volume {
    /// Brings everything to the tiers that must be there for the next mount:
    /// home inodes, removals, counts. Called once, after the front end ended.
    ///
    /// # Errors
    /// Those of the tiers. What could not be done is done at the next mount.
    pub fn shutdown(&self) -> Result<()> {
        self.jobs.stop();
        self.changes.end();
        self.tracing.close();
        self.movers.stop();
        self.background.stop();
        // The kernel does not release what was open when it was unmounted.
        for handle in self.handles.file_handles() {
            if let Err(error) = self.close_file(handle) {
                tracing::warn!(%error, "closing a file that was open at the unmount");
            }
        }
        self.reaper.reap_now(self);
        self.reaper.reclaim_orphans(self);
        self.index.drop_spares()?;
        self.sync_all_tiers()?;
        if let Err(error) = self.save_heat() {
            tracing::warn!(%error, "the heat of ranges could not be saved");
        }
        if let Err(error) = self.save_counts() {
            tracing::warn!(%error, "the next mount counts the ranges anew");
        }
        Ok(())
    }

    /// Moves the range that holds byte `offset` of a file to the tier of this
    /// name, if it is not there already (ordering rule 1). A file of one range
    /// moves as a whole; a longer plain one is spread first, and one that is
    /// wholly on home then is plain again. A range that was never written stays
    /// nowhere. `between` is called each time the range was copied, and before
    /// it is looked what was written to it meanwhile.
    ///
    /// # Errors
    /// `ENOENT` if there is no such tier, `ESTALE` if nobody has looked the
    /// inode up, `ENOSPC` if the tier has no room, `EBUSY` if the kernel does
    /// I/O on the file by itself at present, or something else moves or changes
    /// the range; those of both tiers.
    pub fn move_range(&self, ino: InodeId, offset: u64, tier: &str, between: &mut dyn FnMut()) -> Result<()> {
        let to = self.tiers.iter().find(|to| to.name == tier);
        let to = to.ok_or_else(|| Error::new(Errno::ENOENT, format!("there is no tier `{tier}`")))?;
        let file = self.file_of(&self.inodes.get(ino)?)?;
        file.opened(false)?;
        let pace = Pace::new(None, &self.paces);
        let rate = MoveRate { pace: &pace, class: IoClass::UnguardedJob };
        let moved = self.relocate_watched(&file, offset, &to, (Reason::Asked, rate), between);
        let moved = moved.and_then(|_| self.gather(&file));
        let ended = self.end_use(&file, false);
        moved.map(drop).and(ended)
    }

    /// Does `work` for all `items` at the same time: one in this thread, the
    /// others in the pool's.
    pub(crate) fn side_by_side<T: Send>(
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

    /// Names what remembers names. Once; later ones are ignored.
    pub fn set_entry_cache(&self, cache: Arc<dyn EntryCache>) {
        let _ = self.entry_cache.set(cache);
    }

    /// When reads renew access times; `None` where that is as the home tier's
    /// file system is mounted.
    #[must_use]
    pub fn access_times(&self) -> Option<AccessTimes> {
        self.home.access_times()
    }

    /// Changes when reads renew access times.
    ///
    /// # Errors
    /// `EOPNOTSUPP` where that is as the home tier's file system is mounted.
    pub fn set_access_times(&self, times: AccessTimes) -> Result<()> {
        self.home.root().set_access_times(times)
    }

    /// An id that no other object has.
    pub(crate) fn new_object_id(&self) -> Result<ObjectId> {
        let mut bytes = [0; 16];
        self.environment.fill_random(&mut bytes)?;
        Ok(ObjectId(bytes))
    }

    /// Makes everything on all tiers durable; home, which leads to the rest,
    /// last.
    pub(crate) fn sync_all_tiers(&self) -> Result<()> {
        let mut result = Ok(());
        for (tier, store) in self.tiers.stores().filter(|(tier, _)| !tier.is_absent()) {
            let synced = match store.sync_all() {
                // What is read-only has nothing to be synced.
                Err(error) if error.errno() == Errno::EROFS => Ok(()),
                synced => synced.map_err(|error| tier.note_error(error)),
            };
            // One in trouble does not keep the others from it.
            result = result.and(synced);
        }
        let home = self.home.root().sync_fs();
        result.and(home)
    }
}
