//! The front end's state, and how every request gets to the file system.

use crate::coherence::{CacheTable, Outdated};
use crate::init::{Agreed, Wanted};
use crate::invalidate::{Invalidator, Stretch};
use crate::open_table::OpenTable;
use crate::report::{Op, Reporter};
use crate::{convert, init};
use braid_contract::{Attr, FileSystem, InodeId, Result};
use fuser::{BackingId, KernelConfig, Notifier};
use std::panic::{AssertUnwindSafe, catch_unwind};
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
    pub(crate) opens: OpenTable<BackingId>,
    /// Possible cached state of open inodes in the kernel.
    pub(crate) cached: CacheTable,
    /// Set once the session has begun.
    notifying: Arc<OnceLock<Notifying>>,
    wanted: Wanted,
    agreed: Agreed,
    /// The kernel refused to register a backing file, and will again.
    passthrough_refused: AtomicBool,
    reporter: Reporter,
}

impl Front {
    pub(crate) fn new(fs: Arc<dyn FileSystem>, passthrough: bool) -> Self {
        let capabilities = fs.capabilities();
        let ttl = capabilities.cache_ttl;
        let wanted = Wanted {
            posix_acl: capabilities.posix_acl,
            passthrough: passthrough && capabilities.passthrough,
            sole_door: !ttl.is_zero(),
        };
        Self {
            fs,
            ttl,
            rename_modes: capabilities.rename_modes,
            opens: OpenTable::new(),
            cached: CacheTable::new(),
            notifying: Arc::default(),
            wanted,
            agreed: Agreed::default(),
            passthrough_refused: AtomicBool::new(false),
            reporter: Reporter::default(),
        }
    }

    pub(crate) fn negotiate(&mut self, config: &mut KernelConfig) {
        self.agreed = init::negotiate(config, self.wanted);
    }

    /// The place for the session's ways to notify the kernel.
    pub(crate) fn notifying(&self) -> Arc<OnceLock<Notifying>> {
        Arc::clone(&self.notifying)
    }

    /// How long the kernel may cache these attributes. Not at all for a set-id
    /// file: it has to ask before it executes one, since operations may clear
    /// the bits without its notice. Nor for a file with direct writes under
    /// way, which change them after the kernel asked.
    pub(crate) fn attr_ttl(&self, attr: &Attr) -> Duration {
        let changes = attr.is_set_id() || self.cached.is_written_directly(attr.ino);
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

    /// Whether opens may be answered with direct I/O.
    pub(crate) fn direct(&self) -> bool {
        self.agreed.direct
    }

    /// Whether cached data is still valid when a file is opened again.
    pub(crate) fn keeps_cache(&self) -> bool {
        self.wanted.sole_door
    }

    /// Runs `work`, which calls the file system for the request `op`. Errors
    /// are logged and become the number to answer; a panic becomes `EIO`, so
    /// that the request is answered and the thread continues.
    pub(crate) fn call<T>(
        &self,
        op: Op,
        work: impl FnOnce() -> Result<T>,
    ) -> std::result::Result<T, fuser::Errno> {
        match self.caught(op, work) {
            Some(Ok(value)) => Ok(value),
            Some(Err(error)) => {
                self.reporter.failed(op, &error);
                Err(convert::errno(error.errno()))
            }
            None => Err(fuser::Errno::EIO),
        }
    }

    /// Runs `work`; `None` if it panicked, which is logged.
    ///
    /// The file system guards state that a panic leaves half-changed, as for
    /// panics of its own threads.
    pub(crate) fn caught<T>(&self, op: Op, work: impl FnOnce() -> T) -> Option<T> {
        match catch_unwind(AssertUnwindSafe(work)) {
            Ok(value) => Some(value),
            Err(payload) => {
                self.reporter.panicked(op, payload.as_ref());
                None
            }
        }
    }
}
