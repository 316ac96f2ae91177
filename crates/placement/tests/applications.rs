//! Traces of real applications (`traces/README.md`) against every policy, on
//! tiers that differ. `cargo test -p braid-placement --test applications --
//! --nocapture` prints the times.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use braid_placement::{
    EPOCH_NS_DEFAULT, POLICIES, Pace, PolicyConfig, Reserve, Simulated, SimulatedTier, SimulatorConfig,
    Trace, TraceOpKind, simulate,
};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

/// The tiers' bytes a second, read and written.
const BANDWIDTHS: [[f64; 2]; 3] = [[400e6, 200e6], [120e6, 60e6], [50e6, 25e6]];
/// Latency of an operation besides its transfer.
const LATENCY_NS: u64 = 40_000;
/// A slice of the kernel's throttle.
const SLICE_NS: u64 = 100_000_000;
const MIB: u64 = 1 << 20;

/// A way to replay traces.
#[derive(Clone, Copy, Debug)]
struct Case {
    tiers: usize,
    /// The tiers' bandwidths are divided by this: a short trace then takes many
    /// epochs, like a longer one.
    slower: f64,
    pace: Pace,
    throttled: bool,
}

fn cases() -> impl Iterator<Item = Case> {
    let paces = [Pace::Fastest, Pace::Recorded].into_iter();
    let ways = paces.flat_map(|pace| [false, true].map(|throttled| (pace, throttled)));
    ways.flat_map(|(pace, throttled)| {
        let tiers = [(2, 1.0), (2, 8.0), (3, 1.0), (3, 8.0)];
        tiers.map(|(tiers, slower)| Case { tiers, slower, pace, throttled })
    })
}

impl Case {
    fn replay(self, trace: &Trace, policy: &str) -> Simulated {
        let tier = |(name, bandwidth): (&str, &[f64; 2])| SimulatedTier {
            name: name.into(),
            bandwidth: bandwidth.map(|bytes| bytes / self.slower),
            latency_ns: [LATENCY_NS; 2],
            weight: Some(bandwidth[1] / self.slower / 1e6),
            profile: None,
            capacity: None,
            reserve: Reserve::Bytes(0),
            readonly: false,
        };
        let config = SimulatorConfig {
            tiers: ["fast", "slow", "slowest"].into_iter().zip(&BANDWIDTHS[..self.tiers]).map(tier).collect(),
            range_size: trace.range_size,
            policy: PolicyConfig::named(policy).unwrap(),
            rules: Vec::new(),
            hints: Default::default(),
            epoch_ns: EPOCH_NS_DEFAULT,
            throttle_ns: self.throttled.then_some(SLICE_NS),
        };
        simulate(&config, trace, self.pace).unwrap()
    }

    /// Seconds that each policy takes.
    fn seconds(self, trace: &Trace) -> BTreeMap<&'static str, f64> {
        POLICIES.iter().map(|kind| (kind.name, self.replay(trace, kind.name).seconds)).collect()
    }
}

fn trace(name: &str) -> Trace {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/traces/{name}.trace"));
    let trace = Trace::read(BufReader::new(File::open(path).unwrap())).unwrap();
    assert!(trace.complete && trace.dropped == 0 && trace.passthrough_opens == 0, "{name}");
    trace
}

/// Bytes that a trace reads or writes.
fn bytes(trace: &Trace, kind: TraceOpKind) -> u64 {
    trace.ops.iter().filter(|op| op.kind == kind).map(|op| op.len).sum()
}

/// Everything in the trace happens, whatever the policy, and no tier does more
/// than it can.
fn all_of_it_is_done(name: &str, least_mib: u64) {
    let trace = trace(name);
    let [read, written] = [TraceOpKind::Read, TraceOpKind::Write].map(|kind| bytes(&trace, kind));
    assert!(written >= least_mib * MIB, "{written}");
    assert!(trace.ops.iter().all(|op| op.kind != TraceOpKind::Write || op.thread != 0), "has its writers");
    let mut used = None;
    for case in cases() {
        for kind in POLICIES {
            let simulated = case.replay(&trace, kind.name);
            let of = format!("{name}, {}, {case:?}", kind.name);
            assert_eq!((simulated.ops, simulated.refused_bytes), (trace.ops.len() as u64, 0), "{of}");
            assert_eq!(simulated.bytes, [read, written], "{of}");
            for at in [0, 1] {
                let on_tiers: u64 = simulated.tiers.iter().map(|tier| tier.bytes[at]).sum();
                assert_eq!(on_tiers, simulated.bytes[at], "{of}");
            }
            // The remaining bytes do not depend on their placement.
            let left: u64 = simulated.tiers.iter().map(|tier| tier.used).sum();
            assert_eq!(left, *used.get_or_insert(left), "{of}");
            for (tier, bandwidth) in simulated.tiers.iter().zip(BANDWIDTHS) {
                let parts = [0, 1].map(|at: usize| tier.bytes[at] as f64 * case.slower / bandwidth[at]);
                // A slice's budget may be used at once.
                let least = if case.throttled { 0.0 } else { parts[0] + parts[1] };
                assert!(simulated.seconds >= least * 0.999, "{of}: {} in {}", tier.name, simulated.seconds);
                assert!((0.0..=1.0).contains(&tier.busy), "{of}: {} {}", tier.name, tier.busy);
            }
            assert_eq!(simulated, case.replay(&trace, kind.name), "{of}: twice the same");
        }
    }
}

