//! The load of a tier: bytes, operations, and its rate when busy.
//! `braid_tiers::Tier::count` counts every read and write here; the volume's
//! background thread closes epochs; placement policies and movers read the
//! bandwidth.
//!
//! Counting takes no lock: an operation costs two readings of the clock and a
//! handful of additions to atomics.

use crate::epoch::EpochLoad;
use crate::learn::{DIRECT_MIN, Learned, SeenBy};
use crate::settings::{DirectionProfile, TierProfile};
use crate::sync::Mutex;
use braid_contract::{DeviceCounters, Environment};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Direction of the data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// From the tier.
    Read,
    /// To the tier.
    Write,
}

impl Direction {
    /// Both, in the order of the figures that come in pairs.
    pub const BOTH: [Self; 2] = [Self::Read, Self::Write];
}

/// Counters of one tier, and its load in the last epoch.
#[derive(Debug)]
pub struct Load {
    flows: [Flow; 2],
    /// Operations of either kind.
    all: InFlight,
    epoch: Mutex<Epoch>,
    environment: Arc<dyn Environment>,
}

/// The counters of one direction.
#[derive(Debug, Default)]
struct Flow {
    bytes: AtomicU64,
    /// Those of them that bypassed the page cache.
    direct: AtomicU64,
    ops: AtomicU64,
    /// Bytes of the operations in flight.
    queued: AtomicU64,
    in_flight: InFlight,
}

#[derive(Debug)]
struct Epoch {
    began_ns: u64,
    /// Length of the last epoch.
    last_ns: u64,
    /// The counters when it began.
    then: [Counters; 2],
    busy_then: u64,
    last: [EpochLoad; 2],
    busy: f64,
    /// The load to judge by: that of the device beneath, where data went
    /// through the page cache, and of the tier's operations otherwise.
    judged: [EpochLoad; 2],
    /// Busy share of the tier, or of the device, with either direction.
    judged_busy: [f64; 2],
    /// Its source.
    seen_by: [SeenBy; 2],
    /// Mean bytes of an operation, in the last epoch that had any.
    op_len: [f64; 2],
    /// Epochs that ended.
    count: u64,
    device_then: Option<DeviceCounters>,
    /// Nanoseconds for which data in the page cache may keep the device busy.
    cached_ns: [u64; 2],
    learned: [Learned; 2],
}

#[derive(Clone, Copy, Debug, Default)]
struct Counters {
    bytes: u64,
    direct: u64,
    ops: u64,
    weighted: u64,
}

/// A tier's counters at one moment.
#[derive(Clone, Copy, Debug)]
pub struct LoadSample {
    /// Bytes so far, read and written.
    pub bytes: [u64; 2],
    /// Operations so far, reads and writes.
    pub ops: [u64; 2],
    /// Bytes a second over the last epoch.
    pub rates: [f64; 2],
}

impl Load {
    /// Counters at zero.
    pub fn new(environment: Arc<dyn Environment>) -> Self {
        let epoch = Epoch {
            began_ns: environment.monotonic_ns(),
            last_ns: 0,
            then: [Counters::default(); 2],
            busy_then: 0,
            last: [EpochLoad::default(); 2],
            busy: 0.0,
            judged: [EpochLoad::default(); 2],
            judged_busy: [0.0; 2],
            seen_by: [SeenBy::Operations; 2],
            op_len: [0.0; 2],
            count: 0,
            device_then: None,
            cached_ns: [0; 2],
            learned: [Learned::default(), Learned::default()],
        };
        Self {
            flows: [Flow::default(), Flow::default()],
            all: InFlight::default(),
            epoch: Mutex::new(epoch),
            environment,
        }
    }

    /// Starts with the calibrated figures.
    pub fn seed(&self, profile: &TierProfile) {
        let mut epoch = self.epoch.lock();
        epoch.learned = [&profile.read, &profile.write].map(Learned::seeded);
    }

    /// Starts with a bandwidth, in bytes a second, that so many parallel
    /// operations reached.
    pub fn believe(&self, direction: Direction, bandwidth: f64, threads: u32) {
        let profile = DirectionProfile { bandwidth, latency_ns: 0, threads, degrades_at: None };
        self.epoch.lock().learned[direction as usize] = Learned::seeded(&profile);
    }

    /// Forgets the learned figures.
    pub fn forget(&self) {
        self.epoch.lock().learned = [Learned::default(), Learned::default()];
    }

