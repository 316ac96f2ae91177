//! Space that is set aside before there is data, and where the data then goes.

use crate::common::{Bed, Open, RANGE, caller, pattern};
use braid_contract::{FallocateMode, FileSystem, HandleId, InodeId, PlacedRun, SpeedBasis};
use braid_placement::Reserve;
use braid_volume::{TierChange, check};
use std::os::unix::fs::MetadataExt;

/// Ranges of the files.
const RANGES: u64 = 64;
const ALLOCATE: FallocateMode = FallocateMode::Allocate { keep_size: false };

fn set_aside(open: &Open, handle: HandleId, offset: u64, len: u64) {
    open.volume.fallocate(&caller(), handle, offset, len, ALLOCATE).unwrap();
}

fn runs(open: &Open, ino: InodeId) -> Vec<PlacedRun> {
    open.volume.explain(ino).unwrap().runs
}

/// Ranges of a file on the tier of this name.
fn on(open: &Open, ino: InodeId, tier: &str) -> u64 {
    let on = |run: &&PlacedRun| run.tier.as_ref().is_some_and(|on| on.name == tier);
    runs(open, ino).iter().filter(on).map(|run| run.ranges).sum()
}

/// Ranges that wait for their first write.
fn waiting(open: &Open, ino: InodeId) -> u64 {
    let waits = |run: &&PlacedRun| run.reason.contains("set aside");
    runs(open, ino).iter().filter(waits).map(|run| run.ranges).sum()
}

/// Bytes allocated to the one file of the volume on both tiers.
fn allocated(bed: &Bed, name: &str) -> [u64; 2] {
    let mut objects = 0;
    for dir in std::fs::read_dir(bed.path("slow/.braid/data")).unwrap() {
        for object in std::fs::read_dir(dir.unwrap().path()).unwrap() {
            objects += object.unwrap().metadata().unwrap().blocks() * 512;
        }
    }
    [std::fs::metadata(bed.path("home").join(name)).unwrap().blocks() * 512, objects]
}

fn is_sound(bed: &Bed) {
    let report = check(bed.config(), false, &mut |_| {}).unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
}

fn weigh(open: &Open, tier: &str, weight: f64) {
    let change = TierChange { weight: Some(Some(weight)), ..TierChange::default() };
    open.volume.set_tier(tier, change).unwrap();
}

#[test]
fn data_goes_where_the_policy_wants_it_now_and_takes_its_space_with_it() {
    let bed = Bed::new();
    let open = bed.open();
    let (ino, handle) = open.create("f");
    set_aside(&open, handle, 0, RANGES * RANGE);
    assert_eq!((waiting(&open, ino), open.size(ino)), (RANGES, RANGES * RANGE));
    let before = on(&open, ino, "slow");
    assert!(before.abs_diff(RANGES / 2) <= 2, "{before}");
    weigh(&open, "slow", 9.0);
    let data = pattern(1, (RANGES * RANGE) as usize);
    open.write_ranges(handle, &data);
    let slow = on(&open, ino, "slow");
    assert!((55..=60).contains(&slow), "{slow} of {RANGES}");
    assert_eq!((waiting(&open, ino), open.read(handle, 0, data.len()) == data), (0, true));
    let [home, objects] = allocated(&bed, "f");
    let whole = RANGES * RANGE;
    assert!(home + objects <= whole + (64 << 10), "no space is kept twice: {home} {objects}");
    open.volume.fsync(&caller(), handle, false).unwrap();
    open.close();
    is_sound(&bed);
    let open = bed.open();
    let ino = open.lookup("f").unwrap();
    let handle = open.open(ino);
    assert!(open.read(handle, 0, data.len()) == data);
    open.close();
}

#[test]
fn ranges_wait_for_their_first_write_across_a_mount() {
    let bed = Bed::new();
    let open = bed.open();
    let (_, handle) = open.create("f");
    set_aside(&open, handle, 0, RANGES * RANGE);
    open.volume.release(handle).unwrap();
    open.close();
    let open = bed.open();
    weigh(&open, "slow", 9.0);
    let ino = open.lookup("f").unwrap();
    let handle = open.open(ino);
    assert_eq!(waiting(&open, ino), RANGES);
    let data = pattern(1, (RANGES * RANGE) as usize);
    open.write_ranges(handle, &data);
    let slow = on(&open, ino, "slow");
    assert!((55..=60).contains(&slow), "{slow} of {RANGES}");
    open.volume.release(handle).unwrap();
    open.close();
    is_sound(&bed);
}

