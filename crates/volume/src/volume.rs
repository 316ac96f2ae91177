//! The volume as a whole.

use crate::cache_work::CacheWorkEnd;
use crate::import::Importer;
use crate::jobs::Jobs;
use crate::membership::Membership;
use crate::movers::Movers;
use crate::placement::Placement;
use crate::rehome::HomeReplacement;
use crate::speeds;
use crate::strays::Strays;
use crate::streams;
use crate::threads::{BackgroundThreads, Stop};
use braid_contract::{AccessTimes, Errno, Error, FileSystem, FrontCache, InodeId, Result};
use braid_core::file::{close_file, end_use_entering, file_of, gather, relocate_watched};
use braid_core::handover::{LiveState, give};
use braid_core::reap::{reap_now, retire_marks};
use braid_core::recover::save_counts;
use braid_core::{Core, Keeper};
use braid_format::Reason;
use braid_tiers::Backend;
use braid_tiers::rate::{IoClass, MoveRate, Pace, Throttles};
use std::sync::{Arc, OnceLock, Weak};

/// An open volume. [`open`](Volume::open) makes one.
pub struct Volume {
    pub(crate) core: Arc<Core>,
    /// Where new ranges go.
    pub(crate) placement: Arc<Placement>,
    pub(crate) movers: Movers,
    pub(crate) jobs: Arc<Jobs>,
    /// Which tiers there are.
    pub(crate) membership: Membership,
    pub(crate) home_replacement: HomeReplacement,
    pub(crate) importer: Importer,
    /// The limits of movers and jobs.
    pub(crate) throttles: Arc<Throttles>,
    pub(crate) threads: BackgroundThreads,
    pub(crate) cache_work: CacheWorkEnd,
    /// Files of other volumes in the tree when this one was created.
    pub(crate) strays: Option<Strays>,
    /// What applications see: the modules above it, and itself below.
    pub(crate) stack: OnceLock<Weak<dyn FileSystem>>,
}

impl Volume {
    /// Writes to the tiers the state that the next mount needs: home inodes,
    /// removals, counts. To be called once, after the front end has ended.
    ///
    /// # Errors
    /// Those of the tiers. The next mount does the rest.
    pub fn shutdown(&self) -> Result<()> {
        self.stop_work();
        // The kernel does not release files that were open at the unmount.
        for handle in self.core.handles.file_handles() {
            if let Err(error) = close_file(&self.core, handle) {
                tracing::warn!(%error, "closing a file that was open at the unmount");
            }
        }
        reap_now(&self.core);
        retire_marks(&self.core);
        if let Err(error) = self.core.index.drop_spares() {
            tracing::warn!(%error, "spare marks stay; the next mount removes them");
        }
        self.core.sync_all_tiers()?;
        self.save_knowledge();
        if let Err(error) = save_counts(&self.core) {
            tracing::warn!(%error, "the next mount counts the ranges anew");
        }
        Ok(())
    }

    /// Whether another process could go on with the volume.
    ///
    /// # Errors
    /// `EOPNOTSUPP` where home can't find inodes by handle, `EIO` if a tier is not well,
    /// `EBUSY` during a check, an import or the replacement of home; those of tiers that
    /// keep data back by themselves, which they write.
    pub fn may_be_given(&self) -> Result<()> {
        if !self.core.home.opens_handles() {
            let what = "the home tier's file system has no file handles, or only root may open them";
            return Err(Error::new(Errno::EOPNOTSUPP, what));
        }
        // Neither process could open it.
        if let Some(tier) = self.core.tiers.iter().find(|tier| tier.is_absent() || !tier.is_healthy()) {
            let what = format!("tier {} is {}", tier.name, tier.state());
            return Err(Error::new(Errno::EIO, what));
        }
        if self.core.maintenance.try_lock().is_none() {
            let what = "a check, an import or the replacement of home is under way";
            return Err(Error::new(Errno::EBUSY, what));
        }
        self.write_what_is_held_back()
    }

    /// Ends the use of the volume in this process, for another one that
    /// [goes on](Self::open_taken) with it. To be called once, in place of
    /// [`shutdown`](Self::shutdown), while no operation is under way, and the volume
    /// [may be given](Self::may_be_given).
    pub fn give(&self) -> LiveState {
        self.stop_work();
        // Probes and removals that are under way have the tiers open.
        if let Some(pool) = &self.core.pool {
            pool.broadcast(|_| ());
        }
        if let Err(error) = self.write_what_is_held_back() {
            tracing::error!(%error, "what was not synced may be lost");
        }
        if let Err(error) = self.core.index.drop_spares() {
            tracing::warn!(%error, "spare marks stay; the next mount removes them");
        }
        give(&self.core)
    }

    /// Writes the tiers' data in this process's memory.
    fn write_what_is_held_back(&self) -> Result<()> {
        let held_back = self.core.tiers.stores().filter(|(_, store)| !store.capabilities().native_files);
        for (tier, store) in held_back.filter(|(tier, _)| !tier.is_absent()) {
            store.sync_all().map_err(|error| tier.note_error(error))?;
        }
        Ok(())
    }

    fn stop_work(&self) {
        self.jobs.list.stop();
        self.home_replacement.end();
        self.movers.rounds.stop();
        self.cache_work.stop();
        self.threads.stop();
    }

    /// Saves the heat of ranges and the figures of tiers and streams for the next
    /// mount, which does without any that can't be saved.
    pub fn save_knowledge(&self) {
        if let Err(error) = self.movers.heat.save(&self.core.home) {
            tracing::warn!(%error, "the heat of ranges could not be saved");
        }
        self.save_experience();
    }

