//! The front end's state, and how every request gets to the file system.

use crate::cache::Shared;
use crate::coherence::{CacheTable, Outdated};
use crate::config::{CacheMode, FuseConfig};
use crate::handover::FrontState;
use crate::init;
use crate::init::{Agreed, BACKGROUND_MAX, Wanted};
use crate::invalidate::{Invalidator, Stretch};
use crate::ledger::Ledger;
use crate::no_room::NoRoom;
use crate::open_table::OpenTable;
use crate::refusals::Refusals;
use crate::report::{Op, Reporter};
use crate::rings::RingsState;
use braid_contract::{Attr, Caller, Errno, FileSystem, InodeId, Result};
use fuser::{BackingId, Backings, Errno as Answer, INodeNo, KernelConfig, Notifier};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Ways to notify the kernel.
pub(crate) struct Notifying {
    pub(crate) notifier: Notifier,
    pub(crate) invalidator: Invalidator,
}

/// Serves the requests of one mount.
pub(crate) struct Front {
    pub(crate) fs: Arc<dyn FileSystem>,
    /// How long the kernel may keep names and attributes.
    pub(crate) ttl: Duration,
    /// Names can be renamed in other ways than by replacing.
    pub(crate) rename_modes: bool,
    /// Extended attributes are served.
    pub(crate) xattrs: bool,
    /// A close waits for a flush.
    pub(crate) flush_at_close: bool,
    /// Opens bypass the kernel's cache where that is possible.
    all_direct: bool,
    pub(crate) opens: Arc<OpenTable<BackingId>>,
    /// Possible cached state of open inodes in the kernel.
    pub(crate) cached: CacheTable,
    pub(crate) no_room: NoRoom,
    pub(crate) refusals: Arc<Refusals>,
    /// The most bytes that the kernel keeps back.
    dirty_max: u64,
    /// Set once the session has begun.
    notifying: Arc<OnceLock<Notifying>>,
    wanted: Wanted,
    agreed: Agreed,
    /// For the session.
    shown: Arc<OnceLock<Agreed>>,
    /// The kernel refused to register a backing file, and will again.
    passthrough_refused: AtomicBool,
    pub(crate) reporter: Arc<Reporter>,
    /// The open files, for after a crash.
    pub(crate) ledger: Option<Arc<Ledger>>,
}

impl Front {
    pub(crate) fn new(
        fs: Arc<dyn FileSystem>,
        config: &FuseConfig,
        (rings, background): (bool, u16),
        dirty_max: u64,
    ) -> Self {
        let cache = config.cache;
        let capabilities = fs.capabilities();
        let ttl = capabilities.cache_ttl;
        let sole_door = !ttl.is_zero();
        let is_root = rustix::process::geteuid().is_root();
        let wanted = Wanted {
            posix_acl: capabilities.posix_acl && config.xattrs,
            xattrs: config.xattrs,
            passthrough: cache == CacheMode::Passthrough && is_root && capabilities.passthrough,
            // A file that others change has no size that the kernel could own.
            write_back: cache == CacheMode::WriteBack && sole_door,
            sole_door,
            rings,
            background,
        };
        Self {
            fs,
            ttl,
            rename_modes: capabilities.rename_modes,
            xattrs: config.xattrs,
            flush_at_close: capabilities.flush_at_close,
            all_direct: cache == CacheMode::Direct,
            opens: Arc::new(OpenTable::new()),
            cached: CacheTable::new(),
            no_room: NoRoom::default(),
            refusals: Arc::default(),
            dirty_max,
            notifying: Arc::default(),
            wanted,
            agreed: Agreed::default(),
            shown: Arc::default(),
            passthrough_refused: AtomicBool::new(false),
            reporter: Arc::default(),
            ledger: config.ledger.clone(),
        }
    }

    /// Goes on with the mount of another process.
    pub(crate) fn resumed(
        fs: Arc<dyn FileSystem>,
        config: &FuseConfig,
        dirty_max: u64,
        state: &FrontState,
        backings: &Backings,
    ) -> Self {
        let mut front = Self::new(fs, config, (state.agreed.rings, BACKGROUND_MAX), dirty_max);
        front.agreed = state.agreed;
        let _ = front.shown.set(state.agreed);
        front.passthrough_refused = AtomicBool::new(state.passthrough_refused);
        front.opens.go_on(&state.opens, |raw| backings.wrap(raw));
        front.cached.go_on(&state.cached);
        front.no_room.go_on(&state.no_room);
        front
    }

    /// The state for the process that goes on with the mount. No request is under
    /// way.
    pub(crate) fn give(&self, protocol: (u32, u32), rings: Option<RingsState>) -> FrontState {
        FrontState {
            protocol,
            agreed: self.agreed,
            passthrough_refused: self.passthrough_refused.load(Ordering::Relaxed),
            opens: self.opens.give(BackingId::into_raw),
            cached: self.cached.give(),
            no_room: self.no_room.give(),
            rings,
        }
    }

    pub(crate) fn negotiate(&mut self, config: &mut KernelConfig) {
        self.agreed = init::negotiate(config, self.wanted);
        let _ = self.shown.set(self.agreed);
    }

    /// The place of the negotiated settings.
    pub(crate) fn agreed(&self) -> Arc<OnceLock<Agreed>> {
        Arc::clone(&self.shown)
    }

    /// The place for the session's ways to notify the kernel.
    pub(crate) fn notifying(&self) -> Arc<OnceLock<Notifying>> {
        Arc::clone(&self.notifying)
    }

