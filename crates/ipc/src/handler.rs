//! What a server asks of the one who knows the volume.

use crate::protocol::{
    AffectedFile, Drill, ErrorReply, Explanation, FsckRequest, FsckSummary, Hello, HomeReplaced,
    ImportSurvey, Job, JobChange, JobId, PinRequest, Pinned, Reloaded, Replaced, Replacing, Reply, StackDump,
    StartJob, Status, TierAdded, TierRemoved, TierSet, TraceRequest,
};
use std::collections::BTreeMap;
use std::io;

/// Answers requests. Called from many threads at once.
pub trait Handler: Send + Sync + 'static {
    /// Who answers.
    fn hello(&self) -> Hello;

    /// The state of the volume.
    ///
    /// # Errors
    /// If there is none to tell.
    fn status(&self) -> Result<Status, ErrorReply>;

    /// Where the data of inode `ino` is.
    ///
    /// # Errors
    /// If the inode is unknown or can't be explained.
    fn explain(&self, ino: u64) -> Result<Explanation, ErrorReply>;

    /// Makes everything durable that was written to the volume.
    ///
    /// # Errors
    /// If something could not be; the rest is.
    fn sync(&self) -> Result<(), ErrorReply>;

    /// Has options of any mount hold from now on.
    ///
    /// # Errors
    /// If one can't be changed on this mount; nothing has changed then.
    fn set_options(&self, options: &[String]) -> Result<(), ErrorReply>;

    /// Hands `tell` the files with ranges on tiers that can't be relied on. It
    /// fails when the client is gone.
    ///
    /// # Errors
    /// If the files can't be gone through, or the client is gone.
    fn affected(&self, tell: &mut dyn FnMut(AffectedFile) -> io::Result<()>) -> Result<(), ErrorReply>;

    /// The faults that are armed, on one tier or on all; replaced by `rules`
    /// first, if there are any.
    ///
    /// # Errors
    /// If there is no such tier, or a rule is none.
    fn drill(&self, tier: Option<&str>, rules: Option<&[String]>) -> Result<Drill, ErrorReply>;

    /// Puts the empty directory `dir` in the place of a lost tier.
    ///
    /// # Errors
    /// If there is no such tier, it is not lost, or the directory won't do.
    fn replace_tier(&self, tier: &str, dir: &str) -> Result<Replaced, ErrorReply>;

    /// Starts a job.
    ///
    /// # Errors
    /// If it can't be done.
    fn start_job(&self, request: &StartJob) -> Result<Job, ErrorReply>;

    /// The movers, then all jobs, oldest first.
    fn jobs(&self) -> Vec<Job>;

    /// One job, changed first if that is asked for.
    ///
    /// # Errors
    /// If there is none of this name, or it can't be changed so.
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

    /// Makes the directory `dir` one more tier.
    ///
    /// # Errors
    /// If there is such a tier, a setting is none, or the directory won't do.
    fn add_tier(
        &self,
        tier: &str,
        dir: &str,
        settings: &BTreeMap<String, String>,
    ) -> Result<TierAdded, ErrorReply>;

    /// Changes settings of a tier.
    ///
    /// # Errors
    /// If there is no such tier, or a setting is none.
    fn set_tier(&self, tier: &str, settings: &BTreeMap<String, String>) -> Result<TierSet, ErrorReply>;

    /// Takes a tier out of the volume.
    ///
    /// # Errors
    /// If there is no such tier, or it is needed.
    fn remove_tier(&self, tier: &str, evacuate: bool) -> Result<TierRemoved, ErrorReply>;

    /// What an import would do with a tier.
    ///
    /// # Errors
    /// If there is no such tier, or it has no files of its own.
    fn survey_import(&self, tier: &str) -> Result<ImportSurvey, ErrorReply>;

    /// The stack as it is now.
    ///
    /// # Errors
    /// If there is none to tell.
    fn dump_stack(&self) -> Result<StackDump, ErrorReply>;

    /// Reads the stack file anew, and applies it unless that is only asked for;
    /// all of it or nothing.
    ///
    /// # Errors
    /// If there is no stack file, it is not valid, or changes what can't be
    /// changed.
    fn reload(&self, dry_run: bool) -> Result<Reloaded, ErrorReply>;

    /// Puts a directory that becomes the tier `by` in the place of a tier that
    /// is well, by a job.
    ///
    /// # Errors
    /// If there is no such tier, it is needed, the directory won't do, or there
    /// is no room.
    fn replace_tier_by(
        &self,
        tier: &str,
        by: &str,
        dir: &str,
        settings: &BTreeMap<String, String>,
        bandwidth: Option<u64>,
    ) -> Result<Replacing, ErrorReply>;

    /// Makes the empty directory `dir` the home tier, by a job. Hands `tell`
    /// how that is doing; it fails when the client is gone, and then the job
    /// goes on.
    ///
    /// # Errors
    /// If the directory won't do, or the job failed or was cancelled.
    fn replace_home(
        &self,
        dir: &str,
        bandwidth: Option<u64>,
        tell: &mut dyn FnMut(Job) -> io::Result<()>,
    ) -> Result<HomeReplaced, ErrorReply>;

    /// Records what applications do. Hands `tell` what was done, from
    /// [`Reply::TraceBegun`] to [`Reply::TraceEnded`]; it fails when the client
    /// is gone, and then the recording ends.
    ///
    /// # Errors
    /// If it can't be recorded, or the client is gone.
    fn record_trace(
        &self,
        request: &TraceRequest,
        tell: &mut dyn FnMut(Reply) -> io::Result<()>,
    ) -> Result<(), ErrorReply>;

    /// Ends a recording.
    ///
    /// # Errors
    /// If there is none of this number.
    fn stop_trace(&self, id: u64) -> Result<(), ErrorReply>;

    /// Checks the volume. Hands `tell` progress and problems; it fails when the
    /// client is gone, and then the check ends.
    ///
    /// # Errors
    /// If the check can't be carried out, or the client is gone.
    fn fsck(
        &self,
        request: &FsckRequest,
        tell: &mut dyn FnMut(Reply) -> io::Result<()>,
    ) -> Result<FsckSummary, ErrorReply>;
}
