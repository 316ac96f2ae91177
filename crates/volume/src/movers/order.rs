//! The order of tiers by speed, and which of them movers may move to.

use super::shared::Movers;
use braid_core::file::smallest_range;
use braid_tiers::Tier;
use std::sync::Arc;

/// Ratio of bandwidths from which on a tier counts as faster: measurements
/// vary, and must not make ranges move back and forth.
const FASTER: f64 = 1.25;

/// Why movers do not move ranges to a tier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Closed {
    /// It takes no new ranges.
    Unwell,
    /// It is filled to the watermark, or has no room.
    Full,
    /// Applications take all its bandwidth.
    Saturated,
}

impl Closed {
    /// The reason for `explain`, after the tier's name.
    pub(super) fn describe(self) -> &'static str {
        match self {
            Self::Unwell => "takes no new ranges",
            Self::Full => "is filled to its watermark",
            Self::Saturated => "is saturated",
        }
    }
}

/// Used share of a tier's space for data, 0 to 1.
pub(super) fn used(tier: &Tier) -> f64 {
    tier.filled()
}

/// Whether the first of two tiers is much faster.
fn is_much_faster(a: (bool, f64), b: (bool, f64), home_first: bool) -> bool {
    match home_first && a.0 != b.0 {
        true => a.0,
        false => a.1 >= b.1 * FASTER,
    }
}

impl Movers {
    /// All tiers, the fastest first: by bandwidth, but home before all others
    /// where the policy puts it there.
    pub(super) fn tiers_by_speed(&self) -> Vec<Arc<Tier>> {
        self.core.tiers.by_speed(self.is_home_first()).into_iter().map(|(tier, _)| tier).collect()
    }

    /// Whether a range in use is better off on `a` than on `b`.
    pub(super) fn is_faster(&self, a: &Tier, b: &Tier) -> bool {
        let home_first = self.is_home_first();
        // A tier of unknown speed is not taken for slow.
        if !(home_first && (a.is_home() || b.is_home())) && (a.speed().is_none() || b.speed().is_none()) {
            return false;
        }
        let speed = |tier: &Tier| (tier.is_home(), tier.speed().unwrap_or(0.0));
        is_much_faster(speed(a), speed(b), home_first)
    }

    fn is_home_first(&self) -> bool {
        self.core.placer.policy().prefers_home()
    }

    /// Why movers may not put more on a tier now, if they may not (Algorithm 2:
    /// its bandwidth is saturated, or it has no room).
    pub(super) fn closed(&self, tier: &Tier) -> Option<Closed> {
        if !tier.is_healthy() || tier.is_absent() {
            return Some(Closed::Unwell);
        }
        if used(tier) >= self.rounds.config().watermark_high
            || tier.room() < smallest_range(&self.core).bytes()
        {
            return Some(Closed::Full);
        }
        tier.is_saturated().then_some(Closed::Saturated)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tier_that_is_about_as_fast_is_not_worth_a_move() {
        let (home, other) = ((true, 100.0), (false, 200.0));
        assert!(is_much_faster(other, home, false) && !is_much_faster(home, other, false));
        assert!(is_much_faster(home, other, true) && !is_much_faster(other, home, true));
        assert!(!is_much_faster((false, 110.0), (false, 100.0), true));
    }
}
