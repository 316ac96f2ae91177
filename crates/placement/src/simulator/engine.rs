//! The events of a simulation, in the order of their times.

use super::device::Device;
use super::file::{File, Piece};
use super::source::{OpId, Source};
use super::{PlacedBy, Simulated, SimulatedTier, SimulatorConfig, TierSimulated};
use crate::believed::{KnownRates, believed, with_means};
use crate::context::{Epoch, TierEpoch, TierView};
use crate::load::{Direction, Load};
use crate::policy::Policy;
use crate::policy_config::make_policy;
use crate::rules::Rules;
use crate::trace::TraceOpKind;
use braid_contract::{Environment, TierId};
use braid_format::RangeSize;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Home has the first number.
pub(super) const HOME: TierId = TierId(0);

/// The time of the simulation.
#[derive(Debug, Default)]
struct Clock(AtomicU64);

impl Environment for Clock {
    fn wall_ns(&self) -> i64 {
        self.monotonic_ns().cast_signed()
    }

    fn monotonic_ns(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn fill_random(&self, bytes: &mut [u8]) -> braid_contract::Result<()> {
        bytes.fill(0);
        Ok(())
    }

    fn threads(&self) -> bool {
        false
    }
}

/// A tier and what it did.
pub(super) struct Tier {
    given: SimulatedTier,
    device: Device,
    load: Load,
    bytes: [u64; 2],
    pub(super) used: u64,
    in_flight: u32,
    busy_since_ns: u64,
    busy_ns: u64,
    pub(super) ranges: BTreeMap<PlacedBy, u64>,
}

/// An operation that was begun.
struct UnderWay {
    direction: Direction,
    /// Pieces that wait for those before them.
    rest: VecDeque<Piece>,
    /// Pieces that tiers are at.
    pieces: u32,
    /// When the answer is there at the earliest.
    ends_ns: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Event {
    Begin(OpId),
    /// Its next piece is sent.
    Next(OpId),
    /// A tier is done with a piece.
    Done {
        id: OpId,
        tier: usize,
        bytes: u64,
    },
    Ended(OpId),
    Epoch,
    #[cfg(test)]
    Change {
        tier: usize,
        at: usize,
    },
}

/// A simulation.
pub(super) struct Engine {
    /// Of files that no rule gives another one.
    pub(super) range_size: RangeSize,
    epoch_ns: u64,
    pub(super) policy: Arc<dyn Policy>,
    pub(super) rules: Rules,
    clock: Arc<Clock>,
    pub(super) tiers: Vec<Tier>,
    files: HashMap<u64, File>,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    sequence: u64,
    under_way: HashMap<OpId, UnderWay>,
    /// Operations that have not ended, begun or not.
    left: usize,
    /// When the last byte was through.
    last_byte_ns: u64,
    pub(super) refused_bytes: u64,
    #[cfg(test)]
    pub(super) changes: Vec<[f64; 2]>,
    /// Bytes a second in each epoch.
    #[cfg(test)]
    pub(super) epochs: Vec<f64>,
}

impl Engine {
    /// `None` if a policy or rule names a tier that there is not, or there are
    /// no tiers.
    pub(super) fn new(config: &SimulatorConfig) -> Option<Self> {
        let number = |name: &str| number(config.tiers.iter(), name);
        let clock = Arc::new(Clock::default());
        let tier = |given: &SimulatedTier| {
            let load = Load::new(Arc::<Clock>::clone(&clock) as Arc<dyn Environment>);
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
        let tiers: Vec<Tier> = config.tiers.iter().map(tier).collect();
        (!tiers.is_empty()).then_some(())?;
        Some(Self {
            range_size: config.range_size,
            epoch_ns: config.epoch_ns.max(1),
            policy: make_policy(&config.policy, number)?,
            rules: Rules::make(&config.rules, number)?,
            clock,
            tiers,
            files: HashMap::new(),
            events: BinaryHeap::new(),
            sequence: 0,
            under_way: HashMap::new(),
            left: 0,
            last_byte_ns: 0,
            refused_bytes: 0,
            #[cfg(test)]
            changes: Vec::new(),
            #[cfg(test)]
            epochs: vec![0.0],
        })
    }

    /// Runs until everything has ended; answers how long the last byte took.
    pub(super) fn run(&mut self, source: &mut dyn Source) -> u64 {
        let began_ns = self.now();
        self.last_byte_ns = began_ns;
        for (at_ns, id) in source.start(began_ns) {
            self.begin_at(at_ns, id);
        }
        self.at(began_ns + self.epoch_ns, Event::Epoch);
        while self.left > 0 {
            let Some(Reverse((time_ns, _, event))) = self.events.pop() else { break };
            self.clock.0.store(time_ns, Ordering::Relaxed);
            self.handle(event, source);
        }
        self.events.clear();
        self.last_byte_ns - began_ns
    }

    /// How it went.
    pub(super) fn outcome(self) -> Simulated {
        let lasted_ns = self.last_byte_ns;
        let tier = |tier: Tier| TierSimulated {
            name: tier.given.name,
            bytes: tier.bytes,
            busy: if lasted_ns == 0 { 0.0 } else { tier.busy_ns as f64 / lasted_ns as f64 },
            used: tier.used,
            ranges: tier.ranges,
        };
        let tiers: Vec<TierSimulated> = self.tiers.into_iter().map(tier).collect();
        Simulated {
            seconds: lasted_ns as f64 / 1e9,
            bytes: [0, 1].map(|at: usize| tiers.iter().map(|tier| tier.bytes[at]).sum()),
            tiers,
            refused_bytes: self.refused_bytes,
        }
    }

    pub(super) fn now(&self) -> u64 {
        self.clock.monotonic_ns()
    }

    fn at(&mut self, time_ns: u64, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((time_ns, self.sequence, event)));
    }

