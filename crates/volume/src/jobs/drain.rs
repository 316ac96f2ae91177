//! Which tiers take no new ranges, since a job empties them or has emptied
//! them. The records of the jobs decide this (`holds`), and nothing else: a
//! tier drains from before its job starts until that is cancelled, fails, or is
//! undone, across restarts and crashes.

use super::records::Jobs;
use crate::membership::TierClaims;
use braid_contract::{Errno, Error, JobKind, RefusalKind, Result};
use braid_format::JobRecord;

impl TierClaims for Jobs {
    fn emptied_by(&self, name: &str) -> Option<u64> {
        let at_it = |record: &JobRecord| !record.state.is_final() && holds(record, name);
        self.list.each(|job| at_it(&job.record).then_some(job.record.id)).into_iter().flatten().next()
    }

    fn release(&self, name: &str) {
        self.released(name, |_| true).iter().for_each(|record| self.try_keep_inside(record));
    }

    fn free_name(&self, name: &str, by: Option<u64>) -> Result<()> {
        let others = |record: &JobRecord| {
            let named = [record.what.emptied_tier(), filled(&record.what)].contains(&Some(name));
            named && Some(record.id) != by
        };
        let records = self.list.each(|job| others(&job.record).then(|| job.record.clone()));
        let records: Vec<JobRecord> = records.into_iter().flatten().collect();
        if let Some(JobRecord { id, what, .. }) = records.iter().find(|record| !record.state.is_final()) {
            let what = format!("job {id} has not ended, and names tier {name} ({what}): cancel it first");
            return Err(Error::refused(Errno::EBUSY, RefusalKind::Job, what));
        }
        self.free_ranges(name).map(drop)
    }

    fn free_ranges(&self, name: &str) -> Result<Vec<JobRecord>> {
        let released = self.released(name, |record| record.state.is_final());
        // The end of some jobs may not be saved yet.
        let ended = |record: &JobRecord| record.state.is_final() && record.what.emptied_tier() == Some(name);
        let records = self.list.each(|job| ended(&job.record).then(|| job.record.clone()));
        let kept = records.iter().flatten().try_for_each(|record| self.keep_inside(record));
        match kept {
            Ok(()) => Ok(released),
            Err(error) => {
                self.hold_again(&released);
                Err(error)
            }
        }
    }

    fn hold_again(&self, released: &[JobRecord]) {
        for record in released {
            // A job that was forgotten meanwhile does not matter.
            let _ = self.list.update(record.id, |job| job.record.holds = true);
            self.try_keep_inside(record);
        }
    }
}

impl Jobs {
    /// Lets a tier that was emptied take new ranges again.
    ///
    /// # Errors
    /// `ENOENT` if there is no such tier, `EINVAL` if it was not emptied, or is
    /// being emptied: that job can be cancelled.
    pub(crate) fn undo_evacuation(&self, tier: &str) -> Result<()> {
        let tier = self.core.tiers.named(tier)?;
        if let Some(id) = self.emptied_by(&tier.name) {
            let what = format!("job {id} is emptying tier {}: cancel it", tier.name);
            return Err(Error::refused(Errno::EINVAL, RefusalKind::Job, what));
        }
        if !tier.is_draining() {
            let what = format!("tier {} takes new ranges: it was not emptied", tier.name);
            return Err(Error::refused(Errno::EINVAL, RefusalKind::Request, what));
        }
        let released = self.released(&tier.name, |record| record.state.is_final());
        let kept = released.iter().try_for_each(|record| self.keep(record));
        if kept.is_err() {
            // The saved records still hold; restoring them allows another try.
            for record in &released {
                let _ = self.list.update(record.id, |job| job.record.holds = true);
            }
        }
        self.apply_draining();
        kept
    }

    /// Ends the effect of earlier jobs on the tier: this one takes over.
    pub(super) fn supersede(&self, record: &JobRecord) {
        if let Some(tier) = record.what.emptied_tier() {
            let earlier = |old: &JobRecord| old.id != record.id && old.state.is_final();
            self.released(tier, earlier).iter().for_each(|old| self.try_keep(old));
        }
    }

    /// Sets for each tier whether it takes new ranges, as far as jobs go.
    pub(super) fn apply_draining(&self) {
        // A removal closes its tier by itself, and holds the table meanwhile.
        let _table = self.core.table.lock();
        for tier in self.core.tiers.iter() {
            let held = self.list.each(|job| holds(&job.record, &tier.name));
            tier.set_draining(held.contains(&true));
        }
    }

    /// Makes these jobs stop keeping new ranges away from the tier of this
    /// name; answers the records that change, for saving.
    fn released(&self, name: &str, which: impl Fn(&JobRecord) -> bool) -> Vec<JobRecord> {
        let which = |record: &JobRecord| holds(record, name) && which(record);
        let ids = self.list.each(|job| which(&job.record).then_some(job.record.id));
        let release = |id| {
            let released = self.list.update(id, |job| {
                which(&job.record).then(|| {
                    job.record.holds = false;
                    job.record.clone()
                })
            });
            released.ok().flatten()
        };
        ids.into_iter().flatten().filter_map(release).collect()
    }
}

/// The tier that a job of this kind moves everything to.
pub(super) fn filled(what: &JobKind) -> Option<&str> {
    match what {
        JobKind::Move { to: tier, .. } | JobKind::Replace { by: tier, .. } => Some(tier),
        _ => None,
    }
}

/// Whether a job keeps new ranges away from the tier of this name.
fn holds(record: &JobRecord, name: &str) -> bool {
    record.holds && record.what.emptied_tier() == Some(name)
}
