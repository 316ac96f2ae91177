//! The order of tiers by speed.

use crate::tier::Tier;
use crate::tiers::Tiers;
use std::cmp::Ordering;
use std::sync::Arc;

impl Tiers {
    /// All tiers with their [speeds](Tier::speed), 0 if unknown, the fastest
    /// first; with `home_first`, home before all others.
    pub fn by_speed(&self, home_first: bool) -> Vec<(Arc<Tier>, f64)> {
        let with_speed = |tier: Arc<Tier>| {
            let speed = tier.speed().unwrap_or(0.0);
            (tier, speed)
        };
        let mut tiers: Vec<_> = self.iter().map(with_speed).collect();
        // Home before equally fast tiers, and those by number.
        tiers.sort_by_key(|(tier, _)| (!tier.is_home(), tier.id));
        let speed = |(tier, speed): &(Arc<Tier>, f64)| (tier.is_home(), *speed);
        tiers.sort_by(|a, b| compare(speed(a), speed(b), home_first));
        tiers
    }
}

/// Compares two tiers, each given as whether it is home, and its speed.
fn compare(a: (bool, f64), b: (bool, f64), home_first: bool) -> Ordering {
    match home_first && a.0 != b.0 {
        true => b.0.cmp(&a.0),
        false => b.1.total_cmp(&a.1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speed_decides_and_home_first_puts_home_before() {
        let (home, other) = ((true, 100.0), (false, 200.0));
        assert_eq!(compare(home, other, false), Ordering::Greater);
        assert_eq!(compare(other, home, false), Ordering::Less);
        assert_eq!(compare(home, other, true), Ordering::Less);
        assert_eq!(compare(other, home, true), Ordering::Greater);
        assert_eq!(compare((false, 110.0), (false, 100.0), true), Ordering::Less);
    }
}
