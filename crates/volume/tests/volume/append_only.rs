//! A tier whose store writes each byte once, frees nothing but whole objects,
//! and may not know holes.

use crate::common::{Bed, Open, RANGE, caller, pattern};
use braid_contract::{
    Errno, FallocateMode, FileSystem, InodeId, PlacedRun, Store, StoreCapabilities, StoreLayer, TierState,
    WriteFlags,
};
use braid_placement::{PolicyConfig, Reserve, SettingValue};
use braid_stores::fault::{FaultKind, FaultOp, FaultRule};
use braid_testkit::conformance::store::{AppendOnlyStore, Layered};
use braid_volume::{Volume, check};
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Barrier};

/// The volume's configuration, with such a store as its tier `slow`, which gets
/// all that is not in the first range of a file.
fn config(bed: &Bed, seek_data: bool) -> braid_volume::VolumeConfig {
    let mut config = bed.config();
    let beneath = config.tiers[0].store.take().unwrap();
    config.tiers[0].store = Some(Arc::new(AppendOnlyStore::over(beneath, seek_data)) as Arc<dyn Store>);
    config.policy = to_slow();
    config
}

fn to_slow() -> PolicyConfig {
    let nothing = SettingValue::Size(0);
    let settings = [("small", nothing.clone()), ("sync", nothing), ("large", SettingValue::tier("slow"))];
    PolicyConfig::named("size").unwrap().with(settings).unwrap()
}

fn open(bed: &Bed, seek_data: bool) -> Open {
    Open { volume: Volume::open(config(bed, seek_data)).unwrap() }
}

/// The tier of each range.
fn tiers_of(open: &Open, ino: InodeId) -> Vec<String> {
    let runs = open.volume.explain(ino).unwrap().runs.into_iter();
    let tier = |run: &PlacedRun| run.tier.as_ref().map_or_else(String::new, |tier| tier.name.clone());
    runs.flat_map(|run| vec![tier(&run); run.ranges as usize]).collect()
}

/// Neither trouble nor errors of the tier are remembered.
fn expect_no_trouble(open: &Open) {
    let status = open.volume.status();
    let slow = status.tiers.iter().find(|tier| tier.name == "slow").unwrap();
    assert_eq!(slow.state, TierState::Online);
    assert!(slow.errors.iter().all(|(_, count)| *count == 0), "{:?}", slow.errors);
}

#[test]
fn only_a_range_that_is_written_over_goes_elsewhere() {
    for seek_data in [true, false] {
        let bed = Bed::new();
        let open = open(&bed, seek_data);
        let (ino, handle) = open.create("f");
        let mut data = pattern(1, 8 * RANGE as usize);
        open.write_ranges(handle, &data);
        let mut tiers: Vec<String> = vec!["slow".into(); 8];
        tiers[0] = "fast".into();
        assert_eq!(tiers_of(&open, ino), tiers);
        // All of it new, some of it, and none.
        let old = pattern(2, 3 * RANGE as usize);
        let at = 3 * RANGE - 100;
        open.write(handle, at, &old[..300]);
        data[at as usize..at as usize + 300].copy_from_slice(&old[..300]);
        (tiers[2], tiers[3]) = ("fast".into(), "fast".into());
        assert_eq!(tiers_of(&open, ino), tiers);
        let runs = open.volume.explain(ino).unwrap().runs;
        assert!(runs.iter().any(|run| run.reason.contains("can't write over it")), "{runs:?}");
        open.write(handle, data.len() as u64 - 10, &old[..RANGE as usize]);
        data.truncate(8 * RANGE as usize - 10);
        data.extend(&old[..RANGE as usize]);
        tiers[7] = "fast".into();
        tiers.push("slow".into());
        assert_eq!(tiers_of(&open, ino), tiers);
        assert!(open.read(handle, 0, data.len() + 1) == data);
        expect_no_trouble(&open);
        open.volume.release(handle).unwrap();
        open.close();
        let report = check(config(&bed, seek_data), false, &mut |_| {}).unwrap();
        assert!(report.problems.is_empty(), "{:?}", report.problems);
    }
}

/// Bytes that were written on home.
fn written_on_home(open: &Open) -> u64 {
    open.volume.status().tiers.iter().find(|tier| tier.home).unwrap().write_bytes
}