/// How much longer than another policy `adaptive` may take: an observed worst,
/// and some.
struct Margin {
    /// Than `weighted`, which deals every file by speed as well.
    weighted: f64,
    /// Than the best of all.
    best: f64,
    /// The same, on throttled devices.
    best_throttled: f64,
}

fn adaptive_keeps_up(name: &str, margin: &Margin) {
    let trace = trace(name);
    let mut worst = [0.0_f64; 3];
    for case in cases() {
        let seconds = case.seconds(&trace);
        println!("{name}: {case:?}: {seconds:.3?}");
        let best = seconds.values().copied().fold(f64::INFINITY, f64::min);
        let [to_weighted, to_best] = [seconds["weighted"], best].map(|other| seconds["adaptive"] / other);
        let at = 1 + usize::from(case.throttled);
        (worst[0], worst[at]) = (worst[0].max(to_weighted), worst[at].max(to_best));
    }
    println!("{name}: worst to weighted, to the best, to the best if throttled: {worst:.3?}");
    let Margin { weighted, best, best_throttled } = *margin;
    let allowed = [weighted, best, best_throttled];
    assert!(worst.iter().zip(allowed).all(|(worst, allowed)| *worst <= allowed), "{worst:.3?} {allowed:?}");
}

/// The time to write data dealt to so many tiers by speed, one after the other,
/// to that on the fastest alone: each tier takes as long for its part.
fn one_after_the_other(tiers: usize) -> f64 {
    let all: f64 = BANDWIDTHS[..tiers].iter().map(|bandwidth| bandwidth[1]).sum();
    tiers as f64 * BANDWIDTHS[0][1] / all
}

#[test]
fn fio() {
    all_of_it_is_done("fio", 88);
    adaptive_keeps_up("fio", &Margin { weighted: 1.05, best: 1.05, best_throttled: 1.05 });
}

#[test]
fn rocksdb() {
    all_of_it_is_done("rocksdb", 477);
    adaptive_keeps_up("rocksdb", &Margin { weighted: 1.06, best: 1.11, best_throttled: 1.02 });
}

#[test]
fn redis() {
    all_of_it_is_done("redis", 213);
    adaptive_keeps_up("redis", &Margin { weighted: 1.05, best: 1.06, best_throttled: 1.11 });
}

/// The server's one thread writes the log, and a child the snapshot: there is
/// little that could overlap.
#[test]
fn redis_without_the_cache() {
    all_of_it_is_done("redis-direct", 99);
    adaptive_keeps_up("redis-direct", &Margin { weighted: 1.02, best: 1.25, best_throttled: 1.02 });
}

/// One thread that waits for each operation. Slower tiers then cost time unless
/// they are throttled, by any policy that deals files to them.
#[test]
fn sqlite() {
    all_of_it_is_done("sqlite", 19);
    let best = one_after_the_other(3);
    adaptive_keeps_up("sqlite", &Margin { weighted: 1.02, best, best_throttled: 1.04 });
}

/// Files that are made and allocated by one thread, and written by others:
/// ranges placed by their first write are not in the hands of the first thread.
#[test]
fn threads_are_told_apart_in_preallocated_files() {
    let trace = trace("fio");
    let made = trace.ops.iter().filter(|op| op.kind == TraceOpKind::Allocate);
    let made: Vec<u32> = made.map(|op| op.thread).collect();
    assert!(made.len() == 16 && made.iter().all(|thread| *thread == made[0]), "{made:?}");
    for case in cases().filter(|case| case.slower > 1.0 && case.pace == Pace::Fastest) {
        let seconds = case.seconds(&trace);
        // Of sixteen threads, the slower tiers get too many.
        assert!(seconds["static"] > 1.7 * seconds["adaptive"], "{case:?}: {seconds:.3?}");
        assert!(seconds["dynamic"] > 1.05 * seconds["adaptive"], "{case:?}: {seconds:.3?}");
    }
}