    /// Saves the figures of tiers and streams for the next mount, which does without
    /// any that can't be saved.
    pub(crate) fn save_experience(&self) {
        if let Err(error) = speeds::save(&self.core) {
            tracing::warn!(%error, "the speeds of tiers could not be saved");
        }
        if let Err(error) = streams::save(&self.core) {
            tracing::warn!(%error, "what was learned of streams could not be saved");
        }
    }

    /// Moves the range that holds byte `offset` of a file to the tier of this
    /// name, if it is not there already (ordering rule 1). A file of one range
    /// moves as a whole; a longer plain one is spread first, and one that is
    /// then wholly on home becomes plain again. A range that was never written
    /// stays without a tier. `between` is called each time the range was
    /// copied, before the check for writes meanwhile.
    ///
    /// # Errors
    /// `ENOENT` if there is no such tier, `ESTALE` if the inode was never
    /// looked up, `ENOSPC` if the tier has no room, `EBUSY` if the kernel does
    /// I/O on the file itself at present, or another operation moves or changes
    /// the range; those of both tiers.
    pub fn move_range(&self, ino: InodeId, offset: u64, tier: &str, between: &mut dyn FnMut()) -> Result<()> {
        let to = self.core.tiers.iter().find(|to| to.name == tier);
        let to = to.ok_or_else(|| Error::new(Errno::ENOENT, format!("there is no tier `{tier}`")))?;
        let file = file_of(&self.core, &self.core.inodes.get(ino)?)?;
        file.opened(false)?;
        let pace = Pace::new(None, &self.throttles.paces);
        let rate = MoveRate { throttles: &self.throttles, pace: &pace, class: IoClass::UnguardedJob };
        let moved = relocate_watched(&self.core, &file, offset, &to, (Reason::Asked, rate), between);
        let moved = moved.and_then(|_| gather(&self.core, &file));
        let ended = end_use_entering(&self.core, &file);
        moved.map(drop).and(ended)
    }

    /// Sets the front end's cache, and how many inodes it is to know at most;
    /// those in use may be more. Only the first call counts.
    pub fn set_front_cache(&self, cache: Arc<dyn FrontCache>, inodes_max: u64) {
        self.threads.inode_bound.set(inodes_max);
        let _ = self.core.front_cache.set(cache);
    }

    /// Ends all scrubs, as the modules above the volume are about to end; waits for those under way.
    pub fn end_scrubs(&self) {
        self.jobs.list.end_scrubs();
    }

    /// Sets the modules above the volume, through which scrubs read. Only the first call counts.
    pub fn set_stack(&self, stack: &Arc<dyn FileSystem>) {
        let _ = self.stack.set(Arc::downgrade(stack));
    }

    /// Has inodes without a name outlive the process. Only the first call counts, before the
    /// volume is used.
    pub fn set_keeper(&self, keeper: Arc<dyn Keeper>) {
        self.core.inodes.set_keeper(keeper);
    }

    /// After a crash, when sessions have found what they knew: forgets inodes that were found and
    /// that the front end does not know, in a thread of its own, since its answer may wait for
    /// requests. `kept` are those that the keeper had.
    pub fn settle_found(self: &Arc<Self>, kept: Vec<InodeId>) {
        let weak = Arc::downgrade(self);
        let work = move |stop: &Stop| {
            let Some(volume) = weak.upgrade() else { return };
            let core = &volume.core;
            let Some(cache) = core.front_cache.get() else { return };
            kept.into_iter().for_each(|ino| core.inodes.settle_kept(ino));
            for ino in core.inodes.take_found().into_iter().take_while(|_| !stop.is_set()) {
                let is_known = cache.knows(ino);
                let _entered = core.barrier.enter();
                if !is_known && core.inodes.forget(ino, 1) {
                    core.freed.note_forgotten();
                }
            }
        };
        if let Err(error) = self.threads.start("braid-forget", work) {
            tracing::warn!(%error, "no thread to forget inodes of the crashed process; they stay until the unmount");
        }
    }

    /// Why no process could go on after a crash of this one; `None` if one could.
    #[must_use]
    pub fn ends_with_process(&self) -> Option<String> {
        if !self.core.home.finds_numbers() {
            return Some(
                "home is not on ext4, XFS or btrfs, or only root could find its inodes again".into(),
            );
        }
        if self.core.home.keeps_numbers() {
            return Some("home was replaced since the mount".into());
        }
        let mut tiers = self.core.tiers.iter().filter(|tier| !tier.is_absent());
        let found = tiers.find(|tier| match &tier.backend {
            Backend::Home(_) => false,
            Backend::Store(store) => !store.capabilities().native_files,
        });
        found.map(|tier| format!("tier {} keeps data in the daemon's memory", tier.name))
    }

    /// When reads update access times; `None` where the home tier's file system
    /// decides.
    #[must_use]
    pub fn access_times(&self) -> Option<AccessTimes> {
        self.core.home.access_times()
    }

    /// Sets when reads update access times.
    ///
    /// # Errors
    /// `EOPNOTSUPP` where the home tier's file system decides.
    pub fn set_access_times(&self, times: AccessTimes) -> Result<()> {
        self.core.home.set_access_times(times)
    }

    /// Files of other volumes in the tree over which this one was created;
    /// `None` if there were none, or if the volume is not new.
    #[must_use]
    pub fn strays(&self) -> Option<&Strays> {
        self.strays.as_ref()
    }

    /// Injects a bug; at most one.
    #[cfg(feature = "failpoints")]
    pub fn set_failpoint(&self, failpoint: crate::Failpoint) {
        let _ = self.core.failpoint.set(failpoint);
    }
}