    /// Runs one operation on `len` bytes and counts it; it answers the bytes it
    /// moved. With `direct`, it bypasses the page cache.
    pub fn count<E>(
        &self,
        direction: Direction,
        (len, direct): (usize, bool),
        op: impl FnOnce() -> Result<usize, E>,
    ) -> Result<usize, E> {
        self.begin(direction, len);
        let result = op();
        self.end(direction, (len, direct), result.as_ref().ok().copied());
        result
    }

    /// Notes the start of an operation on `len` bytes.
    pub fn begin(&self, direction: Direction, len: usize) {
        let now_ns = self.environment.monotonic_ns();
        let flow = &self.flows[direction as usize];
        flow.queued.fetch_add(len as u64, Ordering::Relaxed);
        flow.in_flight.change(now_ns, 1);
        self.all.change(now_ns, 1);
    }

    /// Notes the end of an operation that [`begin`](Self::begin) noted; with
    /// the bytes that it moved, unless it failed.
    pub fn end(&self, direction: Direction, (len, direct): (usize, bool), moved: Option<usize>) {
        let now_ns = self.environment.monotonic_ns();
        let flow = &self.flows[direction as usize];
        flow.queued.fetch_sub(len as u64, Ordering::Relaxed);
        flow.in_flight.change(now_ns, -1);
        self.all.change(now_ns, -1);
        if let Some(bytes) = moved {
            flow.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
            if direct {
                flow.direct.fetch_add(bytes as u64, Ordering::Relaxed);
            }
            flow.ops.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Closes an epoch: computes its rates, and learns from them. `device` has
    /// the counters of the block device beneath, if there is one.
    pub fn close_epoch(&self, device: Option<DeviceCounters>) {
        let now_ns = self.environment.monotonic_ns();
        let mut epoch = self.epoch.lock();
        let nanos = now_ns.saturating_sub(epoch.began_ns);
        epoch.last_ns = nanos;
        epoch.count += 1;
        if nanos == 0 {
            return;
        }
        let share = |now: u64, then: u64| now.saturating_sub(then) as f64 / nanos as f64;
        for direction in Direction::BOTH {
            let at = direction as usize;
            let flow = &self.flows[at];
            let seen = flow.in_flight.seen(now_ns);
            let [bytes, direct, ops] =
                [&flow.bytes, &flow.direct, &flow.ops].map(|count| count.load(Ordering::Relaxed));
            let now = Counters { bytes, direct, ops, weighted: seen.weighted };
            let then = std::mem::replace(&mut epoch.then[at], now);
            let moved = now.bytes.saturating_sub(then.bytes).max(1);
            if now.ops > then.ops {
                epoch.op_len[at] = moved as f64 / now.ops.saturating_sub(then.ops) as f64;
            }
            epoch.last[at] = EpochLoad {
                rate: share(now.bytes, then.bytes) * 1e9,
                direct: now.direct.saturating_sub(then.direct) as f64 / moved as f64,
                in_flight: share(now.weighted, then.weighted),
                busy: flow.in_flight.close_busy(seen.busy, nanos),
            };
        }
        let busy = self.all.seen(now_ns).busy;
        epoch.busy = share(busy, epoch.busy_then).min(1.0);
        epoch.busy_then = busy;
        epoch.began_ns = now_ns;
        epoch.judge(device, nanos);
        epoch.learn();
    }

    /// Doubts the beliefs about tiers whose epoch was just closed, by comparing
    /// them: one that had slack, while another was saturated, may not have been at
    /// its limit. In directions in which that is `tried` out, if it was busy for up
    /// to that share of the time, it [is doubted](Self::is_doubted) until then; in
    /// others it is believed to be faster.
    pub fn compare<'l>(loads: impl Iterator<Item = &'l Self> + Clone, tried: [Option<f64>; 2]) {
        for direction in Direction::BOTH {
            let contended = loads.clone().any(|load| load.is_saturated(direction));
            for load in loads.clone() {
                let epoch = &mut *load.epoch.lock();
                let (at, learned) = (direction as usize, &mut epoch.learned);
                match contended {
                    true => learned[at].had_rest(epoch.judged[at], tried[at]),
                    false => learned[at].was_not_needed(),
                }
            }
        }
    }

    /// Whether it is to be tried out for more than its believed bandwidth.
    pub fn is_doubted(&self, direction: Direction) -> bool {
        self.epoch.lock().learned[direction as usize].is_doubted()
    }

    /// It was tried out; the epochs have shown the result.
    pub fn was_tried(&self, direction: Direction) {
        self.epoch.lock().learned[direction as usize].was_tried();
    }

    /// It was to be tried out, but nothing could show its bandwidth.
    pub fn was_not_tried(&self, direction: Direction) {
        self.epoch.lock().learned[direction as usize].was_not_tried();
    }

    /// Mean bytes of an operation, in the last epoch that had any; 0 before.
    pub fn op_len(&self, direction: Direction) -> f64 {
        self.epoch.lock().op_len[direction as usize]
    }

    /// Number of epochs that ended.
    pub fn epochs(&self) -> u64 {
        self.epoch.lock().count
    }

    /// The highest known bandwidth in this direction, in bytes a second; `None`
    /// if the tier never had enough to do.
    pub fn bandwidth(&self, direction: Direction) -> Option<f64> {
        self.epoch.lock().learned[direction as usize].bandwidth()
    }

    /// The rate through the page cache, which may have been memory's.
    pub fn guess(&self, direction: Direction) -> Option<f64> {
        self.epoch.lock().learned[direction as usize].guess()
    }

    /// The fewest parallel operations that were observed to reach it.
    pub fn saturating(&self, direction: Direction) -> Option<u32> {
        self.epoch.lock().learned[direction as usize].saturating()
    }

    /// Whether the tier was saturated in this direction over the last epoch.
    pub fn is_saturated(&self, direction: Direction) -> bool {
        /// Share of the time that it must be busy, and of the bandwidth that
        /// must be used.
        const BUSY_MIN: f64 = 0.9;
        const RATE_MIN: f64 = 0.85;
        let epoch = self.epoch.lock();
        let at = direction as usize;
        if epoch.judged[at].rate <= 0.0 || epoch.judged_busy[at] < BUSY_MIN {
            return false;
        }
        // The other direction takes its part of the device.
        let used = |direction: Direction| {
            let bandwidth = epoch.learned[direction as usize].bandwidth();
            bandwidth.map_or(0.0, |bandwidth| epoch.judged[direction as usize].rate / bandwidth)
        };
        used(direction) >= RATE_MIN || used(Direction::Read) + used(Direction::Write) >= 1.0
    }

    /// Length of the last epoch, in nanoseconds.
    pub fn last_epoch_ns(&self) -> u64 {
        self.epoch.lock().last_ns
    }

    /// The load in this direction in the last epoch: that of the device, where
    /// the tier's data went through the page cache and there is one.
    pub fn last_epoch(&self, direction: Direction) -> EpochLoad {
        self.epoch.lock().judged[direction as usize]
    }

    /// Bytes of the operations in flight now.
    pub fn queued(&self, direction: Direction) -> u64 {
        self.flows[direction as usize].queued.load(Ordering::Relaxed)
    }

    /// Bytes a second while busy, in either direction, if the tier was ever
    /// busy enough.
    pub fn measured_bandwidth(&self) -> Option<f64> {
        let epoch = self.epoch.lock();
        let [read, write] = epoch.learned.each_ref().map(Learned::bandwidth);
        // A tier that was only written is compared by that.
        write.or(read)
    }

    /// The rate through the page cache, in either direction, which may have been
    /// memory's.
    pub fn cached_rate(&self) -> Option<f64> {
        let epoch = self.epoch.lock();
        let [read, write] = epoch.learned.each_ref().map(Learned::guess);
        write.or(read)
    }

    /// The counters now.
    pub fn sample(&self) -> LoadSample {
        let last = self.epoch.lock().last;
        LoadSample {
            bytes: self.flows.each_ref().map(|flow| flow.bytes.load(Ordering::Relaxed)),
            ops: self.flows.each_ref().map(|flow| flow.ops.load(Ordering::Relaxed)),
            rates: last.map(|last| last.rate),
        }
    }
}

/// How long the device may be busy with data that went to the page cache.
const CACHED_NS: u64 = 10_000_000_000;

impl Epoch {
    /// Finds the load to judge by. Operations through the page cache show the
    /// speed of memory: the device's own counters are used then, as long as it
    /// may be busy with such data.
    fn judge(&mut self, device: Option<DeviceCounters>, nanos: u64) {
        let then = std::mem::replace(&mut self.device_then, device);
        let device = then.zip(device).map(|(then, now)| device_load(&then, &now, nanos));
        for at in [0, 1] {
            let own = self.last[at];
            let cached = own.rate > 0.0 && own.direct < DIRECT_MIN;
            self.cached_ns[at] = if cached { CACHED_NS } else { self.cached_ns[at].saturating_sub(nanos) };
            let by_device = cached || own.rate <= 0.0 && self.cached_ns[at] > 0;
            let device = device.filter(|_| by_device).map(|device| device[at]);
            self.judged[at] = device.unwrap_or(own);
            self.judged_busy[at] = device.map_or(self.busy, |device| device.busy);
            self.seen_by[at] = if device.is_some() { SeenBy::Device } else { SeenBy::Operations };
        }
    }

