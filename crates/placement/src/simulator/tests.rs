//! The policies against each other. Figures are shares of the tiers' total
//! bandwidth. `cargo test -p braid-placement --lib simulator -- --nocapture`
//! prints them.

use super::engine::Engine;
use super::workload::{Work, Workload};
use super::*;
use crate::EPOCH_NS_DEFAULT;
use crate::policy_config::PolicyConfig;
use crate::policy_setting::SettingValue;
use crate::settings::{DirectionProfile, Reserve, RuleConfig, TierProfile};
use crate::trace::{TraceFile, TraceOp, TraceOpKind};
use braid_format::RangeSize;

/// Read and write bandwidths of tiers, and their weights.
const FAST: ([f64; 2], Option<f64>) = ([400e6, 200e6], Some(200.0));
const SLOW: ([f64; 2], Option<f64>) = ([120e6, 60e6], Some(60.0));
const SLOWEST: ([f64; 2], Option<f64>) = ([50e6, 25e6], Some(25.0));
/// A slice of their throttle.
const SLICE_NS: u64 = 100_000_000;
/// Round trip to a tier.
const OVERHEAD_NS: u64 = 40_000;
const RANGE: u64 = 2 << 20;
/// Bytes of all files together.
const BYTES: u64 = 512 << 20;

/// The policy of this name, with its default settings.
fn named(name: &str) -> PolicyConfig {
    PolicyConfig::named(name).unwrap()
}

type Device = ([f64; 2], Option<f64>);

/// Changes a tier's bandwidth at some time, in nanoseconds.
struct Change {
    at_ns: u64,
    tier: usize,
    bandwidth: [f64; 2],
}

/// The results.
struct Outcome {
    /// Bytes a second until the last byte, read and written.
    rates: [f64; 2],
    /// Bytes a second written in each epoch.
    epochs: Vec<f64>,
}

fn tier(name: &str, (bandwidth, weight): Device) -> SimulatedTier {
    SimulatedTier {
        name: name.into(),
        bandwidth,
        latency_ns: [OVERHEAD_NS; 2],
        weight,
        profile: None,
        capacity: None,
        reserve: Reserve::Bytes(0),
        readonly: false,
    }
}

/// The mount's measurement of a device that one thread saturates.
fn measured(bandwidth: f64) -> DirectionProfile {
    DirectionProfile { bandwidth, latency_ns: 0, threads: 1, degrades_at: None }
}

fn config(policy: &PolicyConfig, devices: &[Device], range_size: u64) -> SimulatorConfig {
    let names = ["fast", "slow", "slowest"].iter();
    SimulatorConfig {
        tiers: names.zip(devices).map(|(name, device)| tier(name, *device)).collect(),
        range_size: RangeSize::new(range_size as u32).unwrap(),
        policy: policy.clone(),
        rules: Vec::new(),
        hints: Default::default(),
        epoch_ns: EPOCH_NS_DEFAULT,
        throttle_ns: None,
    }
}

/// The policies' knowledge of the tiers at first, besides weights.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Known {
    Nothing,
    /// The result of a measurement at the mount.
    Speeds,
}

/// All files are written, then all of them are read.
fn run(policy: &PolicyConfig, devices: &[Device], known: Known, work: Work, changes: &[Change]) -> Outcome {
    let mut config = SimulatorConfig { throttle_ns: Some(SLICE_NS), ..config(policy, devices, RANGE) };
    if known == Known::Speeds {
        for tier in &mut config.tiers {
            let [read, write] = tier.bandwidth.map(measured);
            tier.profile = Some(TierProfile { read, write });
        }
    }
    let mut engine = Engine::new(&config).unwrap();
    for change in changes {
        engine.change_at(change.at_ns, change.tier, change.bandwidth);
    }
    let bytes = (u64::from(work.threads) * u64::from(work.files) * work.file_size) as f64;
    let write = bytes / engine.run(&mut Workload::new(work, TraceOpKind::Write)) as f64 * 1e9;
    let epochs = std::mem::take(&mut engine.epochs);
    let read = bytes / engine.run(&mut Workload::new(work, TraceOpKind::Read)) as f64 * 1e9;
    Outcome { rates: [read, write], epochs }
}

