//! An open log file system, as the bottom of a stack.

use super::refuse::{refuse_at, refuse_salvage};
use super::settings::{KEYS, LogSettings};
use crate::bottom::Bottom;
use crate::kv::{LogStack, Owner};
use crate::modules::Modules;
use crate::paths;
use crate::refusal::Refusal;
use braid_contract::{Caller, Figure, FileSystem, Result, Shown, counted};
use braid_ipc::protocol::Status;
use braid_log::{Device, Disk, LogFs, NAMED_MAX, Salvaged, Settings, Use};
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
    /// What was wrong with it, if it is salvaged.
    salvaged: Option<Salvaged>,
}

impl OpenLog {
    /// Opens a log file system, and recovers it if need be; one that is salvaged is only read.
    pub(crate) fn open(log: &LogSettings) -> std::result::Result<Arc<dyn Bottom>, Refusal> {
        let told = |error| refuse_at(&log.device, &error);
        let usage = if log.is_salvaged() { Use::Read } else { Use::Write };
        let disk = Disk::open(&log.device.value, usage).map_err(told)?;
        let driver = disk.driver();
        let device: Arc<dyn Device> = Arc::new(disk);
        let settings = Settings { workers: log.workers_or_default(), ..Settings::default() };
        let (fs, salvaged) = if log.is_salvaged() {
            let opened = LogFs::salvage(&device, settings, Arc::new(Machine));
            let (fs, salvaged) = opened.map_err(|error| refuse_salvage(&log.device, &error))?;
            tell(&salvaged);
            (fs, Some(salvaged))
        } else {
            (LogFs::open(device, settings, Arc::new(Machine)).map_err(told)?, None)
        };
        let workers = fs.free_by_worker().len() as u64;
        let device = paths::real(&log.device.value).to_string_lossy().into_owned();
        Ok(Arc::new(Self { device, driver, workers, fs: Arc::new(fs), salvaged }))
    }
}

/// Logs what was wrong.
fn tell(salvaged: &Salvaged) {
    tracing::info!(inodes = salvaged.inodes, sound = salvaged.is_sound(), "salvaged; nothing is written");
    for (trouble, found) in &salvaged.wrong {
        tracing::warn!(count = found.count, "{trouble}");
        found.named.iter().for_each(|named| tracing::warn!("{trouble}: {named}"));
        if found.named.len() == NAMED_MAX {
            tracing::warn!("{trouble}: no more than {NAMED_MAX} are named");
        }
    }
}

impl Bottom for OpenLog {
    fn name(&self) -> &'static str {
        "log"
    }

    fn keys(&self) -> &'static [&'static str] {
        &KEYS
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
        status.log_salvage = self.salvaged.as_ref().map(Salvaged::lines);
    }

    fn notices(&self) -> Vec<String> {
        let Some(salvaged) = &self.salvaged else { return Vec::new() };
        let (device, inodes) = (self.device.shown(), counted(salvaged.inodes, "inode"));
        if salvaged.is_sound() {
            return vec![format!("{device}: nothing is wrong; {inodes}, to be read only")];
        }
        let mut notices = vec![format!("{device}: {inodes} can be read, and nothing is written")];
        notices.extend(salvaged.lines());
        notices.push(format!(
            "next: copy the files out, and look at those that the log of the mount names; \
             then make it anew: braid log create --force {device}"
        ));
        notices
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
