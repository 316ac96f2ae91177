//! The part of the cache that one tier has.

use super::changes::{Change, Changes, Ticket};
use super::ranges::{Data, Ranges};
use braid_contract::ObjectId;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

/// A read that takes less, beside the copying, is taken for one of memory.
const AS_MEMORY_NS: u64 = 15_000;
/// A tier of memory that comes to take more is none any more.
const NO_MEMORY_NS: u64 = 30_000;
/// Reads before that is decided.
const READS_MIN: u64 = 64;
/// Bytes that memory copies in a microsecond, about.
const COPIED_PER_US: u64 = 4096;

/// Whether a tier has a part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum Admission {
    /// No: all passes by.
    Never,
    /// Unless it is as fast as memory.
    Slower,
    /// Yes.
    Always,
}

/// Figures of the cache for a tier.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CacheFigures {
    /// Bytes of memory in use.
    pub bytes: u64,
    /// Bytes of memory that may be in use.
    pub limit: u64,
    /// Ranges that were there when they were read.
    pub hits: u64,
    /// Ranges that had to be read from the store.
    pub misses: u64,
    /// Reads that passed by, since the tier is as fast as memory, or its part is off.
    pub passed: u64,
    /// Ranges that gave way to others.
    pub evictions: u64,
    /// Whether reads pass by now.
    pub passes: bool,
}

/// One tier's part.
pub(super) struct TierCache {
    pub(super) name: String,
    ranges: Mutex<Ranges>,
    changes: Changes,
    admission: AtomicU8,
    limit: AtomicU64,
    is_memory: AtomicBool,
    /// Mean time of reads from the store beside copying, in nanoseconds, of the recent ones.
    cost_ns: AtomicU64,
    reads: AtomicU64,
    /// Ranges used since the parts were last dealt out.
    recent: AtomicU64,
    hits: AtomicU64,
    misses: AtomicU64,
    passed: AtomicU64,
    evictions: AtomicU64,
}

impl TierCache {
    pub(super) fn new(name: String) -> Self {
        Self {
            name,
            ranges: Mutex::new(Ranges::new()),
            changes: Changes::new(),
            admission: AtomicU8::new(Admission::Never as u8),
            limit: AtomicU64::new(0),
            is_memory: AtomicBool::new(false),
            cost_ns: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            recent: AtomicU64::new(0),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            passed: AtomicU64::new(0),
            evictions: AtomicU64::new(0),
        }
    }

    pub(super) fn admission(&self) -> Admission {
        match self.admission.load(Ordering::Relaxed) {
            0 => Admission::Never,
            1 => Admission::Slower,
            _ => Admission::Always,
        }
    }

    pub(super) fn admit(&self, admission: Admission) {
        self.admission.store(admission as u8, Ordering::Relaxed);
    }

    /// Whether reads pass by.
    pub(super) fn passes(&self) -> bool {
        match self.admission() {
            Admission::Never => true,
            Admission::Slower => self.is_memory.load(Ordering::Relaxed),
            Admission::Always => false,
        }
    }

    /// The value of memory for it: by the time that a read from it takes, and how often
    /// it is read.
    pub(super) fn weight(&self) -> f64 {
        let recent = self.recent.load(Ordering::Relaxed);
        // The past is half forgotten by the next time.
        self.recent.fetch_sub(recent / 2, Ordering::Relaxed);
        if self.is_memory.load(Ordering::Relaxed) {
            return 0.0;
        }
        (self.cost_ns.load(Ordering::Relaxed) + 1) as f64 * (recent + 1) as f64
    }

    /// From now on it may have so much.
    pub(super) fn set_limit(&self, limit: u64) {
        if self.limit.swap(limit, Ordering::Relaxed) > limit {
            self.shrink(&mut self.ranges.lock());
        }
    }

    fn shrink(&self, ranges: &mut Ranges) {
        let evicted = ranges.shrink(self.limit.load(Ordering::Relaxed));
        self.evictions.fetch_add(evicted, Ordering::Relaxed);
    }

