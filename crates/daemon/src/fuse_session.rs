//! The FUSE session of a mount, for requests about it.

use braid_contract::FrontCache;
use braid_fuse::{CacheMode, Holder, KernelCache, Session, Unmounter};

/// The FUSE session, for requests about it.
pub(crate) struct FuseSession {
    pub(crate) unmounter: Unmounter,
    pub(crate) holder: Holder,
    /// The mode of the kernel's cache.
    pub(crate) cache: &'static str,
    has_rings: Box<dyn Fn() -> bool + Send + Sync>,
    kernel_cache: KernelCache,
}

impl FuseSession {
    pub(crate) fn of(session: &Session) -> Self {
        Self {
            unmounter: session.unmounter(),
            holder: session.holder(),
            cache: match session.cache_mode() {
                Some(CacheMode::WriteBack) => "writeback",
                Some(CacheMode::Passthrough) => "passthrough",
                Some(CacheMode::Direct) => "direct",
                None => "writethrough",
            },
            has_rings: Box::new(session.rings()),
            kernel_cache: session.cache(),
        }
    }

    /// How requests come.
    pub(crate) fn transport(&self) -> &'static str {
        if (self.has_rings)() { "io_uring" } else { "device" }
    }

    /// Has the kernel write back all data that only its cache has.
    ///
    /// # Errors
    /// Those of writing it; all was tried.
    pub(crate) fn write_back_all(&self) -> braid_contract::Result<()> {
        self.kernel_cache.write_back_all()
    }

    /// Has the kernel look names up anew: a module that goes by names, and came just now, has
    /// not seen those that the kernel knows.
    pub(crate) fn look_up_anew(&self) {
        if let Err(error) = self.kernel_cache.look_up_anew() {
            tracing::warn!(%error, "the kernel does not look names up anew: new modules go by a file's path at home");
        }
    }
}
