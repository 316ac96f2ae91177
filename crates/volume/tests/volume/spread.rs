//! Files over several tiers: contents, sizes, remounts, crashes, removal.

use crate::common::machine::Machine;
use crate::common::{Bed, Open, RANGE, caller, pattern};
use braid_contract::{
    Errno, FallocateMode, FileSystem, InodeId, ObjectId, ReadPiece, RenameMode, Result, SeekTarget, Store,
    StoreIo, StoreLayer, StoreOperation,
};
use braid_testkit::sim::Model;
use braid_volume::{FileLayout, Volume, check};
use std::ffi::OsStr;
use std::io::IoSliceMut;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};

fn problems(bed: &Bed) -> Vec<String> {
    let report = check(bed.config(), false, &mut |_| {}).unwrap();
    report
        .problems
        .into_iter()
        .map(|problem| format!("{:?} {:?}: {}", problem.path, problem.id, problem.what))
        .collect()
}

fn objects(bed: &Bed) -> usize {
    let data = bed.path("slow").join(".braid/data");
    let shards = std::fs::read_dir(data).unwrap();
    shards.map(|shard| std::fs::read_dir(shard.unwrap().path()).unwrap().count()).sum()
}

fn tiers_of(open: &Open, ino: InodeId) -> Vec<Option<String>> {
    let explained = open.volume.explain(ino).unwrap();
    explained.runs.into_iter().map(|run| run.tier.map(|tier| tier.name)).collect()
}

#[test]
fn a_small_file_is_an_ordinary_file_in_the_home_tree() {
    let bed = Bed::new();
    let open = bed.open();
    let (ino, handle) = open.create("f");
    open.write(handle, 0, b"hello");
    assert_eq!(std::fs::read(bed.path("home").join("f")).unwrap(), b"hello");
    assert_eq!(open.volume.explain(ino).unwrap().layout, FileLayout::Plain);
    open.close();
    assert_eq!(objects(&bed), 0);
}

#[test]
fn a_large_file_uses_both_tiers_and_survives_a_remount() {
    let bed = Bed::new();
    let data = pattern(1, 20 * RANGE as usize + 777);
    let open = bed.open();
    let (ino, handle) = open.create("f");
    for (at, chunk) in data.chunks(10_000).enumerate() {
        open.write(handle, at as u64 * 10_000, chunk);
    }
    assert!(open.read(handle, 0, data.len() + 10) == data);
    let tiers = tiers_of(&open, ino);
    assert!(tiers.contains(&Some("slow".into())) && tiers.contains(&Some("fast".into())), "{tiers:?}");
    open.volume.release(handle).unwrap();
    assert_eq!(std::fs::metadata(bed.path("home").join("f")).unwrap().len(), data.len() as u64);
    open.close();
    assert_eq!(problems(&bed), Vec::<String>::new());

    let open = bed.open();
    let ino = open.lookup("f").unwrap();
    assert_eq!(open.size(ino), data.len() as u64);
    let handle = open.open(ino);
    assert!(open.read(handle, 0, data.len() + 10) == data);
    for offset in [0, 1, RANGE - 1, RANGE, 5 * RANGE + 3, data.len() as u64 - 1] {
        let expected = &data[offset as usize..data.len().min(offset as usize + 70_000)];
        assert!(open.read(handle, offset, 70_000) == expected, "offset {offset}");
    }
}

/// A store that notes how many stretches are read at once.
struct Noting(Arc<dyn Store>, Arc<Mutex<Vec<usize>>>);

impl StoreLayer for Noting {
    fn inner(&self) -> &dyn Store {
        &*self.0
    }