    /// Notes a read from the store.
    pub(super) fn was_read(&self, bytes: usize, took: Duration) {
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let beside = took.saturating_sub(bytes as u64 * 1000 / COPIED_PER_US);
        let old = self.cost_ns.load(Ordering::Relaxed);
        let reads = self.reads.fetch_add(1, Ordering::Relaxed);
        // A lost one of several at a time does not matter.
        let mean = if reads == 0 { beside } else { old - old / 16 + beside / 16 };
        self.cost_ns.store(mean, Ordering::Relaxed);
        if reads >= READS_MIN && !(AS_MEMORY_NS..=NO_MEMORY_NS).contains(&mean) {
            self.is_memory.store(mean < AS_MEMORY_NS, Ordering::Relaxed);
        }
    }

    /// Notes a read that passed by.
    pub(super) fn was_passed(&self) {
        self.passed.fetch_add(1, Ordering::Relaxed);
        self.recent.fetch_add(1, Ordering::Relaxed);
    }

    /// The cached ones of these ranges, each with the bytes of it that are
    /// needed.
    pub(super) fn look(&self, id: ObjectId, wanted: &[(u64, usize)]) -> Vec<Option<Data>> {
        let mut ranges = self.ranges.lock();
        let found = wanted.iter().map(|(range, needed)| {
            // The object may have become longer behind a short one.
            ranges.get(id, *range).filter(|data| data.len() >= *needed)
        });
        let found: Vec<Option<Data>> = found.collect();
        drop(ranges);
        let hits = found.iter().flatten().count() as u64;
        self.hits.fetch_add(hits, Ordering::Relaxed);
        self.misses.fetch_add(found.len() as u64 - hits, Ordering::Relaxed);
        self.recent.fetch_add(found.len() as u64, Ordering::Relaxed);
        found
    }

    /// Taken before a range is read from the store; `None` if it is being changed.
    pub(super) fn ticket(&self, id: ObjectId, range: u64) -> Option<Ticket> {
        self.changes.ticket(id, range)
    }

    /// Keeps ranges that were read, unless they were changed since.
    pub(super) fn keep(&self, id: ObjectId, read: Vec<(u64, Data, Option<Ticket>)>) {
        let mut ranges = self.ranges.lock();
        for (range, data, ticket) in read {
            let is_current = ticket.is_some_and(|ticket| self.changes.is_current(ticket));
            if is_current && !data.is_empty() {
                ranges.insert(id, range, data);
            }
        }
        self.shrink(&mut ranges);
    }

    /// Ranges are about to be changed.
    pub(super) fn begin(&self, id: ObjectId, first: u64, last: u64) -> Change<'_> {
        self.changes.begin(id, first, last)
    }

    /// Anything may be about to be changed.
    pub(super) fn begin_all(&self) -> Change<'_> {
        self.changes.begin_all()
    }

    /// Puts a cached range right: these bytes of it were written.
    pub(super) fn written(&self, change: &Change<'_>, id: ObjectId, pieces: &[(u64, usize, &[u8])]) {
        let mut ranges = self.ranges.lock();
        for (range, within, bytes) in pieces {
            match change.was_alone(*range) {
                true => ranges.patch(id, *range, *within, bytes),
                false => ranges.remove(id, *range),
            }
        }
        self.shrink(&mut ranges);
    }

    /// The contents of these ranges are not known.
    pub(super) fn forget(&self, id: ObjectId, first: u64, last: u64) {
        let mut ranges = self.ranges.lock();
        (first..=last).for_each(|range| ranges.remove(id, range));
    }

    /// As [`forget`](Self::forget), from `first` on.
    pub(super) fn forget_from(&self, id: ObjectId, first: u64) {
        self.ranges.lock().remove_from(id, first);
    }

    pub(super) fn clear(&self) {
        self.ranges.lock().clear();
    }

    pub(super) fn figures(&self) -> CacheFigures {
        CacheFigures {
            bytes: self.ranges.lock().bytes(),
            limit: self.limit.load(Ordering::Relaxed),
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
            passed: self.passed.load(Ordering::Relaxed),
            evictions: self.evictions.load(Ordering::Relaxed),
            passes: self.passes(),
        }
    }
}
