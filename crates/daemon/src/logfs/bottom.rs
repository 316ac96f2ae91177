//! An open log file system, as the bottom of a stack.

use super::refuse::refuse_at;
use super::settings::LogSettings;
use crate::bottom::Bottom;
use crate::kv::{LogStack, Owner};
use crate::modules::Modules;
use crate::paths;
use crate::refusal::Refusal;
use braid_contract::{Caller, Figure, FileSystem, Result};
use braid_ipc::protocol::Status;
use braid_log::{Device, Disk, LogFs, Settings, Use};
use braid_stores::native::Machine;
use std::sync::Arc;

/// An open log file system.
pub(crate) struct OpenLog {
    /// As it is shown.
    device: String,
    /// That of the device.
    driver: &'static str,
    workers: u64,
    fs: Arc<LogFs>,
}

impl OpenLog {
    /// Opens a log file system, and recovers it if need be.
    pub(crate) fn open(log: &LogSettings) -> std::result::Result<Arc<dyn Bottom>, Refusal> {
        let told = |error| refuse_at(&log.device, &error);
        let disk = Disk::open(&log.device.value, Use::Write).map_err(told)?;
        let driver = disk.driver();
        let device: Arc<dyn Device> = Arc::new(disk);
        let settings = Settings { workers: log.workers_or_default(), ..Settings::default() };
        let fs = Arc::new(LogFs::open(device, settings, Arc::new(Machine)).map_err(told)?);
        let workers = fs.free_by_worker().len() as u64;
        let device = paths::real(&log.device.value).to_string_lossy().into_owned();
        Ok(Arc::new(Self { device, driver, workers, fs }))
    }
}

impl Bottom for OpenLog {
    fn name(&self) -> &'static str {
        "log"
    }

    fn keys(&self) -> &'static [&'static str] {
        &["device", "workers"]
    }

    fn file_system(&self) -> Arc<dyn FileSystem> {
        self.fs.clone()
    }

    fn id(&self) -> String {
        self.fs.uuid().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn figures(&self) -> Result<Vec<Figure>> {
        let fs = &self.fs;
        let space = fs.statfs(&Caller::root())?;
        let mut figures = vec![
            Figure::gauge("log_size_bytes", "Size of the file system", space.total),
            Figure::gauge("log_available_bytes", "Bytes that files may still take", space.available),
            Figure::gauge("log_inodes", "Inodes in use", space.files - space.files_free),
            Figure::gauge("log_workers", "Workers, each with a log", self.workers),
            Figure::counter("log_flushes", "Flushes of the device since the mount", fs.flushes()),
            Figure::counter("log_taken_bytes", "Bytes that workers took of others' shares", fs.stolen()),
        ];
        for (worker, free) in fs.free_by_worker().into_iter().enumerate() {
            let figure = Figure::gauge("log_share_free_bytes", "Free bytes of a worker's share", free);
            figures.push(figure.with("worker", worker.to_string()));
        }
        Ok(figures)
    }

    fn tell(&self, status: &mut Status) {
        (status.log, status.log_driver) = (Some(self.device.clone()), Some(self.driver.to_owned()));
    }

    fn owner(&self, modules: &Arc<Modules>, top: Arc<dyn FileSystem>) -> Owner {
        Owner::Log(LogStack {
            fs: Arc::clone(&self.fs),
            modules: Arc::clone(modules),
            top,
            listings: Arc::default(),
        })
    }

    fn no_volume(&self) -> String {
        "this is a log file system, and no volume: it has no tiers, ranges or jobs\n  \
         help: docs/log.md says what there is"
            .into()
    }

    fn no_upgrade(&self) -> &'static str {
        "a log file system has what is open in its process: unmount, and mount with the program"
    }

    fn no_access_times(&self) -> &'static str {
        "reading does not renew access times on a log file system"
    }

    fn close(&self) -> Result<()> {
        self.fs.close()
    }
}
