//! The performance of a tier, learned from its load. `load.rs` feeds it each
//! epoch.
//!
//! A rate shows the tier's bandwidth only if the tier had enough to do. So a
//! lower rate than before counts only if operations waited at least as long as
//! when it was faster: then the tier became slow. Otherwise demand was low, and
//! nothing changes. I/O through the page cache does not count either, since it
//! is as fast as memory until that is full.
//!
//! Until a tier had enough to do, its bandwidth is extrapolated from how its
//! rate grew with its busy time: there is no such growth where the rate itself
//! is limited, as by throttles and the limits of rented volumes.

use crate::epoch::EpochLoad;
use crate::settings::DirectionProfile;

/// The bandwidth of a tier in one direction.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Learned {
    best: Option<Best>,
    /// The rates of the two epochs before.
    before: [f64; 2],
    /// Used until the bandwidth was reached.
    trend: Trend,
    /// The same through the page cache: it may be memory's.
    guess: Option<f64>,
    /// The bandwidth by a profile or a measurement, as long as use does not belie
    /// it.
    measured: Option<f64>,
    /// Its recent load while others were saturated.
    rest: Rest,
    doubt: Doubt,
}

#[derive(Clone, Copy, Debug)]
struct Best {
    /// Bytes a second.
    bandwidth: f64,
    /// Operations in flight when it was reached.
    in_flight: f64,
    /// The fewest operations that nearly reached it.
    enough: f64,
    /// Whether the tier had enough to do then; otherwise it is an estimate.
    reached: bool,
    /// Whether it was seen in use, with operations as applications have them.
    seen: bool,
}

/// Means of the last epochs, with decreasing weight. Streams pass from tier to
/// tier, and not evenly.
#[derive(Clone, Copy, Debug, Default)]
struct Rest {
    epochs: u32,
    rate: f64,
    busy: f64,
}

/// Doubt whether a tier is faster than believed. A tier at the limit of a
/// throttle looks the same, since the throttle passes at once a load just below
/// it: the longer a belief has withstood doubt, the longer the next one takes.
#[derive(Clone, Copy, Debug, Default)]
struct Doubt {
    /// It is to be tried out, or given more.
    due: bool,
    /// The bandwidth believed when it last was.
    settled_at: f64,
    /// Epochs of slack that it needs while that is still believed.
    epochs: u32,
}

/// How a tier's rate depends on its busy share of an epoch: sums over the last
/// epochs, with decreasing weight.
#[derive(Clone, Copy, Debug, Default)]
struct Trend {
    epochs: f64,
    rate: f64,
    busy_squared: f64,
    rate_squared: f64,
    busy_by_rate: f64,
}

/// Share of an epoch that a tier must have been busy for its rate to count.
const BUSY_MIN: f64 = 0.9;
/// The same while nothing is known yet: a first guess is better than none.
const BUSY_MIN_FIRST: f64 = 0.5;
/// Share of an epoch's bytes that must bypass the page cache for its rate to be
/// the tier's own.
pub(super) const DIRECT_MIN: f64 = 0.9;
/// Share of the bandwidth that is nearly all of it.
const NEARLY: f64 = 0.9;
/// Weight of a lower rate of an epoch.
const FOLLOW: f64 = 0.5;
/// Weight of a higher rate that lasted.
const FOLLOW_UP: f64 = 0.75;
/// Weight of earlier epochs in a trend when one is added.
const TREND_KEPT: f64 = 0.9;
/// Random variation of the busy share from epoch to epoch.
const BUSY_NOISE: f64 = 0.05;
/// Share of the earlier queue that must have been there for a lower rate to
/// mean that the tier became slow.
const QUEUE_SHARE_MIN: f64 = 0.75;
/// The same for the wait of a byte, where the queue was shorter.
const WAIT_SHARE_MIN: f64 = 1.25;
/// Share of the bandwidth below which the rate while busy shows that the tier
/// became slow, if it was not busy all the time: a single stream passes from
/// tier to tier.
const CLEARLY: f64 = 0.75;
/// Busy share up to which a tier had slack.
pub const REST_BUSY_MAX: f64 = 0.6;
/// Epochs for which that has to last on average: at first, and at most.
const REST_EPOCHS: [u32; 2] = [5, 80];
/// The same where it is tried out: a trial takes bandwidth from applications,
/// and short work would be over before it has gained.
const TRIED_EPOCHS: [u32; 2] = [15, 320];
/// The same where it delivers its measured bandwidth: the measurement was a
/// trial as well.
const MEASURED_EPOCHS: [u32; 2] = [60, 320];
/// Part of the believed bandwidth that a tier has to deliver before it is tried
/// out. To give it more is a greater risk: it has to deliver [nearly](NEARLY)
/// all of it.
const USED_MIN: f64 = 0.5;
/// A belief is the same that was doubted before if it is this near to it.
const SAME: f64 = 0.2;
/// How much faster such a tier is believed to be: its rate when it is busy all
/// the time, but no more than this factor. A throttle lets a tier rest that is
/// at its limit, and must not be given much too much then.
const REST_FACTOR: f64 = 1.25;

