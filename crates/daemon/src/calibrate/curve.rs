//! Reading a complete curve: the best bandwidth, how many threads it takes, and
//! from how many on it drops.

use crate::profile::{Figures, Point};

/// A tier is saturated at this share of its best bandwidth.
const SATURATED: f64 = 0.95;
/// It degrades below this share.
const DEGRADED: f64 = 0.90;

/// The figures of the curve through these points, in order of threads.
pub(super) fn through(points: Vec<Point>) -> Figures {
    let best = points.iter().map(|point| point.bandwidth).max().unwrap_or(0);
    let reaches = |point: &&Point, share: f64| point.bandwidth as f64 >= best as f64 * share;
    let saturated = points.iter().find(|point| reaches(point, SATURATED)).map_or(1, |point| point.threads);
    let above = || points.iter().filter(|point| point.threads > saturated);
    Figures {
        bandwidth: best.max(1),
        latency_ns: points.first().map_or(0, |point| point.latency_ns),
        threads: saturated,
        degrades_at: above().find(|point| !reaches(point, DEGRADED)).map(|point| point.threads),
        points,
    }
}

/// The numbers of threads to try: powers of two, and the largest.
pub(super) fn threads(max: usize) -> Vec<usize> {
    let powers = std::iter::successors(Some(1_usize), |count| count.checked_mul(2));
    powers.take_while(|count| *count < max).chain([max]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(bandwidths: &[u64]) -> (u64, u32, Option<u32>) {
        let points = bandwidths.iter().enumerate().map(|(power, bandwidth)| Point {
            threads: 1 << power,
            bandwidth: *bandwidth,
            latency_ns: 7 + power as u64,
        });
        let curve = through(points.collect());
        assert_eq!((curve.points.len(), curve.latency_ns), (bandwidths.len(), 7));
        (curve.bandwidth, curve.threads, curve.degrades_at)
    }

    #[test]
    fn saturation_is_near_the_best_and_degradation_well_below() {
        assert_eq!(curve(&[100, 180, 200]), (200, 4, None));
        assert_eq!(curve(&[100, 190, 200, 199]), (200, 2, None));
        assert_eq!(curve(&[200, 195, 179, 150]), (200, 1, Some(4)));
        assert_eq!(curve(&[50, 180, 200, 181, 100]), (200, 4, Some(16)));
        assert_eq!(curve(&[100]), (100, 1, None));
    }

    #[test]
    fn the_largest_number_of_threads_is_tried_too() {
        assert_eq!(threads(1), [1]);
        assert_eq!(threads(8), [1, 2, 4, 8]);
        assert_eq!(threads(12), [1, 2, 4, 8, 12]);
    }
}
