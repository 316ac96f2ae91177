//! Ranges in use leave a tier that holds applications up.

use crate::common::{Bed, Open, RANGE, caller, pattern};
use braid_contract::{FileSystem, HandleId, InodeId, Mover, PlacedRun, SpeedBasis};
use braid_placement::PolicyConfig;
use braid_volume::{MoverScope, MoversConfig, Volume, check};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Ranges of the file.
const RANGES: u64 = 256;
const READERS: u64 = 4;
const PATIENCE: Duration = Duration::from_secs(60);

/// Ranges of a file on the tier of this name.
fn on(open: &Open, ino: InodeId, tier: &str) -> u64 {
    let runs = open.volume.explain(ino).unwrap().runs;
    let on = |run: &&PlacedRun| run.tier.as_ref().is_some_and(|on| on.name == tier);
    runs.iter().filter(on).map(|run| run.ranges).sum()
}

/// Ranges that movers moved.
fn moved(open: &Open) -> u64 {
    open.volume.status().moves.iter().map(|count| count.ranges).sum()
}

/// Reads the file over and over, past the page cache, until it is enough.
fn read_on(open: &Open, handle: HandleId, first: u64, enough: &AtomicBool) {
    let mut buf = vec![0; RANGE as usize];
    for range in (0..RANGES).cycle().skip(first as usize) {
        if enough.load(Ordering::Relaxed) {
            return;
        }
        open.volume.read(&caller(), handle, range * RANGE, &mut buf, true).unwrap();
    }
}

#[test]
fn what_is_in_use_leaves_a_tier_that_holds_applications_up_and_stays_where_it_went() {
    let bed = Bed::new();
    let movers = MoversConfig { balance: MoverScope::All, bandwidth: Some(1 << 30), ..MoversConfig::NONE };
    let all_on_slow = Open { volume: Volume::open(bed.config()).unwrap() };
    all_on_slow.volume.set_tier("fast", tier_change(1e-6)).unwrap();
    let (ino, handle) = all_on_slow.create("f");
    let data = pattern(1, (RANGES * RANGE) as usize);
    all_on_slow.write_ranges(handle, &data);
    let before = on(&all_on_slow, ino, "slow");
    assert!(before >= RANGES - 1, "{before}");
    all_on_slow.volume.release(handle).unwrap();
    all_on_slow.close();

    let mut config = bed.config();
    (config.movers, config.policy) = (movers, PolicyConfig::named("adaptive").unwrap());
    let open = Open { volume: Volume::open(config).unwrap() };
    // The readers find the slow tier busy, and the other one does nothing.
    open.volume.believe_speed("slow", [(1e6, 1); 2], SpeedBasis::Measured);
    open.volume.believe_speed("fast", [(1e12, 1); 2], SpeedBasis::Measured);
    let ino = open.lookup("f").unwrap();
    let handle = open.open(ino);
    let (enough, begun) = (AtomicBool::new(false), Instant::now());
    std::thread::scope(|scope| {
        for reader in 0..READERS {
            let (open, enough) = (&open, &enough);
            scope.spawn(move || read_on(open, handle, reader * RANGES / READERS, enough));
        }
        while moved(&open) < RANGES / 2 && begun.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(50));
        }
        enough.store(true, Ordering::Relaxed);
    });
    open.volume.pause_mover(Mover::Balance).unwrap();
    let counted = moved(&open);
    assert!((RANGES / 2..=before).contains(&counted), "{counted} of {before}: none twice");
    assert!(open.volume.status().moves.iter().all(|count| count.from == "slow"), "none goes back");
    assert!(open.read(handle, 0, data.len()) == data);
    open.volume.release(handle).unwrap();
    open.close();
    let report = check(bed.config(), false, &mut |_| {}).unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
}

#[test]
fn a_tier_that_rests_while_another_is_held_up_is_tried_out() {
    const BELIEVED: f64 = 14e6;
    let bed = Bed::new();
    let mut config = bed.config();
    config.movers = MoversConfig { balance: MoverScope::All, ..MoversConfig::NONE };
    let open = Open { volume: Volume::open(config).unwrap() };
    let (ino, handle) = open.create("f");
    let data = pattern(1, (RANGES * RANGE) as usize);
    open.write_ranges(handle, &data);
    let runs = open.volume.explain(ino).unwrap().runs;
    let ranges_of = |tier: &str| -> Vec<u64> {
        let is_on = |run: &&PlacedRun| run.tier.as_ref().is_some_and(|on| on.name == tier);
        runs.iter()
            .filter(is_on)
            .flat_map(|run| run.offset / RANGE..run.offset / RANGE + run.ranges)
            .collect()
    };
    let (on_home, on_other) = (ranges_of("fast"), ranges_of("slow"));
    assert!(on_home.len() > 10 && on_other.len() > 10, "{on_home:?}");
    // Nothing may be moved there, which would show the same.
    let readonly = braid_volume::TierChange { readonly: Some(true), ..Default::default() };
    open.volume.set_tier("slow", readonly).unwrap();
    open.volume.believe_speed("fast", [(1e6, 1); 2], SpeedBasis::Measured);
    open.volume.believe_speed("slow", [(BELIEVED, 1); 2], SpeedBasis::Measured);
    let believed = || open.volume.status().tiers[1].read_bandwidth.unwrap();
    let (enough, begun) = (AtomicBool::new(false), Instant::now());
    std::thread::scope(|scope| {
        let (open, enough) = (&open, &enough);
        let read = |range: u64| {
            let mut buf = vec![0; RANGE as usize];
            open.volume.read(&caller(), handle, range * RANGE, &mut buf, true).unwrap();
        };
        for _ in 0..READERS {
            let ranges = on_home.iter().cycle();
            scope.spawn(move || {
                ranges.take_while(|_| !enough.load(Ordering::Relaxed)).for_each(|range| read(*range));
            });
        }
        // As much as is nearly what the tier is believed to do, and no more.
        let ranges = on_other.iter().cycle();
        scope.spawn(move || {
            for range in ranges.take_while(|_| !enough.load(Ordering::Relaxed)) {
                read(*range);
                std::thread::sleep(Duration::from_secs_f64(RANGE as f64 / BELIEVED));
            }
        });
        while believed() < 2.0 * BELIEVED && begun.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(50));
        }
        enough.store(true, Ordering::Relaxed);
    });
    assert!(believed() >= 2.0 * BELIEVED, "{}", believed());
    assert_eq!(moved(&open), 0);
    open.volume.release(handle).unwrap();
    open.close();
}

fn tier_change(weight: f64) -> braid_volume::TierChange {
    braid_volume::TierChange { weight: Some(Some(weight)), ..Default::default() }
}
