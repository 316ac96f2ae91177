//! Helpers that the tests of modules share.

pub(crate) use braid_testkit::every_operation::entry;

use braid_contract::{
    FileSystem, FileSystemCapabilities, HandleId, IoMode, Opened, Reply, Request, Served, Service,
};
use std::sync::Arc;
use std::time::Duration;

/// The capabilities of a file system with all features that sees all
/// operations.
pub(crate) fn capabilities() -> FileSystemCapabilities {
    FileSystemCapabilities {
        cache_ttl: Duration::ZERO,
        passthrough: true,
        rename_modes: true,
        posix_acl: true,
        flush_at_close: false,
        caller_groups: false,
        holds_up: false,
        writes_through: false,
    }
}

/// A file that is open by this handle.
pub(crate) fn opened(handle: u64) -> Opened {
    Opened { handle: HandleId(handle), mode: IoMode::Cached, set_id: false }
}

struct Answers<F>(F);

/// A child that answers each request by this function.
pub(crate) fn answering(
    answer: impl Fn(Request<'_>) -> Reply + Send + Sync + 'static,
) -> Arc<dyn FileSystem> {
    Arc::new(Served(Answers(answer)))
}

impl<F: Fn(Request<'_>) -> Reply + Send + Sync> Service for Answers<F> {
    fn capabilities(&self) -> FileSystemCapabilities {
        capabilities()
    }

    fn call(&self, request: Request<'_>) -> Reply {
        (self.0)(request)
    }
}
