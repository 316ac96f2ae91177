//! The control socket of a mounted stack without a volume.

use super::handle::Handle;
use crate::beside::MountHandler;
use crate::fuse_session::FuseSession;
use crate::mount_control::MountControl;
use crate::{modify, stack_changes, trace};
use braid_contract::{Caller, ModuleStatus, RuntimeStatus};
use braid_ipc::protocol::{
    ErrorReply, Hello, KvAnswer, KvRequest, Modified, ModifyStack, ModuleUpgraded, Reloaded, Reply,
    StackDump, Status, TraceRequest, Upgrading,
};
use braid_ipc::{Handler, VolumeHandler};
use braid_modules::trace::Traced;
use std::io;
use std::path::Path;
use std::time::Instant;

/// Bytes that a trace takes for a range of files, where there are no ranges.
const RANGE_TRACED: u32 = 2 << 20;

/// The state of a mounted stack without a volume for the control socket.
pub(crate) struct Control {
    handle: Handle,
    mount: MountControl,
    opened: Instant,
}

impl Control {
    pub(super) fn new(handle: Handle, mount: MountControl) -> Self {
        Self { handle, mount, opened: Instant::now() }
    }
}

impl MountHandler for Control {
    fn mount(&self) -> &MountControl {
        &self.mount
    }
}

impl Handler for Control {
    fn hello(&self) -> Hello {
        self.mount.hello()
    }

    fn runtime(&self) -> Result<RuntimeStatus, ErrorReply> {
        self.mount.runtime_status()
    }

    fn status(&self) -> Result<Status, ErrorReply> {
        let hello = self.mount.identity();
        let mut modules = self.handle.modules_status();
        let place = modules.len() as u32;
        let bottom = &self.handle.bottom;
        modules.push(ModuleStatus::new(bottom.name(), place, bottom.figures()?));
        let mut status = Status {
            volume: bottom.id(),
            mountpoint: hello.mountpoint,
            version: hello.version,
            pid: hello.pid,
            uptime_seconds: self.opened.elapsed().as_secs_f64(),
            range_size: 0,
            policy: String::new(),
            remaps: None,
            cache: String::new(),
            transport: String::new(),
            log: None,
            log_driver: None,
            log_salvage: None,
            view: None,
            outlives_crash: false,
            restarts: None,
            runtime: None,
            open_files: 0,
            known_inodes: 0,
            pending_removals: 0,
            tiers: Vec::new(),
            lost_tiers: Vec::new(),
            left_out_tiers: Vec::new(),
            hottest: Vec::new(),
            moves: Vec::new(),
            modules,
        };
        self.mount.tell(&mut status);
        bottom.tell(&mut status);
        Ok(status)
    }

    fn volume(&self) -> Result<&dyn VolumeHandler, ErrorReply> {
        Err(ErrorReply::new(self.handle.bottom.no_volume()))
    }

    fn sync(&self) -> Result<(), ErrorReply> {
        self.mount.sync(&*self.handle.trace)
    }

    fn kv(
        &self,
        caller: &Caller,
        request: &KvRequest,
        value: &[u8],
    ) -> Result<(KvAnswer, Vec<u8>), ErrorReply> {
        self.mount.kv(caller, request, value)
    }

    fn set_options(&self, options: &[String]) -> Result<(), ErrorReply> {
        let times = braid_fuse::access_times(options);
        if times.is_some_and(|times| times.renewal == braid_contract::Renewal::Always) {
            return self.handle.bottom.refuse_access_times();
        }
        Ok(())
    }

    fn dump_stack(&self) -> Result<StackDump, ErrorReply> {
        Ok(StackDump { text: self.mount.running.dump(None) })
    }

    fn reload(&self, dry_run: bool) -> Result<Reloaded, ErrorReply> {
        let _changing = self.mount.change()?;
        let keys = self.handle.bottom.keys();
        stack_changes::reload(&self.mount.stack(&self.handle.modules), keys, dry_run)
    }

    fn upgrade(&self, program: &str) -> Result<Upgrading, ErrorReply> {
        let _changing = self.mount.change()?;
        let Handle { bottom, modules, .. } = &self.handle;
        self.mount.upgrade(
            program,
            || bottom.may_be_given(),
            || {
                modules.prepare_to_give();
                Ok(bottom.prepare_to_give()?)
            },
        )
    }

    fn may_modify(&self, uid: u32) -> bool {
        self.mount.running.may_modify(uid)
    }

    fn modify_stack(&self, request: &ModifyStack) -> Result<Modified, ErrorReply> {
        let _changing = self.mount.change()?;
        let given = (&request.name[..], &request.text[..]);
        let (modified, came) =
            modify::modify(&self.mount.stack(&self.handle.modules), given, request.dry_run)?;
        if came && !request.dry_run {
            self.mount.session.iter().for_each(FuseSession::look_up_anew);
        }
        Ok(modified)
    }

    fn upgrade_module(&self, module: &str, file: Option<&str>) -> Result<ModuleUpgraded, ErrorReply> {
        let _changing = self.mount.change()?;
        modify::upgrade(&self.mount.stack(&self.handle.modules), module, file.map(Path::new))
    }

    fn record_trace(
        &self,
        request: &TraceRequest,
        tell: &mut dyn FnMut(Reply) -> io::Result<()>,
    ) -> Result<(), ErrorReply> {
        let traced =
            Traced { volume: self.handle.bottom.id(), range: RANGE_TRACED, policy: "none".to_owned() };
        self.mount.record_trace(&self.handle.trace, traced, request, tell)
    }

    fn stop_trace(&self, id: u64) -> Result<(), ErrorReply> {
        trace::stop(&self.handle.trace, id)
    }
}