/// The source of a tier's load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SeenBy {
    /// Its operations.
    Operations,
    /// The counters of its device, which may be busy with little, as at the end
    /// of writeback, while no operation waits for it.
    Device,
}

impl Learned {
    /// Starts with the calibrated figures.
    pub(super) fn seeded(profile: &DirectionProfile) -> Self {
        let threads = f64::from(profile.threads);
        let bandwidth = profile.bandwidth.max(1.0);
        let best = Best { bandwidth, in_flight: threads, enough: threads, reached: true, seen: false };
        Self { best: Some(best), measured: Some(bandwidth), ..Self::default() }
    }

    pub(super) fn bandwidth(&self) -> Option<f64> {
        self.best.map(|best| best.bandwidth)
    }

    /// The rate through the page cache.
    pub(super) fn guess(&self) -> Option<f64> {
        self.guess
    }

    /// The fewest parallel operations that were observed to reach it.
    pub(super) fn saturating(&self) -> Option<u32> {
        self.best.map(|best| best.enough.ceil().max(1.0) as u32)
    }

    /// Another tier was saturated in an epoch like this. If this one had slack
    /// for a while, although it was used, its believed bandwidth is doubted: its
    /// rate was limited by demand. With `tried`, it is tried out, if it was busy
    /// for no more than that share of the time; it is given more otherwise.
    pub(super) fn had_rest(&mut self, seen: EpochLoad, tried: Option<f64>) {
        let Some(best) = &self.best else { return };
        // The trial that was due may be off by now.
        self.doubt.due &= tried.is_some();
        if self.doubt.due {
            return;
        }
        self.measured = self.measured.filter(|measured| are_same(best.bandwidth, *measured));
        let [first, most] = match (tried, self.measured) {
            (None, _) => REST_EPOCHS,
            (Some(_), None) => TRIED_EPOCHS,
            (Some(_), Some(_)) => MEASURED_EPOCHS,
        };
        let needed = self.doubt.epochs_needed(best.bandwidth, first).min(most);
        let (used, busy_max) = tried.map_or((NEARLY, REST_BUSY_MAX), |busy_max| (USED_MIN, busy_max));
        self.rest = self.rest.with(seen, needed);
        let Rest { epochs, rate, busy } = self.rest;
        if epochs < needed || busy > busy_max || rate < used * best.bandwidth {
            return;
        }
        (self.doubt.settled_at, self.doubt.epochs) = (best.bandwidth, needed);
        match tried {
            Some(_) => self.doubt.due = true,
            None => self.give_more(rate / busy),
        }
    }

    /// Whether it is to be tried out.
    pub(super) fn is_doubted(&self) -> bool {
        self.doubt.due
    }

    /// It was tried out, and the result was learned.
    pub(super) fn was_tried(&mut self) {
        self.rest = Rest::default();
        self.doubt = self.doubt.settled(self.bandwidth().unwrap_or(0.0));
    }

