//! A small discrete-event simulator: threads that write and read files of their
//! own over tiers of given bandwidths, with the real policies and the real
//! monitor. It has no chance in it: a run comes out the same each time.
//! `tests.rs` compares the policies with it; `docs/placement.md` has the
//! figures.
//!
//! A tier serves its operations in order and hands bandwidth out in slices, as
//! the kernel's throttle does: what is allowed in a slice may pass at once at
//! its beginning.

mod tests;

use super::{Context, Deal, Known, Origin, PolicyConfig, Span, TierEpoch, TierView, believed, make};
use crate::tiers::{Direction, Load};
use braid_contract::{Environment, TierId};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub(super) const RANGE: u64 = 2 << 20;
pub(super) const EPOCH_NS: u64 = 200_000_000;
/// What the way to the tier and back takes for each operation.
const OVERHEAD_NS: u64 = 40_000;
/// Bytes a second of a device whose throttle lets it.
const UNTHROTTLED: f64 = 2e9;

/// A tier: bytes a second read and written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Device {
    pub(super) bandwidth: [f64; 2],
    /// What the stack file says of it.
    pub(super) weight: Option<f64>,
}

/// What the threads do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    pub(super) threads: u32,
    /// Each thread writes so many files, one after another.
    pub(super) files: u32,
    pub(super) file_size: u64,
    pub(super) block: u64,
    /// Operations that each thread has under way.
    pub(super) depth: u32,
    pub(super) slice_ns: u64,
}

/// A tier gets other bandwidths at some time, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change {
    pub(super) at_ns: u64,
    pub(super) tier: usize,
    pub(super) bandwidth: [f64; 2],
}

/// How it went.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    /// Bytes a second until the last byte, read and written.
    pub(super) rates: [f64; 2],
    /// Bytes a second written in each epoch.
    pub(super) epochs: Vec<f64>,
}

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

/// The queue of a tier in one direction.
#[derive(Clone, Copy, Debug, Default)]
struct Queue {
    bandwidth: f64,
    /// When it was last idle, and what was let through since.
    began_ns: u64,
    sent: f64,
    last_ns: u64,
}

impl Queue {
    /// When an operation that comes now is done.
    fn submit(&mut self, now_ns: u64, bytes: u64, slice_ns: u64) -> u64 {
        if now_ns >= self.last_ns.max(self.began_ns) + slice_ns {
            (self.began_ns, self.sent) = (now_ns, 0.0);
        }
        self.sent += bytes as f64;
        let slices = self.sent / (self.bandwidth * slice_ns as f64 / 1e9);
        let allowed_ns = self.began_ns + (slices.ceil() as u64).saturating_sub(1) * slice_ns;
        let begins_ns = allowed_ns.max(now_ns).max(self.last_ns);
        self.last_ns = begins_ns + (bytes as f64 / UNTHROTTLED * 1e9) as u64;
        self.last_ns
    }

    fn change(&mut self, now_ns: u64, bandwidth: f64) {
        (self.bandwidth, self.began_ns, self.sent) = (bandwidth, now_ns.max(self.last_ns), 0.0);
    }
}

struct File {
    deal: Deal,
    ranges: Vec<Option<TierId>>,
    size: u64,
    spread: bool,
}

struct Thread {
    files: Vec<File>,
    file: usize,
    offset: u64,
    in_flight: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Event {
    Done { thread: usize, tier: usize, bytes: u64 },
    Submit { thread: usize },
    Epoch,
    Change { index: usize },
}

struct Simulator<'a> {
    work: Work,
    changes: &'a [Change],
    policy: Arc<dyn super::Policy>,
    clock: Arc<Clock>,
    weights: Vec<Option<f64>>,
    queues: Vec<[Queue; 2]>,
    loads: Vec<Load>,
    threads: Vec<Thread>,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    sequence: u64,
    direction: Direction,
    running: usize,
    written: Vec<u64>,
    epochs: Vec<f64>,
    epoch_bytes: u64,
}

