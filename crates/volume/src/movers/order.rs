//! Which tiers are faster than which, and which of them movers may move to.

use crate::Volume;
use crate::config::PolicyConfig;
use crate::tiers::Tier;
use std::cmp::Ordering;
use std::sync::Arc;

/// A tier counts as faster than another from this ratio of their bandwidths
/// on: what is measured varies, and ranges must not go to and fro for that.
const FASTER: f64 = 1.25;

/// Why movers leave a tier alone.
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
    /// For `explain`, after the tier's name.
    pub(super) fn describe(self) -> &'static str {
        match self {
            Self::Unwell => "takes no new ranges",
            Self::Full => "is filled to its watermark",
            Self::Saturated => "is saturated",
        }
    }
}

/// Share of the tier's space in use, 0 to 1.
pub(super) fn used(tier: &Tier) -> f64 {
    let usage = tier.last_usage();
    if usage.total == 0 { 1.0 } else { 1.0 - usage.free as f64 / usage.total as f64 }
}

/// Sorts tiers by speed, and says whether the first is much faster.
fn compare(a: (bool, f64), b: (bool, f64), home_first: bool) -> (Ordering, bool) {
    let ((a_home, a_weight), (b_home, b_weight)) = (a, b);
    if home_first && a_home != b_home {
        return if a_home { (Ordering::Less, true) } else { (Ordering::Greater, false) };
    }
    (b_weight.total_cmp(&a_weight), a_weight >= b_weight * FASTER)
}

impl Volume {
    /// All tiers, the fastest first: by bandwidth, but home before all others
    /// where the policy puts it there.
    pub(super) fn tiers_by_speed(&self) -> Vec<Arc<Tier>> {
        let mut tiers: Vec<Arc<Tier>> = self.tiers.iter().collect();
        // Home before others that are as fast, and those by number.
        tiers.sort_by_key(|tier| (!tier.is_home(), tier.id));
        let home_first = self.is_home_first();
        let speed = |tier: &Tier| (tier.is_home(), tier.weight().unwrap_or(0.0));
        tiers.sort_by(|a, b| compare(speed(a), speed(b), home_first).0);
        tiers
    }

    /// Whether a range that is in use is better off on `a` than on `b`.
    pub(super) fn is_faster(&self, a: &Tier, b: &Tier) -> bool {
        let home_first = self.is_home_first();
        // One of which nothing is known is not taken for slow.
        if !(home_first && (a.is_home() || b.is_home())) && (a.weight().is_none() || b.weight().is_none()) {
            return false;
        }
        let speed = |tier: &Tier| (tier.is_home(), tier.weight().unwrap_or(0.0));
        compare(speed(a), speed(b), home_first).1
    }

    fn is_home_first(&self) -> bool {
        matches!(self.policy_config, PolicyConfig::HomeFirst { .. })
    }

    /// Whether movers may put more on a tier now (Algorithm 2: its bandwidth is
    /// not saturated, and it has room).
    pub(super) fn closed(&self, tier: &Tier) -> Option<Closed> {
        if !tier.is_healthy() || tier.is_absent() {
            return Some(Closed::Unwell);
        }
        if used(tier) >= self.movers.config.watermark_high || tier.room() < self.smallest_range().bytes() {
            return Some(Closed::Full);
        }
        tier.is_saturated().then_some(Closed::Saturated)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speed_decides_and_home_first_puts_home_before() {
        let (home, other) = ((true, 100.0), (false, 200.0));
        assert_eq!(compare(home, other, false), (Ordering::Greater, false));
        assert_eq!(compare(other, home, false), (Ordering::Less, true));
        assert_eq!(compare(home, other, true), (Ordering::Less, true));
        assert_eq!(compare(other, home, true), (Ordering::Greater, false));
        // About as fast: ordered, and not worth a move.
        assert_eq!(compare((false, 110.0), (false, 100.0), true), (Ordering::Less, false));
    }
}
