//! The events of a simulation, in the order of their times.

use super::device::Device;
use super::file::{File, Piece};
use super::source::{OpId, Source};
use super::{PlacedBy, Simulated, SimulatedTier, SimulatorConfig, TierSimulated};
use crate::format::Reason;
use crate::placement::{
    Context, Deal, Known, Origin, Policy, Span, TierEpoch, TierView, believed, filled, make,
};
use crate::rules::{Chosen, Facts, Rules, Subject};
use crate::tiers::{Direction, Load};
use crate::trace::{TraceFile, TraceOp, TraceOpKind};
use braid_contract::{Environment, Hint, StreamId, TierId};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Home has the first number.
const HOME: TierId = TierId(0);

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

/// What is said of a file that is asked for a tier, to rules.
struct About<'a> {
    file: &'a TraceFile,
    now_ns: u64,
}

impl Facts for About<'_> {
    fn path(&self) -> &str {
        &self.file.path
    }

    fn owner(&self) -> i64 {
        self.file.uid.into()
    }

    fn age_ns(&self) -> i64 {
        let since_ns = self.now_ns.saturating_sub(self.file.at_ns);
        i64::try_from(self.file.age_ns.saturating_add(since_ns)).unwrap_or(i64::MAX)
    }
}

/// A simulation.
pub(super) struct Engine {
    range_size: u64,
    epoch_ns: u64,
    policy: Arc<dyn Policy>,
    rules: Rules,
    clock: Arc<Clock>,
    tiers: Vec<Tier>,
    files: HashMap<u64, File>,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    sequence: u64,
    under_way: HashMap<OpId, UnderWay>,
    /// Operations that have not ended, begun or not.
    left: usize,
    /// When the last byte was through.
    last_byte_ns: u64,
    refused_bytes: u64,
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
            range_size: config.range_size.into(),
            epoch_ns: config.epoch_ns.max(1),
            policy: make(&config.policy, number)?,
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