    /// It could not be tried out.
    pub(super) fn was_not_tried(&mut self) {
        self.rest = Rest::default();
        self.doubt.due = false;
    }

    /// Believes that it can do as much, within bounds.
    fn give_more(&mut self, rate: f64) {
        self.was_tried();
        if let Some(best) = &mut self.best {
            best.bandwidth = best.bandwidth.max(rate.min(REST_FACTOR * best.bandwidth));
        }
    }

    /// No tier was at its limit in an epoch like this.
    pub(super) fn was_not_needed(&mut self) {
        self.rest = Rest::default();
    }

    /// Learns from an epoch. `alone` says that there was no load in the other
    /// direction.
    pub(super) fn learn(&mut self, seen: EpochLoad, by: SeenBy, alone: bool) {
        let own = if seen.direct < DIRECT_MIN { 0.0 } else { seen.rate };
        let [second, last] = self.before;
        self.before = [last, own];
        if seen.rate <= 0.0 {
            return;
        }
        if seen.direct < DIRECT_MIN {
            if seen.busy >= BUSY_MIN_FIRST {
                let before = self.guess.unwrap_or(seen.rate);
                self.guess = Some(before + FOLLOW * (seen.rate - before));
            }
            return;
        }
        match &mut self.best {
            Some(best) if best.reached || !alone => {
                // A device may be fast for a moment after a rest: a throttle
                // passes unused budget, a disk's cache is empty. Three epochs
                // in a row are no such moment.
                best.follow(seen, own.min(last).min(second), by, alone);
            }
            best => {
                let trend = self.trend.with(seen);
                // The epoch in which work began says less than it seems to.
                if alone && (last > 0.0 || seen.busy >= BUSY_MIN) {
                    self.trend = trend;
                }
                if let Some(estimate) = trend.estimate(seen, alone) {
                    // Fewer parallel operations may be slower.
                    let is_as_deep = |best: &Best| estimate.in_flight >= QUEUE_SHARE_MIN * best.in_flight;
                    if best.is_none_or(|best| estimate.bandwidth > best.bandwidth || is_as_deep(&best)) {
                        *best = Some(estimate);
                    }
                }
            }
        }
    }
}

impl Best {
    /// Adopts the rate of an epoch; `lasting` is the rate that it and the
    /// previous ones all had.
    fn follow(&mut self, seen: EpochLoad, lasting: f64, by: SeenBy, alone: bool) {
        if lasting * NEARLY > self.bandwidth {
            self.enough = seen.in_flight;
        } else if seen.busy >= BUSY_MIN && seen.rate >= NEARLY * self.bandwidth {
            self.enough = self.enough.min(seen.in_flight);
            self.seen = true;
        }
        let (now, follow) = if lasting > self.bandwidth {
            (EpochLoad { rate: lasting, ..seen }, FOLLOW_UP)
        } else if let Some(slower) = self.slower(seen, by).filter(|_| alone) {
            // The size of the operations decides more than a belief from before
            // there were any.
            (slower, if self.seen || by == SeenBy::Device { FOLLOW } else { 1.0 })
        } else {
            return;
        };
        self.bandwidth += follow * (now.rate - self.bandwidth);
        self.in_flight += follow * (now.in_flight - self.in_flight);
        self.seen = true;
    }

    /// The load while it was busy, if that shows that the tier became slow.
    fn slower(&self, seen: EpochLoad, by: SeenBy) -> Option<EpochLoad> {
        let (now, rate_max) = match seen.busy {
            busy if busy >= BUSY_MIN => (seen, self.bandwidth),
            busy if by == SeenBy::Operations && busy >= BUSY_MIN_FIRST => {
                let (rate, in_flight) = (seen.rate / busy, seen.in_flight / busy);
                (EpochLoad { rate, in_flight, ..seen }, CLEARLY * self.bandwidth)
            }
            _ => return None,
        };
        let wait = |rate: f64, in_flight: f64| in_flight / rate;
        let waited = now.in_flight >= QUEUE_SHARE_MIN * self.in_flight
            || wait(now.rate, now.in_flight) >= WAIT_SHARE_MIN * wait(self.bandwidth, self.in_flight);
        (waited && now.rate < rate_max).then_some(now)
    }
}

