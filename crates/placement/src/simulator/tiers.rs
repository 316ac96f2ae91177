//! The tiers of a simulation: their work, and their estimated performance.

use super::clock::Clock;
use super::config::{SimulatedTier, SimulatorConfig};
use super::device::Device;
use super::file::Piece;
use super::outcome::{PlacedBy, TierSimulated};
use crate::believed::{KnownRates, WEIGHT_UNIT, believed, weights, with_means};
use crate::context::TierView;
use crate::epoch::{Epoch, TierEpoch};
use crate::load::{Direction, Load};
use braid_contract::{Environment, TierId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Home has the first number.
pub(super) const HOME: TierId = TierId(0);

/// The tiers, home first.
pub(super) struct Tiers {
    list: Vec<Tier>,
}

/// A tier and its counters.
struct Tier {
    given: SimulatedTier,
    device: Device,
    load: Load,
    bytes: [u64; 2],
    used: u64,
    in_flight: u32,
    busy_since_ns: u64,
    busy_ns: u64,
    ranges: BTreeMap<PlacedBy, u64>,
}

impl Tiers {
    /// `None` if there are none.
    pub(super) fn new(config: &SimulatorConfig, clock: &Arc<Clock>) -> Option<Self> {
        let tier = |given: &SimulatedTier| {
            let load = Load::new(Arc::<Clock>::clone(clock) as Arc<dyn Environment>);
            if let Some(profile) = &given.profile {
                load.seed(profile);
            }
            Tier {
                given: given.clone(),
                device: Device::new(given.bandwidth, config.throttle_ns),
                load,
                bytes: [0; 2],
                used: 0,
                in_flight: 0,
                busy_since_ns: 0,
                busy_ns: 0,
                ranges: BTreeMap::new(),
            }
        };
        let list: Vec<Tier> = config.tiers.iter().map(tier).collect();
        (!list.is_empty()).then_some(Self { list })
    }

    /// The tier of this name.
    pub(super) fn number(&self, name: &str) -> Option<TierId> {
        let at = self.list.iter().position(|tier| tier.given.name == name)?;
        u8::try_from(at).ok().map(TierId)
    }

    /// Starts an operation; answers when the tier completes it.
    pub(super) fn begin(&mut self, id: TierId, direction: Direction, now_ns: u64, bytes: u64) -> u64 {
        let tier = &mut self.list[index(id)];
        tier.load.begin(direction, bytes as usize);
        if tier.in_flight == 0 {
            tier.busy_since_ns = now_ns;
        }
        tier.in_flight += 1;
        tier.device.submit(direction, now_ns, bytes)
    }

    /// Completes an operation on the tier; answers when its reply arrives.
    pub(super) fn end(&mut self, id: TierId, direction: Direction, now_ns: u64, bytes: u64) -> u64 {
        let tier = &mut self.list[index(id)];
        // There is no page cache.
        tier.load.end(direction, (bytes as usize, true), Some(bytes as usize));
        tier.in_flight -= 1;
        if tier.in_flight == 0 {
            tier.busy_ns += now_ns - tier.busy_since_ns;
        }
        tier.bytes[direction as usize] += bytes;
        now_ns + tier.given.latency_ns[direction as usize]
    }

    /// Changes the tier's bandwidth.
    #[cfg(test)]
    pub(super) fn change(&mut self, at: usize, now_ns: u64, bandwidth: [f64; 2]) {
        self.list[at].device.change(now_ns, bandwidth);
    }

    /// Counts a range placed there.
    pub(super) fn put(&mut self, tier: TierId, by: PlacedBy) {
        *self.list[index(tier)].ranges.entry(by).or_default() += 1;
    }

    /// Takes back the count of a range.
    pub(super) fn take_back(&mut self, tier: TierId, by: PlacedBy) {
        if let Some(count) = self.list[index(tier)].ranges.get_mut(&by) {
            *count = count.saturating_sub(1);
        }
        self.list[index(tier)].ranges.retain(|_, count| *count > 0);
    }

    /// Makes these bytes take space.
    pub(super) fn take(&mut self, pieces: &[Piece]) {
        pieces.iter().for_each(|piece| self.list[index(piece.tier)].used += piece.bytes);
    }

    /// Frees the space of these bytes.
    pub(super) fn free(&mut self, pieces: &[Piece]) {
        for piece in pieces {
            let used = &mut self.list[index(piece.tier)].used;
            *used = used.saturating_sub(piece.bytes);
        }
    }

    /// Free bytes on home.
    pub(super) fn home_room(&self) -> u64 {
        self.list[index(HOME)].room()
    }

    /// The tiers as a policy sees them, for `needed` more bytes.
    pub(super) fn views(&self, needed: u64) -> Vec<TierView> {
        let given: Vec<Option<f64>> = self.list.iter().map(|tier| tier.given.weight).collect();
        let measured: Vec<Option<f64>> = self.list.iter().map(Tier::measured).collect();
        let weights = with_means(&weights(&given, &measured), 1.0);
        let bandwidths = self.believed();
        let view = |(at, tier): (usize, &Tier)| TierView {
            id: TierId(at as u8),
            home: at == index(HOME),
            weight: weights[at],
            bandwidth: bandwidths[at],
            has_room: !tier.given.readonly && tier.room() >= needed,
            used: tier.given.capacity.map_or(0.0, |total| tier.used as f64 / total.max(1) as f64),
            queued: tier.load.queued(Direction::Write),
            saturating: tier.saturating(),
        };
        self.list.iter().enumerate().map(view).collect()
    }

    /// The same, where `set_aside_on` has the space already.
    pub(super) fn views_with(&self, needed: u64, set_aside_on: Option<TierId>) -> Vec<TierView> {
        let mut views = self.views(needed);
        if let Some(at) = set_aside_on.map(index) {
            views[at].has_room |= !self.list[at].given.readonly;
        }
        views
    }

    /// Number of tiers.
    pub(super) fn count(&self) -> usize {
        self.list.len()
    }

    /// One of them as a policy sees it.
    pub(super) fn view(&self, tier: TierId) -> TierView {
        self.views(0).swap_remove(index(tier))
    }

    /// Ends an epoch, and answers it.
    pub(super) fn close_epoch(&self) -> Epoch {
        self.list.iter().for_each(|tier| tier.load.close_epoch(None));
        Load::compare(self.list.iter().map(|tier| &tier.load), [None; 2]);
        let bandwidths = self.believed();
        let of = |(at, tier): (usize, &Tier)| TierEpoch {
            id: TierId(at as u8),
            load: Direction::BOTH.map(|direction| tier.load.last_epoch(direction)),
            bandwidth: bandwidths[at],
            known: tier.given.weight.or_else(|| tier.measured()).is_some(),
            takes: !tier.given.readonly && tier.room() > 0,
            moved: 0.0,
            saturating: tier.saturating(),
        };
        let tiers = self.list.iter().enumerate().map(of).collect();
        Epoch { nanos: self.list[index(HOME)].load.last_epoch_ns(), tiers }
    }

    /// The results of the tiers, over so much time.
    pub(super) fn outcome(self, lasted_ns: u64) -> Vec<TierSimulated> {
        let tier = |tier: Tier| TierSimulated {
            name: tier.given.name,
            bytes: tier.bytes,
            busy: if lasted_ns == 0 { 0.0 } else { tier.busy_ns as f64 / lasted_ns as f64 },
            used: tier.used,
            ranges: tier.ranges,
        };
        self.list.into_iter().map(tier).collect()
    }

    fn believed(&self) -> Vec<[f64; 2]> {
        let known = |tier: &Tier| KnownRates {
            learned: Direction::BOTH.map(|direction| tier.load.bandwidth(direction)),
            guess: [None; 2],
            weight: tier.given.weight,
        };
        believed(&self.list.iter().map(known).collect::<Vec<_>>())
    }
}

impl Tier {
    /// How fast it was seen to be, in MB/s.
    fn measured(&self) -> Option<f64> {
        Some(self.load.measured_bandwidth()? / WEIGHT_UNIT)
    }

    fn saturating(&self) -> Option<u32> {
        let profile = self.given.profile.map(|profile| profile.write.threads);
        profile.or_else(|| self.load.saturating(Direction::Write))
    }

    /// Its free bytes.
    fn room(&self) -> u64 {
        let free =
            |total: u64| total.saturating_sub(self.given.reserve.bytes(total).saturating_add(self.used));
        self.given.capacity.map_or(u64::MAX, free)
    }
}

fn index(tier: TierId) -> usize {
    usize::from(tier.0)
}