#[test]
fn a_write_to_space_that_was_set_aside_needs_no_other_room() {
    let bed = Bed::new();
    let open = bed.open();
    let (ino, handle) = open.create("f");
    set_aside(&open, handle, 0, RANGES * RANGE);
    let before = on(&open, ino, "slow");
    weigh(&open, "slow", 9.0);
    for tier in ["fast", "slow"] {
        let change = TierChange { reserve: Some(Reserve::Bytes(u64::MAX)), ..TierChange::default() };
        open.volume.set_tier(tier, change).unwrap();
    }
    let data = pattern(1, (RANGES * RANGE) as usize);
    open.write_ranges(handle, &data);
    assert!(open.read(handle, 0, data.len()) == data);
    assert_eq!((on(&open, ino, "slow"), waiting(&open, ino)), (before, 0));
    open.volume.release(handle).unwrap();
    open.close();
    is_sound(&bed);
}

#[test]
fn space_that_a_range_left_is_not_freed_under_a_move_that_brings_the_range_back() {
    let bed = Bed::new();
    let open = bed.open();
    let (ino, handle) = open.create("f");
    weigh(&open, "fast", 1e9);
    let keep = FallocateMode::Allocate { keep_size: true };
    open.volume.fallocate(&caller(), handle, 0, 8 * RANGE, keep).unwrap();
    weigh(&open, "slow", 1e18);
    let data = pattern(1, (3 * RANGE) as usize);
    let range = |at: u64| &data[(at * RANGE) as usize..((at + 1) * RANGE) as usize];
    // The space of the second waits until the file is longer.
    (0..2).for_each(|at| open.write(handle, at * RANGE, range(at)));
    assert_eq!(on(&open, ino, "slow"), 2);
    let mut copied = false;
    let mut between = || {
        if !std::mem::replace(&mut copied, true) {
            open.write(handle, 2 * RANGE, range(2));
        }
    };
    open.volume.move_range(ino, RANGE, "fast", &mut between).unwrap();
    assert!(copied && on(&open, ino, "fast") > 0);
    assert!(open.read(handle, 0, data.len()) == data);
    open.volume.release(handle).unwrap();
    open.close();
    is_sound(&bed);
}

#[test]
fn a_part_of_a_range_is_set_aside_where_it_is() {
    let bed = Bed::new();
    let open = bed.open();
    let (ino, handle) = open.create("f");
    open.truncate(ino, 16 * RANGE);
    set_aside(&open, handle, 4 * RANGE + 4096, 4096);
    set_aside(&open, handle, 8 * RANGE, 2 * RANGE);
    assert_eq!(waiting(&open, ino), 2);
    // What was written keeps its place when its space is set aside.
    open.write(handle, 12 * RANGE, &pattern(1, 4096));
    set_aside(&open, handle, 12 * RANGE, RANGE);
    assert_eq!(waiting(&open, ino), 2);
    open.volume.release(handle).unwrap();
    open.close();
    is_sound(&bed);
}

#[test]
fn a_fast_tier_is_as_fast_as_it_was_found_whatever_its_weight() {
    let bed = Bed::new();
    let mut config = bed.config();
    config.tiers[0].weight = None;
    config.home.weight = Some(400.0);
    let open = Open { volume: braid_volume::Volume::open(config).unwrap() };
    let unknown: Vec<String> =
        open.volume.tiers_of_unknown_speed().into_iter().map(|tier| tier.name).collect();
    assert_eq!(unknown, ["slow"]);
    open.volume.believe_speed("slow", [(240e6, 4), (120e6, 4)], SpeedBasis::Measured);
    // In one unit.
    let weight = |open: &Open, name: &str| {
        open.volume.status().tiers.into_iter().find(|tier| tier.name == name).unwrap().weight
    };
    assert_eq!((weight(&open, "fast"), weight(&open, "slow")), (400.0, 120.0));
    let (ino, handle) = open.create("f");
    open.write_ranges(handle, &pattern(1, (RANGES * RANGE) as usize));
    let slow = on(&open, ino, "slow");
    assert!((12..=18).contains(&slow), "{slow} of {RANGES}, of which 15 are due");
    open.volume.release(handle).unwrap();
    open.close();
    // The next mount knows it, and that it was a measurement.
    let mut config = bed.config();
    config.tiers[0].weight = None;
    let open = Open { volume: braid_volume::Volume::open(config).unwrap() };
    assert!(open.volume.tiers_of_unknown_speed().is_empty());
    let tier = open.volume.status().tiers.into_iter().find(|tier| tier.name == "slow").unwrap();
    assert_eq!(tier.speed_basis, Some(SpeedBasis::LastMount));
    assert_eq!((tier.read_bandwidth, tier.write_bandwidth, tier.weight), (Some(240e6), Some(120e6), 120.0));
    open.close();
}
