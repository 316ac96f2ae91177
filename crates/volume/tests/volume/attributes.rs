//! The collective inode: attributes of a spread file come from memory, and the
//! access time from the tier that was read last.

use crate::common::machine::Machine;
use crate::common::{Bed, Open, RANGE, caller, pattern};
use braid_contract::{
    AccessTimes, Attr, Environment, FileSystem, InodeId, ObjectId, Renewal, SetAttr, SetTime, Store,
    StoreCapabilities, StoreOperation, Timestamp,
};
use braid_testkit::conformance::store::{Layered, StoreLayer};
use braid_testkit::sim::Model;
use braid_volume::{Volume, VolumeConfig, check};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const LONG_AGO: Timestamp = Timestamp { secs: 1_000_000_000, nanos: 1 };

/// What a store was asked about its objects.
#[derive(Default)]
struct Asked {
    stats: AtomicU64,
    times: AtomicU64,
}

impl Asked {
    /// How often objects were looked at since the last call.
    fn stats(&self) -> u64 {
        self.stats.swap(0, Ordering::Relaxed)
    }

    /// How often an access time was set since then.
    fn times(&self) -> u64 {
        self.times.swap(0, Ordering::Relaxed)
    }
}

/// A store that counts what it is asked.
struct Counting(Arc<dyn Store>, Arc<Asked>);

impl StoreLayer for Counting {
    fn inner(&self) -> &dyn Store {
        &*self.0
    }

    fn before(&self, operation: StoreOperation, _: &[ObjectId]) -> braid_contract::Result<()> {
        match operation {
            StoreOperation::SetAccessTime => _ = self.1.times.fetch_add(1, Ordering::Relaxed),
            // Nothing else may take the place of asking for it.
            StoreOperation::Stat | StoreOperation::NextData | StoreOperation::ObjectFile => {
                self.1.stats.fetch_add(1, Ordering::Relaxed);
            }
            _ => {}
        }
        Ok(())
    }
}

/// A volume whose stores count.
fn counting(mut config: VolumeConfig) -> (Open, Vec<Arc<Asked>>) {
    let mut stores = Vec::new();
    for tier in &mut config.tiers {
        let asked = Arc::new(Asked::default());
        let store = Counting(tier.store.take().unwrap(), Arc::clone(&asked));
        tier.store = Some(Arc::new(Layered(store)));
        stores.push(asked);
    }
    (Open { volume: Volume::open(config).unwrap() }, stores)
}

fn with_third(bed: &Bed) -> VolumeConfig {
    let mut config = bed.config();
    config.tiers.push(bed.tier("third"));
    config
}

fn attr(open: &Open, ino: InodeId) -> Attr {
    open.volume.getattr(&caller(), ino, None).unwrap()
}

/// Sets the access time, and waits until the next read has a later time than
/// anything so far.
fn set_atime(open: &Open, ino: InodeId, atime: Timestamp) {
    let changes = SetAttr { atime: Some(SetTime::At(atime)), ..SetAttr::default() };
    let set = open.volume.setattr(&caller(), ino, None, &changes).unwrap();
    assert_eq!(set.atime, atime);
    let now = || braid_stores::native::Machine.wall_ns();
    while set.ctime.secs < 1_890_000_000
        && now() <= set.ctime.secs * 1_000_000_000 + i64::from(set.ctime.nanos)
    {
        std::hint::spin_loop();
    }
}

/// Writes a closed file with ranges on both tiers, the last one not on home.
fn make_spread(open: &Open, name: &str) -> InodeId {
    let (ino, handle) = open.create(name);
    open.write_ranges(handle, &pattern(1, 6 * RANGE as usize));
    open.volume.release(handle).unwrap();
    for range in [4, 5] {
        open.volume.move_range(ino, range * RANGE, "slow", &mut || {}).unwrap();
    }
    ino
}

/// A closed file that is whole on `slow`.
fn make_whole(open: &Open, name: &str) -> InodeId {
    let (ino, handle) = open.create(name);
    open.write(handle, 0, &pattern(2, 10_000));
    open.volume.release(handle).unwrap();
    open.volume.move_range(ino, 0, "slow", &mut || {}).unwrap();
    ino
}

