//! The control socket of a mounted log file system: who it is, a sync, keys and values,
//! and its end, for which `braid umount` waits. What is about volumes is refused.

use crate::kv::{self, Buckets};
use braid_contract::{Caller, FileSystem, RuntimeStatus};
use braid_fuse::Unmounter;
use braid_ipc::Handler;
use braid_ipc::protocol::{
    AffectedFile, Drill, ErrorReply, Explanation, FsckRequest, FsckSummary, Hello, HomeReplaced,
    ImportSurvey, Job, JobChange, JobId, KvAnswer, KvRequest, LearnedStreams, Modified, ModifyStack,
    ModuleUpgraded, PinRequest, Pinned, Reloaded, Replaced, Replacing, Reply, StackDump, StartJob, Status,
    TierAdded, TierRemoved, TierSet, TraceRequest, Upgrading,
};
use braid_log::LogFs;
use braid_runtime::Runtime;
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, OnceLock, Weak};

/// Answers requests.
pub(super) struct Control {
    fs: Arc<LogFs>,
    session: Unmounter,
    buckets: Arc<Buckets>,
    /// What serves sessions, as long as it does.
    runtime: OnceLock<Weak<Runtime>>,
}

impl Control {
    pub(super) fn new(fs: Arc<LogFs>, session: Unmounter, buckets: Arc<Buckets>) -> Self {
        Self { fs, session, buckets, runtime: OnceLock::new() }
    }

    /// Notes what serves sessions.
    pub(super) fn serves_sessions(&self, runtime: &Arc<Runtime>) {
        // It is noted once, when the mount begins.
        let _ = self.runtime.set(Arc::downgrade(runtime));
    }
}

/// Refuses what only a volume has.
fn no_volume<T>() -> Result<T, ErrorReply> {
    Err(ErrorReply::new(
        "this is a log file system, and no volume: it has no tiers, jobs or stack\n  \
         help: docs/log.md says what there is",
    ))
}

impl Handler for Control {
    fn hello(&self) -> Hello {
        Hello {
            version: env!("CARGO_PKG_VERSION").into(),
            pid: std::process::id(),
            mountpoint: self.session.mountpoint().to_string_lossy().into_owned(),
            serving: !self.session.is_over(),
            upgrade: None,
        }
    }

    fn runtime(&self) -> Result<RuntimeStatus, ErrorReply> {
        let runtime = self.runtime.get().and_then(Weak::upgrade);
        let off = "applications can't have sessions here\n  help: mount with --runtime";
        runtime.map(|runtime| runtime.status()).ok_or_else(|| ErrorReply::new(off))
    }

    fn status(&self) -> Result<Status, ErrorReply> {
        no_volume()
    }

    fn explain(&self, _: u64) -> Result<Explanation, ErrorReply> {
        no_volume()
    }

    fn sync(&self) -> Result<(), ErrorReply> {
        self.fs
            .sync()
            .map_err(|error| ErrorReply { errno: Some(error.errno().0), message: error.to_string() })
    }

    fn kv(
        &self,
        caller: &Caller,
        request: &KvRequest,
        value: &[u8],
    ) -> Result<(KvAnswer, Vec<u8>), ErrorReply> {
        kv::answer(&self.buckets, caller, request, value)
    }

    fn set_options(&self, _: &[String]) -> Result<(), ErrorReply> {
        no_volume()
    }

    fn affected(&self, _: &mut dyn FnMut(AffectedFile) -> io::Result<()>) -> Result<(), ErrorReply> {
        no_volume()
    }

    fn drill(&self, _: Option<&str>, _: Option<&[String]>) -> Result<Drill, ErrorReply> {
        no_volume()
    }

    fn replace_tier(&self, _: &str, _: &str) -> Result<Replaced, ErrorReply> {
        no_volume()
    }

    fn start_job(&self, _: &StartJob) -> Result<Job, ErrorReply> {
        no_volume()
    }

    fn jobs(&self) -> Vec<Job> {
        Vec::new()
    }

    fn job(&self, _: JobId, _: Option<JobChange>) -> Result<Job, ErrorReply> {
        no_volume()
    }

    fn undo_evacuation(&self, _: &str) -> Result<(), ErrorReply> {
        no_volume()
    }

    fn pin(&self, _: &PinRequest) -> Result<Pinned, ErrorReply> {
        no_volume()
    }

    fn add_tier(&self, _: &str, _: &str, _: &BTreeMap<String, String>) -> Result<TierAdded, ErrorReply> {
        no_volume()
    }

    fn set_tier(&self, _: &str, _: &BTreeMap<String, String>) -> Result<TierSet, ErrorReply> {
        no_volume()
    }

    fn remove_tier(&self, _: &str, _: bool) -> Result<TierRemoved, ErrorReply> {
        no_volume()
    }

    fn survey_import(&self, _: &str) -> Result<ImportSurvey, ErrorReply> {
        no_volume()
    }

    fn dump_stack(&self) -> Result<StackDump, ErrorReply> {
        no_volume()
    }

    fn learned_streams(&self) -> LearnedStreams {
        LearnedStreams::default()
    }

    fn reload(&self, _: bool) -> Result<Reloaded, ErrorReply> {
        no_volume()
    }

    fn upgrade(&self, _: &str) -> Result<Upgrading, ErrorReply> {
        no_volume()
    }

    fn may_modify(&self, _: u32) -> bool {
        false
    }

    fn modify_stack(&self, _: &ModifyStack) -> Result<Modified, ErrorReply> {
        no_volume()
    }

    fn upgrade_module(&self, _: &str, _: Option<&str>) -> Result<ModuleUpgraded, ErrorReply> {
        no_volume()
    }

    fn replace_tier_by(
        &self,
        _: &str,
        _: &str,
        _: &str,
        _: &BTreeMap<String, String>,
        _: Option<u64>,
    ) -> Result<Replacing, ErrorReply> {
        no_volume()
    }

    fn replace_home(
        &self,
        _: &str,
        _: Option<u64>,
        _: &mut dyn FnMut(Job) -> io::Result<()>,
    ) -> Result<HomeReplaced, ErrorReply> {
        no_volume()
    }

    fn record_trace(
        &self,
        _: &TraceRequest,
        _: &mut dyn FnMut(Reply) -> io::Result<()>,
    ) -> Result<(), ErrorReply> {
        no_volume()
    }

    fn stop_trace(&self, _: u64) -> Result<(), ErrorReply> {
        no_volume()
    }

    fn fsck(
        &self,
        _: &FsckRequest,
        _: &mut dyn FnMut(Reply) -> io::Result<()>,
    ) -> Result<FsckSummary, ErrorReply> {
        no_volume()
    }
}
