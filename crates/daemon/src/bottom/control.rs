//! The control socket of a mounted stack without a volume. Requests about volumes and their tiers
//! are refused.

use super::handle::Handle;
use crate::beside::{Answers, Served};
use crate::config::Config;
use crate::kv::{self, Buckets};
use crate::modify::{self, Stack};
use crate::running::Running;
use crate::{stack_changes, trace};
use braid_contract::{Caller, ModuleStatus, RuntimeStatus};
use braid_fuse::Session;
use braid_ipc::Handler;
use braid_ipc::protocol::{
    AffectedFile, Drill, ErrorReply, Explanation, FsckRequest, FsckSummary, Hello, HomeReplaced,
    ImportSurvey, Job, JobChange, JobId, KvAnswer, KvRequest, LearnedStreams, Modified, ModifyStack,
    ModuleUpgraded, PinRequest, Pinned, Reloaded, Replaced, Replacing, Reply, StackDump, StartJob, Status,
    TierAdded, TierRemoved, TierSet, TraceRequest, Upgrading,
};
use braid_modules::trace::Traced;
use braid_runtime::Runtime;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, Weak};
use std::time::Instant;

/// Bytes that a trace takes for a range of files, where there are no ranges.
const RANGE_TRACED: u32 = 2 << 20;

/// Answers requests.
pub(super) struct Control {
    handle: Handle,
    session: Served,
    running: Running,
    /// Held while the stack changes.
    changing: Mutex<()>,
    /// Held during a sync of everything: one at a time is enough.
    syncing: Mutex<()>,
    /// Held while operations are recorded.
    recording: RwLock<()>,
    buckets: OnceLock<Arc<Buckets>>,
    /// The runtime that serves sessions, while it does.
    runtime: OnceLock<Weak<Runtime>>,
    opened: Instant,
}

impl Control {
    pub(super) fn new(handle: Handle, config: &Config, session: &Session) -> Self {
        Self {
            handle,
            session: Served::of(session),
            running: Running::of(config),
            changing: Mutex::default(),
            syncing: Mutex::default(),
            recording: RwLock::default(),
            buckets: OnceLock::new(),
            runtime: OnceLock::new(),
            opened: Instant::now(),
        }
    }

    /// Waits until an ended recording is sent completely, as long as its client reads.
    pub(super) fn await_recording(&self) {
        drop(self.recording.write().unwrap_or_else(PoisonError::into_inner));
    }

    fn changing(&self) -> MutexGuard<'_, ()> {
        // It guards no state of its own.
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stack(&self) -> Stack<'_> {
        Stack { modules: &self.handle.modules, running: &self.running }
    }
}

impl Answers for Control {
    fn set_buckets(&self, buckets: &Arc<Buckets>) {
        // It is noted once, when the mount begins.
        let _ = self.buckets.set(Arc::clone(buckets));
    }

    fn serves_sessions(&self, runtime: &Arc<Runtime>) {
        // Likewise.
        let _ = self.runtime.set(Arc::downgrade(runtime));
    }
}

impl Handler for Control {
    fn hello(&self) -> Hello {
        let unmounter = &self.session.unmounter;
        Hello {
            version: env!("CARGO_PKG_VERSION").into(),
            pid: std::process::id(),
            mountpoint: unmounter.mountpoint().to_string_lossy().into_owned(),
            serving: !unmounter.is_over(),
            upgrade: None,
        }
    }

    fn runtime(&self) -> Result<RuntimeStatus, ErrorReply> {
        let runtime = self.runtime.get().and_then(Weak::upgrade);
        let off = "applications can't have sessions here\n  help: mount with --runtime, or with 'runtime: true' below 'mount:'";
        runtime.map(|runtime| runtime.status()).ok_or_else(|| ErrorReply::new(off))
    }

    fn status(&self) -> Result<Status, ErrorReply> {
        let hello = self.hello();
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
            cache: self.session.cache.to_owned(),
            transport: self.session.transport().to_owned(),
            log: None,
            log_driver: None,
            view: None,
            outlives_crash: false,
            restarts: None,
            runtime: self.runtime.get().and_then(Weak::upgrade).map(|runtime| runtime.status()),
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
        bottom.tell(&mut status);
        Ok(status)
    }

    fn explain(&self, _: u64) -> Result<Explanation, ErrorReply> {
        self.handle.bottom.refuse()
    }

    fn sync(&self) -> Result<(), ErrorReply> {
        // It guards no state of its own.
        let _syncing = self.syncing.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(self.handle.file_system().sync()?)
    }

    fn kv(
        &self,
        caller: &Caller,
        request: &KvRequest,
        value: &[u8],
    ) -> Result<(KvAnswer, Vec<u8>), ErrorReply> {
        let buckets = self.buckets.get().ok_or_else(|| ErrorReply::new("nothing is mounted"))?;
        kv::answer(buckets, caller, request, value)
    }

