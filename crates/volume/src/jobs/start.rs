//! Starting a job: impossible jobs are refused before anything changes.

use super::drain::filled;
use super::list::Job;
use super::records::JobStatus;
use super::records::Jobs;
use super::targets::{check_room, check_room_for_evacuation, open_below, ranked_tiers, target_named};
use crate::occupancy::bytes_elsewhere;
use braid_contract::TierState;
use braid_contract::units::show_size_up;
use braid_contract::{Errno, Error, Fd, FileKind, JobKind, RefusalKind, Result};
use braid_core::namespace::with_file;
use braid_format::JobRecord;
use braid_home::Identity;
use braid_tiers::Tier;
use braid_tiers::TierConfig;
use std::sync::Arc;

impl Jobs {
    /// Starts a job. It runs in the background, at `bandwidth` bytes a second
    /// at most, and continues after the volume was closed and opened again.
    ///
    /// # Errors
    /// `ENOENT` if there is no such tier or file, `EINVAL` or `EBUSY` if this
    /// can't be done to it, `EEXIST` if another job does the same, `ENOSPC` if
    /// there is no room; those of the home tier.
    pub(crate) fn start(&self, what: JobKind, bandwidth: Option<u64>) -> Result<JobStatus> {
        self.check(&what)?;
        self.begin(what, bandwidth, |_| Ok(()))
    }

    /// Checks that no other job keeps home from being replaced.
    ///
    /// # Errors
    /// `EEXIST` if a job replaces home, or removes its copies.
    pub(crate) fn may_replace_home(&self) -> Result<()> {
        let at_it = |job: &Job| {
            let moves_home = matches!(job.record.what, JobKind::ReplaceHome { .. });
            (moves_home && job.is_at_work()).then_some(job.record.id)
        };
        match self.list.each(at_it).into_iter().flatten().next() {
            None => Ok(()),
            Some(id) => {
                let what = format!("job {id} replaces home already, or removes what it copied");
                Err(Error::refused(Errno::EEXIST, RefusalKind::Job, what))
            }
        }
    }

    /// Adds a job and saves it; it runs after `prepare`, which gets its number.
    pub(crate) fn begin(
        &self,
        what: JobKind,
        bandwidth: Option<u64>,
        prepare: impl FnOnce(u64) -> Result<()>,
    ) -> Result<JobStatus> {
        let record = self.list.add(what.clone(), bandwidth, |other| allowed(&what, other))?;
        // No new ranges may come to the tier once its removal is announced.
        self.apply_draining();
        let begun = self.keep(&record).and_then(|()| prepare(record.id));
        if begun.is_ok() {
            // Before the job can end, and its effect be undone.
            self.supersede(&record);
        }
        self.list.release(record.id, begun.is_ok());
        if begun.is_err() {
            self.forget(&[record.id]);
        }
        // The job may have been cancelled already.
        self.apply_draining();
        begun?;
        tracing::info!(job = record.id, what = %record.what, "a job was started");
        self.one(record.id)
    }

    fn check(&self, what: &JobKind) -> Result<()> {
        match what {
            JobKind::Move { path, to } => {
                let to = target_named(&self.core, to)?;
                self.check_path(path, Some(&to))
            }
            JobKind::Promote { path } | JobKind::Demote { path } => {
                self.check_path(path, None)?;
                ranked_tiers(&self.core).map(drop)
            }
            JobKind::Rebalance {} => Ok(()),
            // The import checks its tier itself.
            JobKind::Import { .. } => Ok(()),
            JobKind::Scrub { path } => {
                let _entered = self.core.barrier.enter();
                self.data_at(path).map(drop)
            }
            JobKind::Evacuate { tier, .. } => self.check_evacuation(&*self.core.tiers.named(tier)?, None),
            JobKind::Replace { .. } | JobKind::ReplaceHome { .. } => {
                let what = format!("{what}: this needs a directory");
                Err(Error::refused(Errno::EINVAL, RefusalKind::Request, what))
            }
        }
    }