    fn read_at(&self, id: ObjectId, at: u64, bufs: &mut [IoSliceMut<'_>], io: StoreIo) -> Result<usize> {
        self.1.lock().unwrap().push(1);
        self.0.read_at(id, at, bufs, io)
    }

    fn read_pieces(&self, id: ObjectId, pieces: &mut [ReadPiece<'_>], io: StoreIo) -> Result<()> {
        self.1.lock().unwrap().push(pieces.len());
        self.0.read_pieces(id, pieces, io)
    }
}

#[test]
fn what_a_read_has_on_one_tier_is_read_at_once() {
    let bed = Bed::new();
    let (mut config, reads) = (bed.config(), Arc::<Mutex<Vec<usize>>>::default());
    let store = Noting(config.tiers[0].store.take().unwrap(), Arc::clone(&reads));
    config.tiers[0].store = Some(Arc::new(store));
    let open = Open { volume: Volume::open(config).unwrap() };
    let (ino, handle) = open.create("f");
    let data = pattern(1, 6 * RANGE as usize);
    open.write_ranges(handle, &data);
    // Ends in a hole that the tier's object does not reach.
    open.truncate(ino, 7 * RANGE - 5);
    let mut wanted = data;
    wanted.resize(7 * RANGE as usize - 5, 0);
    for (range, tier) in ["slow", "fast", "slow", "slow", "fast", "slow"].into_iter().enumerate() {
        open.volume.move_range(ino, range as u64 * RANGE, tier, &mut || {}).unwrap();
    }
    for (offset, len, pieces) in [(100, wanted.len(), vec![3]), (RANGE, 3 * RANGE as usize, vec![1])] {
        reads.lock().unwrap().clear();
        let end = wanted.len().min(offset as usize + len);
        assert!(open.read(handle, offset, len) == wanted[offset as usize..end]);
        assert_eq!(*reads.lock().unwrap(), pieces);
    }
    open.volume.release(handle).unwrap();
    open.close();
}

#[test]
fn a_killed_daemon_loses_nothing_that_was_written() {
    let bed = Bed::new();
    let data = pattern(2, 9 * RANGE as usize + 5);
    let open = bed.open();
    let (_, handle) = open.create("f");
    open.write_ranges(handle, &data);
    open.kill();
    let open = bed.open();
    let ino = open.lookup("f").unwrap();
    assert_eq!(open.size(ino), data.len() as u64);
    let handle = open.open(ino);
    assert!(open.read(handle, 0, data.len()) == data);
    open.volume.release(handle).unwrap();
    open.close();
    assert_eq!(problems(&bed), Vec::<String>::new());
}

#[test]
fn truncation_never_shows_old_bytes() {
    let bed = Bed::new();
    let open = bed.open();
    let (ino, handle) = open.create("f");
    let data = pattern(3, 8 * RANGE as usize);
    open.write_ranges(handle, &data);
    for size in [7 * RANGE + 100, 3 * RANGE, 2 * RANGE + 1, 10] {
        open.truncate(ino, size);
        assert_eq!(open.size(ino), size);
        open.truncate(ino, 8 * RANGE);
        let mut expected = data[..size as usize].to_vec();
        expected.resize(data.len(), 0);
        assert!(open.read(handle, 0, data.len()) == expected, "cut to {size}");
    }
    open.truncate(ino, 0);
    open.truncate(ino, RANGE);
    assert!(open.read(handle, 0, RANGE as usize).iter().all(|byte| *byte == 0));
    open.volume.release(handle).unwrap();
    open.close();
    assert_eq!((problems(&bed), objects(&bed)), (Vec::new(), 0));
}

#[test]
fn removal_waits_for_the_last_open_and_leaves_nothing() {
    let bed = Bed::new();
    let open = bed.open();
    let (ino, handle) = open.create("f");
    let data = pattern(4, 4 * RANGE as usize);
    open.write_ranges(handle, &data);
    open.volume.link(&caller(), ino, InodeId::ROOT, OsStr::new("g")).unwrap();
    open.volume.unlink(&caller(), InodeId::ROOT, OsStr::new("f")).unwrap();
    assert_eq!(open.lookup("f").unwrap_err().errno(), Errno::ENOENT);
    open.volume.unlink(&caller(), InodeId::ROOT, OsStr::new("g")).unwrap();
    open.write(handle, RANGE, b"still here");
    assert_eq!(open.read(handle, RANGE, 10), b"still here");
    assert_eq!(open.volume.getattr(&caller(), ino, Some(handle)).unwrap().nlink, 0);
    open.volume.release(handle).unwrap();
    open.close();
    assert_eq!((problems(&bed), objects(&bed)), (Vec::new(), 0));
}

#[test]
fn a_crash_between_removal_and_clean_up_leaves_nothing_after_the_next_mount() {
    let bed = Bed::new();
    let open = bed.open();
    let (_, handle) = open.create("f");
    open.write_ranges(handle, &pattern(5, 4 * RANGE as usize));
    open.volume.unlink(&caller(), InodeId::ROOT, OsStr::new("f")).unwrap();
    open.kill();
    assert_eq!(objects(&bed), 1);
    bed.open().close();
    assert_eq!((problems(&bed), objects(&bed)), (Vec::new(), 0));
}

#[test]
fn renaming_over_a_spread_file_removes_its_data() {
    let bed = Bed::new();
    let open = bed.open();
    for (name, seed) in [("old", 6), ("new", 7)] {
        let (_, handle) = open.create(name);
        open.write_ranges(handle, &pattern(seed, 4 * RANGE as usize));
        open.volume.release(handle).unwrap();
    }
    let (new, old) = (OsStr::new("new"), OsStr::new("old"));
    open.volume.rename(&caller(), InodeId::ROOT, new, InodeId::ROOT, old, RenameMode::Replace).unwrap();
    let handle = open.open(open.lookup("old").unwrap());
    assert!(open.read(handle, 0, 4 * RANGE as usize) == pattern(7, 4 * RANGE as usize));
    open.volume.release(handle).unwrap();
    open.close();
    assert_eq!((problems(&bed), objects(&bed)), (Vec::new(), 1));
}

#[test]
fn holes_are_holes_and_allocation_is_spread() {
    let bed = Bed::new();
    let open = bed.open();
    let (ino, handle) = open.create("f");
    open.truncate(ino, 100 * RANGE);
    assert_eq!(open.volume.seek(&caller(), handle, 0, SeekTarget::Data).unwrap_err().errno(), Errno::ENXIO);
    open.write(handle, 50 * RANGE, b"x");
    let data = open.volume.seek(&caller(), handle, 0, SeekTarget::Data).unwrap();
    assert_eq!(data, 50 * RANGE);
    let hole = open.volume.seek(&caller(), handle, data, SeekTarget::Hole).unwrap();
    assert!(hole > data && hole <= 51 * RANGE);
    let mode = FallocateMode::Allocate { keep_size: false };
    open.volume.fallocate(&caller(), handle, 0, 100 * RANGE, mode).unwrap();
    let status = open.volume.status();
    let ranges: Vec<u64> = status.tiers.iter().map(|tier| tier.ranges).collect();
    assert_eq!(ranges.iter().sum::<u64>(), 100);
    assert!(ranges[0].abs_diff(ranges[1]) <= 2, "{ranges:?}");
    open.volume.fallocate(&caller(), handle, 0, 100 * RANGE, FallocateMode::PunchHole).unwrap();
    assert_eq!(open.read(handle, 50 * RANGE, 2), [0, 0]);
}

#[test]
fn one_write_goes_to_one_tier() {
    let bed = Bed::new();
    let open = bed.open();
    let (ino, handle) = open.create("f");
    open.write(handle, 0, &pattern(8, RANGE as usize));
    open.write(handle, RANGE, &pattern(8, 16 * RANGE as usize));
    assert!(tiers_of(&open, ino).len() <= 2, "{:?}", tiers_of(&open, ino));
}

#[test]
fn the_braid_directory_is_not_part_of_the_namespace() {
    let bed = Bed::new();
    let open = bed.open();
    assert_eq!(open.lookup(".braid").unwrap_err().errno(), Errno::ENOENT);
    let made = open.volume.mkdir(&caller(), InodeId::ROOT, OsStr::new(".braid"), 0o755, 0);
    assert_eq!(made.unwrap_err().errno(), Errno::EPERM);
}

#[test]
fn punching_past_the_end_is_nothing_to_do() {
    let bed = Bed::new();
    let open = bed.open();
    let (ino, handle) = open.create("f");
    open.truncate(ino, 10 * RANGE);
    open.truncate(ino, 2 * RANGE + 1);
    let punch = |offset, len| open.volume.fallocate(&caller(), handle, offset, len, FallocateMode::PunchHole);
    punch(5 * RANGE + 4096, 1).unwrap();
    punch(2 * RANGE + 1, 1).unwrap();
    assert_eq!(open.size(ino), 2 * RANGE + 1);
}

#[test]
fn a_file_that_is_spread_after_its_last_name_went_leaves_nothing() {
    let bed = Bed::new();
    let open = bed.open();
    let (_, handle) = open.create("f");
    open.volume.unlink(&caller(), InodeId::ROOT, OsStr::new("f")).unwrap();
    open.write_ranges(handle, &pattern(9, 8 * RANGE as usize));
    assert!(open.read(handle, 0, 8 * RANGE as usize) == pattern(9, 8 * RANGE as usize));
    open.volume.release(handle).unwrap();
    open.close();
    assert_eq!((problems(&bed), objects(&bed)), (Vec::new(), 0));
}

#[test]
fn flushing_beside_writers_cuts_nothing_off() {
    let bed = Bed::new();
    let open = bed.open();
    let (_, handle) = open.create("f");
    let len = 64 * RANGE as usize;
    let data = pattern(10, len);
    open.write(handle, 0, &data[..2 * RANGE as usize]);
    let next = std::sync::atomic::AtomicUsize::new(2 * RANGE as usize);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1000, std::sync::atomic::Ordering::Relaxed);
                    let Some(part) = data.get(at..len.min(at + 1000)).filter(|part| !part.is_empty()) else {
                        break;
                    };
                    open.write(handle, at as u64, part);
                    open.volume.flush(&caller(), handle).unwrap();
                }
            });
        }
    });
    assert!(open.read(handle, 0, len) == data);
}

