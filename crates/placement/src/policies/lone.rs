//! A lone stream, which waits for each of its operations: it uses one tier at a
//! time, so a slower one only costs it time, unless tiers do more at once after a
//! rest, as throttled ones do. `adaptive` asks where such a stream is best off.

use crate::epoch::{Epoch, TierEpoch};
use crate::per_tier::PerTier;
use braid_contract::TierId;

/// The tiers' speed at one operation after another, and the choice that
/// follows.
pub(super) struct Lone {
    /// The most bytes a second of each tier of late while it carries out one
    /// operation at a time; 0 if that was never seen. A throttled tier is slow only
    /// until it had a rest.
    speed: PerTier<f64>,
    /// The tier on which a lone stream is best off; `None`: on all of them.
    best: Option<TierId>,
    /// The finding of the last epochs, and their number.
    found: (Option<TierId>, u32),
    /// Whether operations were carried out at the same time in the last epoch
    /// that had any.
    overlaps: bool,
}

/// Least time of an epoch in which anything is written for it to count, as a
/// share, and of a tier for its speed to.
const BUSY_MIN: f64 = 0.1;
const TIER_BUSY_MIN: f64 = 0.02;
/// Sum of the busy shares up to which tiers work one after the other, and of the
/// operations in flight over it.
const ONE: f64 = 1.02;
const ONE_IN_FLIGHT: f64 = 1.1;
/// How much faster the stream has to be on one tier.
const GAIN: f64 = 1.25;
/// Epochs that have to say the same.
const EPOCHS: u32 = 5;
/// The part of an earlier, higher speed that is left after an epoch.
const KEPT: f64 = 0.98;

impl Lone {
    pub(super) fn new() -> Self {
        Self { speed: PerTier::all(0.0), best: None, found: (None, 0), overlaps: true }
    }

    /// The tier for a stream beside so many others; `None` if that is any.
    pub(super) fn best(&self, others: usize) -> Option<TierId> {
        // Data and its log are two streams of one thread, if that is not known.
        self.best.filter(|_| !self.overlaps && others <= 1)
    }

    /// Learns from an epoch. `share` is a tier's part of spread data.
    pub(super) fn epoch(&mut self, epoch: &Epoch, share: impl Fn(&TierEpoch) -> f64) {
        let sum = |of: fn(&TierEpoch) -> f64| epoch.tiers.iter().map(of).sum::<f64>();
        let busy = sum(|tier| tier.load[1].busy);
        if busy < BUSY_MIN {
            return;
        }
        self.overlaps = busy > ONE || sum(|tier| tier.load[1].in_flight) > ONE_IN_FLIGHT * busy;
        if self.overlaps {
            self.found.1 = 0;
            return;
        }
        for tier in &epoch.tiers {
            let seen = tier.load[1];
            if seen.busy >= TIER_BUSY_MIN && seen.rate > 0.0 {
                let speed = &mut self.speed[tier.id];
                *speed = (seen.rate / seen.busy).max(*speed * KEPT);
            }
        }
        // Thinking takes the stream's own time, for each byte.
        let rate = sum(|tier| tier.load[1].rate);
        let found = self.find(&epoch.tiers, (1.0 - busy).max(0.0) / rate, share);
        let epochs = if found == self.found.0 { self.found.1 + 1 } else { 1 };
        self.found = (found, epochs);
        if epochs >= EPOCHS {
            self.best = found;
        }
    }

