//! The beginning of a job: what can't be done is refused before anything is
//! changed.

use super::control::JobStatus;
use super::record::{JobKind, JobRecord};
use super::room::show;
use crate::Volume;
use crate::tiers::{Tier, TierState};
use braid_contract::{Access, Errno, Error, Fd, FileKind, Result};
use std::path::{Component, Path};
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
        let record = self.jobs.add(what.clone(), bandwidth, |other| allowed(&what, other))?;
        self.supersede(&record);
        // Nothing new may come to a tier before it is known to be emptied.
        self.apply_draining();
        let kept = self.keep_job(&record);
        self.jobs.release(record.id, kept.is_ok());
        if kept.is_err() {
            self.apply_draining();
        }
        kept?;
        tracing::info!(job = record.id, what = %record.what, "a job was started");
        self.job(record.id)
    }

    /// What an earlier job of the kind left in force is this one's now.
    fn supersede(&self, record: &JobRecord) {
        let is_old = |other: &JobRecord| {
            let same = match (&other.what, &record.what) {
                (JobKind::Evacuate { tier, .. }, JobKind::Evacuate { tier: now, .. }) => tier == now,
                _ => false,
            };
            same && other.holds && other.id != record.id
        };
        let old = self.jobs.each(|job| is_old(&job.record).then_some(job.record.id));
        for id in old.into_iter().flatten() {
            let released = self.jobs.update(id, |job| {
                job.record.holds = false;
                job.record.clone()
            });
            if let Ok(record) = released {
                self.try_keep_job(&record);
            }
        }
    }

    fn check_job(&self, what: &JobKind) -> Result<()> {
        match what {
            JobKind::Move { path, to } => {
                let to = self.target_named(to)?;
                self.check_path(path, Some(&to))
            }
            JobKind::Promote { path } | JobKind::Demote { path } => {
                self.check_path(path, None)?;
                self.tiers_by_speed().map(drop)
            }
            JobKind::Rebalance {} => Ok(()),
            JobKind::Evacuate { tier, .. } => self.check_evacuation(&*self.tier_named(tier)?),
        }
    }

    /// The tier of this name.
    pub(super) fn tier_named(&self, name: &str) -> Result<Arc<Tier>> {
        let found = self.tiers.iter().find(|tier| tier.name == name);
        found.ok_or_else(|| Error::new(Errno::ENOENT, format!("there is no tier {name}")))
    }

    /// The tier of this name, if it takes new ranges.
    pub(super) fn target_named(&self, name: &str) -> Result<Arc<Tier>> {
        let tier = self.tier_named(name)?;
        if tier.is_draining() {
            let what = format!("tier {name} takes no new ranges: it is to be empty");
            return Err(Error::new(Errno::EBUSY, what));
        }
        match tier.is_healthy() {
            true => Ok(tier),
            false => Err(Error::new(Errno::EBUSY, format!("tier {name} is {}", tier.state().name()))),
        }
    }

    /// The tiers that take new ranges, fastest first.
    ///
    /// # Errors
    /// `EINVAL` if none is known to be faster than another.
    pub(super) fn tiers_by_speed(&self) -> Result<Vec<(Arc<Tier>, f64)>> {
        let mut tiers = Vec::new();
        for view in self.tiers.views(0, 0).into_iter().filter(|view| view.has_room) {
            tiers.push((self.tiers.get(view.id)?, view.weight));
        }
        tiers.sort_by(|(_, a), (_, b)| b.total_cmp(a));
        match (tiers.first(), tiers.last()) {
            (Some((_, fastest)), Some((_, slowest))) if fastest > slowest => Ok(tiers),
            _ => {
                let what = "no tier is known to be faster than another: give them weights, or name the tier";
                Err(Error::new(Errno::EINVAL, what))
            }
        }
    }

    /// Whether there is something to move at `path`; of a single file, also
    /// whether it may be moved, and fits on `to`.
    fn check_path(&self, path: &str, to: Option<&Arc<Tier>>) -> Result<()> {
        let fd = self.open_below(path)?;
        let identity = self.home.identify(&*fd)?;
        match identity.kind() {
            FileKind::Directory => return Ok(()),
            FileKind::Regular => {}
            _ => {
                let what =
                    format!("{path} is neither a regular file nor a directory: it has no data to move");
                return Err(Error::new(Errno::EINVAL, what));
            }
        }
        let pin = self.home.pin_of(&*fd)?;
        if pin.is_some_and(|pin| to.is_none_or(|to| pin.tier.as_ref() != Some(&to.name))) {
            return Err(Error::new(Errno::EBUSY, format!("{path} is pinned: unpin it first")));
        }
        let Some(to) = to else { return Ok(()) };
        let needed = self.with_file(&fd, &identity, |file| self.bytes_elsewhere(file, to))?;
        self.check_room(&format!("{path} has {} that are not on it", show(needed)), needed, to)
    }

    /// Whether `to` has room for so much.
    pub(super) fn check_room(&self, what: &str, needed: u64, to: &Tier) -> Result<()> {
        let room = to.room();
        if needed <= room {
            return Ok(());
        }
        let what = format!("tier {} has room for {}, and {what}", to.name, show(room));
        Err(Error::new(Errno::ENOSPC, what))
    }

    /// What is at a path below the root.
    pub(super) fn open_below(&self, path: &str) -> Result<Fd> {
        let below = Path::new(path);
        let good = |part: Component<'_>| matches!(part, Component::Normal(_));
        if !below.components().all(good)
            || below.starts_with(crate::namespace::BRAID_DIR)
            || path.contains('\0')
        {
            let what = format!("{path}: paths are below the volume's root, without '..'");
            return Err(Error::new(Errno::EINVAL, what));
        }
        let shown = if path.is_empty() { Path::new(".") } else { below };
        self.home.root().open_at(shown.as_os_str(), Access::Path).map_err(|error| error.context(path))
    }

    fn check_evacuation(&self, tier: &Tier) -> Result<()> {
        let refuse = |errno, what: String| Err(Error::new(errno, what));
        if tier.is_home() {
            let what = format!("tier {} is home: it holds the names of all files", tier.name);
            return refuse(Errno::EINVAL, what);
        }
        if matches!(tier.state(), TierState::Absent | TierState::Hanging | TierState::Failing) {
            let what = format!(
                "tier {} is {}: what is on it can't be read, so it can only be replaced",
                tier.name,
                tier.state().name()
            );
            return refuse(Errno::EBUSY, what);
        }
        self.check_room_for_evacuation(tier)
    }
}

/// Whether a job may begin beside another one.
fn allowed(what: &JobKind, other: &JobRecord) -> Result<()> {
    if other.state.is_final() {
        return Ok(());
    }
    let refuse = |what: &str| Err(Error::new(Errno::EEXIST, format!("job {} {what}", other.id)));
    match (what, &other.what) {
        (JobKind::Rebalance {}, JobKind::Rebalance {}) => refuse("rebalances the volume already"),
        (JobKind::Evacuate { tier, .. }, JobKind::Evacuate { tier: same, .. }) if tier == same => {
            refuse(&format!("evacuates tier {tier} already"))
        }
        (JobKind::Evacuate { tier, .. }, JobKind::Move { to, .. }) if tier == to => {
            refuse(&format!("moves data to tier {tier}: cancel it first"))
        }
        _ => Ok(()),
    }
}
