//! An open file system that is no volume, with the modules on top of it.

use super::Bottom;
use crate::config::Config;
use crate::kv::Owner;
use crate::modules::Modules;
use crate::refusal::Refusal;
use braid_contract::{FileSystem, ModuleStatus};
use braid_modules::trace::Trace;
use braid_stores::native::Machine;
use std::sync::Arc;

/// Puts the modules of a stack on the file system at its bottom.
///
/// # Errors
/// The reason why a module can't be put on it.
pub(crate) fn modules_on(config: &Config, bottom: &Arc<dyn Bottom>) -> Result<Arc<Modules>, Refusal> {
    Modules::new(&config.stack, bottom.file_system()).map(Arc::new)
}

/// An open file system that is no volume, with the modules on top of it.
#[derive(Clone)]
pub(super) struct Handle {
    pub(super) bottom: Arc<dyn Bottom>,
    pub(super) modules: Arc<Modules>,
    /// On top of the other modules.
    pub(super) trace: Arc<Trace>,
}

impl Handle {
    /// Puts the modules of a stack on it.
    pub(super) fn new(config: &Config, bottom: Arc<dyn Bottom>) -> Result<Self, Refusal> {
        let modules = modules_on(config, &bottom)?;
        let trace = Arc::new(Trace::new(modules.file_system(), Arc::new(Machine)));
        Ok(Self { bottom, modules, trace })
    }

    /// The whole stack as a file system.
    pub(super) fn file_system(&self) -> Arc<dyn FileSystem> {
        self.trace.clone()
    }

    /// The owner of the directories that are served as keys and values.
    pub(super) fn owner(&self) -> Owner {
        self.bottom.owner(&self.modules, self.file_system())
    }

    /// The modules, that of the daemon before those of the stack file.
    pub(super) fn modules_status(&self) -> Vec<ModuleStatus> {
        let trace = ModuleStatus::new("trace", 0, self.trace.figures());
        std::iter::once(trace).chain(self.modules.status()).collect()
    }

    /// Ends all use, and closes the file system.
    pub(super) fn close(&self) -> braid_contract::Result<()> {
        self.trace.close();
        self.modules.end();
        self.bottom.close()
    }
}
