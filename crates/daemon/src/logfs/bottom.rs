//! An open log file system, as the bottom of a stack.

use super::refuse::{refuse_at, refuse_salvage};
use super::settings::{KEYS, LogSettings};
use crate::bottom::Bottom;
use crate::guard::KeptBottom;
use crate::kv::{LogStack, Owner};
use crate::modules::Modules;
use crate::paths;
use crate::refusal::Refusal;
use crate::upgrade::{BottomState, GuardedState, LogState};
use braid_contract::{
    Caller, Environment, Errno, Error, Figure, FileSystem, OpenBefore, Result, Shown, counted,
};
use braid_ipc::protocol::{ErrorReply, Status};
use braid_log::{CrashedLog, Device, Disk, LogFs, NAMED_MAX, Salvaged, Settings, Use};
use braid_stores::native::Machine;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// An open log file system.
pub(crate) struct OpenLog {
    disk: Arc<Disk>,
    /// The device, as it is shown.
    device: String,
    workers: u64,
    fs: Arc<LogFs>,
    /// What was wrong with it, if it is salvaged.
    salvaged: Option<Salvaged>,
}

impl OpenLog {
    /// Opens a log file system, and recovers it if need be; one that is salvaged is only read.
    pub(crate) fn open(log: &LogSettings) -> std::result::Result<Arc<dyn Bottom>, Refusal> {
        let usage = if log.is_salvaged() { Use::Read } else { Use::Write };
        let disk = Disk::open_by(log.driver, &log.device.value, usage)
            .map_err(|error| refuse_at(&log.device, &error))?;
        if log.is_salvaged() {
            return Self::salvage(log, disk);
        }
        Self::open_with(log, disk, LogFs::open)
    }

    /// Goes on with the log file system of another process.
    pub(crate) fn open_taken(
        log: &LogSettings,
        state: &LogState,
    ) -> std::result::Result<Arc<dyn Bottom>, Refusal> {
        let fd = state.disk.try_clone().map_err(Error::from);
        let disk = fd.and_then(|fd| Disk::received(log.driver, fd, &log.device.value));
        let disk = disk.map_err(|error| refuse_at(&log.device, &error))?;
        Self::open_with(log, disk, |device, settings, environment| {
            LogFs::open_taken(device, settings, environment, state.live.clone())
        })
    }

    /// Goes on with the log file system of a process that crashed.
    pub(crate) fn open_after_crash(
        log: &LogSettings,
        crash: &GuardedState,
        open: Vec<OpenBefore>,
        crashes: u64,
    ) -> std::result::Result<Arc<dyn Bottom>, Refusal> {
        let disk = |error: &Error| refuse_at(&log.device, error);
        let kept =
            crash.bottom.descriptors.iter().map(OwnedFd::try_clone).collect::<std::io::Result<Vec<_>>>();
        let mut memory = kept.map_err(|error| disk(&error.into()))?.into_iter();
        let fd = memory.next().ok_or_else(|| {
            disk(&Error::new(Errno::ESTALE, "the process that crashed had not told what another one needs"))
        })?;
        let opened = Disk::received(log.driver, fd, &log.device.value).map_err(|error| disk(&error))?;
        tracing::warn!(open = open.len(), "the process before crashed; going on with what was open");
        let crashed = CrashedLog { memory: memory.collect(), open, crashes };
        Self::open_with(log, opened, |device, settings, environment| {
            LogFs::open_after_crash(device, settings, environment, crashed)
        })
    }

    fn open_with(
        log: &LogSettings,
        disk: Disk,
        open: impl FnOnce(Arc<dyn Device>, Settings, Arc<dyn Environment>) -> Result<LogFs>,
    ) -> std::result::Result<Arc<dyn Bottom>, Refusal> {
        let disk = Arc::new(disk);
        let fs = open(disk.clone(), settings(log), Arc::new(Machine));
        let fs = fs.map_err(|error| refuse_at(&log.device, &error))?;
        Ok(Self::of(log, disk, fs, None))
    }

    /// Opens what can be read of one that may be damaged.
    fn salvage(log: &LogSettings, disk: Disk) -> std::result::Result<Arc<dyn Bottom>, Refusal> {
        let disk = Arc::new(disk);
        let device: Arc<dyn Device> = disk.clone();
        let opened = LogFs::salvage(&device, settings(log), Arc::new(Machine));
        let (fs, salvaged) = opened.map_err(|error| refuse_salvage(&log.device, &error))?;
        tell(&salvaged);
        Ok(Self::of(log, disk, fs, Some(salvaged)))
    }

    fn of(log: &LogSettings, disk: Arc<Disk>, fs: LogFs, salvaged: Option<Salvaged>) -> Arc<dyn Bottom> {
        let device = paths::real(&log.device.value).to_string_lossy().into_owned();
        let workers = fs.free_by_worker().len() as u64;
        Arc::new(Self { disk, device, workers, fs: Arc::new(fs), salvaged })
    }
}

/// The reason why no process could go on after a crash of one that uses a disk by this driver;
/// `None` if one could.
fn ends_with_process(driver: &str) -> Option<String> {
    // Transfers that were begun may go on when the process is gone.
    let may_go_on = matches!(driver, "io_uring" | "nvme");
    may_go_on.then(|| format!("transfers of the driver {driver} may outlast the process"))
}

fn settings(log: &LogSettings) -> Settings {
    Settings { workers: log.workers_or_default(), ..Settings::default() }
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
        (status.log, status.log_driver) = (Some(self.device.clone()), Some(self.disk.driver().to_owned()));
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
             then repair it: braid log check --repair {device}; \
             or make it anew: braid log create --force {device}"
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

    fn ends_with_process(&self) -> Option<String> {
        let salvaged = self.salvaged.as_ref().map(|_| "what is salvaged is in the process".to_owned());
        salvaged.or_else(|| ends_with_process(self.disk.driver()))
    }

    fn outlive(&self) -> Result<KeptBottom> {
        let mut descriptors = vec![self.disk.try_clone_descriptor()?];
        descriptors.extend(self.fs.outlive()?);
        Ok(KeptBottom { descriptors, ..KeptBottom::default() })
    }

    fn may_be_given(&self) -> std::result::Result<(), ErrorReply> {
        if self.salvaged.is_some() {
            let message = "what is salvaged is in the process: unmount, and mount with the program";
            return Err(ErrorReply::new(message));
        }
        Ok(())
    }

    fn prepare_to_give(&self) -> Result<()> {
        self.fs.prepare_to_give()
    }

    fn give(&self) -> Result<BottomState> {
        // The device stays locked, whatever its path leads to by now.
        let disk = self.disk.descriptor()?;
        Ok(BottomState::Log(LogState { live: self.fs.give()?, disk }))
    }

    fn begin(&self) {
        self.disk.keep_alone();
    }

    fn no_access_times(&self) -> &'static str {
        "reading does not renew access times on a log file system"
    }

    fn close(&self) -> Result<()> {
        self.fs.close()
    }
}
