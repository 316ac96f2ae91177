//! An open volume with the daemon's state for it, and its status.

use crate::cache::Cache;
use crate::config::{StackNode, VolumeSettings};
use crate::device::{self, Devices};
use crate::drill::Drills;
use crate::modules::Modules;
use crate::places::Places;
use crate::refusal::Refusal;
use crate::{memory, process};
use braid_contract::{Error, FileSystem, InodeId, ModuleStatus};
use braid_ipc::protocol::{
    AffectedFile, Drill, ErrorReply, Explanation, Hello, HotFile, NamedTier, Pin, PlacedRun, Status,
    TierStatus,
};
use braid_modules::trace::Trace;
use braid_stores::native::Machine;
use braid_volume::{FileLayout, Volume};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// An open volume.
#[derive(Clone)]
pub(crate) struct VolumeHandle {
    pub(crate) volume: Arc<Volume>,
    pub(crate) drills: Arc<Drills>,
    pub(crate) cache: Arc<Cache>,
    pub(crate) places: Arc<Places>,
    /// The names of the tiers in memory.
    memory: Arc<[String]>,
    pub(crate) modules: Arc<Modules>,
    /// On top of the other modules.
    pub(crate) trace: Arc<Trace>,
    devices: Arc<Devices>,
    /// Whether tiers of unknown speed are measured.
    pub(crate) measures: bool,
    opened: Instant,
}

impl VolumeHandle {
    /// Wraps a volume that was opened for a stack.
    ///
    /// # Errors
    /// The reason why a module can't be put on it.
    pub(crate) fn new(
        volume: Arc<Volume>,
        (stack, settings): (&StackNode, &VolumeSettings),
        (drills, cache): (Arc<Drills>, Arc<Cache>),
    ) -> Result<Self, Refusal> {
        let devices = Devices::new(volume.status().tiers.iter().map(|tier| tier.device_number));
        let modules = Arc::new(Modules::new(stack, volume.clone())?);
        let trace = Arc::new(Trace::new(modules.file_system(), Arc::new(Machine)));
        Ok(Self {
            volume,
            drills,
            cache,
            places: Arc::new(Places::of(settings)),
            memory: memory::names(settings).into(),
            modules,
            trace,
            devices: Arc::new(devices),
            measures: settings.measure.as_ref().is_none_or(|measure| measure.value),
            opened: Instant::now(),
        })
    }

    /// The whole stack as a file system.
    pub(crate) fn file_system(&self) -> Arc<dyn FileSystem> {
        self.trace.clone()
    }

    /// Writes back data in memory and closes the volume.
    pub(crate) fn shutdown(&self) -> Result<(), Error> {
        self.trace.close();
        // Hanging operations would block the shutdown.
        self.drills.lift();
        self.volume.end_scrubs();
        self.modules.end();
        memory::empty(&self.volume, &self.memory);
        self.volume.shutdown()
    }

    /// Ends the recording of operations, drills that hold them up, and scrubs, which use modules.
    pub(crate) fn stop_recording(&self) {
        self.trace.close();
        self.drills.lift();
        self.volume.end_scrubs();
    }

    /// The reason why no process could go on after a crash of this one; `None` if one could.
    pub(crate) fn ends_with_process(&self) -> Option<String> {
        if let Some(tier) = self.memory.first() {
            return Some(format!("tier {tier} is in the memory of the process"));
        }
        self.volume.ends_with_process()
    }

    /// The reason why another process can't go on with the volume.
    pub(crate) fn may_be_given(&self) -> Result<(), ErrorReply> {
        if let Some(tier) = self.memory.first() {
            return Err(ErrorReply::new(format!(
                "tier {tier} is in the memory of the process: remove it first (braid tier remove {tier})"
            )));
        }
        Ok(self.volume.may_be_given()?)
    }

    /// The location of an inode's data.
    pub(crate) fn explain(&self, ino: u64) -> Result<Explanation, Error> {
        let explanation = self.volume.explain(InodeId(ino))?;
        let (layout, object) = match explanation.layout {
            FileLayout::Plain => ("plain", None),
            FileLayout::Whole { id } => ("whole", Some(id.to_string())),
            FileLayout::Spread { id } => ("spread", Some(id.to_string())),
        };
        let volatile_tiers = self.volatile_tiers(&explanation.runs);
        Ok(Explanation {
            layout: layout.into(),
            object,
            owner: Some(explanation.owner),
            size: explanation.size,
            range_size: explanation.range_size,
            volume_range_size: Some(explanation.volume_range_size),
            durable: volatile_tiers.is_empty(),
            volatile_tiers,
            rule: explanation.rule,
            stream: explanation.stream,
            policy: Some(explanation.policy),
            pin: explanation.pin.map(|tier| Pin { tier }),
            next: explanation.next,
            runs: explanation.runs,
        })
    }