/// Reads the last byte.
fn read(open: &Open, ino: InodeId) {
    let handle = open.open(ino);
    let end = open.size(ino);
    assert_eq!(open.read(handle, end - 1, 10).len(), 1);
    open.volume.release(handle).unwrap();
}

/// Whether reads renew access times where the tests' directories are.
fn renews(bed: &Bed) -> bool {
    bed.config().home.root.usage().unwrap().access_times.renewal != Renewal::Never
}

/// Blocks of the home file and of all objects of the one spread file.
fn blocks_on_tiers(bed: &Bed, name: &str) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let mut blocks = std::fs::metadata(bed.path("home").join(name)).unwrap().blocks();
    for tier in ["slow", "third"] {
        let Ok(shards) = std::fs::read_dir(bed.path(tier).join(".braid/data")) else { continue };
        for object in shards.flat_map(|shard| std::fs::read_dir(shard.unwrap().path()).unwrap()) {
            blocks += object.unwrap().metadata().unwrap().blocks();
        }
    }
    blocks
}

#[test]
fn what_is_known_of_a_file_is_not_asked_for_again() {
    let bed = Bed::new();
    let (open, stores) = counting(with_third(&bed));
    let asked = || stores.iter().map(|store| store.stats()).sum::<u64>();
    let ino = make_spread(&open, "f");
    // A first time, and after each kind of change.
    let known = |what: &str| {
        let first = attr(&open, ino);
        assert_eq!(first.blocks, blocks_on_tiers(&bed, "f"), "{what}");
        asked();
        for _ in 0..3 {
            assert_eq!(attr(&open, ino), first, "{what}");
            let found = open.volume.lookup(&caller(), InodeId::ROOT, "f".as_ref()).unwrap();
            assert_eq!(found.attr, first, "{what}");
        }
        assert_eq!(asked(), 0, "{what}");
    };
    known("closed");
    let handle = open.open(ino);
    asked();
    attr(&open, ino);
    assert_eq!(asked(), 0, "opening changes nothing");
    known("open");
    open.write(handle, 5 * RANGE + 7, &pattern(3, RANGE as usize));
    known("written");
    open.volume.fsync(&caller(), handle, false).unwrap();
    known("synced");
    open.volume.move_range(ino, 5 * RANGE, "third", &mut || {}).unwrap();
    known("moved");
    open.volume
        .fallocate(&caller(), handle, 4 * RANGE, RANGE, braid_contract::FallocateMode::PunchHole)
        .unwrap();
    known("punched");
    open.truncate(ino, 2 * RANGE + 5);
    known("cut");
    open.volume.release(handle).unwrap();
    known("closed again");
    open.close();
    let (open, stores) = counting(with_third(&bed));
    let ino = open.lookup("f").unwrap();
    let asked = || stores.iter().map(|store| store.stats()).sum::<u64>();
    assert_eq!(asked(), 2, "each tier once, after a mount");
    assert_eq!(attr(&open, ino).blocks, blocks_on_tiers(&bed, "f"));
    assert_eq!(asked(), 0);
    open.close();
}

