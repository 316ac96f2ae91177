//! The basis of all changes of the set of tiers.

use crate::notice::leave_notice;
use crate::placement::Placement;
use braid_contract::{Errno, Error, RefusalKind, Result, TierId};
use braid_core::Core;
use braid_format::{JobRecord, Label, VolumeTable};
use braid_tiers::{Place, Tier, TierConfig, TierParts};
use parking_lot::Mutex;
use std::sync::Arc;

/// The claims of jobs on tiers by name: a job that empties a tier, or has
/// emptied it, keeps new ranges away from it. All callers are inside the
/// barrier.
pub(crate) trait TierClaims: Send + Sync {
    /// The job that is emptying the tier of this name.
    fn emptied_by(&self, name: &str) -> Option<u64>;

    /// Frees the name for a tier that is about to join, brought by the job `by`
    /// if by any: no job for an earlier tier of that name applies to it.
    ///
    /// # Errors
    /// `EBUSY` if such a job has not ended; those of the home tier.
    fn free_name(&self, name: &str, by: Option<u64>) -> Result<()>;

    /// Lets another tier that is about to have this name take new ranges: no
    /// finished job keeps them away any more, durably. Answers the jobs that
    /// did.
    ///
    /// # Errors
    /// Those of the home tier; then nothing has changed.
    fn free_ranges(&self, name: &str) -> Result<Vec<JobRecord>>;

    /// Undoes `free_ranges`, since the old tier stays: these jobs keep new
    /// ranges away from it again.
    fn hold_again(&self, released: &[JobRecord]);

    /// Notes that the tier of this name is gone.
    fn release(&self, name: &str);
}

/// The set of tiers, and its changes.
pub(crate) struct Membership {
    pub(super) core: Arc<Core>,
    pub(super) placement: Arc<Placement>,
    pub(super) claims: Arc<dyn TierClaims>,
    pub(super) left_out: Mutex<Vec<String>>,
    /// Whether latencies and threads of joining tiers are monitored.
    monitor: bool,
}

impl Membership {
    pub(crate) fn new(
        core: &Arc<Core>,
        placement: &Arc<Placement>,
        claims: Arc<dyn TierClaims>,
        monitor: bool,
    ) -> Self {
        Self {
            core: Arc::clone(core),
            placement: Arc::clone(placement),
            claims,
            left_out: Mutex::default(),
            monitor,
        }
    }

    /// Tiers that were given at the mount but left out, since they were removed
    /// from the volume.
    pub(crate) fn left_out(&self) -> Vec<String> {
        self.left_out.lock().clone()
    }

    /// Rebuilds policy and rules for a changed set of tiers.
    pub(super) fn renew_policy(&self) {
        self.placement.renew(|name| self.core.tiers.number(name));
    }

    /// The label of a tier other than home.
    fn label_of(&self, tier: TierId, name: &str) -> Label {
        Label {
            volume: self.core.id,
            tier,
            home: false,
            user_xattr: self.core.user_xattr,
            range_size: self.core.range_size,
            name: name.to_owned(),
            secret: self.core.home.seal().secret,
        }
    }

    /// Labels the store of a tier that joins, and then enters it in the table:
    /// a crash in between leaves a label without meaning. `next` is the table
    /// apart from that.
    pub(super) fn let_join(
        &self,
        table: &mut VolumeTable,
        mut next: VolumeTable,
        new: TierConfig,
    ) -> Result<Tier> {
        let store = new.store.ok_or(Errno::EINVAL)?;
        let id = join(&mut next, &new.name)?;
        let label = self.label_of(id, &new.name).encode();
        if self.may_take(&next, &label, store.label()?)? {
            store.clear()?;
        }
        store.set_label(&label)?;
        leave_notice(&new.name, &*store);
        self.core.switch_table(table, next)?;
        let parts = TierParts {
            id,
            name: new.name,
            location: new.location,
            place: Place::Store(Some(store)),
            weight: new.weight,
            profile: new.profile,
            reserve: new.reserve,
            label,
            monitor: self.monitor,
        };
        Ok(Tier::new(parts, &self.core.environment))
    }

    /// Checks the label of a directory that is to become a tier with another
    /// label; answers whether the remains of a removed tier have to be cleared
    /// first.
    fn may_take(&self, table: &VolumeTable, label: &[u8], found: Option<Vec<u8>>) -> Result<bool> {
        let Some(found) = found else { return Ok(false) };
        let refused = |what: String| Err(Error::refused(Errno::EEXIST, RefusalKind::Taken, what));
        // Such a label remains if writing the table failed.
        if found == label {
            return Ok(false);
        }
        let Ok(found) = Label::decode(&found) else {
            return refused("the directory has a tier's label that can't be read".into());
        };
        if found.volume != self.core.id {
            return refused(format!("the directory is a tier of another volume, {}", found.volume));
        }
        let is = |(number, _): &(TierId, String)| *number == found.tier;
        if table.lost.iter().any(is) {
            return refused(format!("the directory is tier {} of this volume, which was lost", found.name));
        }
        // The number may be the one that the joining tier got just now.
        let joining = |name: &String| Label::decode(label).is_ok_and(|label| label.name == *name);
        if table.tiers.iter().any(|tier| is(tier) && !joining(&tier.1)) {
            return refused(format!("the directory is tier {} of this volume", found.name));
        }
        Ok(true)
    }
}

/// Gives a new tier the first number that was never used; if there is none
/// left, that of a removed tier that no index names any more.
pub(crate) fn join(table: &mut VolumeTable, name: &str) -> Result<TierId> {
    let taken = |table: &VolumeTable, number: TierId| {
        let mut used = table.tiers.iter().chain(&table.lost);
        used.any(|(taken, _)| *taken == number) || table.removed.iter().any(|old| old.tier == number)
    };
    let numbers = || (0..TierId::LIMIT).map(TierId);
    let fresh = numbers().find(|number| !taken(table, *number));
    let freed = || table.removed.iter().find(|old| !old.leaving).map(|old| old.tier);
    let number = fresh.or_else(freed).ok_or_else(|| {
        let what = "a volume has at most 63 tiers, those that were lost among them";
        Error::refused(Errno::ENOSPC, RefusalKind::Request, what)
    })?;
    // A tier of this name exists again; the leaving one is known by number.
    table.removed.retain(|old| old.tier != number && (old.leaving || old.name != name));
    table.tiers.push((number, name.to_owned()));
    table.tiers.sort();
    Ok(number)
}
