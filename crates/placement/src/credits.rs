//! How the ranges of one file were dealt to the tiers so far. Kept while the
//! file is open, so that each file by itself is spread in proportion.

use crate::per_tier::PerTier;
use braid_contract::{SplitMix, TierId};

/// For each tier, how long it would need for what it got of the file, by its
/// share at the time: a share that changes says how to go on, and does not ask
/// for the past to be made up for.
#[derive(Clone, Debug)]
pub struct Credits {
    needs: PerTier<Option<f64>>,
    /// The largest of them.
    most: f64,
    /// Where in its first range each tier begins, in bytes.
    begins: PerTier<f64>,
    range_size: f64,
}

/// How many ranges, of the file's own size, a tier that got none for a while may
/// be behind: one that may be behind by less than a range misses its turn.
const BEHIND_MAX: f64 = 16.0;

impl Credits {
    /// Nothing dealt yet. `seed` differs from file to file: it shifts where in
    /// the pattern of turns a file begins, by less than a range, so that many
    /// files of a few ranges come out in proportion too.
    pub fn new(seed: u64, range_size: u32) -> Self {
        let range_size = f64::from(range_size);
        let mut state = seed;
        let mut begins = PerTier::all(0.0);
        begins.0.fill_with(|| {
            state = SplitMix::new(state).next_u64();
            f64::from((state >> 32) as u32) / f64::from(u32::MAX) * range_size
        });
        Self { needs: PerTier::all(None), most: 0.0, begins, range_size }
    }

    /// `tier`, which has this share now, got so many bytes.
    pub fn add(&mut self, tier: TierId, bytes: u64, share: f64) {
        let needs = self.after(tier, bytes, share);
        self.needs[tier] = Some(needs);
        self.most = self.most.max(needs);
    }

    /// How long the tier needs if it gets so many bytes more.
    pub(super) fn after(&self, tier: TierId, bytes: u64, share: f64) -> f64 {
        let needs = self.needs[tier].unwrap_or(self.begins[tier] / share);
        needs.max(self.most - BEHIND_MAX * self.range_size / share) + bytes as f64 / share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RANGE: u64 = 1 << 21;

    #[test]
    fn deals_differ_by_seed_and_by_less_than_a_range() {
        let (a, b) = (Credits::new(1, RANGE as u32), Credits::new(2, RANGE as u32));
        assert!((a.after(TierId(0), 0, 1.0) - b.after(TierId(0), 0, 1.0)).abs() > 1.0);
        let all =
            (0..TierId::LIMIT).flat_map(|tier| [&a, &b].map(|credits| credits.after(TierId(tier), 0, 1.0)));
        all.for_each(|begins| assert!((0.0..=RANGE as f64).contains(&begins)));
    }

    /// Deals so many ranges to two tiers; how many the second got.
    fn deal_on(credits: &mut Credits, ranges: u32, shares: [f64; 2]) -> u32 {
        let mut second = 0;
        for _ in 0..ranges {
            let after = [0, 1].map(|at: u8| credits.after(TierId(at), RANGE, shares[usize::from(at)]));
            let at = u8::from(after[1] < after[0]);
            credits.add(TierId(at), RANGE, shares[usize::from(at)]);
            second += u32::from(at);
        }
        second
    }

    #[test]
    fn a_share_that_changes_counts_from_then_on() {
        let mut credits = Credits::new(1, RANGE as u32);
        assert!(deal_on(&mut credits, 110, [100.0, 10.0]).abs_diff(10) <= 1);
        assert!(deal_on(&mut credits, 100, [100.0, 100.0]).abs_diff(50) <= 9);
        assert!(deal_on(&mut credits, 110, [100.0, 10.0]).abs_diff(10) <= 1);
    }

    #[test]
    fn what_is_dealt_does_not_depend_on_how_long_ranges_are() {
        let credits = |range: u64| {
            let mut credits = Credits::new(1, range as u32);
            // One that was away for long is behind by no more than 16 ranges.
            (0..1000).for_each(|_| credits.add(TierId(0), range, 16.0));
            let of = |credits: &Credits, tier, share| credits.after(TierId(tier), range, share);
            let dealt = (0..200).map(|_| {
                let slow = of(&credits, 1, 1.0) < of(&credits, 0, 16.0);
                let (tier, share) = if slow { (1, 1.0) } else { (0, 16.0) };
                credits.add(TierId(tier), range, share);
                tier
            });
            dealt.collect::<Vec<u8>>()
        };
        let usual = credits(RANGE);
        let slow = usual.iter().filter(|tier| **tier == 1).count();
        assert!((11..=28).contains(&slow), "{slow}");
        assert_eq!([1 << 16, 1 << 26].map(credits), [usual.clone(), usual]);
    }

    #[test]
    fn a_tier_that_was_away_is_not_given_everything() {
        let mut credits = Credits::new(1, RANGE as u32);
        (0..1000).for_each(|_| credits.add(TierId(0), RANGE, 1.0));
        assert!(deal_on(&mut credits, 100, [1.0, 1.0]) <= 60);
    }
}