    fn now(&self) -> u64 {
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

    /// Does what takes no time, and answers what does.
    fn carry_out(&mut self, op: &TraceOp, about: &TraceFile, file: &mut File) -> Vec<Piece> {
        let end = op.offset + op.len;
        match op.kind {
            TraceOpKind::Read => {
                let end = end.min(file.size);
                self.find(op, about, file, end);
                file.pieces(op.offset, end)
            }
            TraceOpKind::Write => {
                self.find(op, about, file, end.min(file.found));
                self.write(op, about, file, end)
            }
            TraceOpKind::Allocate => {
                // Range by range, as a volume gives them their tiers.
                for range in file.ranges_of(op.offset, end) {
                    let offset = (range * self.range_size).max(op.offset);
                    let end = ((range + 1) * self.range_size).min(end);
                    let part = TraceOp { offset, len: end - offset, ..*op };
                    self.find(&part, about, file, end.min(file.found));
                    self.write(&part, about, file, end);
                }
                Vec::new()
            }
            TraceOpKind::Truncate => {
                self.free(&file.cut(op.size));
                Vec::new()
            }
            TraceOpKind::Remove => {
                self.free(&file.cut(0));
                Vec::new()
            }
            TraceOpKind::Create | TraceOpKind::Open | TraceOpKind::Sync => Vec::new(),
        }
    }

    /// Decides where ranges of `offset .. end` are that were there before, as
    /// the policy would have it for one thread; nobody waits for that.
    fn find(&mut self, op: &TraceOp, about: &TraceFile, file: &mut File, end: u64) {
        for range in file.ranges_of(op.offset, end) {
            if file.is_placed(range) || !file.is_found(range) {
                continue;
            }
            let start = range * self.range_size;
            let span = Span {
                offset: start,
                len: self.range_size,
                size: start,
                size_after: file.found,
                new_bytes: self.range_size,
            };
            let asking = (about, Origin { uid: about.uid, ..Origin::default() }, span);
            let home_first = range == 0 && !self.sends_away(asking);
            let chosen = if home_first { None } else { self.choose(asking, &file.deal) };
            let tier = chosen.as_ref().map_or(HOME, |chosen| chosen.tier);
            let share = chosen.as_ref().map_or(&self.policy, |chosen| &chosen.policy).share(&self.view(tier));
            file.deal.add(tier, self.range_size, share);
            self.put(file, range, tier, PlacedBy::Before);
            self.take(&file.fill(start, start + file.found_bytes(range)));
        }
    }

    /// Gives the bytes of a write their tiers, as a volume does, and answers
    /// where they go.
    fn write(&mut self, op: &TraceOp, about: &TraceFile, file: &mut File, end: u64) -> Vec<Piece> {
        if op.len == 0 {
            return Vec::new();
        }
        let origin = origin(op);
        let grows = end.saturating_sub(file.size.max(op.offset));
        let is_full = grows > self.room(&self.tiers[index(HOME)]);
        if !file.spread && (is_full || !self.stays_plain(op, about, file, end)) {
            file.spread = true;
            let home_bytes = file.placed_count() * self.range_size;
            if home_bytes > 0 {
                let share = self.policy.share(&self.view(HOME));
                file.deal.add(HOME, home_bytes, share);
            }
        }
        let new: Vec<u64> = file.ranges_of(op.offset, end).filter(|range| !file.is_placed(*range)).collect();
        if !file.spread {
            new.into_iter().for_each(|range| self.put(file, range, HOME, PlacedBy::Plain));
        } else if !new.is_empty() {
            let new_bytes = new.len() as u64 * self.range_size;
            let span = span(op, file.size, end, new_bytes);
            let Some(chosen) = self.choose((about, origin, span), &file.deal) else {
                self.refused_bytes += op.len;
                return Vec::new();
            };
            let tiers = self.views(new_bytes);
            chosen.policy.placed(&context(about, origin, span, &file.deal, &tiers), chosen.tier);
            file.deal.add(chosen.tier, new_bytes, chosen.policy.share(&tiers[index(chosen.tier)]));
            new.into_iter().for_each(|range| self.put(file, range, chosen.tier, placed_by(&chosen)));
        }
        file.size = file.size.max(end);
        self.take(&file.fill(op.offset, end));
        file.pieces(op.offset, end)
    }

    /// Whether a plain file stays one with a write: what it grows into is home,
    /// or the policy wants it there.
    fn stays_plain(&self, op: &TraceOp, about: &TraceFile, file: &File, end: u64) -> bool {
        let (origin, range_size) = (origin(op), self.range_size);
        let room = self.room(&self.tiers[index(HOME)]);
        if end <= range_size && room >= op.len {
            let new = op.offset == 0 && file.size == 0;
            return !(new && self.sends_away((about, origin, span(op, 0, end, range_size))));
        }
        let grows_from = file.size.next_multiple_of(range_size).max(op.offset);
        if grows_from >= end {
            return end <= file.size || room > 0;
        }
        let new_bytes = end.next_multiple_of(range_size) - op.offset / range_size * range_size;
        let mut deal = Deal::new(about.number, range_size as u32);
        if file.size > 0 {
            let share = self.policy.share(&self.view(HOME));
            deal.add(HOME, file.size.next_multiple_of(range_size), share);
        }
        let asking = (about, origin, span(op, file.size, end, new_bytes));
        let Some(chosen) = self.choose(asking, &deal) else { return true };
        if chosen.tier == HOME {
            let tiers = self.views(new_bytes);
            chosen.policy.placed(&context(about, origin, asking.2, &deal, &tiers), HOME);
        }
        chosen.tier == HOME
    }

    fn choose(&self, (about, origin, span): (&TraceFile, Origin, Span), deal: &Deal) -> Option<Chosen> {
        let tiers = self.views(span.new_bytes);
        let context = context(about, origin, span, deal, &tiers);
        let facts = About { file: about, now_ns: self.now() };
        self.rules.choose(&self.policy, &context, &facts, &|name| self.number(name))
    }

    fn sends_away(&self, (about, origin, span): (&TraceFile, Origin, Span)) -> bool {
        let facts = About { file: about, now_ns: self.now() };
        let subject = Subject { facts: &facts, origin, span };
        self.rules.sends_away(&subject, HOME, &|name| self.number(name))
    }

    fn number(&self, name: &str) -> Option<TierId> {
        number(self.tiers.iter().map(|tier| &tier.given), name)
    }

    fn put(&mut self, file: &mut File, range: u64, tier: TierId, by: PlacedBy) {
        file.put(range, tier);
        *self.tiers[index(tier)].ranges.entry(by).or_default() += 1;
    }

    fn take(&mut self, pieces: &[Piece]) {
        pieces.iter().for_each(|piece| self.tiers[index(piece.tier)].used += piece.bytes);
    }

    fn free(&mut self, pieces: &[Piece]) {
        for piece in pieces {
            let used = &mut self.tiers[index(piece.tier)].used;
            *used = used.saturating_sub(piece.bytes);
        }
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

    fn epoch(&mut self) {
        self.tiers.iter().for_each(|tier| tier.load.close_epoch());
        let bandwidths = self.believed();
        let epoch = |(at, tier): (usize, &Tier)| TierEpoch {
            id: TierId(at as u8),
            load: Direction::BOTH.map(|direction| tier.load.last_epoch(direction)),
            bandwidth: bandwidths[at],
            known: weight(tier).is_some(),
        };
        let tiers: Vec<TierEpoch> = self.tiers.iter().enumerate().map(epoch).collect();
        self.policy.epoch(&tiers);
        self.rules.policies().for_each(|policy| policy.epoch(&tiers));
        #[cfg(test)]
        self.epochs.push(0.0);
        let next_ns = self.now() + self.epoch_ns;
        self.at(next_ns, Event::Epoch);
    }

    fn believed(&self) -> Vec<[f64; 2]> {
        let known = |tier: &Tier| Known {
            learned: Direction::BOTH.map(|direction| tier.load.bandwidth(direction)),
            guess: [None; 2],
            weight: tier.given.weight,
        };
        believed(&self.tiers.iter().map(known).collect::<Vec<_>>())
    }

    /// Bytes that a tier takes still.
    fn room(&self, tier: &Tier) -> u64 {
        let free =
            |total: u64| total.saturating_sub(tier.given.reserve.bytes(total).saturating_add(tier.used));
        tier.given.capacity.map_or(u64::MAX, free)
    }

    /// The tiers as a policy sees them, for `new_bytes` more.
    fn views(&self, new_bytes: u64) -> Vec<TierView> {
        let weights = filled(&self.tiers.iter().map(weight).collect::<Vec<_>>(), 1.0);
        let bandwidths = self.believed();
        let view = |(at, tier): (usize, &Tier)| TierView {
            id: TierId(at as u8),
            home: at == index(HOME),
            weight: weights[at],
            bandwidth: bandwidths[at],
            has_room: !tier.given.readonly && self.room(tier) >= new_bytes,
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

    fn view(&self, tier: TierId) -> TierView {
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

fn index(tier: TierId) -> usize {
    usize::from(tier.0)
}

fn origin(op: &TraceOp) -> Origin {
    Origin {
        uid: op.uid,
        gid: op.gid,
        thread: op.thread,
        sync: op.sync,
        direct: op.direct,
        hint: Hint { stream: op.stream.map(StreamId), group: None },
    }
}

fn span(op: &TraceOp, size: u64, end: u64, new_bytes: u64) -> Span {
    Span { offset: op.offset, len: end - op.offset, size, size_after: size.max(end), new_bytes }
}

fn context<'a>(
    about: &TraceFile,
    origin: Origin,
    span: Span,
    deal: &'a Deal,
    tiers: &'a [TierView],
) -> Context<'a> {
    Context { origin, span, file: about.number, deal, tiers }
}

fn placed_by(chosen: &Chosen) -> PlacedBy {
    match (&chosen.rule, chosen.reason) {
        (Some(rule), Reason::Rule) => PlacedBy::Rule(rule.number),
        (Some(rule), Reason::Policy) if rule.policy.is_some() => PlacedBy::Rule(rule.number),
        (_, Reason::Spill) => PlacedBy::Spill,
        _ => PlacedBy::Policy,
    }
}
