//! Wrong placement is put right while data is in use: where one tier is
//! saturated and another is not, ranges in use go from the former to the
//! latter, until each has work in proportion to its bandwidth.
//!
//! A range that was moved so is left there for a while, and an imbalance has to
//! [last](super::patience) before anything moves: the ranges in use change, and
//! must not go back and forth.

use super::errand::{Errand, ErrandEnd};
use super::in_use::on_tier;
use super::patience::{Aim, Bandwidths};
use super::shared::Movers;
use crate::heat::HotRange;
use braid_contract::{Mover, TierId};
use braid_core::live::{File, Layout};
use braid_format::Reason;
use braid_placement::Direction;
use braid_tiers::Tier;
use braid_tiers::rate::Pace;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Longest round: after it, other ranges may be in use.
const ROUND_NS: u64 = 2_000_000_000;
/// Ranges that are moved at the same time.
const PARALLEL: usize = 8;
/// How long a range stays where promotion or demotion put it, in seconds.
const STAYS: u32 = 120;
/// How long it stays where it was put to balance tiers, in seconds: one of them
/// may have been slow for a while only. [Patience](super::patience) keeps ranges
/// from going back and forth for long.
const BALANCED_STAYS: u32 = 20;
/// A tier with less than this part of the busiest tier's work could do more.
const IDLE: f64 = 0.95;
/// A tier with fewer operations in flight serves one thread that waits for each:
/// a slower tier would only make it wait longer.
const QUEUE: f64 = 1.5;
/// The data that has to be in the wrong place, as a part of the share due to
/// the tier that holds up the others: about that part of the rate is lost.
const TOLERANCE: f64 = 0.04;

/// A tier, and the applications' work on it.
#[derive(Clone, Copy, Debug)]
struct TierWork {
    id: TierId,
    /// It is saturated.
    saturated: bool,
    /// It takes ranges.
    takes: bool,
    /// The part of its bandwidth that applications use.
    used: f64,
    /// Bytes a second that it can do, read and written.
    rates: [f64; 2],
    /// The same of work as it is at the time.
    bandwidth: f64,
    /// Ranges in use.
    active: f64,
    /// Operations in flight on it, those of movers too.
    in_flight: f64,
}

/// Ranges to move from one tier to another.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Shift {
    from: TierId,
    to: TierId,
    ranges: usize,
}

/// The ranges that go from the tier that holds up the others to the one that has
/// least to do, so that both have work in proportion.
fn shift(work: &[TierWork]) -> Option<Shift> {
    let most = |tiers: &[TierWork]| tiers.iter().copied().max_by(|a, b| a.used.total_cmp(&b.used));
    let saturated: Vec<TierWork> = work.iter().copied().filter(|tier| tier.saturated).collect();
    let from = most(&saturated)?;
    let helps = |to: &TierWork| from.in_flight >= QUEUE || to.bandwidth > from.bandwidth;
    let idle = work.iter().filter(|to| to.takes && to.id != from.id && !to.saturated && helps(to));
    let to = idle.min_by(|a, b| a.used.total_cmp(&b.used)).filter(|to| to.used <= IDLE * from.used)?;
    let active: f64 = work.iter().map(|tier| tier.active).sum();
    let bandwidth: f64 =
        work.iter().filter(|tier| tier.takes || tier.active > 0.0).map(|tier| tier.bandwidth).sum();
    let due = |tier: &TierWork| active * tier.bandwidth / bandwidth;
    let ranges = (from.active - due(&from)).min(due(to) - to.active);
    (ranges >= (due(&from) * TOLERANCE).max(1.0)).then_some(Shift {
        from: from.id,
        to: to.id,
        ranges: ranges as usize,
    })
}

