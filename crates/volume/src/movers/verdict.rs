//! The movers' verdict on a range now, in words for `explain`.

use super::shared::Movers;
use braid_contract::Mover;
use braid_format::RangeSize;
use braid_tiers::Tier;
use std::sync::Arc;

impl Movers {
    /// The movers' verdict on a range of this size and heat on this tier, of a
    /// file whose policy has these movers; `None` if it is pinned.
    pub(crate) fn verdict(
        &self,
        tier: &Tier,
        ranges: RangeSize,
        degree: u8,
        of_policy: Option<&[Mover]>,
    ) -> String {
        let has_room = |to: &Arc<Tier>| to.room() >= ranges.bytes();
        let Some(of_policy) = of_policy else { return "stays: pinned".into() };
        let is_at_work = |mover: Mover| self.rounds.is_at_work(mover) && self.moves(mover, of_policy);
        if is_at_work(Mover::Promote) && degree >= self.heat.frequent() {
            let tiers = self.tiers_by_speed();
            let mut faster = tiers.iter().filter(|to| self.is_faster(to, tier)).peekable();
            let first = faster.peek().map(|to| (to.name.clone(), self.closed(to)));
            if let Some(to) = faster.find(|to| self.closed(to).is_none() && has_room(to)) {
                return format!("goes to {}: in use", to.name);
            }
            if let Some((name, Some(closed))) = first {
                return format!("stays: {name} {}", closed.describe());
            }
        }
        if is_at_work(Mover::Balance)
            && degree > 0
            && let Some(to) = self.imbalance_of(tier.id)
        {
            let to = self.core.tiers.name_of(to);
            return format!("may go to {to}: {} has more to do than it can", tier.name);
        }
        if is_at_work(Mover::Demote) && degree < self.heat.cold_below() && self.needs_relief(tier) {
            let to = self.relief_targets(tier).into_iter().find(has_room);
            return match to {
                Some(to) => format!("goes to {}: {} is filled to its watermark", to.name, tier.name),
                None => "stays: no slower tier takes it now".into(),
            };
        }
        "stays".into()
    }
}
