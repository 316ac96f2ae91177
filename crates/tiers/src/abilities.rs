//! The capabilities of a tier, read once: operations on data use them.

use crate::backend::Backend;
use braid_contract::StoreCapabilities;
use std::sync::atomic::{AtomicBool, Ordering};

/// The capabilities of a tier's store; of home, those of native file systems.
#[derive(Debug)]
pub(crate) struct Abilities {
    fixed: StoreCapabilities,
    /// Home may be replaced by a file system that differs in this.
    durable: AtomicBool,
    preallocates: AtomicBool,
}

impl Abilities {
    pub(crate) fn new(backend: &Backend) -> Self {
        let now = look_at(backend);
        let flag = AtomicBool::new;
        Self { fixed: now, durable: flag(now.durable), preallocates: flag(now.preallocates) }
    }

    /// Looks anew.
    pub(crate) fn renew(&self, backend: &Backend) {
        let now = look_at(backend);
        self.durable.store(now.durable, Ordering::Release);
        self.preallocates.store(now.preallocates, Ordering::Release);
    }

    pub(crate) fn now(&self) -> StoreCapabilities {
        StoreCapabilities {
            durable: self.durable.load(Ordering::Acquire),
            preallocates: self.preallocates.load(Ordering::Acquire),
            ..self.fixed
        }
    }
}

fn look_at(backend: &Backend) -> StoreCapabilities {
    let root = match backend {
        Backend::Store(store) => return store.capabilities(),
        Backend::Home(root) => root,
    };
    let usage = root.read().usage();
    StoreCapabilities {
        native_files: true,
        punch: true,
        allocate: true,
        seek_data: true,
        overwrite: true,
        access_times: true,
        durable: usage.as_ref().is_ok_and(|usage| !usage.volatile),
        preallocates: usage.is_ok_and(|usage| usage.preallocates),
        queue_depth: u32::MAX,
    }
}