/// All files are written, then all of them are read.
pub(super) fn run(policy: &PolicyConfig, devices: &[Device], work: Work, changes: &[Change]) -> Outcome {
    let number = |_: &str| None;
    let clock = Arc::new(Clock::default());
    let queue = |device: &Device| device.bandwidth.map(|bandwidth| Queue { bandwidth, ..Queue::default() });
    let load = |_: &Device| Load::new(Arc::<Clock>::clone(&clock) as Arc<dyn Environment>);
    let mut simulator = Simulator {
        work,
        changes,
        policy: make(policy, number).unwrap(),
        weights: devices.iter().map(|device| device.weight).collect(),
        queues: devices.iter().map(queue).collect(),
        loads: devices.iter().map(load).collect(),
        clock,
        threads: Vec::new(),
        events: BinaryHeap::new(),
        sequence: 0,
        direction: Direction::Write,
        running: 0,
        written: vec![0; devices.len()],
        epochs: Vec::new(),
        epoch_bytes: 0,
    };
    simulator.make_threads();
    let bytes = u64::from(work.threads) * u64::from(work.files) * work.file_size;
    let rate = |nanos: u64| bytes as f64 / (nanos as f64 / 1e9);
    let write = rate(simulator.phase(Direction::Write));
    let epochs = std::mem::take(&mut simulator.epochs);
    let read = rate(simulator.phase(Direction::Read));
    Outcome { rates: [read, write], epochs }
}

