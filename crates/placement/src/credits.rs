//! The credits of one file: how its ranges were dealt to the tiers so far. Kept
//! while the file is open, so that each file by itself is spread in proportion.

use crate::per_tier::PerTier;
use braid_contract::{SplitMix, TierId};

/// For each tier, how long it would need for its part of the file, by its share
/// at the time: a changed share affects the future, without making up for the
/// past.
#[derive(Clone, Debug)]
pub struct Credits {
    needs: PerTier<Option<f64>>,
    /// The largest of them.
    most: f64,
    /// The bytes of its first range that each tier is taken to have already.
    ahead: PerTier<f64>,
    range_size: f64,
}

/// Most ranges, of the file's own size, that a tier without new ones for a
/// while may be behind: with less than a range, it would miss its turn.
const BEHIND_MAX: f64 = 16.0;

impl Credits {
    /// Nothing dealt yet. `seed` differs from file to file: it shifts the start
    /// of a file in the pattern of turns, by less than a range. A tier's turn
    /// comes sooner by half a range on average, as much as it loses where a file
    /// ends before its turn: so many files of a few ranges come out in proportion
    /// too.
    pub fn new(seed: u64, range_size: u32) -> Self {
        let range_size = f64::from(range_size);
        let mut state = seed;
        let mut ahead = PerTier::all(0.0);
        ahead.0.fill_with(|| {
            state = SplitMix::new(state).next_u64();
            f64::from(!((state >> 32) as u32)) / f64::from(u32::MAX) * range_size
        });
        Self { needs: PerTier::all(None), most: 0.0, ahead, range_size }
    }

    /// Notes that `tier`, which has this share now, got so many bytes.
    pub fn add(&mut self, tier: TierId, bytes: u64, share: f64) {
        let needs = self.after(tier, bytes, share);
        self.needs[tier] = Some(needs);
        self.most = self.most.max(needs);
    }

    /// How long the tier needs with so many bytes more.
    pub(super) fn after(&self, tier: TierId, bytes: u64, share: f64) -> f64 {
        let needs = self.needs[tier].unwrap_or(-self.ahead[tier] / share);
        needs.max(self.most - BEHIND_MAX * self.range_size / share) + bytes as f64 / share
    }

    /// The same with a range more. By this, turns of slow tiers come late rather
    /// than early: no stream ends later than others because it just had its turn
    /// on a slow one.
    pub(super) fn late_after(&self, tier: TierId, bytes: u64, share: f64) -> f64 {
        self.after(tier, bytes, share) + self.range_size / share
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
        all.for_each(|needs| assert!((-(RANGE as f64)..=0.0).contains(&needs)));
    }

    #[test]
    fn files_of_a_few_ranges_come_out_in_proportion() {
        let shares = [200.0, 60.0, 25.0];
        let mut dealt = [0.0; 3];
        for file in 0..1000 {
            let mut credits = Credits::new(file, RANGE as u32);
            for _ in 0..16 {
                let after = |at: u8| credits.after(TierId(at), RANGE, shares[usize::from(at)]);
                let at = (0..3).min_by(|a, b| after(*a).total_cmp(&after(*b))).unwrap();
                credits.add(TierId(at), RANGE, shares[usize::from(at)]);
                dealt[usize::from(at)] += 1.0;
            }
        }
        for (dealt, share) in dealt.iter().zip(shares) {
            let fair = 16_000.0 * share / shares.iter().sum::<f64>();
            assert!((dealt / fair - 1.0).abs() < 0.03, "{dealt} of {fair}");
        }
    }

    /// Deals so many ranges to two tiers; answers how many the second got.
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
            // A tier that was away for long is at most 16 ranges behind.
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