#[test]
fn repair_removes_nothing_of_a_file_whose_attribute_is_damaged() {
    let bed = Bed::new();
    let open = bed.open();
    let (_, handle) = open.create("f");
    open.write_ranges(handle, &pattern(11, 6 * RANGE as usize));
    open.volume.release(handle).unwrap();
    open.close();
    let path = bed.path("home").join("f");
    let name = if rustix::process::geteuid().is_root() { "trusted.braid.id" } else { "user.braid.id" };
    rustix::fs::setxattr(&path, name, &[1; 40], rustix::fs::XattrFlags::empty()).unwrap();
    let report = check(bed.config(), true, &mut |_| {}).unwrap();
    assert!(report.problems.iter().any(|problem| problem.path.is_some()), "{report:?}");
    assert_eq!(objects(&bed), 1);
}

#[test]
fn two_names_removed_at_once_leave_nothing() {
    let bed = Bed::new();
    let open = bed.open();
    for round in 0..50 {
        let (a, b) = (format!("a{round}"), format!("b{round}"));
        let (ino, handle) = open.create(&a);
        open.write_ranges(handle, &pattern(round, 3 * RANGE as usize));
        open.volume.link(&caller(), ino, InodeId::ROOT, OsStr::new(&b)).unwrap();
        open.volume.release(handle).unwrap();
        std::thread::scope(|scope| {
            for name in [&a, &b] {
                scope.spawn(|| open.volume.unlink(&caller(), InodeId::ROOT, OsStr::new(name)).unwrap());
            }
        });
    }
    open.close();
    assert_eq!((problems(&bed), objects(&bed)), (Vec::new(), 0));
}