impl Simulator<'_> {
    fn make_threads(&mut self) {
        let ranges = self.work.file_size.div_ceil(RANGE) as usize;
        let file = |number: u32| File {
            deal: Deal::new(u64::from(number) + 17, RANGE as u32),
            ranges: vec![None; ranges],
            size: 0,
            spread: false,
        };
        for thread in 0..self.work.threads {
            let files = (0..self.work.files).map(|at| file(thread * self.work.files + at)).collect();
            self.threads.push(Thread { files, file: 0, offset: 0, in_flight: 0 });
        }
    }

    fn now(&self) -> u64 {
        self.clock.0.load(Ordering::Relaxed)
    }

    fn at(&mut self, time_ns: u64, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((time_ns, self.sequence, event)));
    }

    /// Runs until the last byte; answers how long that took.
    fn phase(&mut self, direction: Direction) -> u64 {
        let began_ns = self.now();
        self.direction = direction;
        self.running = self.threads.len();
        self.events.clear();
        for thread in 0..self.threads.len() {
            (self.threads[thread].file, self.threads[thread].offset) = (0, 0);
            for _ in 0..self.work.depth {
                self.at(began_ns + thread as u64 * 1000, Event::Submit { thread });
            }
        }
        self.at(began_ns + EPOCH_NS, Event::Epoch);
        if direction == Direction::Write {
            for (index, change) in self.changes.iter().enumerate() {
                self.at(change.at_ns, Event::Change { index });
            }
        }
        while self.running > 0 {
            let Some(Reverse((time_ns, _, event))) = self.events.pop() else { break };
            self.clock.0.store(time_ns, Ordering::Relaxed);
            self.handle(event);
        }
        self.now() - began_ns
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Submit { thread } => self.submit(thread),
            Event::Done { thread, tier, bytes } => {
                self.loads[tier].end(self.direction, (bytes as usize, true), Some(bytes as usize));
                self.epoch_bytes += bytes;
                self.threads[thread].in_flight -= 1;
                let next = self.now() + OVERHEAD_NS;
                self.at(next, Event::Submit { thread });
            }
            Event::Epoch => self.epoch(),
            Event::Change { index } => {
                let change = self.changes[index];
                let now_ns = self.now();
                for at in [0, 1] {
                    self.queues[change.tier][at].change(now_ns, change.bandwidth[at]);
                }
            }
        }
    }

    fn epoch(&mut self) {
        self.loads.iter().for_each(Load::close_epoch);
        let bandwidths = self.believed();
        let tier = |(at, load): (usize, &Load)| TierEpoch {
            id: TierId(at as u8),
            load: Direction::BOTH.map(|direction| load.last_epoch(direction)),
            bandwidth: bandwidths[at],
            known: self.weights[at].is_some() || load.bandwidth(Direction::Write).is_some(),
        };
        let tiers: Vec<TierEpoch> = self.loads.iter().enumerate().map(tier).collect();
        self.policy.epoch(&tiers);
        self.epochs.push(self.epoch_bytes as f64 / (EPOCH_NS as f64 / 1e9));
        self.epoch_bytes = 0;
        let next = self.now() + EPOCH_NS;
        self.at(next, Event::Epoch);
    }

    /// The thread's next operation, or its end.
    fn submit(&mut self, thread: usize) {
        let work = self.work;
        let state = &mut self.threads[thread];
        if state.offset == work.file_size && state.file + 1 < state.files.len() {
            // The next file is begun when this one is done.
            if state.in_flight > 0 {
                return;
            }
            (state.file, state.offset) = (state.file + 1, 0);
            for _ in 1..work.depth {
                let now_ns = self.now();
                self.at(now_ns, Event::Submit { thread });
            }
        }
        let state = &mut self.threads[thread];
        if state.offset == work.file_size {
            if state.in_flight == 0 && state.file < state.files.len() {
                state.file = state.files.len();
                self.running -= 1;
            }
            return;
        }
        let (file, offset) = (state.file, state.offset);
        let bytes = work.block.min(work.file_size - offset);
        state.offset += bytes;
        state.in_flight += 1;
        let tier = self.tier_of(thread, file, offset, bytes);
        if self.direction == Direction::Write {
            self.written[tier] += bytes;
            let file = &mut self.threads[thread].files[file];
            file.size = file.size.max(offset + bytes);
        }
        self.loads[tier].begin(self.direction, bytes as usize);
        let now_ns = self.now();
        let done = self.queues[tier][self.direction as usize].submit(now_ns, bytes, work.slice_ns);
        self.at(done, Event::Done { thread, tier, bytes });
    }

    /// The tier of an operation; ranges that it touches first get one.
    fn tier_of(&mut self, thread: usize, file: usize, offset: u64, bytes: u64) -> usize {
        let views = self.views();
        let state = &mut self.threads[thread].files[file];
        let range = (offset / RANGE) as usize;
        if self.direction == Direction::Write && !state.spread && offset + bytes <= RANGE {
            state.ranges[range] = Some(TierId(0));
            return 0;
        }
        if !state.spread && self.direction == Direction::Write {
            state.spread = true;
            state.deal.add(TierId(0), RANGE, self.policy.share(&views[0]));
        }
        if let Some(tier) = state.ranges[range] {
            return usize::from(tier.0);
        }
        let origin = Origin { thread: thread as u32 + 1, direct: true, ..Origin::default() };
        let size_after = offset + bytes;
        let span = Span { offset, len: bytes, size: state.size, size_after, new_bytes: RANGE };
        let number = (thread as u64) << 32 | file as u64;
        let context = Context { origin, span, file: number, deal: &state.deal, tiers: &views };
        let tier = self.policy.place(&context).unwrap();
        self.policy.placed(&context, tier);
        state.deal.add(tier, RANGE, self.policy.share(&views[usize::from(tier.0)]));
        state.ranges[range] = Some(tier);
        usize::from(tier.0)
    }

    fn believed(&self) -> Vec<[f64; 2]> {
        let known = |(load, weight): (&Load, &Option<f64>)| Known {
            learned: Direction::BOTH.map(|direction| load.bandwidth(direction)),
            guess: [None; 2],
            weight: *weight,
        };
        believed(&self.loads.iter().zip(&self.weights).map(known).collect::<Vec<_>>())
    }

    fn views(&self) -> Vec<TierView> {
        let bandwidths = self.believed();
        let view = |at: usize| TierView {
            id: TierId(at as u8),
            home: at == 0,
            weight: self.weights[at].unwrap_or(bandwidths[at][1]),
            bandwidth: bandwidths[at],
            has_room: true,
            used: 0.0,
            queued: self.loads[at].queued(Direction::Write),
            saturating: self.loads[at].saturating(Direction::Write),
        };
        (0..self.loads.len()).map(view).collect()
    }
}