#[test]
fn a_range_is_copied_once_however_many_write_over_it() {
    const RANGES: u64 = 64;
    const WRITERS: u64 = 8;
    let bed = Bed::new();
    let open = open(&bed, true);
    let (ino, handle) = open.create("f");
    open.write_ranges(handle, &pattern(1, (RANGES * RANGE) as usize));
    let before = written_on_home(&open);
    let (part, new) = (RANGE / WRITERS, pattern(2, (RANGES * RANGE) as usize));
    let all = Barrier::new(WRITERS as usize);
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (all, open, new) = (&all, &open, &new);
            scope.spawn(move || {
                for range in 1..RANGES {
                    let at = range * RANGE + writer * part;
                    all.wait();
                    open.write(handle, at, &new[at as usize..(at + part) as usize]);
                }
            });
        }
    });
    assert_eq!(tiers_of(&open, ino), vec!["fast".to_owned(); RANGES as usize]);
    assert_eq!(written_on_home(&open) - before, 2 * (RANGES - 1) * RANGE, "copies, and what was written");
    assert!(open.read(handle, RANGE, new.len()) == new[RANGE as usize..]);
    open.volume.release(handle).unwrap();
    open.close();
}

/// The object that the tier `slow` has of the one file there is, as its bytes
/// on the device.
fn object(bed: &Bed) -> Option<u64> {
    let shards = std::fs::read_dir(bed.path("slow").join(".braid/data")).unwrap();
    let files = shards.flat_map(|shard| std::fs::read_dir(shard.unwrap().path()).unwrap());
    let sizes: Vec<u64> = files.map(|file| file.unwrap().metadata().unwrap().blocks() * 512).collect();
    assert!(sizes.len() < 2, "{sizes:?}");
    sizes.first().copied()
}

#[test]
fn space_comes_back_when_the_last_range_left() {
    for seek_data in [true, false] {
        let bed = Bed::new();
        let open = open(&bed, seek_data);
        let (ino, handle) = open.create("f");
        let mut data = pattern(1, 5 * RANGE as usize);
        open.write_ranges(handle, &data);
        open.volume.fsync(&caller(), handle, false).unwrap();
        for range in 1..5 {
            assert_eq!(object(&bed), Some(4 * RANGE), "as long as something is there");
            let at = range * RANGE + 77;
            open.write(handle, at, b"again");
            data[at as usize..at as usize + 5].copy_from_slice(b"again");
        }
        assert_eq!((object(&bed), tiers_of(&open, ino)), (None, vec!["fast".to_owned(); 5]));
        assert!(open.read(handle, 0, data.len()) == data);
        // It may come back, to a new object.
        open.volume.move_range(ino, 2 * RANGE, "slow", &mut || {}).unwrap();
        assert_eq!((object(&bed), tiers_of(&open, ino)[2].as_str()), (Some(RANGE), "slow"));
        assert!(open.read(handle, 0, data.len()) == data);
        expect_no_trouble(&open);
        open.kill();
        let open = crate::common::Open { volume: Volume::open(config(&bed, seek_data)).unwrap() };
        let handle = open.open(open.lookup("f").unwrap());
        assert!(open.read(handle, 0, data.len()) == data);
        open.volume.release(handle).unwrap();
        open.close();
        let report = check(config(&bed, seek_data), false, &mut |_| {}).unwrap();
        assert!(report.problems.is_empty(), "{:?}", report.problems);
    }
}

#[test]
fn a_range_does_not_come_back_over_what_it_left() {
    let bed = Bed::new();
    let open = open(&bed, true);
    let (ino, handle) = open.create("f");
    let data = pattern(1, 4 * RANGE as usize);
    open.write_ranges(handle, &data);
    open.volume.move_range(ino, RANGE, "fast", &mut || {}).unwrap();
    let refused = open.volume.move_range(ino, RANGE, "slow", &mut || {});
    assert_eq!(refused.unwrap_err().errno(), Errno::EOPNOTSUPP);
    // Nor does a new one that is given to it, after the old one was cut off.
    open.truncate(ino, 3 * RANGE);
    open.write(handle, RANGE, &data[..RANGE as usize]);
    assert_eq!(tiers_of(&open, ino), ["fast", "fast", "slow"]);
    open.write(handle, 3 * RANGE, &data[..RANGE as usize]);
    let wanted = [
        &data[..RANGE as usize],
        &data[..RANGE as usize],
        &data[2 * RANGE as usize..3 * RANGE as usize],
        &data[..RANGE as usize],
    ]
    .concat();
    assert!(open.read(handle, 0, data.len()) == wanted);
    expect_no_trouble(&open);
    open.volume.release(handle).unwrap();
    open.close();
}