#[test]
fn a_file_emptied_after_its_last_name_went_and_filled_again_leaves_nothing() {
    let bed = Bed::new();
    let open = bed.open();
    let (ino, handle) = open.create("f");
    open.write_ranges(handle, &pattern(12, 6 * RANGE as usize));
    open.volume.unlink(&caller(), InodeId::ROOT, OsStr::new("f")).unwrap();
    open.truncate(ino, 0);
    open.write_ranges(handle, &pattern(13, 6 * RANGE as usize));
    open.volume.release(handle).unwrap();
    open.close();
    assert_eq!((problems(&bed), objects(&bed)), (Vec::new(), 0));
}

#[test]
fn reading_leaves_the_change_time_alone() {
    let bed = Bed::new();
    let open = bed.open();
    let (_, handle) = open.create("f");
    open.write_ranges(handle, &pattern(14, 6 * RANGE as usize));
    open.volume.release(handle).unwrap();
    open.close();
    let open = bed.open();
    let ino = open.lookup("f").unwrap();
    let before = open.volume.getattr(&caller(), ino, None).unwrap();
    let handle = open.open(ino);
    open.read(handle, 0, 6 * RANGE as usize);
    open.volume.release(handle).unwrap();
    let after = open.volume.getattr(&caller(), ino, None).unwrap();
    assert_eq!((before.ctime, before.mtime), (after.ctime, after.mtime));
}