impl Rest {
    /// Means with one more epoch, over about so many of them.
    fn with(self, seen: EpochLoad, over: u32) -> Self {
        let epochs = self.epochs + 1;
        let follow = 1.0 / f64::from(epochs.min(over));
        let mean = |mean: f64, seen: f64| mean + follow * (seen - mean);
        Self { epochs, rate: mean(self.rate, seen.rate), busy: mean(self.busy, seen.busy) }
    }
}

impl Doubt {
    /// Epochs of slack that a tier of this believed bandwidth needs, where those
    /// are so many at `first`.
    fn epochs_needed(&self, believed: f64, first: u32) -> u32 {
        if are_same(believed, self.settled_at) { self.epochs } else { first }
    }

    fn settled(&self, believed: f64) -> Self {
        Self { due: false, settled_at: believed, epochs: self.epochs.saturating_mul(2) }
    }
}

/// Whether a belief is still about that other one.
fn are_same(believed: f64, before: f64) -> bool {
    (believed / before - 1.0).abs() <= SAME
}

impl Trend {
    /// The trend with one more epoch.
    fn with(&self, seen: EpochLoad) -> Self {
        let add = |sum: f64, seen: f64| sum * TREND_KEPT + seen;
        Self {
            epochs: add(self.epochs, 1.0),
            rate: add(self.rate, seen.rate),
            busy_squared: add(self.busy_squared, seen.busy * seen.busy),
            rate_squared: add(self.rate_squared, seen.rate * seen.rate),
            busy_by_rate: add(self.busy_by_rate, seen.busy * seen.rate),
        }
    }

    /// The estimated rate of a tier that is busy all the time, judged by an
    /// epoch like this, the last one in the trend; `None` if that is too
    /// little.
    fn estimate(&self, seen: EpochLoad, alone: bool) -> Option<Best> {
        if seen.busy < BUSY_MIN_FIRST {
            return None;
        }
        let in_flight = seen.in_flight / seen.busy;
        let reached = alone && seen.busy >= BUSY_MIN;
        let bandwidth = if reached { seen.rate } else { self.when_busy() };
        Some(Best { bandwidth, in_flight, enough: in_flight, reached, seen: true })
    }