#[test]
fn the_tier_that_was_read_has_the_access_time_and_the_home_inode_is_left_alone() {
    let bed = Bed::new();
    if !renews(&bed) {
        return;
    }
    for make in [make_spread, make_whole] {
        let (open, stores) = counting(bed.config());
        let ino = make(&open, "f");
        set_atime(&open, ino, LONG_AGO);
        let before = attr(&open, ino);
        stores[0].times();
        read(&open, ino);
        let after = attr(&open, ino);
        assert!(after.atime >= before.mtime, "{after:?}");
        assert_eq!((before.ctime, before.mtime), (after.ctime, after.mtime));
        assert_eq!(stores[0].times(), 1);
        // It is recent now.
        for _ in 0..3 {
            read(&open, ino);
        }
        assert_eq!((attr(&open, ino), stores[0].times()), (after, 0));
        let home = std::os::unix::fs::MetadataExt::atime(&std::fs::metadata(bed.path("home/f")).unwrap());
        assert_eq!(home, LONG_AGO.secs, "home was read instead");
        open.close();
        // It outlasts a mount, moves, and the end of the daemon.
        let open = bed.open();
        let ino = open.lookup("f").unwrap();
        assert_eq!(attr(&open, ino), after);
        open.kill();
        let open = bed.open();
        let ino = open.lookup("f").unwrap();
        assert_eq!(attr(&open, ino).atime, after.atime);
        set_atime(&open, ino, LONG_AGO);
        open.close();
        let open = bed.open();
        let ino = open.lookup("f").unwrap();
        assert_eq!(attr(&open, ino).atime, LONG_AGO, "an earlier time was set");
        open.volume.unlink(&caller(), InodeId::ROOT, "f".as_ref()).unwrap();
        open.close();
    }
}

#[test]
fn moves_leave_the_access_time_alone() {
    let bed = Bed::new();
    if !renews(&bed) {
        return;
    }
    for make in [make_spread, make_whole] {
        let open = Open { volume: Volume::open(with_third(&bed)).unwrap() };
        let ino = make(&open, "f");
        set_atime(&open, ino, LONG_AGO);
        let ranges = open.size(ino).div_ceil(RANGE);
        for range in 0..ranges {
            for tier in ["third", "slow"] {
                open.volume.move_range(ino, range * RANGE, tier, &mut || {}).unwrap();
            }
        }
        assert_eq!(attr(&open, ino).atime, LONG_AGO);
        read(&open, ino);
        let time = attr(&open, ino).atime;
        assert_ne!(time, LONG_AGO);
        for tier in ["third", "slow", "fast"] {
            for range in 0..ranges {
                open.volume.move_range(ino, range * RANGE, tier, &mut || {}).unwrap();
                assert_eq!(attr(&open, ino).atime, time, "to {tier}");
            }
        }
        open.close();
        let open = Open { volume: Volume::open(with_third(&bed)).unwrap() };
        let ino = open.lookup("f").unwrap();
        assert_eq!(attr(&open, ino).atime, time);
        open.volume.unlink(&caller(), InodeId::ROOT, "f".as_ref()).unwrap();
        open.close();
        assert!(check(with_third(&bed), false, &mut |_| {}).unwrap().problems.is_empty());
    }
}

#[test]
fn the_access_time_outlasts_its_owner() {
    let bed = Bed::new();
    if !renews(&bed) {
        return;
    }
    let open = Open { volume: Volume::open(with_third(&bed)).unwrap() };
    // One whose other data is on a tier, and one whose is at home.
    let inos = ["f", "g"].map(|name| {
        let ino = make_spread(&open, name);
        set_atime(&open, ino, LONG_AGO);
        open.volume.move_range(ino, 5 * RANGE, "third", &mut || {}).unwrap();
        read(&open, ino);
        ino
    });
    let times = inos.map(|ino| attr(&open, ino).atime);
    assert!(!times.contains(&LONG_AGO));
    for (ino, to) in inos.into_iter().zip(["slow", "fast"]) {
        for range in 0..6 {
            open.volume.move_range(ino, range * RANGE, to, &mut || {}).unwrap();
        }
    }
    open.volume.sync().unwrap();
    open.volume.remove_tier("third").unwrap();
    assert_eq!(inos.map(|ino| attr(&open, ino).atime), times);
    open.close();
    let open = bed.open();
    assert_eq!(["f", "g"].map(|name| attr(&open, open.lookup(name).unwrap()).atime), times);
    open.close();
    assert!(check(bed.config(), false, &mut |_| {}).unwrap().problems.is_empty());
}

/// The file's attributes after a crash of these disks.
fn after_crash(machine: &Machine<2>, seed: u64) -> Attr {
    let after = Machine::after(&Machine::freeze(&machine.disks), seed);
    let open = Open { volume: Volume::open(after.config(0)).unwrap() };
    let found = attr(&open, open.lookup("f").unwrap());
    open.close();
    assert!(check(after.config(0), false, &mut |_| {}).unwrap().problems.is_empty(), "seed {seed}");
    found
}

