//! An open log file system, as the bottom of a stack.

use super::refuse::refuse_at;
use super::settings::LogSettings;
use crate::bottom::Bottom;
use crate::kv::{LogStack, Owner};
use crate::modules::Modules;
use crate::paths;
use crate::refusal::Refusal;
use crate::upgrade::BottomState;
use braid_contract::{Caller, Environment, Figure, FileSystem, Result, Shown};
use braid_ipc::protocol::{ErrorReply, Status};
use braid_log::{Device, Disk, DiskId, LiveLog, LogFs, Settings, Use};
use braid_stores::native::Machine;
use std::path::PathBuf;
use std::sync::Arc;

/// An open log file system.
pub(crate) struct OpenLog {
    /// As it is shown.
    device: String,
    /// That of the device.
    driver: &'static str,
    workers: u64,
    /// The path by which it was opened, and the device that it led to.
    path: PathBuf,
    disk: DiskId,
    fs: Arc<LogFs>,
}

impl OpenLog {
    /// Opens a log file system, and recovers it if need be.
    pub(crate) fn open(log: &LogSettings) -> std::result::Result<Arc<dyn Bottom>, Refusal> {
        Self::open_with(log, LogFs::open)
    }

    /// Goes on with the log file system of another process.
    pub(crate) fn open_taken(
        log: &LogSettings,
        live: &LiveLog,
    ) -> std::result::Result<Arc<dyn Bottom>, Refusal> {
        Self::open_with(log, |device, settings, environment| {
            LogFs::open_taken(device, settings, environment, live.clone())
        })
    }

    fn open_with(
        log: &LogSettings,
        open: impl FnOnce(Arc<dyn Device>, Settings, Arc<dyn Environment>) -> Result<LogFs>,
    ) -> std::result::Result<Arc<dyn Bottom>, Refusal> {
        let told = |error| refuse_at(&log.device, &error);
        let path = log.device.value.clone();
        let disk = Disk::open(&path, Use::Write).map_err(told)?;
        let (driver, id) = (disk.driver(), disk.id());
        let settings = Settings { workers: log.workers_or_default(), ..Settings::default() };
        let fs = Arc::new(open(Arc::new(disk), settings, Arc::new(Machine)).map_err(told)?);
        let workers = fs.free_by_worker().len() as u64;
        let device = paths::real(&path).to_string_lossy().into_owned();
        // The working directory is left later.
        let path = std::path::absolute(&path).unwrap_or(path);
        Ok(Arc::new(Self { device, driver, workers, path, disk: id, fs }))
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

    fn may_be_given(&self) -> std::result::Result<(), ErrorReply> {
        let why = match DiskId::at(&self.path) {
            Ok(found) if found == self.disk => return Ok(()),
            Ok(_) => format!("{}: it is another file or device now", self.path.shown()),
            Err(error) => error.to_string(),
        };
        let advice = "bring the one that is mounted back to this path, or unmount";
        Err(ErrorReply::new(format!("{why}\n  help: {advice}")))
    }

    fn prepare_to_give(&self) -> Result<()> {
        self.fs.prepare_to_give()
    }

    fn give(&self) -> Result<BottomState> {
        self.fs.give().map(BottomState::Log)
    }

    fn no_access_times(&self) -> &'static str {
        "reading does not renew access times on a log file system"
    }

    fn close(&self) -> Result<()> {
        self.fs.close()
    }
}