fn work(threads: u32, block: u64, depth: u32) -> Work {
    Work { threads, files: 1, file_size: BYTES / u64::from(threads), block, depth }
}

/// Reads and writes, as shares of the total.
fn shares(policy: &PolicyConfig, devices: &[Device], known: Known, work: Work) -> [f64; 2] {
    let rates = run(policy, devices, known, work, &[]).rates;
    [0, 1].map(|at: usize| rates[at] / devices.iter().map(|device| device.0[at]).sum::<f64>())
}

fn cases() -> impl Iterator<Item = Work> {
    let threads = [1, 2, 4, 8, 16, 32].into_iter();
    threads.flat_map(|threads| {
        [(64 << 10, 1), (1 << 20, 1), (1 << 20, 16)].map(|(block, depth)| work(threads, block, depth))
    })
}

/// How `adaptive` stands to other policies, in shares.
struct Bounds {
    /// Its lower bound.
    least: f64,
    /// How far it is behind `weighted` at most.
    behind_weighted: f64,
    /// Behind `static` and `dynamic`; `None`: it is ahead of both.
    behind_mappings: Option<f64>,
}

fn compare(devices: &[Device], known: Known, bounds: &Bounds) {
    for work in cases() {
        let [weighted, fixed, dynamic, adaptive] =
            [&named("weighted"), &named("static"), &named("dynamic"), &named("adaptive")]
                .map(|policy| shares(policy, devices, known, work));
        println!(
            "{known:?}: {} tiers {:2} threads {:4} KiB depth {:2}: read/write weighted {weighted:.2?} \
             static {fixed:.2?} dynamic {dynamic:.2?} adaptive {adaptive:.2?}",
            devices.len(),
            work.threads,
            work.block >> 10,
            work.depth
        );
        let least = |shares: [f64; 2]| shares[0].min(shares[1]);
        assert!(least(adaptive) >= bounds.least, "{work:?}: {adaptive:.3?}");
        let behind = least(weighted) - least(adaptive);
        assert!(behind <= bounds.behind_weighted, "{work:?}: {adaptive:.3?} {weighted:.3?}");
        let behind = least(fixed).max(least(dynamic)) - least(adaptive);
        let keeps_up = bounds.behind_mappings.map_or(behind < 0.0, |most| behind <= most);
        assert!(keeps_up, "{work:?}: {adaptive:.3?} {fixed:.3?} {dynamic:.3?}");
    }
}

#[test]
fn adaptive_uses_two_tiers_whatever_the_threads_are() {
    let devices = [FAST, SLOW];
    compare(&devices, Known::Nothing, &Bounds { least: 0.93, behind_weighted: 0.06, behind_mappings: None });
    // The others know then which threads go where, too.
    let bounds = Bounds { least: 0.93, behind_weighted: 0.06, behind_mappings: Some(0.01) };
    compare(&devices, Known::Speeds, &bounds);
}

#[test]
fn adaptive_uses_three_tiers_whatever_the_threads_are() {
    let devices = [FAST, SLOW, SLOWEST];
    compare(&devices, Known::Nothing, &Bounds { least: 0.92, behind_weighted: 0.06, behind_mappings: None });
    let bounds = Bounds { least: 0.91, behind_weighted: 0.08, behind_mappings: Some(0.01) };
    compare(&devices, Known::Speeds, &bounds);
}

#[test]
fn adaptive_uses_two_tiers_whatever_an_epoch_is() {
    let (devices, work) = ([FAST, SLOW], work(8, 1 << 20, 1));
    for epoch_ms in [10, 50, 1000, 5000] {
        let config = config(&named("adaptive"), &devices, RANGE);
        let mut engine = Engine::new(&SimulatorConfig { epoch_ns: epoch_ms * 1_000_000, ..config }).unwrap();
        let mut rate = |kind| BYTES as f64 / engine.run(&mut Workload::new(work, kind)) as f64 * 1e9;
        let (write, read) = (rate(TraceOpKind::Write) / 260e6, rate(TraceOpKind::Read) / 520e6);
        println!("epochs of {epoch_ms} ms: read {read:.2} write {write:.2}");
        assert!(read > 0.9 && write > 0.9, "{epoch_ms}: {read:.3} {write:.3}");
    }
}