    /// The tier that is best for a stream with so many seconds between operations
    /// for each byte.
    fn find(&self, tiers: &[TierEpoch], between: f64, share: impl Fn(&TierEpoch) -> f64) -> Option<TierId> {
        let speed = |tier: &TierEpoch| match self.speed[tier.id] {
            seen if seen > 0.0 => seen,
            _ => tier.bandwidth[1],
        };
        // A throttled tier does no more in the long run, however fast it is.
        let on_one = |tier: &TierEpoch| (1.0 / (1.0 / speed(tier) + between)).min(tier.bandwidth[1]);
        let tiers = || tiers.iter().filter(|tier| tier.takes);
        let best = tiers().max_by(|a, b| on_one(a).total_cmp(&on_one(b)))?;
        let whole: f64 = tiers().map(&share).sum();
        let waits: f64 = tiers().map(|tier| share(tier) / whole / speed(tier)).sum();
        let together: f64 = tiers().map(|tier| tier.bandwidth[1]).sum();
        let on_all = (1.0 / (waits + between)).min(together);
        (on_one(best) > GAIN * on_all).then_some(best.id)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::tier_epoch;
    use super::*;
    use crate::epoch::EpochLoad;

    /// Writes of two tiers of 200 and 60 MB/s: rate in MB/s, busy share and
    /// operations in flight.
    fn epoch(loads: [(f64, f64, f64); 2]) -> Epoch {
        let tiers = [200e6, 60e6].into_iter().zip(loads).enumerate();
        let of = |(id, (bandwidth, (rate, busy, in_flight)))| {
            let seen = EpochLoad { rate: rate * 1e6, in_flight, busy, direct: 1.0 };
            TierEpoch { load: [EpochLoad::default(), seen], ..tier_epoch(id as u8, bandwidth) }
        };
        Epoch { nanos: 200_000_000, tiers: tiers.map(of).collect() }
    }

    fn after(epochs: &[Epoch]) -> Lone {
        let mut lone = Lone::new();
        epochs.iter().for_each(|epoch| lone.epoch(epoch, |tier| tier.bandwidth[1]));
        lone
    }

    /// One thing after another, without a rest: 77 % of the data on the fast tier
    /// take half of the time.
    fn in_turns() -> Epoch {
        epoch([(100.0, 0.5, 0.5), (30.0, 0.5, 0.5)])
    }

    fn on_the_fast_one() -> Epoch {
        epoch([(200.0, 1.0, 1.0), (0.0, 0.0, 0.0)])
    }

    #[test]
    fn a_lone_stream_stays_on_the_fastest_tier_while_it_is_alone() {
        let lone = after(&[in_turns(), in_turns(), in_turns(), in_turns()]);
        assert_eq!(lone.best(0), None, "it may be chance");
        let mut epochs = vec![in_turns(); 5];
        assert_eq!(after(&epochs).best(1), Some(TierId(0)));
        assert_eq!(after(&epochs).best(2), None);
        epochs.extend(vec![on_the_fast_one(); 10]);
        assert_eq!(after(&epochs).best(0), Some(TierId(0)));
        // Idle epochs change nothing, company ends it at once.
        epochs.push(epoch([(0.0, 0.0, 0.0); 2]));
        assert_eq!(after(&epochs).best(0), Some(TierId(0)));
        epochs.push(epoch([(200.0, 1.0, 4.0), (0.0, 0.0, 0.0)]));
        assert_eq!(after(&epochs).best(0), None);
        epochs.push(on_the_fast_one());
        assert_eq!(after(&epochs).best(0), Some(TierId(0)), "what was found still holds");
    }

    #[test]
    fn throttled_tiers_are_used_together() {
        // Both pass at once loads within their limits.
        let throttled = epoch([(200.0, 0.2, 0.2), (60.0, 0.75, 0.75)]);
        assert_eq!(after(&vec![throttled; 9]).best(0), None);
        // So they are where the stream takes its time.
        let slow = epoch([(7.7, 0.04, 0.04), (2.3, 0.08, 0.08)]);
        assert_eq!(after(&vec![slow; 9]).best(0), None);
        // Most of the time, they have used up their savings.
        let mut waiting = vec![epoch([(100.0, 0.5, 0.5), (30.0, 0.5, 0.5)]); 20];
        waiting[0] = epoch([(100.0, 0.1, 0.1), (30.0, 0.05, 0.05)]);
        assert_eq!(after(&waiting).best(0), None);
    }

    #[test]
    fn a_tier_without_room_is_not_the_best() {
        let full = || {
            let mut full = in_turns();
            full.tiers[0].takes = false;
            full
        };
        assert_eq!(after(&[full(), full(), full(), full(), full()]).best(0), None);
    }

    #[test]
    fn a_tier_that_became_slow_is_left() {
        let mut epochs = vec![in_turns(); 5];
        let slow = || {
            let mut slow = epoch([(20.0, 1.0, 1.0), (0.0, 0.0, 0.0)]);
            slow.tiers[0].bandwidth[1] = 20e6;
            slow
        };
        epochs.extend((0..20).map(|_| slow()));
        assert_eq!(after(&epochs).best(0), None, "the other one is to be had as well");
    }
}