    /// Checks that there is something to move at `path`; for a single file also
    /// that it may move, and fits on `to`.
    fn check_path(&self, path: &str, to: Option<&Arc<Tier>>) -> Result<()> {
        // Inodes must be found and forgotten on the same home.
        let _entered = self.core.barrier.enter();
        let Some((fd, identity)) = self.data_at(path)? else { return Ok(()) };
        let pin = self.core.home.pin_of(&*fd, &identity)?;
        if pin.is_some_and(|pin| to.is_none_or(|to| pin.tier.as_ref() != Some(&to.name))) {
            let what = format!("{path} is pinned: unpin it first");
            return Err(Error::refused(Errno::EBUSY, RefusalKind::Request, what));
        }
        let Some(to) = to else { return Ok(()) };
        let needed = with_file(&self.core, &fd, &identity, |file| bytes_elsewhere(&self.core, file, to))?;
        check_room(&format!("{path} has {} that are not on it", show_size_up(needed)), needed, to)
    }

    /// The regular file at a path; `None` if that is a directory.
    fn data_at(&self, path: &str) -> Result<Option<(Fd, Identity)>> {
        let fd = open_below(&self.core, path)?;
        let identity = self.core.home.identify(&*fd)?;
        match identity.kind() {
            FileKind::Directory => Ok(None),
            FileKind::Regular => Ok(Some((fd, identity))),
            _ => {
                let what = format!("{path} is neither a regular file nor a directory: it has no data");
                Err(Error::refused(Errno::EINVAL, RefusalKind::Request, what))
            }
        }
    }

    /// Checks that a tier can be emptied; `new` is one that is about to join.
    pub(crate) fn check_evacuation(&self, tier: &Tier, new: Option<&TierConfig>) -> Result<()> {
        if tier.is_home() {
            let what = format!("tier {} is home: it holds the names of all files", tier.name);
            return Err(Error::refused(Errno::EINVAL, RefusalKind::Home, what));
        }
        if matches!(tier.state(), TierState::Absent | TierState::Hanging | TierState::Failing) {
            let what = format!(
                "tier {} is {}: what is on it can't be read, so it can only be replaced",
                tier.name,
                tier.state().name()
            );
            return Err(Error::refused(Errno::EBUSY, RefusalKind::Trouble, what));
        }
        check_room_for_evacuation(&self.core, tier, new)
    }
}

/// Whether a job may begin beside another one.
fn allowed(what: &JobKind, other: &JobRecord) -> Result<()> {
    if other.state.is_final() {
        return Ok(());
    }
    let refuse =
        |what: &str| Err(Error::refused(Errno::EEXIST, RefusalKind::Job, format!("job {} {what}", other.id)));
    let same = |a: Option<&str>, b: Option<&str>| a.is_some() && a == b;
    match (what, &other.what) {
        (JobKind::Rebalance {}, JobKind::Rebalance {}) => refuse("rebalances the volume already"),
        (JobKind::Import { .. }, JobKind::Import { .. }) => refuse("brings files in already"),
        (JobKind::Import { .. }, JobKind::ReplaceHome { .. }) => refuse("replaces home: let it end first"),
        (JobKind::ReplaceHome { .. }, JobKind::Import { .. }) => refuse("brings files in: let it end first"),
        (JobKind::ReplaceHome { .. }, JobKind::ReplaceHome { .. }) => refuse("replaces home already"),
        (JobKind::Scrub { path }, JobKind::Scrub { path: theirs }) if path == theirs => {
            refuse("reads all of that already")
        }
        (what, theirs) if same(what.emptied_tier(), theirs.emptied_tier()) => {
            refuse(&format!("evacuates tier {} already", what.emptied_tier().unwrap_or_default()))
        }
        (what, theirs) if same(what.emptied_tier(), filled(theirs)) => refuse(&format!(
            "moves data to tier {}: cancel it first",
            what.emptied_tier().unwrap_or_default()
        )),
        _ => Ok(()),
    }
}
