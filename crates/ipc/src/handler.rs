//! The requests that a server passes on to the daemon.

use crate::protocol::{
    AffectedFile, Drill, ErrorReply, Explanation, FsckRequest, FsckSummary, Hello, HomeReplaced,
    ImportSurvey, Job, JobChange, JobId, KvAnswer, KvRequest, LearnedStreams, Modified, ModifyStack,
    ModuleUpgraded, PinRequest, Pinned, Reloaded, Replaced, Replacing, Reply, StackDump, StartJob, Status,
    TierAdded, TierRemoved, TierSet, TraceRequest, Upgrading,
};
use braid_contract::{Caller, RuntimeStatus};
use std::collections::BTreeMap;
use std::io;

/// Answers the requests that any mount has. Called from many threads at once.
pub trait Handler: Send + Sync + 'static {
    /// The daemon's description of itself.
    fn hello(&self) -> Hello;

    /// The state of the mount.
    ///
    /// # Errors
    /// If it is not available.
    fn status(&self) -> Result<Status, ErrorReply>;

    /// The part for requests about a volume.
    ///
    /// # Errors
    /// If the mount has no volume: what refuses these requests.
    fn volume(&self) -> Result<&dyn VolumeHandler, ErrorReply>;

    /// Makes all writes durable.
    ///
    /// # Errors
    /// If part of it failed; the rest is durable.
    fn sync(&self) -> Result<(), ErrorReply>;

    /// Reads or changes keys and values in the name of a caller; `value` is the data that
    /// followed the request. Returns the data that is to follow the reply too.
    ///
    /// # Errors
    /// If the caller has no right to it, or it fails.
    fn kv(
        &self,
        caller: &Caller,
        request: &KvRequest,
        value: &[u8],
    ) -> Result<(KvAnswer, Vec<u8>), ErrorReply>;

    /// Sets generic mount options.
    ///
    /// # Errors
    /// If one can't be changed on this mount; then nothing has changed.
    fn set_options(&self, options: &[String]) -> Result<(), ErrorReply>;

    /// The current stack.
    ///
    /// # Errors
    /// If it is not available.
    fn dump_stack(&self) -> Result<StackDump, ErrorReply>;

    /// The workers, queues and sessions of applications.
    ///
    /// # Errors
    /// If applications can't have sessions.
    fn runtime(&self) -> Result<RuntimeStatus, ErrorReply>;

    /// Reads the stack file again, and applies it, completely or not at all;
    /// with `dry_run`, only checks it.
    ///
    /// # Errors
    /// If there is no stack file, it is not valid, or changes a fixed setting.
    fn reload(&self, dry_run: bool) -> Result<Reloaded, ErrorReply>;

    /// Begins to hand the mount over to the program at this path.
    ///
    /// # Errors
    /// If that is impossible, or the program does not want it; nothing has changed then.
    fn upgrade(&self, program: &str) -> Result<Upgrading, ErrorReply>;

    /// Whether a user may modify and reload the stack, beside root and the user who
    /// mounted.
    fn may_modify(&self, uid: u32) -> bool;

    /// Exchanges, adds and removes modules; with `dry_run`, only checks that.
    ///
    /// # Errors
    /// If the stack is not valid, or can't come into force on a mounted volume.
    fn modify_stack(&self, request: &ModifyStack) -> Result<Modified, ErrorReply>;

    /// Has the library `file` go on as `module`; without one, that which a repository has.
    ///
    /// # Errors
    /// If it can't; the one before goes on.
    fn upgrade_module(&self, module: &str, file: Option<&str>) -> Result<ModuleUpgraded, ErrorReply>;

    /// Records the operations of applications. Hands them to `tell`, from
    /// [`Reply::TraceBegun`] to [`Reply::TraceEnded`]; it fails when the client
    /// is gone, which ends the recording.
    ///
    /// # Errors
    /// If recording is impossible, or the client is gone.
    fn record_trace(
        &self,
        request: &TraceRequest,
        tell: &mut dyn FnMut(Reply) -> io::Result<()>,
    ) -> Result<(), ErrorReply>;

    /// Ends a recording.
    ///
    /// # Errors
    /// If there is no recording of this number.
    fn stop_trace(&self, id: u64) -> Result<(), ErrorReply>;
}

/// Answers the requests about a volume, its tiers and its jobs. Called from many threads at once.
pub trait VolumeHandler {
    /// The location of the data of inode `ino`.
    ///
    /// # Errors
    /// If the inode is unknown or can't be explained.
    fn explain(&self, ino: u64) -> Result<Explanation, ErrorReply>;

