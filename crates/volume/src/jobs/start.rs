//! The beginning of a job: what can't be done is refused before anything is
//! changed.

use super::control::JobStatus;
use super::drain::filled;
use super::list::Job;
use crate::Volume;
use braid_contract::TierState;
use braid_contract::units::show_size_up;
use braid_contract::{Access, Errno, Error, Fd, FileKind, JobKind, RefusalKind, Result, TierId};
use braid_core::namespace::known::with_file;
use braid_format::{JobRecord, is_below_root};
use braid_tiers::Tier;
use braid_tiers::TierConfig;
use std::path::Path;
use std::sync::Arc;

impl Volume {
    /// Starts a job. It runs in the background, at `bandwidth` bytes a second
    /// at most, and goes on after the volume was closed and opened again.
    ///
    /// # Errors
    /// `ENOENT` if there is no such tier or file, `EINVAL` or `EBUSY` if this
    /// can't be done to it, `EEXIST` if another job does it, `ENOSPC` if there
    /// is no room; those of the home tier.
    pub fn start_job(&self, what: JobKind, bandwidth: Option<u64>) -> Result<JobStatus> {
        self.check_job(&what)?;
        self.begin_job(what, bandwidth, |_| Ok(()))
    }

    /// Puts `new`, which joins under a name of its own, in the place of the
    /// tier `old`, which is well. It joins now, and a job moves what `old` has
    /// there, as far as it has room, and else to the others; then `old` is
    /// removed. The job is kept first, so that a crash leaves none of it, or a
    /// job that fails or goes on. Answers the number of the new tier.
    ///
    /// # Errors
    /// Those of [`start_job`](Self::start_job) for an evacuation, of
    /// [`add_tier`](Self::add_tier), and `EBUSY` if the policy names `old`.
    pub fn replace_tier_by(
        &self,
        old: &str,
        new: TierConfig,
        bandwidth: Option<u64>,
    ) -> Result<(TierId, JobStatus)> {
        let tier = self.core.tiers.named(old)?;
        self.check_evacuation(&tier, Some(&new))?;
        self.may_leave(&tier)?;
        let what = JobKind::Replace { tier: old.to_owned(), by: new.name.clone() };
        let mut id = None;
        let status = self.begin_job(what, bandwidth, |job| {
            id = Some(self.add_tier_for(new, Some(job))?);
            Ok(())
        })?;
        Ok((id.ok_or(Errno::EINVAL)?, status))
    }

    /// Starts a job that makes the empty directory `root` home, as
    /// [`replace_home`](Self::replace_home) does.
    ///
    /// # Errors
    /// `EBUSY` beside a check, `EEXIST` beside another such job; those of
    /// [`replace_home`](Self::replace_home) that are known at once, and of the
    /// home tier.
    pub fn start_replacing_home(
        &self,
        root: Fd,
        location: &str,
        bandwidth: Option<u64>,
    ) -> Result<JobStatus> {
        self.may_replace_home()?;
        self.check_new_home(&root)?;
        let what = JobKind::ReplaceHome { dir: location.to_owned() };
        self.begin_job(what, bandwidth, |id| self.jobs.update(id, |job| job.rehome.root = Some(root)))
    }

    /// Whether home can be replaced, as far as other jobs go.
    ///
    /// # Errors
    /// `EEXIST` if a job does so, or removes what it copied.
    pub fn may_replace_home(&self) -> Result<()> {
        let at_it = |job: &Job| {
            let moves_home = matches!(job.record.what, JobKind::ReplaceHome { .. });
            (moves_home && job.is_at_work()).then_some(job.record.id)
        };
        match self.jobs.each(at_it).into_iter().flatten().next() {
            None => Ok(()),
            Some(id) => {
                let what = format!("job {id} replaces home already, or removes what it copied");
                Err(Error::refused(Errno::EEXIST, RefusalKind::Job, what))
            }
        }
    }

    /// Enters a job and keeps it; it runs when `prepare`, which gets its
    /// number, is done.
    fn begin_job(
        &self,
        what: JobKind,
        bandwidth: Option<u64>,
        prepare: impl FnOnce(u64) -> Result<()>,
    ) -> Result<JobStatus> {
        let record = self.jobs.add(what.clone(), bandwidth, |other| allowed(&what, other))?;
        // Nothing new may come to a tier before it is known to be emptied.
        self.apply_draining();
        let begun = self.keep_job(&record).and_then(|()| prepare(record.id));
        if begun.is_ok() {
            // Before it can end, and what it leaves in force be undone.
            self.supersede(&record);
        }
        self.jobs.release(record.id, begun.is_ok());
        if begun.is_err() {
            self.forget_jobs(&[record.id]);
        }
        // Somebody may have cancelled it already.
        self.apply_draining();
        begun?;
        tracing::info!(job = record.id, what = %record.what, "a job was started");
        self.job(record.id)
    }