    /// A compromise between two models, weighted by their fit: the rate is in
    /// proportion to the busy share, or it is limited, whatever that share.
    fn when_busy(&self) -> f64 {
        let in_proportion = self.busy_by_rate / self.busy_squared;
        let bounded = self.rate / self.epochs;
        let unexplained_by = |explained: f64| (self.rate_squared - explained).max(0.0) / self.epochs;
        let by_proportion = unexplained_by(in_proportion * self.busy_by_rate);
        let by_bound = unexplained_by(bounded * self.rate);
        let noise = (in_proportion * BUSY_NOISE).powi(2);
        in_proportion + by_proportion / (by_proportion + by_bound + noise) * (bounded - in_proportion)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epoch(rate: f64, in_flight: f64, busy: f64) -> EpochLoad {
        EpochLoad { rate, in_flight, busy, direct: 1.0 }
    }

    fn learned(epochs: &[EpochLoad]) -> f64 {
        let mut learned = Learned::default();
        epochs.iter().for_each(|seen| learned.learn(*seen, SeenBy::Operations, true));
        learned.bandwidth().unwrap()
    }

    #[test]
    fn a_tier_that_slows_down_or_recovers_is_followed_within_ten_epochs() {
        let mut epochs = vec![epoch(60e6, 8.0, 1.0); 5];
        epochs.extend([epoch(20e6, 14.0, 1.0); 6]);
        assert!((learned(&epochs) / 20e6 - 1.0).abs() < 0.05);
        epochs.extend([epoch(60e6, 8.0, 1.0); 5]);
        assert!((learned(&epochs) / 60e6 - 1.0).abs() < 0.05);
        // With one operation at a time there is no queue, but a longer wait.
        let mut epochs = vec![epoch(60e6, 1.0, 1.0); 5];
        epochs.extend([epoch(20e6, 1.0, 1.0); 6]);
        assert!((learned(&epochs) / 20e6 - 1.0).abs() < 0.05);
    }

    #[test]
    fn little_demand_is_not_taken_for_slowness() {
        let busy = epoch(200e6, 24.0, 1.0);
        for idle in [epoch(0.0, 0.0, 0.0), epoch(30e6, 0.2, 0.2), epoch(80e6, 1.0, 0.95)] {
            assert_eq!(learned(&[busy, busy, idle, idle, idle]), 200e6, "{idle:?}");
        }
        let mut both_ways = Learned::default();
        both_ways.learn(busy, SeenBy::Operations, true);
        both_ways.learn(epoch(100e6, 24.0, 1.0), SeenBy::Operations, false);
        assert_eq!(both_ways.bandwidth(), Some(200e6));
    }

    #[test]
    fn a_moment_is_not_taken_for_what_a_tier_can_do() {
        let (usual, burst) = (epoch(60e6, 4.0, 1.0), epoch(90e6, 4.0, 1.0));
        assert_eq!(learned(&[usual, burst, usual, burst, usual]), 60e6);
        assert_eq!(learned(&[usual, burst, burst, usual, burst, burst]), 60e6);
        assert!(learned(&[usual, burst, burst, burst]) > 80e6);
    }

    #[test]
    fn a_tier_that_never_had_enough_to_do_is_judged_by_how_its_rate_grows() {
        // Pauses between its operations: twice as busy, twice the rate.
        let device = [(30e6, 0.3), (60e6, 0.6), (40e6, 0.4), (70e6, 0.7)];
        // A throttle passes the same bytes at once, or makes them wait.
        let throttled = [(58e6, 0.1), (62e6, 0.6), (60e6, 0.2), (61e6, 0.8)];
        for (epochs, expected) in [(device, 100e6), (throttled, 61e6)] {
            let epochs = epochs.map(|(rate, busy)| epoch(rate, busy, busy));
            // In the first one it began at some point.
            let began = epoch(10e6, 0.05, 0.05);
            let found = learned(&[&[began], epochs.as_slice()].concat());
            assert!((found / expected - 1.0).abs() < 0.03, "{found} of {expected}");
        }
        let one = epoch(30e6, 0.6, 0.6);
        assert_eq!(learned(&[one]), 50e6, "better than nothing");
        let little = epoch(1e6, 0.001, 0.001);
        let found = learned(&[little, little, epoch(0.0, 0.0, 0.0), one]);
        assert!((found / 50e6 - 1.0).abs() < 0.03, "{found}");
        // Once it has enough to do, that rate holds.
        assert_eq!(learned(&[one, epoch(35e6, 1.0, 1.0)]), 35e6);
        // But not if it had help from others, and one operation at a time does
        // not compare to many.
        let mut both_ways = Learned::default();
        both_ways.learn(one, SeenBy::Operations, true);
        both_ways.learn(epoch(35e6, 1.0, 1.0), SeenBy::Operations, false);
        assert_eq!(both_ways.bandwidth(), Some(50e6));
        assert_eq!(learned(&[epoch(30e6, 6.0, 0.6), epoch(20e6, 1.0, 1.0)]), 50e6);
    }

    #[test]
    fn what_memory_takes_is_not_taken_for_the_tiers_doing() {
        let mut learned = Learned::default();
        learned.learn(EpochLoad { direct: 0.0, ..epoch(1e9, 8.0, 1.0) }, SeenBy::Operations, true);
        assert_eq!((learned.bandwidth(), learned.guess()), (None, Some(1e9)));
        learned.learn(epoch(200e6, 8.0, 1.0), SeenBy::Operations, true);
        learned.learn(EpochLoad { direct: 0.5, ..epoch(2e9, 8.0, 1.0) }, SeenBy::Operations, true);
        assert_eq!((learned.bandwidth(), learned.guess()), (Some(200e6), Some(1.5e9)));
    }

    #[test]
    fn a_tier_that_recovered_unnoticed_is_believed_to_do_more() {
        // Demand is bounded by another tier, at about the former rate of this
        // one.
        let after = |epochs: &[EpochLoad]| {
            let mut learned = Learned::default();
            (0..3).for_each(|_| learned.learn(epoch(130e6, 8.0, 1.0), SeenBy::Operations, true));
            epochs.iter().for_each(|seen| learned.had_rest(*seen, None));
            learned.bandwidth().unwrap()
        };
        let rests = epoch(128e6, 0.4, 0.32);
        assert_eq!([4, 5, 20].map(|count| after(&vec![rests; count])), [130e6, 162.5e6, 162.5e6]);
        let uneven = [epoch(30e6, 0.1, 0.08), epoch(230e6, 0.7, 0.55)];
        assert_eq!(after(&uneven.repeat(5)), 162.5e6);
        assert_eq!(after(&[epoch(130e6, 0.7, 0.7); 20]), 130e6, "it had no rest");
        assert_eq!(after(&[epoch(60e6, 0.2, 0.2); 20]), 130e6, "it was given little");
        assert!((after(&[epoch(130e6, 0.6, 0.59); 5]) / 162.5e6 - 1.0).abs() < 0.01);
    }

    #[test]
    fn the_longer_a_belief_withstands_doubt_the_longer_the_next_one_takes() {
        let mut learned = Learned::default();
        let learn = |learned: &mut Learned, rate: f64| {
            (0..8).for_each(|_| learned.learn(epoch(rate, 8.0, 1.0), SeenBy::Operations, true));
        };
        // Used by half, and at rest.
        let doubted_after = |learned: &mut Learned| {
            let seen = epoch(0.55 * learned.bandwidth().unwrap(), 0.1, 0.1);
            let epochs = (1..1000).find(|_| {
                learned.had_rest(seen, Some(REST_BUSY_MAX));
                learned.is_doubted()
            });
            learned.was_tried();
            epochs
        };
        learn(&mut learned, 130e6);
        assert_eq!([0; 7].map(|_| doubted_after(&mut learned)), [15, 30, 60, 120, 240, 320, 320].map(Some));
        // It delivered the expected rate meanwhile.
        learn(&mut learned, 125e6);
        assert_eq!(doubted_after(&mut learned), Some(320));
        learn(&mut learned, 390e6);
        assert_eq!([0; 2].map(|_| doubted_after(&mut learned)), [15, 30].map(Some));
        // A measured bandwidth is doubted later, unless use belied it.
        let profile = DirectionProfile { bandwidth: 400e6, latency_ns: 1, threads: 4, degrades_at: None };
        let mut measured = Learned::seeded(&profile);
        assert_eq!([0; 2].map(|_| doubted_after(&mut measured)), [60, 120].map(Some));
        for (rate, epochs) in [(130e6, 15), (390e6, 15)] {
            learn(&mut measured, rate);
            assert_eq!(doubted_after(&mut measured), Some(epochs), "{rate}");
        }
        let mut idle = learned;
        (0..100).for_each(|_| idle.had_rest(epoch(30e6, 0.1, 0.1), Some(REST_BUSY_MAX)));
        assert!(!idle.is_doubted(), "it is hardly used");
        for (busy, busy_max, doubted) in [(0.7, 0.6, false), (0.7, 0.8, true), (0.9, 0.8, false)] {
            let mut busier = learned;
            (0..100).for_each(|_| busier.had_rest(epoch(390e6, busy, busy), Some(busy_max)));
            assert_eq!(busier.is_doubted(), doubted, "{busy} {busy_max}");
        }
        learned.had_rest(epoch(390e6, 0.1, 0.1), Some(REST_BUSY_MAX));
        // There was nothing to do meanwhile, or it could not be tried out.
        for starts_anew in [Learned::was_not_needed, Learned::was_not_tried] {
            starts_anew(&mut learned);
            (0..59).for_each(|_| learned.had_rest(epoch(390e6, 0.1, 0.1), Some(REST_BUSY_MAX)));
            assert!(!learned.is_doubted());
        }
        learned.had_rest(epoch(390e6, 0.1, 0.1), Some(REST_BUSY_MAX));
        assert!(learned.is_doubted());
    }

    #[test]
    fn a_tier_that_is_given_more_in_vain_is_given_more_less_often() {
        let mut learned = Learned::default();
        let limit = epoch(130e6, 8.0, 1.0);
        (0..3).for_each(|_| learned.learn(limit, SeenBy::Operations, true));
        let mut waited = Vec::new();
        for _ in 0..4 {
            let epochs = (1..1000).find(|_| {
                learned.had_rest(epoch(128e6, 0.4, 0.32), None);
                learned.bandwidth() > Some(131e6)
            });
            waited.push(epochs.unwrap());
            (0..8).for_each(|_| learned.learn(limit, SeenBy::Operations, true));
        }
        assert_eq!(waited, [5, 10, 20, 40]);
    }

    #[test]
    fn the_fewest_that_reach_the_bandwidth_saturate_the_tier() {
        let mut learned = Learned::default();
        for (rate, in_flight, enough) in [
            (100.0, 16.0, 16),
            (95.0, 3.2, 4),
            (60.0, 1.0, 4),
            (300.0, 8.0, 4),
            (300.0, 8.0, 4),
            (300.0, 8.0, 8),
            (250.0, 6.0, 6),
        ] {
            learned.learn(epoch(rate, in_flight, 1.0), SeenBy::Operations, true);
            assert_eq!(learned.saturating(), Some(enough), "{rate}");
        }
    }

    #[test]
    fn a_profile_is_where_it_begins() {
        let profile = DirectionProfile { bandwidth: 100.0, latency_ns: 1, threads: 4, degrades_at: None };
        let mut learned = Learned::seeded(&profile);
        learned.learn(epoch(20.0, 0.5, 0.5), SeenBy::Operations, true);
        assert_eq!(learned.bandwidth(), Some(100.0));
        // The first use says more than the earlier belief.
        learned.learn(epoch(20.0, 4.0, 1.0), SeenBy::Operations, true);
        assert_eq!(learned.bandwidth(), Some(20.0));
        learned.learn(epoch(10.0, 4.0, 1.0), SeenBy::Operations, true);
        assert_eq!(learned.bandwidth(), Some(15.0));
    }

    #[test]
    fn a_device_that_is_busy_with_little_is_not_taken_for_slow() {
        let profile = DirectionProfile { bandwidth: 200e6, latency_ns: 1, threads: 1, degrades_at: None };
        let mut learned = Learned::seeded(&profile);
        learned.learn(epoch(10e6, 3.0, 0.7), SeenBy::Device, true);
        assert_eq!(learned.bandwidth(), Some(200e6));
        // Nor is one such epoch the whole truth if it was busy throughout.
        learned.learn(epoch(10e6, 3.0, 1.0), SeenBy::Device, true);
        assert_eq!(learned.bandwidth(), Some(105e6));
    }

    #[test]
    fn a_stream_that_comes_by_now_and_then_shows_that_a_tier_is_slow() {
        let profile = DirectionProfile { bandwidth: 100e6, latency_ns: 1, threads: 1, degrades_at: None };
        let mut learned = Learned::seeded(&profile);
        learned.learn(epoch(18e6, 0.7, 0.7), SeenBy::Operations, true);
        assert!((learned.bandwidth().unwrap() / 26e6 - 1.0).abs() < 0.02, "{:?}", learned.bandwidth());
        // A throttle passes its savings, and little slower is no proof.
        for seen in [epoch(25e6, 0.2, 0.2), epoch(14e6, 0.6, 0.6)] {
            learned.learn(seen, SeenBy::Operations, true);
            assert!((learned.bandwidth().unwrap() / 26e6 - 1.0).abs() < 0.02, "{:?}", learned.bandwidth());
        }
    }
}