/// A tier of which one write waits where the data is not written yet.
struct Gated {
    inner: Arc<dyn Store>,
    closed: AtomicBool,
    arrived: mpsc::Sender<()>,
    open: Mutex<mpsc::Receiver<()>>,
    syncs: AtomicU64,
}

impl StoreLayer for Gated {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    fn before(&self, operation: StoreOperation, _: &[ObjectId]) -> braid_contract::Result<()> {
        match operation {
            StoreOperation::Write if self.closed.swap(false, Ordering::AcqRel) => {
                self.arrived.send(()).unwrap();
                self.open.lock().unwrap().recv().unwrap();
            }
            StoreOperation::Sync => _ = self.syncs.fetch_add(1, Ordering::AcqRel),
            _ => {}
        }
        Ok(())
    }
}

#[test]
fn a_sync_beside_a_write_does_not_make_it_pass_for_synced() {
    let bed = Bed::new();
    let mut config = bed.config();
    let (arrived, has_arrived) = mpsc::channel();
    let (let_in, open) = mpsc::channel();
    let gated = Arc::new(Gated {
        inner: config.tiers[0].store.take().unwrap(),
        closed: AtomicBool::new(false),
        arrived,
        open: Mutex::new(open),
        syncs: AtomicU64::new(0),
    });
    let store: Arc<dyn Store> = gated.clone();
    config.tiers[0].store = Some(store);
    let open = Open { volume: Volume::open(config).unwrap() };
    let (ino, handle) = open.create("f");
    open.write_ranges(handle, &vec![1; 4 * RANGE as usize]);
    let there = open.volume.explain(ino).unwrap().runs;
    let there = there.iter().find(|run| run.tier.as_ref().is_some_and(|tier| tier.name == "slow"));
    let offset = there.expect("something is on the other tier").offset;
    open.volume.fsync(&caller(), handle, true).unwrap();
    std::thread::scope(|scope| {
        gated.closed.store(true, Ordering::Release);
        let writing = scope.spawn(|| open.write(handle, offset, &[2; 100]));
        has_arrived.recv().unwrap();
        open.volume.fsync(&caller(), handle, true).unwrap();
        let before = gated.syncs.load(Ordering::Acquire);
        let_in.send(()).unwrap();
        writing.join().unwrap();
        open.volume.fsync(&caller(), handle, true).unwrap();
        assert!(gated.syncs.load(Ordering::Acquire) > before, "the write was never synced");
    });
    open.close();
}

/// What is synced on home until the first data of a new file is durable elsewhere.
#[test]
fn the_first_sync_of_a_file_that_left_home_syncs_its_home_file_once() {
    let machine = Machine::<2>::new(["home", "tier"], Model::WORST);
    let mut config = machine.config(0);
    config.home.weight = Some(0.001);
    let open = Open { volume: Volume::open(config).unwrap() };
    let synced = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&synced);
    machine.disks[0].set_observer(Some(Arc::new(move |effect| {
        if ["fsync", "fdatasync"].contains(&effect.operation) {
            sink.lock().unwrap().push(effect.path.clone());
        }
    })));
    for number in 0..8 {
        let (ino, handle) = open.create(&format!("file-{number}"));
        open.write(handle, 0, &pattern(number, 2 * RANGE as usize));
        open.volume.fsync(&caller(), handle, false).unwrap();
        let explained = open.volume.explain(ino).unwrap();
        assert!(explained.runs.iter().all(|run| run.tier.as_ref().is_some_and(|tier| tier.id.0 == 1)));
    }
    machine.disks[0].set_observer(None);
    let synced = synced.lock().unwrap();
    let count = |wanted: &dyn Fn(&str) -> bool| synced.iter().filter(|path| wanted(path)).count();
    for number in 0..8 {
        let name = format!("file-{number}");
        assert_eq!(count(&|path| path.ends_with(&name)), 1, "{name}: {synced:?}");
    }
    // One, two, four and eight marks at a time.
    assert_eq!(count(&|path| path.contains(".braid/open")), 4, "{synced:?}");
}
