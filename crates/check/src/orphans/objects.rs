//! Objects that neither a file nor an index leads to.

use super::recheck::recheck;
use crate::dirs::listings::Listings;
use crate::findings::{Findings, When};
use crate::namespace::References;
use crate::progress::ProgressReporter;
use crate::report::Problem;
use crate::target::{CheckTarget, TargetTier};
use braid_contract::{ObjectId, Result, Shown};
use std::collections::HashSet;

/// The results of other passes that decide whether an object is an orphan, and
/// may be removed.
pub(crate) struct ObjectOrphans<'c> {
    pub(crate) target: &'c CheckTarget<'c>,
    pub(crate) listings: &'c Listings,
    pub(crate) marked: &'c HashSet<ObjectId>,
    pub(crate) references: &'c References,
    /// Ids whose data is not to be removed although no file leads to it.
    pub(crate) kept: &'c HashSet<ObjectId>,
}

impl ObjectOrphans<'_> {
    /// Reports orphans on all tiers, and removes them.
    pub(crate) fn check(&self, findings: &mut Findings, progress: &mut ProgressReporter<'_>) -> Result<()> {
        progress.phase("orphans", Some(self.listings.object_count()))?;
        for (tier, listing) in self.listings.by_tier(self.target) {
            let mut orphans = HashSet::new();
            for id in &listing.ids {
                progress.step()?;
                if self.is_orphan(*id) {
                    orphans.insert(*id);
                }
            }
            recheck(self.target, self.marked, &mut orphans, progress)?;
            for id in orphans {
                self.report(tier, id, findings);
            }
        }
        Ok(())
    }

    /// A removal under way keeps the index until the objects are gone, so an
    /// object without one is an orphan even if recovery is due.
    fn is_orphan(&self, id: ObjectId) -> bool {
        let in_use = self.target.is_mounted() && self.marked.contains(&id);
        !self.references.contains(id) && !in_use && !self.listings.indexes.ids.contains(&id)
    }

    fn report(&self, tier: &TargetTier, id: ObjectId, findings: &mut Findings) {
        let Some(store) = &tier.store else { return };
        let problem = Problem::leak("object-orphan", "an object that no file leads to");
        let problem = problem.id(id).tier(&tier.name);
        match self.obstacle(id, findings) {
            Some(why) => findings.found(problem.repair(format!("nothing is done: {why}"))),
            None => findings.mend(problem.repair("removes it"), When::Unmounted, || store.remove(&[id])),
        };
    }

    /// Why an orphan must not be removed.
    fn obstacle(&self, id: ObjectId, findings: &Findings) -> Option<String> {
        let mut doubted = self.references.doubted.iter();
        if let Some(doubt) = doubted.find(|doubt| !findings.is_repaired(doubt.problem)) {
            Some(format!("it may belong to {}", doubt.path.shown()))
        } else if self.references.is_incomplete {
            Some("a file that could not be looked at may need it".to_owned())
        } else if self.kept.contains(&id) {
            Some("an attribute or an index still names it".to_owned())
        } else {
            None
        }
    }
}