    /// Whether another process is to go on after a crash of this one.
    pub(crate) fn outlives_crash(&self) -> bool {
        self.ledger.is_some()
    }

    /// How long the kernel may cache these attributes. Not at all for a set-id
    /// file: it has to ask before it executes one, since operations may clear
    /// the bits without its notice. Nor for a file with direct writes under
    /// way, which change them after the kernel asked.
    pub(crate) fn attr_ttl(&self, attr: &Attr) -> Duration {
        // Where the kernel writes back, it keeps size and times by itself.
        let changes = attr.is_set_id() || !self.writes_back() && self.cached.is_written_directly(attr.ino);
        if changes { Duration::ZERO } else { self.ttl }
    }

    /// After a direct write, complete or partial: drops its pages from the
    /// kernel's cache, then calls `answer`.
    pub(crate) fn written_directly(&self, stretch: Stretch, answer: impl FnOnce() + Send + 'static) {
        match (self.cached.written_directly(InodeId(stretch.ino.0)), self.notifying.get()) {
            (Outdated::Nothing, _) | (_, None) => answer(),
            (Outdated::Attributes, Some(to)) => {
                // This does not wait, since it is about no page.
                if let Err(error) = to.notifier.inval_inode(stretch.ino, -1, 0) {
                    tracing::debug!("attributes of inode {} could not be dropped: {error}", stretch.ino.0);
                }
                answer();
            }
            (Outdated::Pages, Some(to)) => to.invalidator.drop_then(stretch, answer),
        }
    }

    /// What its caches share with it.
    pub(crate) fn shared(&self) -> Shared {
        (Arc::clone(&self.opens), Arc::clone(&self.refusals))
    }

    /// Data that the kernel wrote back was refused.
    pub(crate) fn refused(&self, ino: INodeNo, error: Answer) {
        self.refusals.note(InodeId(ino.0), Errno(error.code()));
        if self.no_room.note(ino, error)
            && let Some(to) = self.notifying.get()
            && let Err(error) = to.notifier.inval_inode(ino, -1, 0)
        {
            tracing::debug!("attributes of inode {} could not be dropped: {error}", ino.0);
        }
    }

    /// Calls `then` with `true` once the file system has all data of the inode
    /// that the kernel's cache has; with `false` if too many wait for that.
    pub(crate) fn written_back(&self, ino: INodeNo, then: impl FnOnce(bool) + Send + 'static) {
        let dirty = self.writes_back() && self.opens.with(InodeId(ino.0), |opens| opens.may_be_dirty());
        match self.notifying.get().filter(|_| dirty) {
            Some(to) => to.invalidator.write_back_then(ino, then),
            None => then(true),
        }
    }

    /// Whether an open may begin passthrough.
    pub(crate) fn passthrough(&self) -> bool {
        self.agreed.passthrough && !self.passthrough_refused.load(Ordering::Relaxed)
    }

    /// Ends all attempts at passthrough.
    pub(crate) fn give_up_passthrough(&self, reason: &std::io::Error) {
        if !self.passthrough_refused.swap(true, Ordering::Relaxed) {
            tracing::warn!("the kernel refuses passthrough, files are served without: {reason}");
        }
    }

    /// Whether an open that is not passed through bypasses the kernel's cache,
    /// if the file system would answer it with direct I/O or not.
    pub(crate) fn bypasses_cache(&self, direct: bool) -> bool {
        // Where the kernel owns the modification time, direct I/O by the mode
        // of the open does not set it. I/O that the application wants direct by
        // `O_DIRECT` bypasses the cache all the same.
        self.agreed.direct && !self.agreed.write_back && (direct || self.all_direct)
    }

    /// Whether a new file bypasses the kernel's cache, since the file system
    /// may have no room for data that the cache keeps back. The kernel does not
    /// set the modification time then, but that of a new file is that of its
    /// creation.
    pub(crate) fn writes_through(&self, caller: &Caller) -> bool {
        let available = || Some(self.fs.statfs(caller).ok()?.available);
        self.agreed.write_back && self.agreed.direct && self.no_room.is_near(self.dirty_max, available)
    }

    /// Whether the kernel keeps writes back, and owns size and times.
    pub(crate) fn writes_back(&self) -> bool {
        self.agreed.write_back
    }

    /// Whether an answer waits until the kernel has dropped pages or written them back,
    /// which may take an answer to another request.
    pub(crate) fn answers_wait(&self) -> bool {
        self.notifying.get().is_some_and(|to| to.invalidator.is_busy())
    }

    /// From now on, the kernel writes to the inode by itself.
    pub(crate) fn written_by_kernel(&self, ino: InodeId) {
        let Outdated::Attributes = self.cached.written_directly(ino) else { return };
        if let Some(to) = self.notifying.get()
            && let Err(error) = to.notifier.inval_inode(INodeNo(ino.0), -1, 0)
        {
            tracing::debug!("attributes of inode {} could not be dropped: {error}", ino.0);
        }
    }

    /// Whether cached data is still valid when a file is opened again.
    pub(crate) fn keeps_cache(&self) -> bool {
        self.wanted.sole_door
    }

    /// Runs `work`, which calls the file system for the request `op`.
    pub(crate) fn call<T>(
        &self,
        op: Op,
        work: impl FnOnce() -> Result<T>,
    ) -> std::result::Result<T, fuser::Errno> {
        self.reporter.call(op, work)
    }
}