#[test]
fn a_move_that_the_tier_can_not_finish_leaves_nothing() {
    let bed = Bed::new();
    let open = open(&bed, true);
    let (ino, handle) = open.create("f");
    let mut data = pattern(1, 3 * RANGE as usize);
    open.write_ranges(handle, &data);
    for range in 1..3 {
        open.volume.move_range(ino, range * RANGE, "fast", &mut || {}).unwrap();
    }
    open.volume.release(handle).unwrap();
    assert_eq!(object(&bed), None, "a file that is wholly on home is plain");
    let handle = open.open(ino);
    let mut writes = 0;
    let moved = open.volume.move_range(ino, RANGE, "slow", &mut || {
        if writes == 0 {
            open.write(handle, RANGE + 500, b"meanwhile");
        }
        writes += 1;
    });
    assert_eq!(moved.unwrap_err().errno(), Errno::EOPNOTSUPP);
    data[RANGE as usize + 500..RANGE as usize + 509].copy_from_slice(b"meanwhile");
    assert!(open.read(handle, 0, data.len()) == data);
    assert_eq!((object(&bed), tiers_of(&open, ino)), (None, vec!["fast".to_owned(); 3]));
    expect_no_trouble(&open);
    open.volume.release(handle).unwrap();
    open.close();
}

#[test]
fn what_has_no_room_elsewhere_is_refused_and_stays() {
    let bed = Bed::new();
    let mut full = config(&bed, true);
    full.home.reserve = Reserve::Bytes(u64::MAX);
    let open = Open { volume: Volume::open(full).unwrap() };
    let (ino, handle) = open.create("f");
    let data = pattern(1, 3 * RANGE as usize);
    open.write_ranges(handle, &data);
    let (caller, full) = (caller(), Some(Errno::ENOSPC));
    let written = open.volume.write(&caller, handle, RANGE, b"again", WriteFlags::default());
    assert_eq!(written.err().map(|error| error.errno()), full);
    for mode in [FallocateMode::PunchHole, FallocateMode::Allocate { keep_size: true }] {
        let allocated = open.volume.fallocate(&caller, handle, 5, RANGE, mode);
        assert_eq!(allocated.err().map(|error| error.errno()), full);
    }
    assert!(open.read(handle, 0, data.len()) == data);
    assert_eq!(tiers_of(&open, ino), ["slow", "slow", "slow"]);
    expect_no_trouble(&open);
    open.volume.release(handle).unwrap();
    open.close();
}

/// A store that frees nothing but whole objects, and can be written over.
struct NothingPunched(Arc<dyn Store>);

impl StoreLayer for NothingPunched {
    fn inner(&self) -> &dyn Store {
        &*self.0
    }

    fn capabilities(&self) -> StoreCapabilities {
        StoreCapabilities { punch: false, ..self.0.capabilities() }
    }
}

/// A volume whose tier `slow` is such a store.
fn open_over(bed: &Bed) -> Open {
    let mut plain = bed.config();
    let store = NothingPunched(plain.tiers[0].store.take().unwrap());
    plain.tiers[0].store = Some(Arc::new(Layered(store)));
    plain.policy = to_slow();
    Open { volume: Volume::open(plain).unwrap() }
}

#[test]
fn holes_are_punched_on_tiers_that_free_nothing() {
    for overwrites in [true, false] {
        let bed = Bed::new();
        let open = if overwrites { open_over(&bed) } else { open(&bed, true) };
        let (ino, handle) = open.create("f");
        let mut data = pattern(1, 5 * RANGE as usize);
        open.write_ranges(handle, &data);
        let mut tiers = vec!["slow".to_owned(); 5];
        tiers[0] = "fast".into();
        let (at, len) = (RANGE + 1000, RANGE);
        open.volume.fallocate(&caller(), handle, at, len, FallocateMode::PunchHole).unwrap();
        data[at as usize..(at + len) as usize].fill(0);
        assert!(open.read(handle, 0, data.len()) == data);
        if !overwrites {
            tiers[1..3].fill("fast".into());
        }
        assert_eq!(tiers_of(&open, ino), tiers);
        let zero = FallocateMode::ZeroRange { keep_size: true };
        open.volume.fallocate(&caller(), handle, 4 * RANGE - 9, 100, zero).unwrap();
        data[4 * RANGE as usize - 9..][..100].fill(0);
        assert!(open.read(handle, 0, data.len()) == data);
        if !overwrites {
            tiers[3..].fill("fast".into());
        }
        assert_eq!(tiers_of(&open, ino), tiers);
        expect_no_trouble(&open);
        open.volume.release(handle).unwrap();
        open.close();
    }
}

