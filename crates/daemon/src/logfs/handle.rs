//! An open log file system, with the modules on top of it.

use super::refuse::refuse_at;
use super::settings::LogSettings;
use crate::config::Config;
use crate::kv::{LogStack, Owner};
use crate::modules::Modules;
use crate::refusal::Refusal;
use braid_contract::{FileSystem, ModuleStatus};
use braid_log::{Device, Disk, LogFs, Settings, Use};
use braid_modules::trace::Trace;
use braid_stores::native::Machine;
use std::sync::Arc;

/// An open log file system, with the modules on top of it.
#[derive(Clone)]
pub(super) struct LogHandle {
    pub(super) fs: Arc<LogFs>,
    pub(super) modules: Arc<Modules>,
    /// On top of the other modules.
    pub(super) trace: Arc<Trace>,
}

impl LogHandle {
    /// Opens a log file system, and recovers it if need be.
    pub(super) fn open(config: &Config, log: &LogSettings) -> Result<Self, Refusal> {
        let told = |error| refuse_at(&log.device, &error);
        let device: Arc<dyn Device> = Arc::new(Disk::open(&log.device.value, Use::Write).map_err(told)?);
        let settings = Settings { workers: log.workers_or_default(), ..Settings::default() };
        let fs = Arc::new(LogFs::open(device, settings, Arc::new(Machine)).map_err(told)?);
        let modules = Modules::new(&config.stack, Arc::clone(&fs) as Arc<dyn FileSystem>);
        let modules = Arc::new(modules.map_err(|error| {
            let advice = "docs/configuration.md has what each module needs of what is below it";
            log.place.whole_file().key("stack").refuse(error.to_string(), advice)
        })?);
        let trace = Arc::new(Trace::new(modules.file_system(), Arc::new(Machine)));
        Ok(Self { fs, modules, trace })
    }

    /// The whole stack as a file system.
    pub(super) fn file_system(&self) -> Arc<dyn FileSystem> {
        self.trace.clone()
    }

    /// Whose directories are served as keys and values.
    pub(super) fn owner(&self) -> Owner {
        let (fs, modules) = (Arc::clone(&self.fs), Arc::clone(&self.modules));
        Owner::Log(LogStack { fs, modules, top: self.file_system() })
    }

    /// The modules, that of the daemon before those of the stack file.
    pub(super) fn modules_status(&self) -> Vec<ModuleStatus> {
        let trace = ModuleStatus {
            module: "trace".to_owned(),
            place: 0,
            figures: self.trace.figures(),
            after_crash: None,
        };
        std::iter::once(trace).chain(self.modules.status()).collect()
    }

    /// Ends all use, and closes the file system.
    pub(super) fn close(&self) -> braid_contract::Result<()> {
        self.trace.close();
        self.modules.end();
        self.fs.close()
    }
}