#[test]
fn the_access_time_after_a_crash_is_that_of_its_owner() {
    const HOUR_NS: u64 = 3_600_000_000_000;
    for model in [Model::EXT4, Model::BTRFS, Model::WORST] {
        let machine = Machine::<2>::new(["home", "tier"], model);
        let clock = machine.environment.clock();
        let open = Open { volume: Volume::open(machine.config(0)).unwrap() };
        let ino = make_spread(&open, "f");
        open.volume.sync().unwrap();
        clock.advance(HOUR_NS);
        read(&open, ino);
        let first = attr(&open, ino);
        assert!(first.atime.secs >= first.mtime.secs + 3600);
        open.volume.sync().unwrap();
        // It is not old for a day.
        clock.advance(20 * HOUR_NS);
        read(&open, ino);
        assert_eq!(attr(&open, ino).atime, first.atime);
        clock.advance(20 * HOUR_NS);
        let handle = open.open(ino);
        open.read(handle, 5 * RANGE, 10);
        let second = attr(&open, ino).atime;
        assert!(second.secs > first.atime.secs + 24 * 3600);
        assert_eq!(after_crash(&machine, 2).atime, second, "the process was killed");
        assert_eq!(after_crash(&machine, 1).atime, second, "all was written back");
        for seed in [0, 3, 4, 5, 6] {
            let found = after_crash(&machine, seed);
            assert!([first.atime, second].contains(&found.atime), "seed {seed}: {found:?}");
        }
        // A time that was set and synced is not taken back by the owner before.
        set_atime(&open, ino, LONG_AGO);
        open.volume.fsync(&caller(), handle, false).unwrap();
        for seed in 0..7 {
            assert_eq!(after_crash(&machine, seed).atime, LONG_AGO, "seed {seed}");
        }
        open.volume.release(handle).unwrap();
        open.close();
    }
}

#[test]
fn a_write_makes_the_next_read_count_and_many_reads_cost_nothing() {
    let machine = Machine::<2>::new(["home", "tier"], Model::EXT4);
    let clock = machine.environment.clock();
    let (open, stores) = counting(machine.config(0));
    let ino = make_spread(&open, "f");
    let handle = open.open(ino);
    stores[0].times();
    for turn in 0..100 {
        clock.advance(2_000_000);
        open.write(handle, 5 * RANGE, b"changed");
        let written = attr(&open, ino).mtime;
        clock.advance(2_000_000);
        open.read(handle, 5 * RANGE, 10);
        assert!(attr(&open, ino).atime >= written, "turn {turn}");
    }
    assert_eq!(stores[0].times(), 1, "in less than a second");
    let known = attr(&open, ino);
    open.volume.release(handle).unwrap();
    assert_eq!(attr(&open, ino).atime, known.atime);
    let open = {
        open.close();
        Open { volume: Volume::open(machine.config(0)).unwrap() }
    };
    assert_eq!(attr(&open, open.lookup("f").unwrap()).atime, known.atime);
    open.close();
}

/// A tier whose objects keep no access times.
struct KeepsNone(Arc<dyn Store>);

impl StoreLayer for KeepsNone {
    fn inner(&self) -> &dyn Store {
        &*self.0
    }

    fn capabilities(&self) -> StoreCapabilities {
        StoreCapabilities { access_times: false, ..self.0.capabilities() }
    }

    fn before(&self, operation: StoreOperation, _: &[ObjectId]) -> braid_contract::Result<()> {
        assert_ne!(operation, StoreOperation::SetAccessTime);
        Ok(())
    }
}