    fn begin_at(&mut self, time_ns: u64, id: OpId) {
        self.left += 1;
        self.at(time_ns, Event::Begin(id));
    }

    /// A tier changes what it does, at some time.
    #[cfg(test)]
    pub(super) fn change_at(&mut self, time_ns: u64, tier: usize, bandwidth: [f64; 2]) {
        self.changes.push(bandwidth);
        self.at(time_ns, Event::Change { tier, at: self.changes.len() - 1 });
    }

    fn handle(&mut self, event: Event, source: &mut dyn Source) {
        match event {
            Event::Begin(id) => self.begin(id, source),
            Event::Next(id) => self.send_next(id),
            Event::Done { id, tier, bytes } => self.done(id, tier, bytes),
            Event::Ended(id) => {
                self.left -= 1;
                let now_ns = self.now();
                for (at_ns, next) in source.ended(id, now_ns) {
                    self.begin_at(at_ns.max(now_ns), next);
                }
            }
            Event::Epoch => self.epoch(),
            #[cfg(test)]
            Event::Change { tier, at } => {
                let now_ns = self.now();
                self.tiers[tier].device.change(now_ns, self.changes[at]);
            }
        }
    }

    fn begin(&mut self, id: OpId, source: &dyn Source) {
        let op = source.op(id);
        let about = source.file(op.file);
        let mut file = match self.files.remove(&about.number) {
            Some(file) if op.kind != TraceOpKind::Create => file,
            Some(mut file) => {
                // The number of one that is gone.
                self.free(&file.cut(0));
                File::new(about.number, 0, self.range_size)
            }
            None => {
                let size = if op.kind == TraceOpKind::Create { 0 } else { about.size };
                File::new(about.number, size, self.range_size)
            }
        };
        let pieces = self.carry_out(&op, about, &mut file);
        if op.kind != TraceOpKind::Remove {
            self.files.insert(about.number, file);
        }
        let direction = if op.kind == TraceOpKind::Read { Direction::Read } else { Direction::Write };
        let ends_ns = self.now();
        if pieces.is_empty() {
            return self.at(ends_ns, Event::Ended(id));
        }
        self.under_way.insert(id, UnderWay { direction, rest: pieces.into(), pieces: 0, ends_ns });
        self.send_next(id);
    }

    /// Sends the next piece of an operation to its tier; all that are left, if
    /// they are read.
    fn send_next(&mut self, id: OpId) {
        let now_ns = self.now();
        let Some(op) = self.under_way.get_mut(&id) else { return };
        let count = if op.direction == Direction::Read { op.rest.len() } else { 1 };
        let pieces: Vec<Piece> = op.rest.drain(..count.min(op.rest.len())).collect();
        op.pieces += pieces.len() as u32;
        let direction = op.direction;
        for Piece { tier, bytes } in pieces {
            let at = index(tier);
            let tier = &mut self.tiers[at];
            tier.load.begin(direction, bytes as usize);
            if tier.in_flight == 0 {
                tier.busy_since_ns = now_ns;
            }
            tier.in_flight += 1;
            let done_ns = tier.device.submit(direction, now_ns, bytes);
            self.at(done_ns, Event::Done { id, tier: at, bytes });
        }
    }

