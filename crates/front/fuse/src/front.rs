//! The front end's state, and the way every request goes into the file system.

use crate::init::{Agreed, Wanted};
use crate::open_table::OpenTable;
use crate::report::{Op, Reporter};
use crate::{convert, init};
use braid_contract::{Attr, FileSystem, Result};
use fuser::{BackingId, KernelConfig};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Serves the requests of one mount.
pub(crate) struct Front {
    pub(crate) fs: Arc<dyn FileSystem>,
    /// How long the kernel may keep names and attributes.
    pub(crate) ttl: Duration,
    pub(crate) opens: OpenTable<BackingId>,
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
            opens: OpenTable::new(),
            wanted,
            agreed: Agreed::default(),
            passthrough_refused: AtomicBool::new(false),
            reporter: Reporter::default(),
        }
    }

    pub(crate) fn negotiate(&mut self, config: &mut KernelConfig) {
        self.agreed = init::negotiate(config, self.wanted);
    }

    /// How long the kernel may keep these attributes. Those of a set-id file
    /// not at all: it has to ask before it executes one, since it is not told
    /// of each operation that took the bits away.
    pub(crate) fn attr_ttl(&self, attr: &Attr) -> Duration {
        if convert::is_set_id(attr) { Duration::ZERO } else { self.ttl }
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

    /// Whether cached data is still true when a file is opened again.
    pub(crate) fn keeps_cache(&self) -> bool {
        self.wanted.sole_door
    }

    /// Carries out `work`, which calls the file system for the request `op`.
    /// Errors are logged and become the number to answer; a panic becomes
    /// `EIO`, so that the request is answered and the thread goes on.
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

    /// Carries out `work`; `None` if it panicked, which is logged.
    ///
    /// What `work` leaves half-done when it panics is the file system's to
    /// guard, as it is for panics of its own threads.
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