#[test]
fn a_range_that_left_is_not_counted_where_it_can_not_be_freed() {
    let bed = Bed::new();
    let open = open_over(&bed);
    let (ino, handle) = open.create("f");
    open.write_ranges(handle, &pattern(1, 4 * RANGE as usize));
    let blocks = || open.volume.getattr(&caller(), ino, None).unwrap().blocks;
    let before = blocks();
    open.volume.move_range(ino, RANGE, "fast", &mut || _ = blocks()).unwrap();
    assert_eq!(blocks(), before);
    open.volume.release(handle).unwrap();
    open.close();
}

#[test]
fn leftovers_are_written_over_where_they_can_not_be_freed() {
    let bed = Bed::new();
    let open = open_over(&bed);
    let (ino, handle) = open.create("f");
    let data = pattern(1, 4 * RANGE as usize);
    open.write_ranges(handle, &data);
    open.volume.move_range(ino, RANGE, "fast", &mut || {}).unwrap();
    let punch = FallocateMode::PunchHole;
    open.volume.fallocate(&caller(), handle, RANGE + 4096, RANGE - 8192, punch).unwrap();
    open.volume.move_range(ino, RANGE, "slow", &mut || {}).unwrap();
    assert_eq!(tiers_of(&open, ino)[1], "slow");
    let mut wanted = data;
    wanted[RANGE as usize + 4096..2 * RANGE as usize - 4096].fill(0);
    assert!(open.read(handle, 0, wanted.len()) == wanted);
    expect_no_trouble(&open);
    open.volume.release(handle).unwrap();
    open.close();
}

#[test]
fn space_is_reserved_on_tiers_that_can() {
    let bed = Bed::new();
    let open = open(&bed, true);
    let (ino, handle) = open.create("f");
    let data = pattern(1, 3 * RANGE as usize);
    open.write_ranges(handle, &data);
    assert_eq!(tiers_of(&open, ino), ["fast", "slow", "slow"]);
    let grow = FallocateMode::Allocate { keep_size: false };
    open.volume.fallocate(&caller(), handle, 2 * RANGE + 5, 2 * RANGE, grow).unwrap();
    assert_eq!(tiers_of(&open, ino), ["fast", "slow", "fast", "fast", "fast"]);
    assert_eq!(open.size(ino), 4 * RANGE + 5);
    let wanted = [&data[..], &vec![0; RANGE as usize + 5]].concat();
    assert!(open.read(handle, 0, wanted.len()) == wanted);
    expect_no_trouble(&open);
    open.volume.release(handle).unwrap();
    open.close();
}

#[test]
fn an_object_that_could_not_be_removed_goes_at_the_close_or_after_a_crash() {
    for crash in [false, true] {
        let bed = Bed::new();
        let mut faulty = config(&bed, true);
        let control = crate::common::faulty(&mut faulty);
        let open = Open { volume: Volume::open(faulty).unwrap() };
        let (ino, handle) = open.create("f");
        let data = pattern(1, 2 * RANGE as usize);
        open.write_ranges(handle, &data);
        control.set(vec![FaultRule::each(FaultOp::Remove, FaultKind::Fail(Errno::EBUSY))]);
        open.write(handle, RANGE, &data[RANGE as usize..]);
        assert_eq!(tiers_of(&open, ino), ["fast", "fast"]);
        assert_eq!(object(&bed), Some(0), "its data is gone already");
        let open = if crash {
            open.kill();
            Open { volume: Volume::open(config(&bed, true)).unwrap() }
        } else {
            control.clear();
            open.volume.release(handle).unwrap();
            open
        };
        assert_eq!(object(&bed), None);
        let handle = open.open(open.lookup("f").unwrap());
        assert!(open.read(handle, 0, data.len()) == data);
        open.volume.release(handle).unwrap();
        open.close();
    }
}