    /// The tiers in memory that hold data of a file. Its name and its index are
    /// on home in any case.
    fn volatile_tiers(&self, runs: &[PlacedRun]) -> Vec<NamedTier> {
        let on = |id| runs.iter().any(|run| run.tier.as_ref().is_some_and(|tier| tier.id == id));
        let tiers = self.volume.status().tiers.into_iter();
        let volatile = tiers.filter(|tier| !tier.durable && (tier.home || on(tier.id)));
        volatile.map(|tier| NamedTier { id: tier.id, name: tier.name }).collect()
    }

    /// The files with ranges on tiers that can't be relied on.
    pub(crate) fn affected(
        &self,
        tell: &mut dyn FnMut(AffectedFile) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.volume.affected(&mut |file| {
            let path = file.path.to_string_lossy().into_owned();
            tell(match file.runs {
                Ok(runs) => AffectedFile { path, unknown: None, runs },
                Err(why) => AffectedFile { path, unknown: Some(why), runs: Vec::new() },
            })
        })
    }

    /// Changes and lists armed faults.
    pub(crate) fn drill(&self, tier: Option<&str>, rules: Option<&[String]>) -> Result<Drill, ErrorReply> {
        if let Some(tier) = tier {
            self.places.known(tier)?;
        }
        match (tier, rules) {
            (Some(tier), Some(rules)) => self.drills.arm(tier, rules)?,
            (None, Some(_)) => return Err(ErrorReply::new("faults are armed on one tier: name it")),
            (_, None) => {}
        }
        Ok(self.drills.list(tier))
    }

    /// The state of the volume.
    pub(crate) fn status(&self, hello: &Hello) -> Status {
        let status = self.volume.status();
        let home = status.tiers.iter().find(|tier| tier.home).map(|tier| tier.location.clone());
        let home = home.unwrap_or_default();
        Status {
            volume: status.id.to_string(),
            mountpoint: hello.mountpoint.clone(),
            version: hello.version.clone(),
            pid: hello.pid,
            uptime_seconds: self.opened.elapsed().as_secs_f64(),
            range_size: status.range_size,
            policy: status.policy,
            remaps: status.remaps,
            // The session fills this in.
            cache: String::new(),
            transport: String::new(),
            log: None,
            log_driver: None,
            log_salvage: None,
            view: None,
            outlives_crash: false,
            restarts: None,
            runtime: None,
            open_files: status.open_files,
            known_inodes: status.known_inodes,
            pending_removals: status.pending_removals,
            tiers: status.tiers.into_iter().map(|tier| self.tier_status(tier)).collect(),
            left_out_tiers: status.left_out_tiers,
            lost_tiers: status.lost_tiers,
            hottest: status.hottest.into_iter().map(|file| Self::hot_file(file, Path::new(&home))).collect(),
            moves: status.moves,
            modules: self.modules_status(),
        }
    }

    /// The modules, those of the daemon before those of the stack file.
    fn modules_status(&self) -> Vec<ModuleStatus> {
        let trace = ModuleStatus::new("trace", 0, self.trace.figures());
        let mut modules: Vec<ModuleStatus> = std::iter::once(trace).chain(self.modules.status()).collect();
        modules.extend(self.cache.status(modules.len() as u32));
        modules
    }

    fn hot_file(file: braid_volume::HotFile, home: &Path) -> HotFile {
        HotFile {
            ino: file.ino.0,
            path: file.fd.and_then(|fd| device::path_below(&*fd, home)),
            heat: file.heat,
            ranges: file.ranges,
            tier_names: file.tier_names,
        }
    }

    /// Adds the daemon's part to the status of a tier.
    fn tier_status(&self, mut tier: TierStatus) -> TierStatus {
        tier.faults = self.drills.armed(&tier.name);
        for thread in &mut tier.busiest_threads {
            thread.program = process::program_of(thread.thread);
        }
        tier.device = self.devices.look(tier.device_number);
        tier
    }
}