#[test]
fn a_lone_thread_is_left_to_the_fastest_of_devices_that_do_one_thing_at_a_time() {
    for devices in [&[FAST, SLOW][..], &[FAST, SLOW, SLOWEST]] {
        for (block, depth) in [(64 << 10, 1), (1 << 20, 1), (1 << 20, 16)] {
            let work = Work { file_size: 4 * BYTES, ..work(1, block, depth) };
            let rate = |policy: &str| {
                let mut engine = Engine::new(&config(&named(policy), devices, RANGE)).unwrap();
                let took_ns = engine.run(&mut Workload::new(work, TraceOpKind::Write));
                work.file_size as f64 / took_ns as f64 * 1e9 / FAST.0[1]
            };
            let [adaptive, weighted] = ["adaptive", "weighted"].map(rate);
            println!("{} tiers, {block} depth {depth}: {adaptive:.2}, weighted {weighted:.2}", devices.len());
            match depth {
                1 => assert!(adaptive > 0.85 && adaptive > 1.2 * weighted, "{adaptive} {weighted}"),
                _ => assert!(adaptive > 1.2, "{adaptive}: all are in use at the same time"),
            }
        }
    }
}

#[test]
fn adaptive_learns_what_nobody_told_it() {
    let devices = [FAST, SLOW].map(|device| (device.0, None));
    // A run of two seconds, part of which is spent learning.
    for (threads, least) in [(2, 0.9), (8, 0.95), (32, 0.95)] {
        let [read, write] = shares(&named("adaptive"), &devices, Known::Nothing, work(threads, 1 << 20, 1));
        println!("untold, {threads:2} threads: read {read:.2} write {write:.2}");
        assert!(read >= least && write >= least, "{threads}: {read:.3} {write:.3}");
    }
}

