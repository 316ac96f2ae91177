//! What goes through a tier: bytes, operations, and how fast it is when busy.

use crate::sync::Mutex;
use braid_contract::Environment;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Which way data goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Direction {
    Read,
    Write,
}

/// Counters of one tier, and its rates over the last epoch.
#[derive(Debug)]
pub(crate) struct Load {
    bytes: [AtomicU64; 2],
    ops: [AtomicU64; 2],
    busy: Mutex<Busy>,
    epoch: Mutex<Epoch>,
    environment: Arc<dyn Environment>,
}

/// Time in which at least one operation was under way.
#[derive(Debug)]
struct Busy {
    in_flight: u32,
    since_ns: u64,
    nanos: u64,
}

#[derive(Debug)]
struct Epoch {
    began_ns: u64,
    bytes: [u64; 2],
    busy_nanos: u64,
    rates: [f64; 2],
    bandwidth: Option<f64>,
}

/// A tier's counters at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoadSample {
    pub(crate) bytes: [u64; 2],
    pub(crate) ops: [u64; 2],
    /// Bytes a second over the last epoch.
    pub(crate) rates: [f64; 2],
}

/// Share of an epoch that a tier must have been busy for, before what it did
/// in that time is taken for its bandwidth.
const BUSY_SHARE_MIN: f64 = 0.5;

/// How much of an earlier, higher bandwidth is kept from epoch to epoch: a
/// tier that became slower shows it within seconds.
const BANDWIDTH_KEPT: f64 = 0.9;

impl Load {
    pub(super) fn new(environment: Arc<dyn Environment>) -> Self {
        let now_ns = environment.monotonic_ns();
        Self {
            bytes: [const { AtomicU64::new(0) }; 2],
            ops: [const { AtomicU64::new(0) }; 2],
            busy: Mutex::new(Busy { in_flight: 0, since_ns: now_ns, nanos: 0 }),
            epoch: Mutex::new(Epoch {
                began_ns: now_ns,
                bytes: [0; 2],
                busy_nanos: 0,
                rates: [0.0; 2],
                bandwidth: None,
            }),
            environment,
        }
    }

    /// Runs one operation and counts it; it answers the bytes it moved.
    pub(crate) fn count<E>(
        &self,
        direction: Direction,
        op: impl FnOnce() -> Result<usize, E>,
    ) -> Result<usize, E> {
        self.begin();
        let result = op();
        self.end();
        if let Ok(bytes) = &result {
            self.bytes[direction as usize].fetch_add(*bytes as u64, Ordering::Relaxed);
            self.ops[direction as usize].fetch_add(1, Ordering::Relaxed);
        }
        result
    }

    /// Closes an epoch: rates and bandwidth are reckoned from what it saw.
    pub(crate) fn close_epoch(&self) {
        let busy_nanos = self.busy_nanos();
        let bytes = self.bytes.each_ref().map(|count| count.load(Ordering::Relaxed));
        let now_ns = self.environment.monotonic_ns();
        let mut epoch = self.epoch.lock();
        let seconds = (now_ns.saturating_sub(epoch.began_ns) as f64 / 1e9).max(1e-9);
        let moved = [bytes[0] - epoch.bytes[0], bytes[1] - epoch.bytes[1]];
        let busy_seconds = (busy_nanos - epoch.busy_nanos) as f64 / 1e9;
        epoch.rates = moved.map(|bytes| bytes as f64 / seconds);
        if busy_seconds / seconds >= BUSY_SHARE_MIN {
            let now = (moved[0] + moved[1]) as f64 / busy_seconds;
            let kept = epoch.bandwidth.map_or(0.0, |bandwidth| bandwidth * BANDWIDTH_KEPT);
            epoch.bandwidth = Some(now.max(kept).max(1.0));
        }
        epoch.began_ns = now_ns;
        epoch.bytes = bytes;
        epoch.busy_nanos = busy_nanos;
    }

    /// Bytes a second while busy, if the tier was ever busy enough to tell.
    pub(super) fn measured_bandwidth(&self) -> Option<f64> {
        self.epoch.lock().bandwidth
    }

    /// Whether data goes this way about as fast as the tier can.
    pub(crate) fn is_saturated(&self, direction: Direction) -> bool {
        /// Share of the bandwidth from which on there is none left.
        const SATURATED: f64 = 0.9;
        let epoch = self.epoch.lock();
        epoch.bandwidth.is_some_and(|bandwidth| epoch.rates[direction as usize] >= SATURATED * bandwidth)
    }

    pub(crate) fn sample(&self) -> LoadSample {
        let load = |counts: &[AtomicU64; 2]| counts.each_ref().map(|count| count.load(Ordering::Relaxed));
        LoadSample { bytes: load(&self.bytes), ops: load(&self.ops), rates: self.epoch.lock().rates }
    }

    fn begin(&self) {
        let now_ns = self.environment.monotonic_ns();
        let mut busy = self.busy.lock();
        if busy.in_flight == 0 {
            busy.since_ns = now_ns;
        }
        busy.in_flight += 1;
    }

    fn end(&self) {
        let now_ns = self.environment.monotonic_ns();
        let mut busy = self.busy.lock();
        busy.in_flight -= 1;
        if busy.in_flight == 0 {
            busy.nanos += now_ns.saturating_sub(busy.since_ns);
        }
    }

    fn busy_nanos(&self) -> u64 {
        let now_ns = self.environment.monotonic_ns();
        let busy = self.busy.lock();
        let running = if busy.in_flight > 0 { now_ns.saturating_sub(busy.since_ns) } else { 0 };
        busy.nanos + running
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_counted_and_failed_ones_are_not() {
        let load = Load::new(Arc::new(crate::Machine));
        load.count::<()>(Direction::Write, || Ok(10)).unwrap();
        load.count::<()>(Direction::Write, || Ok(5)).unwrap();
        load.count(Direction::Read, || Err(())).unwrap_err();
        let sample = load.sample();
        assert_eq!((sample.bytes, sample.ops), ([0, 15], [0, 2]));
        load.close_epoch();
        assert!(load.sample().rates[1] > 0.0);
        load.close_epoch();
        assert!(load.sample().rates[1] < 1.0);
    }
}