#[test]
fn home_keeps_the_access_time_where_no_object_can() {
    let bed = Bed::new();
    if !renews(&bed) {
        return;
    }
    let open = || {
        let mut config = bed.config();
        let store = config.tiers[0].store.take().unwrap();
        config.tiers[0].store = Some(Arc::new(Layered(KeepsNone(store))));
        Open { volume: Volume::open(config).unwrap() }
    };
    let first = open();
    let inos = [make_spread(&first, "spread"), make_whole(&first, "whole"), make_spread(&first, "hole")];
    first.truncate(inos[2], 20 * RANGE);
    let before = inos.map(|ino| {
        set_atime(&first, ino, LONG_AGO);
        let before = attr(&first, ino);
        read(&first, ino);
        before
    });
    let read = inos.map(|ino| attr(&first, ino).atime);
    first.close();
    let second = open();
    for ((name, before), read) in ["spread", "whole", "hole"].into_iter().zip(before).zip(read) {
        let found = attr(&second, second.lookup(name).unwrap());
        assert!(read > LONG_AGO && found.atime > LONG_AGO, "{name}: {found:?}");
        assert_eq!((found.ctime, found.mtime), (before.ctime, before.mtime), "{name}");
    }
    second.close();
}

#[test]
fn of_two_access_times_that_were_set_the_later_call_counts() {
    let bed = Bed::new();
    for make in [make_spread, make_whole] {
        for used in [false, true] {
            let open = bed.open();
            let ino = make(&open, "f");
            let handle = used.then(|| open.open(ino));
            set_atime(&open, ino, LONG_AGO);
            read(&open, ino);
            set_atime(&open, ino, LONG_AGO);
            let earlier = Timestamp { secs: LONG_AGO.secs - 5, nanos: 2 };
            set_atime(&open, ino, earlier);
            handle.inspect(|handle| open.volume.release(*handle).unwrap());
            open.close();
            let open = bed.open();
            let ino = open.lookup("f").unwrap();
            assert_eq!(attr(&open, ino).atime, earlier, "in use: {used}");
            open.volume.unlink(&caller(), InodeId::ROOT, "f".as_ref()).unwrap();
            open.close();
        }
    }
}

#[test]
fn a_read_counts_after_a_change_that_is_synced_or_set() {
    let machine = Machine::<2>::new(["home", "tier"], Model::EXT4);
    let clock = machine.environment.clock();
    let open = Open { volume: Volume::open(machine.config(0)).unwrap() };
    let ino = make_spread(&open, "f");
    let handle = open.open(ino);
    let read_again = || {
        clock.advance(20_000_000);
        open.read(handle, 5 * RANGE, 10);
    };
    for turn in 0..3 {
        clock.advance(20_000_000);
        open.write(handle, 5 * RANGE, b"changed");
        open.volume.fsync(&caller(), handle, false).unwrap();
        let written = attr(&open, ino).mtime;
        read_again();
        assert!(attr(&open, ino).atime >= written, "synced, turn {turn}");
        clock.advance(20_000_000);
        let changes = SetAttr { mtime: Some(SetTime::Now), ..SetAttr::default() };
        let set = open.volume.setattr(&caller(), ino, None, &changes).unwrap().mtime;
        read_again();
        assert!(attr(&open, ino).atime >= set, "set, turn {turn}");
        clock.advance(20_000_000);
        set_atime(&open, ino, LONG_AGO);
        read_again();
        assert!(attr(&open, ino).atime > LONG_AGO, "access time set, turn {turn}");
    }
    open.volume.release(handle).unwrap();
    open.close();
}

#[test]
fn a_read_that_counts_ends_an_access_time_in_the_future() {
    let bed = Bed::new();
    let mut config = bed.config();
    let strict = AccessTimes { renewal: Renewal::Always, directories: true };
    // It takes a mount.
    let Ok(root) = braid_stores::native::with_access_times(&config.home.root, strict) else { return };
    config.home.root = root;
    let open = Open { volume: Volume::open(config).unwrap() };
    for make in [make_spread, make_whole] {
        let ino = make(&open, "f");
        let future = Timestamp { secs: 4_000_000_000, nanos: 3 };
        set_atime(&open, ino, future);
        read(&open, ino);
        assert!(attr(&open, ino).atime < future);
        open.volume.unlink(&caller(), InodeId::ROOT, "f".as_ref()).unwrap();
    }
    open.close();
}