/// Rates of epochs after the tier `tier` got slower, and after it recovered,
/// relative to the best possible then.
fn after_changes(
    policy: &PolicyConfig,
    known: Known,
    tier: usize,
    (threads, depth): (u32, u32),
) -> [Vec<f64>; 2] {
    let devices = [FAST, SLOW];
    let full = devices[tier].0;
    let change = |epoch: u64, factor: f64| Change {
        at_ns: epoch * EPOCH_NS_DEFAULT,
        tier,
        bandwidth: full.map(|bandwidth| bandwidth * factor),
    };
    let work = Work { file_size: (2 << 30) / u64::from(threads), ..work(threads, 1 << 20, depth) };
    let epochs = run(policy, &devices, known, work, &[change(10, 1.0 / 3.0), change(25, 1.0)]).epochs;
    let of = |from: usize, to: usize, best: f64| -> Vec<f64> {
        epochs[from..to.min(epochs.len())].iter().map(|rate| rate / best).collect()
    };
    [of(10, 25, 260e6 - full[1] * 2.0 / 3.0), of(25, 38, 260e6)]
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

#[test]
fn adaptive_follows_a_tier_that_slows_down_and_recovers_within_ten_epochs() {
    let loads = [(1, 16), (8, 1), (32, 1)].into_iter();
    let loads = loads.flat_map(|load| [Known::Nothing, Known::Speeds].map(|known| (load, known)));
    for (load, known) in loads {
        for tier in [0, 1] {
            let [slow, back] = after_changes(&named("adaptive"), known, tier, load);
            println!("{known:?}, tier {tier}, {load:?}: slow {slow:.2?} back {back:.2?}");
            assert!(mean(&slow[10..]) > 0.9, "{known:?} {tier} {load:?}: {slow:.2?}");
            assert!(mean(&back[10..]) > 0.9, "{known:?} {tier} {load:?}: {back:.2?}");
            // No oscillation: an epoch is never far below the others.
            assert!(slow[10..].iter().chain(&back[10..]).all(|rate| *rate > 0.7), "{slow:.2?} {back:.2?}");
        }
    }
}

#[test]
fn adaptive_follows_better_than_algorithm_1_and_than_a_fixed_deal() {
    for (tier, known) in [(0, Known::Nothing), (1, Known::Nothing), (0, Known::Speeds), (1, Known::Speeds)] {
        let total = |policy: &PolicyConfig| {
            let [slow, back] = after_changes(policy, known, tier, (8, 1));
            println!("{known:?}, tier {tier}, {policy:?}: slow {slow:.2?} back {back:.2?}");
            mean(&slow) + mean(&back)
        };
        let adaptive = total(&named("adaptive"));
        assert!(adaptive > total(&named("dynamic")) && adaptive > total(&named("weighted")));
    }
}

#[test]
fn threads_that_finish_leave_no_gap() {
    // Two files each, so that threads start their second at different times.
    let work = Work { files: 4, file_size: 16 << 20, ..work(8, 64 << 10, 1) };
    let [read, write] = shares(&named("adaptive"), &[FAST, SLOW], Known::Nothing, work);
    assert!(read > 0.9 && write > 0.9, "{read:.3} {write:.3}");
}

/// A trace under construction.
#[derive(Default)]
struct Made(Trace);

impl Made {
    fn file(&mut self, number: u64, path: &str, size: u64) -> usize {
        let file = TraceFile { number, path: path.into(), size, ..TraceFile::default() };
        self.0.files.push(file);
        self.0.files.len() - 1
    }

    /// An operation of a thread, with start and duration in milliseconds.
    fn op(&mut self, kind: TraceOpKind, (thread, file): (u32, usize), ms: (u64, u64), bytes: (u64, u64)) {
        self.0.ops.push(TraceOp {
            kind,
            at_ns: ms.0 * 1_000_000,
            took_ns: ms.1 * 1_000_000,
            thread,
            file,
            offset: bytes.0,
            len: bytes.1,
            size: bytes.1,
            sync: false,
            direct: true,
            uid: 0,
            gid: 0,
            stream: None,
        });
    }
}

const KIB64: u64 = 64 << 10;
/// Two tiers that take a range of 64 KiB in 1 ms and 10 ms.
const PAIR: [Device; 2] = [([65_536e3; 2], Some(10.0)), ([65_536e2; 2], Some(1.0))];
fn home_first() -> PolicyConfig {
    named("home-first").with([("watermark", SettingValue::Percent(100.0))]).unwrap()
}

fn pair(policy: &PolicyConfig) -> SimulatorConfig {
    let mut config = config(policy, &PAIR, KIB64);
    config.tiers.iter_mut().for_each(|tier| tier.latency_ns = [0; 2]);
    config
}

fn ms(simulated: &Simulated) -> u64 {
    (simulated.seconds * 1e3).round() as u64
}

#[test]
fn a_thread_thinks_as_long_as_it_did_unless_told_otherwise() {
    let mut made = Made::default();
    let file = made.file(1, "a", 0);
    // Two writes with 100 ms in between, from 50 ms on.
    made.op(TraceOpKind::Write, (1, file), (50, 4), (0, KIB64));
    made.op(TraceOpKind::Write, (1, file), (154, 4), (0, KIB64));
    let simulated = simulate(&pair(&home_first()), &made.0, Pace::Recorded).unwrap();
    assert_eq!(ms(&simulated), 50 + 1 + 100 + 1);
    let simulated = simulate(&pair(&home_first()), &made.0, Pace::Fastest).unwrap();
    assert_eq!((ms(&simulated), simulated.bytes), (2, [0, 2 * KIB64]));
    assert!((simulated.tiers[0].busy - 1.0).abs() < 1e-9 && simulated.tiers[1].busy == 0.0);
}

#[test]
fn what_was_under_way_together_is_so_again_and_what_was_written_before_is_waited_for() {
    let mut made = Made::default();
    let (a, b) = (made.file(1, "a", 10 * KIB64), made.file(2, "b", 0));
    for at in 0..3 {
        made.op(TraceOpKind::Read, (1, a), (at, 30), (at * KIB64, KIB64));
    }
    made.op(TraceOpKind::Write, (2, b), (0, 1), (0, KIB64));
    // Another thread reads the written data.
    made.op(TraceOpKind::Read, (3, b), (1, 1), (0, KIB64));
    let simulated = simulate(&pair(&home_first()), &made.0, Pace::Fastest).unwrap();
    assert_eq!((ms(&simulated), simulated.bytes), (5, [4 * KIB64, KIB64]));
    assert_eq!(simulated.tiers[0].ranges[&PlacedBy::Before], 3);
    assert_eq!(simulated.tiers[0].ranges[&PlacedBy::Plain], 1);
}

#[test]
fn rules_capacity_and_what_is_removed_count() {
    let rule = RuleConfig {
        when: crate::Condition::parse("path.matches(\"*.wal\") && sync == false").unwrap(),
        stream: None,
        tiers: vec!["slow".into()],
        policy: None,
        pin: false,
        range_size: None,
    };
    let mut made = Made::default();
    let (wal, data) = (made.file(1, "db/x.wal", 0), made.file(2, "db/x.sst", 0));
    made.op(TraceOpKind::Create, (1, wal), (0, 0), (0, 0));
    made.op(TraceOpKind::Write, (1, wal), (1, 1), (0, 2 * KIB64));
    for at in 0..4 {
        made.op(TraceOpKind::Write, (1, data), (10 + at, 1), (at * KIB64, KIB64));
    }
    let mut config = SimulatorConfig { rules: vec![rule], ..pair(&home_first()) };
    config.tiers[0].capacity = Some(3 * KIB64);
    let simulated = simulate(&config, &made.0, Pace::Fastest).unwrap();
    let [fast, slow] = &simulated.tiers[..] else { panic!("{simulated:?}") };
    assert_eq!(slow.ranges, [(PlacedBy::Policy, 1), (PlacedBy::Rule(1), 2)].into());
    assert_eq!(fast.ranges, [(PlacedBy::Plain, 1), (PlacedBy::Policy, 2)].into());
    assert_eq!((fast.used, slow.used), (3 * KIB64, 3 * KIB64));

    // Without the log there is room again; but nowhere else, if the other tier
    // takes no ranges.
    config.tiers[1].readonly = true;
    config.rules.clear();
    made.op(TraceOpKind::Remove, (0, data), (20, 0), (0, 0));
    made.op(TraceOpKind::Write, (1, wal), (21, 1), (0, 3 * KIB64));
    let simulated = simulate(&config, &made.0, Pace::Fastest).unwrap();
    assert_eq!(simulated.tiers[0].used, 3 * KIB64);
    assert_eq!(simulated.refused_bytes, 3 * KIB64);
}

#[test]
fn a_file_goes_when_all_that_was_done_to_it_is_over() {
    let mut made = Made::default();
    for round in 0..2 {
        // The same number again.
        let (file, ms) = (made.file(1, "a", 0), round * 100);
        made.op(TraceOpKind::Create, (1, file), (ms, 0), (0, 0));
        // These take longer than recorded.
        made.op(TraceOpKind::Write, (1, file), (ms + 1, 1), (0, 8 * KIB64));
        made.op(TraceOpKind::Write, (2, file), (ms + 1, 2), (8 * KIB64, 8 * KIB64));
        made.op(TraceOpKind::Write, (2, file), (ms + 4, 1), (16 * KIB64, KIB64));
        // It has no recorded thread.
        made.op(TraceOpKind::Remove, (0, file), (ms + 5, 0), (0, 0));
    }
    for pace in [Pace::Recorded, Pace::Fastest] {
        let simulated = simulate(&pair(&home_first()), &made.0, pace).unwrap();
        assert_eq!(simulated.bytes, [0, 34 * KIB64], "{pace:?}");
        assert_eq!(simulated.tiers.iter().map(|tier| tier.used).sum::<u64>(), 0, "{pace:?}");
    }
}

/// Files `*.long` have ranges of 256 KiB, on `slow`.
fn long_ranges() -> RuleConfig {
    RuleConfig {
        when: crate::Condition::parse("path.matches(\"*.long\")").unwrap(),
        stream: None,
        tiers: vec!["slow".into()],
        policy: None,
        pin: false,
        range_size: RangeSize::new(4 * KIB64 as u32),
    }
}

#[test]
fn what_a_new_file_was_grown_by_is_holes_whatever_its_range_size() {
    let mut made = Made::default();
    let long = made.file(1, "a.long", 0);
    made.op(TraceOpKind::Create, (1, long), (0, 0), (0, 0));
    made.op(TraceOpKind::Truncate, (1, long), (1, 0), (0, 64 * KIB64));
    made.op(TraceOpKind::Write, (1, long), (2, 1), (8 * KIB64, KIB64));
    made.op(TraceOpKind::Write, (1, long), (4, 1), (64 * KIB64, 8 * KIB64));
    made.op(TraceOpKind::Read, (1, long), (6, 1), (0, 72 * KIB64));
    let config = SimulatorConfig { rules: vec![long_ranges()], ..pair(&home_first()) };
    let simulated = simulate(&config, &made.0, Pace::Fastest).unwrap();
    // A hole of a plain file is filled at home; its growth follows the rule.
    assert_eq!(simulated.tiers[0].ranges, [(PlacedBy::Plain, 1)].into());
    assert_eq!(simulated.tiers[1].ranges, [(PlacedBy::Rule(1), 2)].into());
    assert_eq!((simulated.tiers[0].used, simulated.tiers[1].used), (KIB64, 8 * KIB64));
}

#[test]
fn a_rule_gives_files_ranges_of_a_size_of_their_own() {
    let mut made = Made::default();
    let (long, found) = (made.file(1, "a.long", 0), made.file(2, "b.long", 8 * KIB64));
    made.op(TraceOpKind::Create, (1, long), (0, 0), (0, 0));
    made.op(TraceOpKind::Write, (1, long), (1, 1), (0, 5 * KIB64));
    made.op(TraceOpKind::Read, (1, found), (9, 1), (0, 8 * KIB64));
    let config = SimulatorConfig { rules: vec![long_ranges()], ..pair(&home_first()) };
    let simulated = simulate(&config, &made.0, Pace::Fastest).unwrap();
    assert_eq!(simulated.tiers[1].ranges, [(PlacedBy::Before, 2), (PlacedBy::Rule(1), 2)].into());
}

#[test]
fn what_unknown_threads_did_is_in_sequence_for_each_file_only() {
    for (thread, ms) in [(1, 26.0), (0, 16.0)] {
        let mut made = Made::default();
        let (home, slow) = (made.file(1, "a", 0), made.file(2, "b.long", 0));
        made.op(TraceOpKind::Write, (thread, home), (0, 1), (0, 8 * KIB64));
        made.op(TraceOpKind::Write, (thread, slow), (1, 1), (0, KIB64));
        made.op(TraceOpKind::Write, (thread, home), (2, 1), (8 * KIB64, 8 * KIB64));
        let config = SimulatorConfig { rules: vec![long_ranges()], ..pair(&home_first()) };
        let simulated = simulate(&config, &made.0, Pace::Fastest).unwrap();
        assert!((simulated.seconds * 1e3 - ms).abs() < 0.01, "{thread}: {}", simulated.seconds);
    }
}

#[test]
fn space_that_is_set_aside_goes_where_the_first_write_wants_it_if_there_is_room() {
    let policy = named("static").with([("threads", SettingValue::Threads(1))]).unwrap();
    let mut made = Made::default();
    let (ahead, other) = (made.file(1, "a", 0), made.file(2, "b", 0));
    // The only thread so far would have the faster tier; then another has it.
    made.op(TraceOpKind::Allocate, (1, ahead), (0, 0), (0, 4 * KIB64));
    (0..3).for_each(|at| made.op(TraceOpKind::Write, (2, other), (1 + at, 1), (at * KIB64, KIB64)));
    made.op(TraceOpKind::Write, (1, ahead), (5, 1), (0, KIB64));
    made.op(TraceOpKind::Write, (1, ahead), (6, 1), (KIB64, 3 * KIB64));
    for (capacity, used) in [(None, [3, 4]), (Some(0), [7, 0])] {
        let mut config = pair(&policy);
        config.tiers[1].capacity = capacity;
        let simulated = simulate(&config, &made.0, Pace::Recorded).unwrap();
        assert_eq!([0, 1].map(|at: usize| simulated.tiers[at].used), used.map(|ranges: u64| ranges * KIB64));
        let ranges = simulated.tiers.iter().flat_map(|tier| tier.ranges.values());
        assert_eq!((ranges.sum::<u64>(), simulated.refused_bytes), (7, 0));
    }
}

#[test]
fn a_policy_that_names_no_tier_is_none() {
    let large = SettingValue::tier("no");
    let policy = named("size").with([("large", large)]).unwrap();
    assert!(simulate(&pair(&policy), &Trace::default(), Pace::Recorded).is_none());
}
