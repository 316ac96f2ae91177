//! A volume at the bottom of a stack, to be mounted.

use crate::config::{Config, MountSettings};
use crate::control::Control;
use crate::guard::{CrashProtection, Guarded};
use crate::handle::VolumeHandle;
use crate::kv::Owner;
use crate::life::{Opener, Stack};
use crate::modules::Modules;
use crate::mount_control::MountControl;
use crate::refusal::Refusal;
use crate::upgrade::{BottomState, GuardedState, Suspension};
use crate::wire;
use braid_contract::{FileSystem, InodeId, Result};
use braid_fuse::Session;
use braid_volume::CrashState;
use std::sync::Arc;

/// Opens volumes.
pub(crate) struct VolumeOpener;

impl Opener for VolumeOpener {
    type Stack = VolumeHandle;

    fn open(&self, config: &Config, _: Option<&Guarded>) -> std::result::Result<VolumeHandle, Refusal> {
        wire::open(config, config.create)
    }

    fn open_again(
        &self,
        config: &Config,
        suspension: &Suspension,
        protection: &CrashProtection,
    ) -> std::result::Result<VolumeHandle, Refusal> {
        match suspension {
            Suspension::Upgrade { state, .. } => match &state.bottom {
                BottomState::Volume(live) => wire::open_taken(config, live, &state.modules),
                _ => Err(state.refuse_bottom()),
            },
            Suspension::Crash(crash) => open_after_crash(config, crash, protection.crashes()),
        }
    }
}

fn open_after_crash(
    config: &Config,
    crash: &GuardedState,
    crashes: u64,
) -> std::result::Result<VolumeHandle, Refusal> {
    tracing::warn!(open = crash.open.len(), "the process before crashed; going on with what was open");
    let open = crash.open_below(&config.stack);
    let crashed = CrashState { open, nameless: crash.nameless.clone(), crashes };
    wire::open_after_crash(config, &crashed, &crash.modules)
}

impl Stack for VolumeHandle {
    type Control = Control;

    fn file_system(&self) -> Arc<dyn FileSystem> {
        self.trace.clone()
    }

    fn modules(&self) -> &Arc<Modules> {
        &self.modules
    }

    fn owner(&self) -> Owner {
        Owner::of_files(self.trace.clone())
    }

    fn ends_with_process(&self) -> Option<String> {
        Self::ends_with_process(self)
    }

    fn connect(&self, session: &Session, settings: &MountSettings, guard: Option<&Guarded>) {
        if let Some(guard) = guard {
            self.volume.set_keeper(guard.link.clone());
        }
        self.volume.set_front_cache(Arc::new(session.cache()), settings.inodes_max());
        self.volume.set_stack(&self.modules.file_system());
    }

    fn control(&self, mount: MountControl) -> Control {
        Control::new(self.clone(), mount)
    }

    fn begin(&self, config: &Config) {
        let parallel = config.stack.volume().and_then(|volume| volume.jobs.as_ref()).map(|jobs| jobs.value);
        if let Err(error) = self.volume.start_jobs(parallel) {
            tracing::error!(%error, "no job runs: there is no thread for them");
        }
    }

    fn notices(&self) -> Vec<String> {
        self.volume.strays().iter().map(ToString::to_string).collect()
    }

    fn settle_found(&self, nameless: Vec<InodeId>) {
        self.volume.settle_found(nameless);
    }

    fn stop_recording(&self) {
        Self::stop_recording(self);
    }

    fn give(&self) -> Result<BottomState> {
        Ok(BottomState::Volume(Box::new(self.volume.give())))
    }

    fn close(&self) -> Result<()> {
        self.shutdown()
    }

    fn end(&self, control: &Control) -> Result<()> {
        control.end();
        let closed = self.shutdown();
        // No job does anything any more.
        control.follow();
        closed
    }
}