/// Ranges as [`shift`] has them, for tiers with these bandwidths instead of those of
/// now, of which `reads` is the part of reads; but no more than by those of now.
fn shift_by(work: &[TierWork], bandwidths: &Bandwidths, reads: f64) -> Option<Shift> {
    let now = shift(work)?;
    let work: Vec<TierWork> = work
        .iter()
        .map(|tier| match bandwidths.get(&tier.id) {
            Some(rates) => TierWork { bandwidth: mixed(*rates, reads), ..*tier },
            None => *tier,
        })
        .collect();
    let by_them = shift(&work)?;
    let is_same = (by_them.from, by_them.to) == (now.from, now.to);
    is_same.then(|| Shift { ranges: by_them.ranges.min(now.ranges), ..now })
}

/// Bytes a second of a tier of which so large a part is read.
fn mixed([read, written]: [f64; 2], reads: f64) -> f64 {
    1.0 / (reads / read + (1.0 - reads) / written)
}

/// The ranges due to be moved, and by which bandwidths.
struct Due {
    shift: Shift,
    aim: Aim,
    now: Bandwidths,
    /// The ranges on the tier that has too much, in the order of their turns.
    spots: Vec<HotRange>,
}

impl Movers {
    /// Moves ranges in use from a tier that holds applications up to one that
    /// could do more, if it has been so for a while.
    pub(crate) fn balance(&self, stopped: &(dyn Fn() -> bool + Sync)) {
        let Some(round) = self.rounds.round(Mover::Balance) else { return };
        let stop = || stopped() || round.pace.is_stopped();
        let moved = self.due().map_or(0, |due| self.move_due(due, &round.pace, &stop));
        if moved == 0 {
            // The moves would show a tier's bandwidth as well.
            let began_ns = self.core.environment.monotonic_ns();
            self.try_out(&stop);
            let took_ns = self.core.environment.monotonic_ns().saturating_sub(began_ns);
            self.imbalance.lock().looked_away(took_ns);
        }
    }

    /// Moves due ranges for a while, and answers how many.
    fn move_due(&self, due: Due, pace: &Pace, stopped: &(dyn Fn() -> bool + Sync)) -> usize {
        let Due { shift, aim, now, spots } = due;
        let tiers = [shift.from, shift.to].map(|id| self.core.tiers.get(id));
        let [Ok(from), Ok(to)] = tiers else { return 0 };
        let began_ns = self.core.environment.monotonic_ns();
        let end_ns = began_ns + ROUND_NS;
        let targets = [to];
        let leaves = |tier: &Tier, _: &Tier| tier.id == from.id;
        let moved = AtomicUsize::new(0);
        let is_over = || self.core.environment.monotonic_ns() >= end_ns;
        let stop = || stopped() || is_over() || moved.load(Ordering::Relaxed) >= shift.ranges;
        let errand = Errand { mover: Mover::Balance, pace, to: &targets, leaves: &leaves, stop: &stop };
        // The tier is busy, and each range waits there for its turn.
        let parts: Vec<_> = (0..PARALLEL).map(|part| spots.iter().skip(part).step_by(PARALLEL)).collect();
        let done = self.core.side_by_side(parts, |spots| {
            self.balance_ranges(spots, &errand, &moved);
            Ok(())
        });
        if let Err(error) = done {
            tracing::warn!(%error, "balancing");
        }
        let moved = moved.into_inner();
        if moved > 0 {
            let now_ns = self.core.environment.monotonic_ns();
            self.imbalance.lock().put_right((shift.from, shift.to), aim, now, [began_ns, now_ns]);
        }
        moved
    }