    fn check_job(&self, what: &JobKind) -> Result<()> {
        match what {
            JobKind::Move { path, to } => {
                let to = self.target_named(to)?;
                self.check_path(path, Some(&to))
            }
            JobKind::Promote { path } | JobKind::Demote { path } => {
                self.check_path(path, None)?;
                self.ranked_tiers().map(drop)
            }
            JobKind::Rebalance {} => Ok(()),
            JobKind::Import { tier } => self.importable(tier).map(drop),
            JobKind::Evacuate { tier, .. } => self.check_evacuation(&*self.core.tiers.named(tier)?, None),
            JobKind::Replace { .. } | JobKind::ReplaceHome { .. } => {
                let what = format!("{what}: this needs a directory");
                Err(Error::refused(Errno::EINVAL, RefusalKind::Request, what))
            }
        }
    }

    /// The tier of this name, if it takes new ranges.
    pub(super) fn target_named(&self, name: &str) -> Result<Arc<Tier>> {
        let tier = self.core.tiers.named(name)?;
        if tier.is_draining() {
            let what = format!("tier {name} takes no new ranges: it is to be empty");
            return Err(Error::refused(Errno::EBUSY, RefusalKind::Request, what));
        }
        match tier.is_healthy() {
            true => Ok(tier),
            false => {
                let what = format!("tier {name} is {}", tier.state().name());
                Err(Error::refused(Errno::EBUSY, RefusalKind::Trouble, what))
            }
        }
    }

    /// The tiers that take new ranges, fastest first.
    ///
    /// # Errors
    /// `EINVAL` if none is known to be faster than another.
    pub(super) fn ranked_tiers(&self) -> Result<Vec<(Arc<Tier>, f64)>> {
        let views = self.core.tiers.views(0, 0);
        let view = |tier: &Tier| views.iter().find(|view| view.id == tier.id);
        let mut tiers = self.core.tiers.by_speed(false, |tier| view(tier).map_or(0.0, |view| view.weight));
        tiers.retain(|(tier, _)| view(tier).is_some_and(|view| view.has_room));
        match (tiers.first(), tiers.last()) {
            (Some((_, fastest)), Some((_, slowest))) if fastest > slowest => Ok(tiers),
            _ => {
                let what = "no tier is known to be faster than another: give them weights, or name the tier";
                Err(Error::refused(Errno::EINVAL, RefusalKind::Request, what))
            }
        }
    }

    /// Whether there is something to move at `path`; of a single file, also
    /// whether it may be moved, and fits on `to`.
    fn check_path(&self, path: &str, to: Option<&Arc<Tier>>) -> Result<()> {
        // What is entered and forgotten here is on one home.
        let _entered = self.core.barrier.enter();
        let fd = self.open_below(path)?;
        let identity = self.core.home.identify(&*fd)?;
        match identity.kind() {
            FileKind::Directory => return Ok(()),
            FileKind::Regular => {}
            _ => {
                let what =
                    format!("{path} is neither a regular file nor a directory: it has no data to move");
                return Err(Error::refused(Errno::EINVAL, RefusalKind::Request, what));
            }
        }
        let pin = self.core.home.pin_of(&*fd, &identity)?;
        if pin.is_some_and(|pin| to.is_none_or(|to| pin.tier.as_ref() != Some(&to.name))) {
            let what = format!("{path} is pinned: unpin it first");
            return Err(Error::refused(Errno::EBUSY, RefusalKind::Request, what));
        }
        let Some(to) = to else { return Ok(()) };
        let needed = with_file(&self.core, &fd, &identity, |file| self.bytes_elsewhere(file, to))?;
        self.check_room(&format!("{path} has {} that are not on it", show_size_up(needed)), needed, to)
    }

    /// Whether `to` has room for so much.
    pub(super) fn check_room(&self, what: &str, needed: u64, to: &Tier) -> Result<()> {
        to.measure_again();
        let room = to.room();
        if needed <= room {
            return Ok(());
        }
        let what = format!("tier {} has room for {}, and {what}", to.name, show_size_up(room));
        Err(Error::refused(Errno::ENOSPC, RefusalKind::Room, what))
    }

    /// What is at a path below the root.
    pub(super) fn open_below(&self, path: &str) -> Result<Fd> {
        let below = Path::new(path);
        if !is_below_root(path) {
            let what = format!("{path}: paths are below the volume's root, without '..'");
            return Err(Error::refused(Errno::EINVAL, RefusalKind::Request, what));
        }
        let shown = if path.is_empty() { Path::new(".") } else { below };
        self.core.home.root().open_at(shown.as_os_str(), Access::Path).map_err(|error| error.context(path))
    }

    /// Whether a tier can be emptied; `new` is one that is about to join.
    fn check_evacuation(&self, tier: &Tier, new: Option<&TierConfig>) -> Result<()> {
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
        self.check_room_for_evacuation(tier, new)
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