    /// A tier is done with a piece.
    fn done(&mut self, id: OpId, at: usize, bytes: u64) {
        let now_ns = self.now();
        let Some(op) = self.under_way.get_mut(&id) else { return };
        let tier = &mut self.tiers[at];
        // No page cache is in between.
        tier.load.end(op.direction, (bytes as usize, true), Some(bytes as usize));
        tier.in_flight -= 1;
        if tier.in_flight == 0 {
            tier.busy_ns += now_ns - tier.busy_since_ns;
        }
        tier.bytes[op.direction as usize] += bytes;
        op.ends_ns = op.ends_ns.max(now_ns + tier.given.latency_ns[op.direction as usize]);
        op.pieces -= 1;
        self.last_byte_ns = self.last_byte_ns.max(now_ns);
        #[cfg(test)]
        if let Some(epoch) = self.epochs.last_mut() {
            *epoch += bytes as f64 / (self.epoch_ns as f64 / 1e9);
        }
        if op.pieces > 0 {
            return;
        }
        let (ends_ns, is_over) = (op.ends_ns, op.rest.is_empty());
        if is_over {
            self.under_way.remove(&id);
        }
        self.at(ends_ns, if is_over { Event::Ended(id) } else { Event::Next(id) });
    }

    /// The tier of this name.
    pub(super) fn number(&self, name: &str) -> Option<TierId> {
        number(self.tiers.iter().map(|tier| &tier.given), name)
    }

    fn epoch(&mut self) {
        self.tiers.iter().for_each(|tier| tier.load.close_epoch());
        let bandwidths = self.believed();
        let of = |(at, tier): (usize, &Tier)| TierEpoch {
            id: TierId(at as u8),
            load: Direction::BOTH.map(|direction| tier.load.last_epoch(direction)),
            bandwidth: bandwidths[at],
            known: weight(tier).is_some(),
        };
        let tiers = self.tiers.iter().enumerate().map(of).collect();
        let nanos = self.tiers[index(HOME)].load.last_epoch_ns();
        let epoch = Epoch { nanos, tiers };
        self.policy.epoch(&epoch);
        self.rules.policies().for_each(|policy| policy.epoch(&epoch));
        #[cfg(test)]
        self.epochs.push(0.0);
        let next_ns = self.now() + self.epoch_ns;
        self.at(next_ns, Event::Epoch);
    }

    fn believed(&self) -> Vec<[f64; 2]> {
        let known = |tier: &Tier| KnownRates {
            learned: Direction::BOTH.map(|direction| tier.load.bandwidth(direction)),
            guess: [None; 2],
            weight: tier.given.weight,
        };
        believed(&self.tiers.iter().map(known).collect::<Vec<_>>())
    }

    /// Bytes that a tier takes still.
    pub(super) fn room(&self, tier: &Tier) -> u64 {
        let free =
            |total: u64| total.saturating_sub(tier.given.reserve.bytes(total).saturating_add(tier.used));
        tier.given.capacity.map_or(u64::MAX, free)
    }

    /// The tiers as a policy sees them, for `needed` more bytes.
    pub(super) fn views(&self, needed: u64) -> Vec<TierView> {
        let weights = with_means(&self.tiers.iter().map(weight).collect::<Vec<_>>(), 1.0);
        let bandwidths = self.believed();
        let view = |(at, tier): (usize, &Tier)| TierView {
            id: TierId(at as u8),
            home: at == index(HOME),
            weight: weights[at],
            bandwidth: bandwidths[at],
            has_room: !tier.given.readonly && self.room(tier) >= needed,
            used: tier.given.capacity.map_or(0.0, |total| tier.used as f64 / total.max(1) as f64),
            queued: tier.load.queued(Direction::Write),
            saturating: tier
                .given
                .profile
                .map(|profile| profile.write.threads)
                .or_else(|| tier.load.saturating(Direction::Write)),
        };
        self.tiers.iter().enumerate().map(view).collect()
    }

    pub(super) fn view(&self, tier: TierId) -> TierView {
        self.views(0).swap_remove(index(tier))
    }
}

/// A tier's weight: as given, or as measured.
fn weight(tier: &Tier) -> Option<f64> {
    let measured = || tier.load.bandwidth(Direction::Write).or_else(|| tier.load.bandwidth(Direction::Read));
    tier.given.weight.or_else(measured)
}

fn number<'a>(mut tiers: impl Iterator<Item = &'a SimulatedTier>, name: &str) -> Option<TierId> {
    let at = tiers.position(|tier| tier.name == name)?;
    u8::try_from(at).ok().map(TierId)
}

pub(super) fn index(tier: TierId) -> usize {
    usize::from(tier.0)
}