    /// Moves ranges until the errand ends, and counts them.
    fn balance_ranges<'a>(
        &self,
        spots: impl Iterator<Item = &'a HotRange>,
        errand: &Errand<'_>,
        moved: &AtomicUsize,
    ) {
        for spot in spots {
            if (errand.stop)() {
                return;
            }
            match self.balance_range(spot, errand) {
                Ok(ErrandEnd::Done(0)) => {}
                Ok(ErrandEnd::Done(_)) => _ = moved.fetch_add(1, Ordering::Relaxed),
                Ok(ErrandEnd::Ended(_)) => return,
                Err(error) if self.note_unmoved(spot.file, errand, &error) => return,
                Err(_) => {}
            }
        }
    }

    /// The due moves, once an imbalance has lasted.
    fn due(&self) -> Option<Due> {
        let tiers: Vec<Arc<Tier>> = self.core.tiers.iter().collect();
        let now_ns = self.core.environment.monotonic_ns();
        if !tiers.iter().any(|tier| tier.is_saturated()) {
            // The usual case: ranges in use are not looked for.
            self.imbalance.lock().lasts(None, now_ns);
            return None;
        }
        let active = self.in_use();
        let (work, reads) = self.work(&tiers, &active);
        let now: Bandwidths = work.iter().map(|tier| (tier.id, tier.rates)).collect();
        let found = shift(&work);
        let aim = self.imbalance.lock().lasts(found.map(|shift| ((shift.from, shift.to), &now)), now_ns)?;
        let shift = shift_by(&work, &aim.bandwidths(&now), reads)?;
        let spots = active.into_iter().filter(|spot| !self.is_left_alone(spot.file)).collect();
        Some(Due { shift, aim, now, spots: on_tier(spots, shift.from) })
    }

    /// The tiers' work, and the part of it that is reads.
    fn work(&self, tiers: &[Arc<Tier>], active: &[HotRange]) -> (Vec<TierWork>, f64) {
        let views = self.core.tiers.views(0, 0);
        let rates: Vec<[f64; 2]> = tiers.iter().map(|tier| tier.monitor.now().foreground_rate).collect();
        let [read, written] = [0, 1].map(|at| rates.iter().map(|rates| rates[at]).sum::<f64>());
        // Nothing is known of writes if there are none.
        let reads = if read + written > 0.0 { read / (read + written) } else { 0.5 };
        let of = |(tier, rates): (&Arc<Tier>, &[f64; 2])| {
            let view = views.iter().find(|view| view.id == tier.id)?;
            let [read, write] = view.bandwidth;
            Some(TierWork {
                id: tier.id,
                saturated: tier.is_saturated(),
                takes: view.has_room && self.closed(tier).is_none(),
                used: rates[0] / read + rates[1] / write,
                rates: view.bandwidth,
                bandwidth: mixed(view.bandwidth, reads),
                in_flight: Direction::BOTH.map(|way| tier.load.last_epoch(way).in_flight).iter().sum(),
                active: active.iter().filter(|spot| spot.record.tier == tier.id).count() as f64,
            })
        };
        (tiers.iter().zip(&rates).filter_map(of).collect(), reads)
    }

    fn balance_range(&self, spot: &HotRange, errand: &Errand<'_>) -> braid_contract::Result<ErrandEnd> {
        let reached = self.reach(spot.file)?;
        if !self.may_move(Mover::Balance, &reached.file) {
            self.leave_alone(spot.file);
            return Ok(ErrandEnd::Done(0));
        }
        if self.was_just_moved(&reached.file, spot)? {
            return Ok(ErrandEnd::Done(0));
        }
        let ranges = self.ranges_to_move(&reached.file, &[spot.range])?;
        Ok(self.move_ranges(&reached, &ranges, errand))
    }

    /// Whether a mover or a job put the range there a short while ago.
    fn was_just_moved(&self, file: &File, spot: &HotRange) -> braid_contract::Result<bool> {
        let layout = file.layout.read();
        let Layout::Spread(spread) = &*layout else { return Ok(false) };
        let entry = spread.index.entry(spot.range.into())?;
        let stays = match entry.map(|entry| entry.reason) {
            Some(Reason::Rebalanced) => BALANCED_STAYS,
            Some(Reason::Promoted | Reason::Demoted) => STAYS,
            _ => return Ok(false),
        };
        Ok(self.heat.now().saturating_sub(spot.record.since) < stays)
    }

    /// Why the mover would take a range of this tier, for `explain`.
    pub(super) fn imbalance_of(&self, tier: TierId) -> Option<TierId> {
        let (from, to) = self.imbalance.lock().tiers()?;
        (from == tier).then_some(to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tier(id: u8, used: f64, bandwidth: f64, active: f64) -> TierWork {
        TierWork {
            id: TierId(id),
            saturated: used >= 0.95,
            takes: used < 0.95,
            used,
            rates: [bandwidth; 2],
            bandwidth,
            active,
            in_flight: 4.0,
        }
    }

    fn ranges(work: &[TierWork]) -> Option<(u8, u8, usize)> {
        shift(work).map(|shift| (shift.from.0, shift.to.0, shift.ranges))
    }

    #[test]
    fn as_much_goes_as_makes_both_equally_busy() {
        assert_eq!(ranges(&[tier(0, 0.0, 400.0, 0.0), tier(1, 1.0, 100.0, 1000.0)]), Some((1, 0, 800)));
        // The faster one has too much.
        assert_eq!(ranges(&[tier(0, 1.0, 400.0, 1000.0), tier(1, 0.1, 100.0, 0.0)]), Some((0, 1, 200)));
        // The share that a third tier lacks does not go to tier 0.
        let work = [tier(0, 0.0, 100.0, 0.0), tier(1, 1.0, 100.0, 900.0), tier(2, 0.2, 100.0, 0.0)];
        assert_eq!(ranges(&work), Some((1, 0, 300)));
    }

    #[test]
    fn what_is_dealt_by_the_mean_of_two_states_stays_in_either() {
        let by = |work: &[TierWork], rates: [[f64; 2]; 2], reads: f64| {
            let bandwidths = [(TierId(0), rates[0]), (TierId(1), rates[1])].into();
            shift_by(work, &bandwidths, reads).map(|shift| (shift.from.0, shift.to.0, shift.ranges))
        };
        let mean = [[250.0, 120.0], [100.0, 60.0]];
        let slow = |on_it: f64| [tier(0, 1.0, 100.0, on_it), tier(1, 0.3, 100.0, 700.0 - on_it)];
        let recovered = |on_it: f64| [tier(0, 0.6, 400.0, on_it), tier(1, 1.0, 100.0, 700.0 - on_it)];
        assert_eq!([by(&slow(500.0), mean, 1.0), by(&recovered(500.0), mean, 1.0)], [None; 2]);
        assert_eq!(by(&slow(560.0), mean, 1.0), Some((0, 1, 60)));
        assert_eq!(by(&recovered(400.0), mean, 1.0), Some((1, 0, 100)));
        // As the work is at the time; and no further than is right now.
        assert_eq!(by(&slow(500.0), mean, 0.0), Some((0, 1, 33)));
        assert_eq!(by(&slow(400.0), [[10.0; 2], [100.0; 2]], 1.0), Some((0, 1, 50)));
    }

    #[test]
    fn a_lone_thread_is_not_sent_to_a_slower_tier() {
        let alone = |mut work: [TierWork; 2]| {
            work.iter_mut().for_each(|tier| tier.in_flight /= 4.0);
            ranges(&work)
        };
        assert_eq!(alone([tier(0, 1.0, 400.0, 1000.0), tier(1, 0.1, 100.0, 0.0)]), None);
        assert_eq!(alone([tier(0, 0.0, 400.0, 0.0), tier(1, 1.0, 100.0, 1000.0)]), Some((1, 0, 800)));
    }

    #[test]
    fn nothing_goes_where_nothing_is_gained() {
        // In proportion, nearly, and both busy; or neither is.
        for work in [
            [tier(0, 1.0, 400.0, 800.0), tier(1, 1.0, 100.0, 200.0)],
            [tier(0, 0.7, 400.0, 794.0), tier(1, 1.0, 100.0, 206.0)],
            [tier(0, 0.96, 400.0, 0.0), tier(1, 1.0, 100.0, 1000.0)],
            [tier(0, 0.1, 400.0, 0.0), tier(1, 0.5, 100.0, 1000.0)],
        ] {
            assert_eq!(shift(&work), None, "{work:?}");
        }
        let closed = TierWork { takes: false, ..tier(0, 0.0, 400.0, 0.0) };
        assert_eq!(shift(&[closed, tier(1, 1.0, 100.0, 1000.0)]), None);
        assert_eq!(shift(&[]), None);
    }
}