    /// Learns the tier's bandwidth from the epoch.
    fn learn(&mut self) {
        let moved: f64 = self.judged.iter().map(|judged| judged.rate).sum();
        for at in [0, 1] {
            let judged = self.judged[at];
            // A part of the work only shows a lower bound.
            let alone = judged.rate >= 0.9 * moved;
            self.learned[at].learn(judged, self.seen_by[at], alone);
        }
    }
}

/// The load of a device between two moments so many nanoseconds apart, read and
/// written.
fn device_load(then: &DeviceCounters, now: &DeviceCounters, nanos: u64) -> [EpochLoad; 2] {
    let seconds = nanos as f64 / 1e9;
    let since = |now: u64, then: u64| now.saturating_sub(then) as f64;
    let busy = (since(now.busy_ms, then.busy_ms) / 1e3 / seconds).min(1.0);
    [0, 1].map(|at: usize| {
        let rate = since(now.bytes[at], then.bytes[at]) / seconds;
        let in_flight = since(now.waited_ms[at], then.waited_ms[at]) / 1e3 / seconds;
        // Busy with the other direction is not busy with this one.
        EpochLoad { rate, in_flight, busy: if rate > 0.0 { busy } else { 0.0 }, direct: 1.0 }
    })
}

/// The number of operations in flight, integrated over time.
///
/// Count and the time of its last change are one word, so that each change
/// knows how long the previous count lasted; these times are summed up, once
/// plain (busy) and once multiplied by the count (weighted).
#[derive(Debug, Default)]
struct InFlight {
    word: AtomicU64,
    busy: AtomicU64,
    weighted: AtomicU64,
    /// `busy` when the last epoch was closed.
    busy_then: AtomicU64,
}

/// Times up to a moment, in nanoseconds.
struct Seen {
    busy: u64,
    weighted: u64,
}

/// Bits of a word for the count.
const COUNT_BITS: u32 = 16;
/// A word's unit of time, as a power of two of nanoseconds.
const UNIT_BITS: u32 = 8;
/// The bits of a time in a word.
const TIME_MASK: u64 = (1 << (64 - COUNT_BITS)) - 1;

impl InFlight {
    fn change(&self, now_ns: u64, by: i64) {
        let now = now_ns >> UNIT_BITS & TIME_MASK;
        let next = |word: u64| Some(count_of(word).saturating_add_signed(by) | now << COUNT_BITS);
        let Ok(old) = self.word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next) else { return };
        let (busy, weighted) = since(old, now);
        if busy > 0 {
            self.busy.fetch_add(busy, Ordering::Relaxed);
            self.weighted.fetch_add(weighted, Ordering::Relaxed);
        }
    }