    /// Hands `tell` the files with ranges on tiers that can't be relied on. It
    /// fails when the client is gone.
    ///
    /// # Errors
    /// If the files can't be listed, or the client is gone.
    fn affected(&self, tell: &mut dyn FnMut(AffectedFile) -> io::Result<()>) -> Result<(), ErrorReply>;

    /// The faults that are armed, on one tier or on all; replaced by `rules`
    /// first, if there are any.
    ///
    /// # Errors
    /// If there is no such tier, or a rule is invalid.
    fn drill(&self, tier: Option<&str>, rules: Option<&[String]>) -> Result<Drill, ErrorReply>;

    /// Replaces a lost tier by the empty directory `dir`.
    ///
    /// # Errors
    /// If there is no such tier, it is not lost, or the directory is
    /// unsuitable.
    fn replace_tier(&self, tier: &str, dir: &str) -> Result<Replaced, ErrorReply>;

    /// Starts a job.
    ///
    /// # Errors
    /// If it can't be done.
    fn start_job(&self, request: &StartJob) -> Result<Job, ErrorReply>;

    /// The movers, then all jobs, oldest first.
    fn jobs(&self) -> Vec<Job>;

    /// One job, after a change if one is requested.
    ///
    /// # Errors
    /// If there is no such job, or the change is impossible.
    fn job(&self, id: JobId, change: Option<JobChange>) -> Result<Job, ErrorReply>;

    /// Lets a tier that was emptied take new ranges again.
    ///
    /// # Errors
    /// If there is no such tier, or it was not emptied.
    fn undo_evacuation(&self, tier: &str) -> Result<(), ErrorReply>;

    /// Pins files, or unpins them.
    ///
    /// # Errors
    /// If there is no such file or tier.
    fn pin(&self, request: &PinRequest) -> Result<Pinned, ErrorReply>;

    /// Adds the directory `dir` as a tier.
    ///
    /// # Errors
    /// If the tier exists, a setting is invalid, or the directory is
    /// unsuitable.
    fn add_tier(
        &self,
        tier: &str,
        dir: &str,
        settings: &BTreeMap<String, String>,
    ) -> Result<TierAdded, ErrorReply>;

    /// Changes settings of a tier.
    ///
    /// # Errors
    /// If there is no such tier, or a setting is invalid.
    fn set_tier(&self, tier: &str, settings: &BTreeMap<String, String>) -> Result<TierSet, ErrorReply>;

    /// Removes a tier from the volume.
    ///
    /// # Errors
    /// If there is no such tier, or it is needed.
    fn remove_tier(&self, tier: &str, evacuate: bool) -> Result<TierRemoved, ErrorReply>;

    /// The effect of an import on a tier.
    ///
    /// # Errors
    /// If there is no such tier, or it has no files of its own.
    fn survey_import(&self, tier: &str) -> Result<ImportSurvey, ErrorReply>;

    /// The streams that were learned.
    fn learned_streams(&self) -> LearnedStreams;

    /// Starts a job that replaces a healthy tier by a directory, as the tier
    /// `by`.
    ///
    /// # Errors
    /// If there is no such tier, it is needed, the directory is unsuitable, or
    /// there is no room.
    fn replace_tier_by(
        &self,
        tier: &str,
        by: &str,
        dir: &str,
        settings: &BTreeMap<String, String>,
        bandwidth: Option<u64>,
    ) -> Result<Replacing, ErrorReply>;

    /// Makes the empty directory `dir` the home tier, by a job. Hands its
    /// progress to `tell`, which fails when the client is gone; the job then
    /// goes on.
    ///
    /// # Errors
    /// If the directory is unsuitable, or the job failed or was cancelled.
    fn replace_home(
        &self,
        dir: &str,
        bandwidth: Option<u64>,
        tell: &mut dyn FnMut(Job) -> io::Result<()>,
    ) -> Result<HomeReplaced, ErrorReply>;

    /// Checks the volume. Hands progress and problems to `tell`, which fails
    /// when the client is gone; the check then ends.
    ///
    /// # Errors
    /// If the check can't be carried out, or the client is gone.
    fn fsck(
        &self,
        request: &FsckRequest,
        tell: &mut dyn FnMut(Reply) -> io::Result<()>,
    ) -> Result<FsckSummary, ErrorReply>;
}
