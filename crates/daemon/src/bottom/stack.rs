//! A stack without a volume, to be mounted.

use super::control::Control;
use super::handle::Handle;
use crate::config::{Config, MountSettings};
use crate::guard::Guarded;
use crate::kv::Owner;
use crate::life::Stack;
use crate::modules::Modules;
use crate::mount_control::MountControl;
use crate::upgrade::BottomState;
use braid_contract::{FileSystem, InodeId, Result as FsResult};
use braid_fuse::Session;
use std::sync::Arc;

impl Stack for Handle {
    type Control = Control;

    fn file_system(&self) -> Arc<dyn FileSystem> {
        self.trace.clone()
    }

    fn modules(&self) -> &Arc<Modules> {
        &self.modules
    }

    fn owner(&self) -> Owner {
        self.bottom.owner(&self.modules, self.file_system())
    }

    fn ends_with_process(&self) -> Option<String> {
        self.bottom.ends_with_process()
    }

    fn connect(&self, _: &Session, _: &MountSettings, _: Option<&Guarded>) {}

    fn control(&self, mount: MountControl) -> Control {
        Control::new(self.clone(), mount)
    }

    fn begin(&self, _: &Config) {
        self.bottom.begin();
    }

    fn notices(&self) -> Vec<String> {
        self.bottom.notices()
    }

    fn settle_found(&self, _: Vec<InodeId>) {}

    fn stop_recording(&self) {
        self.trace.close();
    }

    fn give(&self) -> FsResult<BottomState> {
        self.bottom.give()
    }

    fn close(&self) -> FsResult<()> {
        self.trace.close();
        self.modules.end();
        self.bottom.close()
    }
}
