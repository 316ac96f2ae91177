//! The policies against each other. Figures are shares of the sum of what the
//! tiers can do. `cargo test -p braid-volume --lib placement::simulator --
//! --nocapture` prints them.

use super::*;

/// What tiers read and write, and a slice of their throttle.
const FAST: Device = Device { bandwidth: [400e6, 200e6], weight: Some(200.0) };
const SLOW: Device = Device { bandwidth: [120e6, 60e6], weight: Some(60.0) };
const SLOWEST: Device = Device { bandwidth: [50e6, 25e6], weight: Some(25.0) };
const SLICE_NS: u64 = 100_000_000;
/// Bytes of all files together.
const BYTES: u64 = 512 << 20;

const STATIC: PolicyConfig = PolicyConfig::Static { threads: 8 };
const DYNAMIC: PolicyConfig =
    PolicyConfig::Dynamic { threads: 8, tier_threshold_percent: 50.0, global_threshold_percent: 50.0 };

fn work(threads: u32, block: u64, depth: u32) -> Work {
    let file_size = BYTES / u64::from(threads);
    Work { threads, files: 1, file_size, block, depth, slice_ns: SLICE_NS }
}

/// Read and write, as shares of the sum.
fn shares(policy: &PolicyConfig, devices: &[Device], work: Work) -> [f64; 2] {
    let rates = run(policy, devices, work, &[]).rates;
    [0, 1].map(|at: usize| rates[at] / devices.iter().map(|device| device.bandwidth[at]).sum::<f64>())
}

fn cases() -> impl Iterator<Item = Work> {
    let threads = [1, 2, 4, 8, 16, 32].into_iter();
    threads.flat_map(|threads| {
        [(64 << 10, 1), (1 << 20, 1), (1 << 20, 16)].map(|(block, depth)| work(threads, block, depth))
    })
}

/// The least of reads and writes of `adaptive`, against the other policies.
fn compare(devices: &[Device], at_least: f64) {
    for work in cases() {
        let [weighted, fixed, dynamic, adaptive] =
            [&PolicyConfig::Weighted, &STATIC, &DYNAMIC, &PolicyConfig::Adaptive]
                .map(|policy| shares(policy, devices, work));
        println!(
            "{} tiers {:2} threads {:4} KiB depth {:2}: read/write weighted {weighted:.2?} static {fixed:.2?} \
             dynamic {dynamic:.2?} adaptive {adaptive:.2?}",
            devices.len(),
            work.threads,
            work.block >> 10,
            work.depth
        );
        let least = |shares: [f64; 2]| shares[0].min(shares[1]);
        assert!(least(adaptive) >= at_least, "{work:?}: {adaptive:.3?}");
        assert!(least(adaptive) >= least(weighted) - 0.06, "{work:?}: {adaptive:.3?} {weighted:.3?}");
        assert!(least(adaptive) > least(fixed) && least(adaptive) > least(dynamic), "{work:?}");
    }
}

#[test]
fn adaptive_uses_two_tiers_whatever_the_threads_are() {
    compare(&[FAST, SLOW], 0.93);
}

#[test]
fn adaptive_uses_three_tiers_whatever_the_threads_are() {
    compare(&[FAST, SLOW, SLOWEST], 0.92);
}

#[test]
fn adaptive_learns_what_nobody_told_it() {
    let devices = [FAST, SLOW].map(|device| Device { weight: None, ..device });
    // A run of two seconds, of which learning takes a part.
    for (threads, least) in [(2, 0.9), (8, 0.95), (32, 0.95)] {
        let [read, write] = shares(&PolicyConfig::Adaptive, &devices, work(threads, 1 << 20, 1));
        println!("untold, {threads:2} threads: read {read:.2} write {write:.2}");
        assert!(read >= least && write >= least, "{threads}: {read:.3} {write:.3}");
    }
}

/// Rates of epochs after the tier `tier` got slower, and after it recovered,
/// against the best possible then.
fn after_changes(policy: &PolicyConfig, tier: usize, threads: u32, depth: u32) -> [Vec<f64>; 2] {
    let devices = [FAST, SLOW];
    let full = devices[tier].bandwidth;
    let change = |epoch: u64, factor: f64| Change {
        at_ns: epoch * EPOCH_NS,
        tier,
        bandwidth: full.map(|bandwidth| bandwidth * factor),
    };
    let work = Work { file_size: (2 << 30) / u64::from(threads), ..work(threads, 1 << 20, depth) };
    let epochs = run(policy, &devices, work, &[change(10, 1.0 / 3.0), change(25, 1.0)]).epochs;
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
    for tier in [0, 1] {
        for (threads, depth) in [(1, 16), (8, 1), (32, 1)] {
            let [slow, back] = after_changes(&PolicyConfig::Adaptive, tier, threads, depth);
            println!("tier {tier}, {threads:2} threads: slow {slow:.2?} back {back:.2?}");
            assert!(mean(&slow[10..]) > 0.9, "{tier} {threads}: {slow:.2?}");
            assert!(mean(&back[10..]) > 0.9, "{tier} {threads}: {back:.2?}");
            // No way back and forth: an epoch is never far below the others.
            assert!(slow[10..].iter().chain(&back[10..]).all(|rate| *rate > 0.7), "{slow:.2?} {back:.2?}");
        }
    }
}

#[test]
fn adaptive_follows_better_than_algorithm_1_and_than_a_fixed_deal() {
    for tier in [0, 1] {
        let total = |policy: &PolicyConfig| {
            let [slow, back] = after_changes(policy, tier, 8, 1);
            mean(&slow) + mean(&back)
        };
        let adaptive = total(&PolicyConfig::Adaptive);
        assert!(adaptive > total(&DYNAMIC) && adaptive > total(&PolicyConfig::Weighted));
    }
}

#[test]
fn threads_that_finish_leave_no_gap() {
    // Two files each, so that threads begin anew at different times.
    let work = Work { files: 4, file_size: 16 << 20, ..work(8, 64 << 10, 1) };
    let [read, write] = shares(&PolicyConfig::Adaptive, &[FAST, SLOW], work);
    assert!(read > 0.9 && write > 0.9, "{read:.3} {write:.3}");
}