    /// The sums up to now.
    fn seen(&self, now_ns: u64) -> Seen {
        let word = self.word.load(Ordering::Relaxed);
        let (busy, weighted) = since(word, now_ns >> UNIT_BITS & TIME_MASK);
        Seen {
            busy: self.busy.load(Ordering::Relaxed) + busy,
            weighted: self.weighted.load(Ordering::Relaxed) + weighted,
        }
    }

    /// Share of an epoch of so many nanoseconds that was busy; it ends now.
    fn close_busy(&self, busy: u64, nanos: u64) -> f64 {
        let then = self.busy_then.swap(busy, Ordering::Relaxed);
        (busy.saturating_sub(then) as f64 / nanos as f64).min(1.0)
    }
}

fn count_of(word: u64) -> u64 {
    word & ((1 << COUNT_BITS) - 1)
}

/// The time since a word's change, in nanoseconds: plain, and times the count.
fn since(word: u64, now: u64) -> (u64, u64) {
    let (count, then) = (count_of(word), word >> COUNT_BITS);
    let passed = now.wrapping_sub(then) & TIME_MASK;
    // Threads may read the clock in one order and arrive here in another.
    let passed = if count == 0 || passed > TIME_MASK / 2 { 0 } else { passed };
    (passed << UNIT_BITS, (passed << UNIT_BITS) * count)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A clock that stands still until it is set.
    #[derive(Debug, Default)]
    struct Clock(AtomicU64);

    impl Environment for Clock {
        fn wall_ns(&self) -> i64 {
            0
        }

        fn monotonic_ns(&self) -> u64 {
            self.0.load(Ordering::Relaxed)
        }

        fn fill_random(&self, _bytes: &mut [u8]) -> braid_contract::Result<()> {
            Ok(())
        }

        fn threads(&self) -> bool {
            false
        }
    }

    const MS: u64 = 1_048_576;

    fn load() -> (Load, impl Fn(u64)) {
        let clock = Arc::new(Clock::default());
        let load = Load::new(Arc::<Clock>::clone(&clock));
        (load, move |at_ns| clock.0.store(at_ns, Ordering::Relaxed))
    }

    #[test]
    fn operations_are_counted_and_failed_ones_are_not() {
        let (load, set) = load();
        load.count::<()>(Direction::Write, (10, true), || Ok(10)).unwrap();
        load.count::<()>(Direction::Write, (10, true), || Ok(5)).unwrap();
        load.count(Direction::Read, (10, true), || Err(())).unwrap_err();
        let sample = load.sample();
        assert_eq!((sample.bytes, sample.ops), ([0, 15], [0, 2]));
        set(500_000_000);
        load.close_epoch(None);
        let rates = load.sample().rates;
        assert!(rates[0] == 0.0 && (rates[1] - 30.0).abs() < 1e-6, "{rates:?}");
        set(600_000_000);
        load.close_epoch(None);
        assert_eq!(load.sample().rates, [0.0, 0.0]);
    }

    #[test]
    fn an_epoch_tells_how_long_it_was_busy_and_with_how_much() {
        let (load, set) = load();
        set(10 * MS);
        load.begin(Direction::Write, 100);
        set(20 * MS);
        load.begin(Direction::Write, 200);
        assert_eq!(load.queued(Direction::Write), 300);
        set(40 * MS);
        load.end(Direction::Write, (100, false), Some(100));
        set(50 * MS);
        load.close_epoch(None);
        let epoch = load.last_epoch(Direction::Write);
        assert!((epoch.busy - 0.8).abs() < 1e-6, "{epoch:?}");
        assert!((epoch.in_flight - 1.2).abs() < 1e-6 && epoch.direct == 0.0, "{epoch:?}");
        assert_eq!(load.last_epoch(Direction::Read), EpochLoad::default());
        // Operations in flight continue to count in the next epoch.
        set(75 * MS);
        load.end(Direction::Write, (200, true), None);
        set(100 * MS);
        load.close_epoch(None);
        let epoch = load.last_epoch(Direction::Write);
        assert!((epoch.busy - 0.5).abs() < 1e-6 && (epoch.in_flight - 0.5).abs() < 1e-6, "{epoch:?}");
        assert_eq!((epoch.rate, load.queued(Direction::Write)), (0.0, 0));
    }

    #[test]
    fn what_goes_through_the_page_cache_is_judged_by_the_device() {
        let (load, set) = load();
        let mut now = 0;
        let mut device = DeviceCounters::default();
        // Memory takes a hundred times as much as the device writes.
        let mut epoch = |cached: usize, written: u64, busy_ms: u64| {
            if cached > 0 {
                load.begin(Direction::Write, cached);
                load.end(Direction::Write, (cached, false), Some(cached));
            }
            now += 100_000_000;
            set(now);
            device.bytes[1] += written;
            device.busy_ms += busy_ms;
            device.waited_ms[1] += 4 * busy_ms;
            load.close_epoch(Some(device));
            (load.bandwidth(Direction::Write), load.is_saturated(Direction::Write))
        };
        epoch(0, 0, 0);
        let (bandwidth, saturated) = epoch(600_000_000, 6_000_000, 100);
        assert!((bandwidth.unwrap() / 60e6 - 1.0).abs() < 1e-6 && saturated, "{bandwidth:?}");
        // It goes on writing data from memory, and is idle then.
        assert!(epoch(0, 6_000_000, 100).1);
        assert!(!epoch(0, 600_000, 10).1);
        assert_eq!(load.sample().rates[1], 0.0, "no operation was carried out");
        let seen = load.last_epoch(Direction::Write);
        assert!((seen.rate / 6e6 - 1.0).abs() < 1e-6 && (seen.busy - 0.1).abs() < 1e-6, "{seen:?}");
    }

    #[test]
    fn a_tier_with_enough_to_do_is_saturated() {
        let (load, set) = load();
        let mut now = 0;
        let mut epoch = |busy: u64, bytes: usize| {
            load.begin(Direction::Write, bytes);
            set(now + busy * MS);
            load.end(Direction::Write, (bytes, true), Some(bytes));
            now += 100 * MS;
            set(now);
            load.close_epoch(None);
            load.is_saturated(Direction::Write)
        };
        assert!(epoch(100, 1000));
        assert!(!epoch(50, 500));
        assert!(!epoch(100, 100) && !load.is_saturated(Direction::Read));
        assert!(epoch(100, 950));
    }
}
