//! `weighted`: ranges dealt over all tiers in proportion to their bandwidth, so
//! that one sequential stream keeps every device busy (PolyStore §4.4.2).

use crate::context::{Context, TierView};
use crate::credits::Credits;
use crate::policy::Policy;
use crate::policy_config::PolicyKind;
use braid_contract::{Mover, TierId};
use std::sync::Arc;

pub(super) const KIND: PolicyKind = PolicyKind {
    name: "weighted",
    summary: "each file is dealt over all tiers by weight",
    settings: &[],
    home_watermark: None,
    movers: &[],
    make: |_, _| Some(Arc::new(Weighted)),
};

pub(super) struct Weighted;

impl Policy for Weighted {
    fn usual_movers(&self) -> &'static [Mover] {
        KIND.movers
    }

    fn describe(&self) -> String {
        "weighted".into()
    }

    /// The tier that would finish first if each worked off its part of this
    /// file at its own bandwidth.
    fn place(&self, context: &Context<'_>) -> Option<TierId> {
        let finish = |tier: &TierView| context.credits.after(tier.id, context.span.new_bytes, tier.weight);
        let candidates = context.tiers.iter().filter(|tier| tier.has_room);
        candidates.min_by(|a, b| finish(a).total_cmp(&finish(b))).map(|tier| tier.id)
    }
}

/// Ranges of `count` that each tier gets; tiers without any are left out.
pub fn shares(
    mut credits: Credits,
    tiers: &[TierView],
    ranges: u64,
    range_size: u32,
) -> [u64; TierId::LIMIT as usize] {
    let mut shares = [0; TierId::LIMIT as usize];
    for _ in 0..ranges {
        let finish = |tier: &TierView| credits.after(tier.id, u64::from(range_size), tier.weight);
        let candidates = tiers.iter().filter(|tier| tier.has_room);
        let Some(tier) = candidates.min_by(|a, b| finish(a).total_cmp(&finish(b))) else { break };
        credits.add(tier.id, u64::from(range_size), tier.weight);
        shares[usize::from(tier.id.0)] += 1;
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::super::tests::{place, view};
    use super::*;

    /// Deals `count` ranges and answers the sequence of tiers.
    fn credits(count: usize, weights: &[f64]) -> Vec<u8> {
        let tiers: Vec<_> = (0..).zip(weights).map(|(id, weight)| view(id, *weight)).collect();
        let mut credits = Credits::new(99, 1 << 21);
        (0..count)
            .map(|_| {
                let tier = place(&Weighted, &credits, &tiers, 0).unwrap();
                credits.add(tier, 1 << 21, weights[usize::from(tier.0)]);
                tier.0
            })
            .collect()
    }

    #[test]
    fn the_deal_follows_the_weights() {
        let dealt = credits(520, &[400.0, 120.0]);
        let slow = dealt.iter().filter(|tier| **tier == 1).count();
        assert!((119..=121).contains(&slow), "{slow}");
    }

    #[test]
    fn turns_interleave_so_that_no_window_misses_a_tier() {
        for window in credits(300, &[200.0, 60.0]).windows(8) {
            assert!(window.contains(&0) && window.contains(&1), "{window:?}");
        }
    }

    #[test]
    fn three_tiers_and_a_full_one() {
        let dealt = credits(120, &[3.0, 2.0, 1.0]);
        let count = |id| dealt.iter().filter(|tier| **tier == id).count();
        assert!(count(0).abs_diff(60) <= 2 && count(1).abs_diff(40) <= 2 && count(2).abs_diff(20) <= 2);
        let mut tiers = [view(0, 9.0), view(1, 1.0)];
        tiers[0].has_room = false;
        assert_eq!(place(&Weighted, &Credits::new(0, 1), &tiers, 0), Some(TierId(1)));
        tiers[1].has_room = false;
        assert_eq!(place(&Weighted, &Credits::new(0, 1), &tiers, 0), None);
    }
}
