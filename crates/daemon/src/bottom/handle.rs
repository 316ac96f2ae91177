//! An open file system that is no volume, with the modules on top of it.

use super::Bottom;
use crate::config::Config;
use crate::guard::{Guarded, KeptBottom};
use crate::modules::Modules;
use crate::refusal::Refusal;
use braid_contract::ModuleStatus;
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

/// Has the guard keep what another process would need of a file system, from now on.
fn outlive(bottom: &dyn Bottom, guard: &Guarded) {
    if bottom.ends_with_process().is_some() {
        return;
    }
    let kept = bottom.outlive().unwrap_or_else(|error| {
        guard.link.is_alone(format!("its state does not outlive the process: {error}"));
        KeptBottom::default()
    });
    guard.link.keep_bottom(&kept);
}

/// An open file system that is no volume, with the modules on top of it.
#[derive(Clone)]
pub(crate) struct Handle {
    pub(super) bottom: Arc<dyn Bottom>,
    pub(super) modules: Arc<Modules>,
    /// On top of the other modules.
    pub(super) trace: Arc<Trace>,
}

impl Handle {
    /// Puts the modules of a stack on it. The guard, if there is one, has what outlives the process
    /// before they use it.
    ///
    /// # Errors
    /// The reason why one can't be put on it.
    pub(crate) fn new(
        config: &Config,
        bottom: Arc<dyn Bottom>,
        guard: Option<&Guarded>,
    ) -> Result<Self, Refusal> {
        guard.into_iter().for_each(|guard| outlive(&*bottom, guard));
        let modules = modules_on(config, &bottom)?;
        let trace = Arc::new(Trace::new(modules.file_system(), Arc::new(Machine)));
        Ok(Self { bottom, modules, trace })
    }

    /// The modules, that of the daemon before those of the stack file.
    pub(super) fn modules_status(&self) -> Vec<ModuleStatus> {
        let trace = ModuleStatus::new("trace", 0, self.trace.figures());
        std::iter::once(trace).chain(self.modules.status()).collect()
    }
}