    fn set_options(&self, options: &[String]) -> Result<(), ErrorReply> {
        let times = braid_fuse::access_times(options);
        if times.is_some_and(|times| times.renewal == braid_contract::Renewal::Always) {
            return self.handle.bottom.refuse_access_times();
        }
        Ok(())
    }

    fn affected(&self, _: &mut dyn FnMut(AffectedFile) -> io::Result<()>) -> Result<(), ErrorReply> {
        self.handle.bottom.refuse()
    }

    fn drill(&self, _: Option<&str>, _: Option<&[String]>) -> Result<Drill, ErrorReply> {
        self.handle.bottom.refuse()
    }

    fn replace_tier(&self, _: &str, _: &str) -> Result<Replaced, ErrorReply> {
        self.handle.bottom.refuse()
    }

    fn start_job(&self, _: &StartJob) -> Result<Job, ErrorReply> {
        self.handle.bottom.refuse()
    }

    fn jobs(&self) -> Vec<Job> {
        Vec::new()
    }

    fn job(&self, _: JobId, _: Option<JobChange>) -> Result<Job, ErrorReply> {
        self.handle.bottom.refuse()
    }

    fn undo_evacuation(&self, _: &str) -> Result<(), ErrorReply> {
        self.handle.bottom.refuse()
    }

    fn pin(&self, _: &PinRequest) -> Result<Pinned, ErrorReply> {
        self.handle.bottom.refuse()
    }

    fn add_tier(&self, _: &str, _: &str, _: &BTreeMap<String, String>) -> Result<TierAdded, ErrorReply> {
        self.handle.bottom.refuse()
    }

    fn set_tier(&self, _: &str, _: &BTreeMap<String, String>) -> Result<TierSet, ErrorReply> {
        self.handle.bottom.refuse()
    }

    fn remove_tier(&self, _: &str, _: bool) -> Result<TierRemoved, ErrorReply> {
        self.handle.bottom.refuse()
    }

    fn survey_import(&self, _: &str) -> Result<ImportSurvey, ErrorReply> {
        self.handle.bottom.refuse()
    }

    fn dump_stack(&self) -> Result<StackDump, ErrorReply> {
        Ok(StackDump { text: self.running.dump(None) })
    }

    fn learned_streams(&self) -> LearnedStreams {
        LearnedStreams::default()
    }

    fn reload(&self, dry_run: bool) -> Result<Reloaded, ErrorReply> {
        let _changing = self.changing();
        let keys = self.handle.bottom.keys();
        stack_changes::reload(&self.stack(), keys, dry_run)
    }

    fn upgrade(&self, _: &str) -> Result<Upgrading, ErrorReply> {
        Err(ErrorReply::new(self.handle.bottom.no_upgrade()))
    }

    fn may_modify(&self, uid: u32) -> bool {
        self.running.may_modify(uid)
    }

    fn modify_stack(&self, request: &ModifyStack) -> Result<Modified, ErrorReply> {
        let _changing = self.changing();
        let given = (&request.name[..], &request.text[..]);
        let (modified, came) = modify::modify(&self.stack(), given, request.dry_run)?;
        if came && !request.dry_run {
            self.session.look_up_anew();
        }
        Ok(modified)
    }

    fn upgrade_module(&self, module: &str, file: Option<&str>) -> Result<ModuleUpgraded, ErrorReply> {
        let _changing = self.changing();
        modify::upgrade(&self.stack(), module, file.map(Path::new))
    }

    fn replace_tier_by(
        &self,
        _: &str,
        _: &str,
        _: &str,
        _: &BTreeMap<String, String>,
        _: Option<u64>,
    ) -> Result<Replacing, ErrorReply> {
        self.handle.bottom.refuse()
    }

    fn replace_home(
        &self,
        _: &str,
        _: Option<u64>,
        _: &mut dyn FnMut(Job) -> io::Result<()>,
    ) -> Result<HomeReplaced, ErrorReply> {
        self.handle.bottom.refuse()
    }

    fn record_trace(
        &self,
        request: &TraceRequest,
        tell: &mut dyn FnMut(Reply) -> io::Result<()>,
    ) -> Result<(), ErrorReply> {
        // It guards no state of its own.
        let _recording = self.recording.read().unwrap_or_else(PoisonError::into_inner);
        let traced =
            Traced { volume: self.handle.bottom.id(), range: RANGE_TRACED, policy: "none".to_owned() };
        trace::record(&self.handle.trace, traced, request, tell)
    }

    fn stop_trace(&self, id: u64) -> Result<(), ErrorReply> {
        trace::stop(&self.handle.trace, id)
    }

    fn fsck(
        &self,
        _: &FsckRequest,
        _: &mut dyn FnMut(Reply) -> io::Result<()>,
    ) -> Result<FsckSummary, ErrorReply> {
        self.handle.bottom.refuse()
    }
}
