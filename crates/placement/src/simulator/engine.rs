//! The events of a simulation, in the order of their times.

use super::clock::Clock;
use super::config::SimulatorConfig;
use super::file::{File, Piece};
use super::outcome::Simulated;
use super::placing::Placing;
use super::source::{OpId, Source};
use crate::load::Direction;
use crate::trace::TraceOpKind;
use braid_contract::{Environment, TierId};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::sync::Arc;

/// An operation in flight.
struct UnderWay {
    direction: Direction,
    /// Pieces that wait for earlier ones.
    rest: VecDeque<Piece>,
    /// Pieces that tiers work on.
    pieces: u32,
    /// Earliest time of its end.
    ends_ns: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Event {
    Begin(OpId),
    /// Its next piece is sent.
    Next(OpId),
    /// A tier has completed a piece.
    Done {
        id: OpId,
        tier: TierId,
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
    epoch_ns: u64,
    clock: Arc<Clock>,
    placing: Placing,
    files: HashMap<u64, File>,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    sequence: u64,
    under_way: HashMap<OpId, UnderWay>,
    /// Operations that have not ended, begun or not.
    left: usize,
    /// Operations that have ended.
    ended: u64,
    /// Time of the last completed byte.
    last_byte_ns: u64,
    #[cfg(test)]
    pub(super) changes: Vec<[f64; 2]>,
    /// Bytes a second in each epoch.
    #[cfg(test)]
    pub(super) epochs: Vec<f64>,
}

impl Engine {
    /// `None` if a policy or rule names an unknown tier, or there are no tiers.
    pub(super) fn new(config: &SimulatorConfig) -> Option<Self> {
        let clock = Arc::new(Clock::default());
        Some(Self {
            epoch_ns: config.epoch_ns.max(1),
            placing: Placing::new(config, &clock)?,
            clock,
            files: HashMap::new(),
            events: BinaryHeap::new(),
            sequence: 0,
            under_way: HashMap::new(),
            left: 0,
            ended: 0,
            last_byte_ns: 0,
            #[cfg(test)]
            changes: Vec::new(),
            #[cfg(test)]
            epochs: vec![0.0],
        })
    }

    /// Runs until all operations have ended; answers the time of the last byte.
    pub(super) fn run(&mut self, source: &mut dyn Source) -> u64 {
        let began_ns = self.now();
        self.last_byte_ns = began_ns;
        for (at_ns, id) in source.start(began_ns) {
            self.begin_at(at_ns, id);
        }
        self.at(began_ns + self.epoch_ns, Event::Epoch);
        while self.left > 0 {
            let Some(Reverse((time_ns, _, event))) = self.events.pop() else { break };
            self.clock.set(time_ns);
            self.handle(event, source);
        }
        self.events.clear();
        self.last_byte_ns - began_ns
    }

    /// The results.
    pub(super) fn outcome(self) -> Simulated {
        let lasted_ns = self.last_byte_ns;
        let refused_bytes = self.placing.refused_bytes;
        let tiers = self.placing.tiers.outcome(lasted_ns);
        Simulated {
            seconds: lasted_ns as f64 / 1e9,
            ops: self.ended,
            bytes: [0, 1].map(|at: usize| tiers.iter().map(|tier| tier.bytes[at]).sum()),
            tiers,
            refused_bytes,
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

    /// Changes a tier's bandwidth, at some time.
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
                self.ended += 1;
                let now_ns = self.now();
                for (at_ns, next) in source.ended(id, now_ns) {
                    self.begin_at(at_ns.max(now_ns), next);
                }
            }
            Event::Epoch => self.epoch(),
            #[cfg(test)]
            Event::Change { tier, at } => {
                let now_ns = self.now();
                self.placing.tiers.change(tier, now_ns, self.changes[at]);
            }
        }
    }

    fn begin(&mut self, id: OpId, source: &dyn Source) {
        let op = source.op(id);
        let about = source.file(op.file);
        let range_size = self.placing.range_size;
        let mut file = match self.files.remove(&about.number) {
            Some(file) if op.kind != TraceOpKind::Create => file,
            Some(mut file) => {
                // The number of an operation that is gone.
                self.placing.tiers.free(&file.cut(0));
                File::new(about.number, 0, range_size)
            }
            None => {
                let size = if op.kind == TraceOpKind::Create { 0 } else { about.size };
                File::new(about.number, size, range_size)
            }
        };
        let pieces = self.placing.carry_out(&op, about, &mut file);
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

    /// Sends the next piece of an operation to its tier; for a read, all
    /// remaining ones.
    fn send_next(&mut self, id: OpId) {
        let now_ns = self.now();
        let Some(op) = self.under_way.get_mut(&id) else { return };
        let count = if op.direction == Direction::Read { op.rest.len() } else { 1 };
        let pieces: Vec<Piece> = op.rest.drain(..count.min(op.rest.len())).collect();
        op.pieces += pieces.len() as u32;
        let direction = op.direction;
        for Piece { tier, bytes } in pieces {
            let done_ns = self.placing.tiers.begin(tier, direction, now_ns, bytes);
            self.at(done_ns, Event::Done { id, tier, bytes });
        }
    }

    /// Handles a completed piece.
    fn done(&mut self, id: OpId, tier: TierId, bytes: u64) {
        let now_ns = self.now();
        let Some(op) = self.under_way.get_mut(&id) else { return };
        let ends_ns = self.placing.tiers.end(tier, op.direction, now_ns, bytes);
        op.ends_ns = op.ends_ns.max(ends_ns);
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
        let epoch = self.placing.tiers.close_epoch();
        self.placing.end_epoch(&epoch);
        #[cfg(test)]
        self.epochs.push(0.0);
        let next_ns = self.now() + self.epoch_ns;
        self.at(next_ns, Event::Epoch);
    }
}
