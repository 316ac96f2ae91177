//! How long operations of applications on a tier take: counts by length, from
//! which averages and percentiles are computed. [`monitor`](crate::monitor)
//! fills them.

use braid_contract::{Latency, LatencyBucket, LatencyHistogram};
use std::sync::atomic::{AtomicU64, Ordering};

/// Powers of two of nanoseconds that a [`LatencyHistogram`] has buckets for:
/// from 8 µs to 17 s.
const TOLD_POWERS: std::ops::RangeInclusive<u32> = 13..=34;

/// Buckets for each power of two: percentiles have a resolution of an eighth.
const SUB_BITS: u32 = 3;
const SUB: usize = 1 << SUB_BITS;

/// Durations up to 2^36 ns, somewhat over a minute, are distinguished.
const POWERS: usize = 37 - SUB_BITS as usize;
const BUCKETS: usize = (POWERS + 1) * SUB;

/// The bucket of a duration: exact below [`SUB`], then [`SUB`] for each power
/// of two.
fn bucket_of(ns: u64) -> usize {
    let power = ns.max(1).ilog2();
    if power < SUB_BITS {
        return ns as usize;
    }
    let sub = (ns >> (power - SUB_BITS)) as usize & (SUB - 1);
    ((power - SUB_BITS + 1) as usize * SUB + sub).min(BUCKETS - 1)
}

/// The longest duration of a bucket.
fn end_of(bucket: usize) -> u64 {
    let (power, sub) = (bucket / SUB, bucket % SUB);
    if power == 0 {
        return sub as u64;
    }
    (((SUB + sub + 1) as u64) << (power - 1)) - 1
}

/// Counts by duration, without a lock.
#[derive(Debug)]
pub(super) struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    sum_ns: AtomicU64,
}

/// The counts of a histogram at one moment, or between two.
#[derive(Clone, Debug)]
pub(crate) struct LatencyCounts {
    buckets: Box<[u64; BUCKETS]>,
    pub(super) sum_ns: u64,
}

impl Histogram {
    pub(crate) const fn new() -> Self {
        Self { buckets: [const { AtomicU64::new(0) }; BUCKETS], sum_ns: AtomicU64::new(0) }
    }

    pub(crate) fn add(&self, ns: u64) {
        self.buckets[bucket_of(ns)].fetch_add(1, Ordering::Relaxed);
        self.sum_ns.fetch_add(ns, Ordering::Relaxed);
    }

    pub(crate) fn counts(&self) -> LatencyCounts {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        LatencyCounts { buckets: Box::new(self.buckets.each_ref().map(load)), sum_ns: load(&self.sum_ns) }
    }
}

impl LatencyCounts {
    /// The counts since `earlier`.
    pub(super) fn since(&self, earlier: &Self) -> Self {
        let mut buckets = self.buckets.clone();
        for (count, before) in buckets.iter_mut().zip(earlier.buckets.iter()) {
            *count = count.saturating_sub(*before);
        }
        Self { buckets, sum_ns: self.sum_ns.saturating_sub(earlier.sum_ns) }
    }

    pub(super) fn latency(&self) -> Latency {
        let ops: u64 = self.buckets.iter().sum();
        if ops == 0 {
            return Latency::default();
        }
        Latency {
            ops,
            mean_ns: self.sum_ns / ops,
            p50_ns: self.percentile(ops, 50),
            p99_ns: self.percentile(ops, 99),
        }
    }

    /// The counts in few buckets, whose boundaries are also those of finer
    /// ones, so that no operation is counted in a wrong one.
    pub(super) fn histogram(&self) -> LatencyHistogram {
        let mut from = 0;
        let mut count = |to: usize| self.buckets[std::mem::replace(&mut from, to)..to].iter().sum();
        let mut below = |power: u32| {
            let ops = count(bucket_of(1 << power));
            LatencyBucket { below_ns: Some(1 << power), ops }
        };
        let mut buckets: Vec<LatencyBucket> = TOLD_POWERS.map(&mut below).collect();
        buckets.push(LatencyBucket { below_ns: None, ops: count(BUCKETS) });
        LatencyHistogram { sum_ns: self.sum_ns, buckets }
    }

    /// A duration that `percent` of `ops` operations do not exceed.
    fn percentile(&self, ops: u64, percent: u64) -> u64 {
        let mut left = (ops * percent).div_ceil(100);
        for (bucket, count) in self.buckets.iter().enumerate() {
            left = left.saturating_sub(*count);
            if left == 0 {
                return end_of(bucket);
            }
        }
        end_of(BUCKETS - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_follow_each_other_and_are_narrow() {
        let mut last = 0;
        for bucket in 0..BUCKETS {
            let end = end_of(bucket);
            assert_eq!(bucket_of(end), bucket, "{end}");
            assert!(bucket == 0 || bucket_of(last + 1) == bucket, "{last}");
            assert!(bucket < SUB || end as f64 / (last + 1) as f64 <= 1.0 + 1.0 / SUB as f64, "{end}");
            last = end;
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn percentiles_are_those_of_what_was_counted_since() {
        let histogram = Histogram::new();
        histogram.add(1 << 30);
        let before = histogram.counts();
        (0..98).for_each(|_| histogram.add(1000));
        (0..2).for_each(|_| histogram.add(1_000_000));
        let latency = histogram.counts().since(&before).latency();
        assert_eq!((latency.ops, latency.mean_ns), (100, 20_980));
        assert!((1000..=1125).contains(&latency.p50_ns), "{latency:?}");
        assert!((1_000_000..=1_125_000).contains(&latency.p99_ns), "{latency:?}");
        assert_eq!(before.since(&before).latency(), Latency::default());
    }

    #[test]
    fn few_buckets_have_what_many_have() {
        let histogram = Histogram::new();
        let lengths = [0, 8191, 8192, 16_383, 16_384, 1 << 33, (1 << 34) - 1, 1 << 34, u64::MAX >> 1];
        lengths.iter().for_each(|ns| histogram.add(*ns));
        let told = histogram.counts().histogram();
        let found: Vec<(Option<u64>, u64)> = told
            .buckets
            .iter()
            .filter(|bucket| bucket.ops > 0)
            .map(|bucket| (bucket.below_ns, bucket.ops))
            .collect();
        let expected =
            [(Some(1 << 13), 2), (Some(1 << 14), 2), (Some(1 << 15), 1), (Some(1 << 34), 2), (None, 2)];
        assert_eq!((found, told.sum_ns), (expected.into(), lengths.iter().sum()));
        assert!(told.buckets.is_sorted_by_key(|bucket| bucket.below_ns.unwrap_or(u64::MAX)));
        assert_eq!(told.buckets.len(), 23);
    }
}
