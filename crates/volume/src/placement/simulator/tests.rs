//! The policies against each other.

use super::*;

const TWO: [([f64; 2], f64); 2] = [([400e6, 200e6], 200.0), ([120e6, 60e6], 60.0)];

fn devices(weights: bool, three: bool) -> Vec<Device> {
    let mut list = TWO.to_vec();
    if three {
        list.push(([50e6, 25e6], 25.0));
    }
    list.into_iter()
        .map(|(bandwidth, weight)| Device { bandwidth, weight: weights.then_some(weight) })
        .collect()
}

#[test]
fn table() {
    let statics = PolicyConfig::Static { threads: 8 };
    let dynamic =
        PolicyConfig::Dynamic { threads: 8, tier_threshold_percent: 50.0, global_threshold_percent: 50.0 };
    for (three, weights) in [(false, true), (false, false), (true, true)] {
        let devices = devices(weights, three);
        let sum = |at: usize| devices.iter().map(|d| d.bandwidth[at]).sum::<f64>();
        println!("three {three} weights {weights}");
        for slice_ns in [20_000_000, 100_000_000] {
            for block in [64 << 10, 1 << 20] {
                for depth in [1, 16] {
                    for threads in [1u32, 2, 4, 8, 16, 32] {
                        let mut line = format!(
                            "{:3} ms {:4}K d{depth:2} {threads:2}t:",
                            slice_ns / 1000000,
                            block >> 10
                        );
                        for policy in [&PolicyConfig::Weighted, &statics, &dynamic, &PolicyConfig::Adaptive] {
                            let file_size = (512u64 << 20) / u64::from(threads);
                            let work = Work { threads, files: 1, file_size, block, depth, slice_ns };
                            let out = run(policy, &devices, work, &[]);
                            line += &format!(
                                "   w{:4.0} r{:4.0} s{:3.0}",
                                out.rates[1] / sum(1) * 100.0,
                                out.rates[0] / sum(0) * 100.0,
                                out.shares[1] * 100.0
                            );
                        }
                        println!("{line}");
                    }
                }
            }
        }
    }
}

#[test]
fn changes() {
    let dynamic =
        PolicyConfig::Dynamic { threads: 8, tier_threshold_percent: 50.0, global_threshold_percent: 50.0 };
    let devices = devices(true, false);
    for (tier, name) in [(1, "slow"), (0, "fast")] {
        for (threads, block, depth) in
            [(1u32, 1 << 20, 16), (2, 1 << 20, 1), (4, 64 << 10, 1), (8, 1 << 20, 1), (32, 64 << 10, 1)]
        {
            for policy in [&PolicyConfig::Weighted, &dynamic, &PolicyConfig::Adaptive] {
                let file_size = 2048u64 << 20;
                let work = Work {
                    threads,
                    files: 1,
                    file_size: file_size / u64::from(threads),
                    block,
                    depth,
                    slice_ns: 100_000_000,
                };
                let full = devices[tier].bandwidth;
                let at = |epoch: u64, factor: f64| Change {
                    at_ns: epoch * EPOCH_NS,
                    tier,
                    bandwidth: full.map(|b| b * factor),
                };
                let out = run(policy, &devices, work, &[at(10, 1.0 / 3.0), at(25, 1.0)]);
                let slow = 260e6 - full[1] * 2.0 / 3.0;
                let show = |from: usize, to: usize, best: f64| {
                    out.epochs[from.min(out.epochs.len())..to.min(out.epochs.len())]
                        .iter()
                        .map(|r| format!("{:3.0}", r / best * 100.0))
                        .collect::<Vec<_>>()
                        .join(" ")
                };
                println!(
                    "ch {name} {threads:2}t {:4}K d{depth:2} {:9.9} before {} | slow {} | back {}",
                    block >> 10,
                    format!("{policy:?}"),
                    show(5, 10, 260e6),
                    show(10, 25, slow),
                    show(25, 38, 260e6)
                );
            }
        }
    }
}
