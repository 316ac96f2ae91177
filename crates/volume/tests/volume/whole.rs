//! Whole files: small files that live on another tier than home, without an
//! index.

use crate::common::{Bed, Open, RANGE, caller, pattern};
use braid_contract::{FallocateMode, FileSystem, InodeId, JobKind, JobState};
use braid_placement::{PolicyConfig, Reserve};
use braid_stores::dir::DirStore;
use braid_testkit::sim::{Disk, DiskConfig, Model, SimClock, SimEnvironment};
use braid_volume::{FileLayout, HomeConfig, MoversConfig, TierConfig, Volume, VolumeConfig, check};
use std::path::Path;
use std::sync::Arc;

const MIB: u64 = 1 << 20;

/// Files below a directory.
fn files_below(dir: &Path) -> usize {
    let entries = std::fs::read_dir(dir).map(|dir| dir.map(Result::unwrap).collect::<Vec<_>>());
    let below = |entry: &std::fs::DirEntry| match entry.file_type().unwrap().is_dir() {
        true => files_below(&entry.path()),
        false => 1,
    };
    entries.unwrap_or_default().iter().map(below).sum()
}

fn objects(bed: &Bed, tier: &str) -> usize {
    files_below(&bed.path(tier).join(".braid/data"))
}

fn indexes(bed: &Bed) -> usize {
    files_below(&bed.path("home/.braid/index"))
}

fn marks(bed: &Bed) -> usize {
    files_below(&bed.path("home/.braid/open"))
}

fn assert_sound(bed: &Bed) {
    let report = check(bed.config(), false, &mut |_| {}).unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
}

fn is_whole(open: &Open, ino: InodeId) -> bool {
    matches!(open.volume.explain(ino).unwrap().layout, FileLayout::Whole { .. })
}

fn move_to(open: &Open, ino: InodeId, tier: &str) {
    open.volume.move_range(ino, 0, tier, &mut || {}).unwrap();
}

/// A closed file with these bytes that is whole on `slow`.
fn make_whole(open: &Open, name: &str, data: &[u8]) -> InodeId {
    let (ino, handle) = open.create(name);
    open.write(handle, 0, data);
    open.volume.release(handle).unwrap();
    move_to(open, ino, "slow");
    assert!(is_whole(open, ino));
    ino
}

fn contents(open: &Open, ino: InodeId) -> Vec<u8> {
    let handle = open.open(ino);
    let data = open.read(handle, 0, 1 << 20);
    open.volume.release(handle).unwrap();
    data
}

#[test]
fn a_small_file_moves_without_an_index_and_comes_back_as_a_plain_one() {
    let bed = Bed::new();
    let data = pattern(1, 40_000);
    let open = bed.open();
    let ino = make_whole(&open, "f", &data);
    assert_eq!(contents(&open, ino), data);
    let home = bed.path("home/f");
    assert_eq!(std::fs::metadata(&home).unwrap().len(), 40_000, "native tools see its size");
    open.close();
    assert_eq!((indexes(&bed), objects(&bed, "slow"), marks(&bed)), (0, 1, 0));
    assert_sound(&bed);

    let open = bed.open();
    let ino = open.lookup("f").unwrap();
    assert_eq!((open.size(ino), contents(&open, ino)), (40_000, data.clone()));
    assert!(is_whole(&open, ino));
    move_to(&open, ino, "fast");
    assert_eq!(open.volume.explain(ino).unwrap().layout, FileLayout::Plain);
    assert_eq!(contents(&open, ino), data);
    open.close();
    assert_eq!(std::fs::read(&home).unwrap(), data);
    assert_eq!((indexes(&bed), objects(&bed, "slow"), marks(&bed)), (0, 0, 0));
    assert_sound(&bed);
}

#[test]
fn writes_cuts_and_holes_of_a_whole_file_survive_a_killed_daemon() {
    let bed = Bed::new();
    let open = bed.open();
    let ino = make_whole(&open, "f", &pattern(1, 10_000));
    let handle = open.open(ino);
    open.truncate(ino, 5_000);
    open.write(handle, 20_000, &pattern(2, 1_000));
    open.truncate(ino, 30_000);
    let mut expected = pattern(1, 5_000);
    expected.resize(20_000, 0);
    expected.extend(pattern(2, 1_000));
    expected.resize(30_000, 0);
    open.volume.fallocate(&caller(), handle, 1_000, 500, FallocateMode::PunchHole).unwrap();
    expected[1_000..1_500].fill(0);
    assert_eq!(open.read(handle, 0, 40_000), expected);
    open.kill();

    let open = bed.open();
    let ino = open.lookup("f").unwrap();
    assert_eq!((open.size(ino), contents(&open, ino)), (30_000, expected));
    assert!(is_whole(&open, ino));
    open.close();
    assert_eq!((indexes(&bed), marks(&bed)), (0, 0));
    assert_sound(&bed);
}

#[test]
fn a_whole_file_gets_an_index_when_it_comes_to_be_on_two_tiers() {
    let bed = Bed::new();
    let open = bed.open();
    let ino = make_whole(&open, "f", &pattern(1, RANGE as usize));
    let handle = open.open(ino);
    let data = pattern(3, 8 * RANGE as usize);
    open.write_ranges(handle, &data);
    assert!(matches!(open.volume.explain(ino).unwrap().layout, FileLayout::Spread { .. }));
    assert_eq!(open.read(handle, 0, data.len()), data);
    open.volume.fsync(&caller(), handle, false).unwrap();
    open.kill();

    let open = bed.open();
    let ino = open.lookup("f").unwrap();
    assert_eq!(contents(&open, ino), data);
    open.close();
    assert_eq!((indexes(&bed), marks(&bed)), (1, 0));
    assert_sound(&bed);
}

#[test]
fn what_is_removed_emptied_or_replaced_leaves_no_object() {
    let bed = Bed::new();
    let open = bed.open();
    for name in ["removed", "emptied", "replaced", "orphan"] {
        make_whole(&open, name, &pattern(1, 1_000));
    }
    let root = InodeId::ROOT;
    open.volume.unlink(&caller(), root, "removed".as_ref()).unwrap();
    open.truncate(open.lookup("emptied").unwrap(), 0);
    let (_, handle) = open.create("new");
    open.volume.release(handle).unwrap();
    let mode = braid_contract::RenameMode::Replace;
    open.volume.rename(&caller(), root, "new".as_ref(), root, "replaced".as_ref(), mode).unwrap();
    let ino = open.lookup("orphan").unwrap();
    let handle = open.open(ino);
    open.volume.unlink(&caller(), root, "orphan".as_ref()).unwrap();
    assert_eq!(open.read(handle, 0, 2_000), pattern(1, 1_000));
    open.volume.release(handle).unwrap();
    open.close();
    assert_eq!((objects(&bed, "slow"), marks(&bed)), (0, 0));
    assert_sound(&bed);
}

#[test]
fn jobs_reach_whole_files_and_a_tier_that_has_some_is_not_removed() {
    let bed = Bed::new();
    let config = || {
        let mut config = bed.config();
        config.tiers.push(bed.tier("third"));
        config
    };
    let open = Open { volume: Volume::open(config()).unwrap() };
    open.volume.start_jobs(None).unwrap();
    let data = pattern(5, 3_000);
    for at in 0..20 {
        make_whole(&open, &format!("f{at}"), &data);
    }
    assert!(open.volume.remove_tier("slow").unwrap_err().to_string().contains("not empty"));
    let evacuate = JobKind::Evacuate { tier: "slow".into(), then_remove: false };
    let id = open.volume.start_job(evacuate, None).unwrap().record.id;
    while !open.volume.job(id).unwrap().record.state.is_final() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert_eq!(open.volume.job(id).unwrap().record.state, JobState::Done);
    open.volume.remove_tier("slow").unwrap();
    for at in 0..20 {
        let ino = open.lookup(&format!("f{at}")).unwrap();
        assert_eq!(contents(&open, ino), data);
    }
    open.close();
    assert_eq!(indexes(&bed), 0);
    let report = check(config(), false, &mut |_| {}).unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
}

#[test]
fn a_missing_object_is_damage_only_if_it_was_synced() {
    let bed = Bed::new();
    let open = bed.open();
    let ino = make_whole(&open, "f", &pattern(1, 1_000));
    assert_eq!(open.size(ino), 1_000);
    open.close();
    let shard = std::fs::read_dir(bed.path("slow/.braid/data")).unwrap();
    let object =
        shard.flat_map(|dir| std::fs::read_dir(dir.unwrap().path()).unwrap()).next().unwrap().unwrap();
    std::fs::remove_file(object.path()).unwrap();
    let report = check(bed.config(), false, &mut |_| {}).unwrap();
    let codes: Vec<_> = report.problems.iter().map(|problem| problem.code).collect();
    assert_eq!(codes, ["object-missing"]);
    let open = bed.open();
    let handle = open.open(open.lookup("f").unwrap());
    let read = open.volume.read(&caller(), handle, 0, &mut [0; 10], false);
    assert_eq!(read.unwrap_err().errno(), braid_contract::Errno::EIO);
}

/// A small home and a large other disk, both simulated.
struct Sim {
    disks: [Disk; 2],
    environment: Arc<SimEnvironment>,
    reserve: Reserve,
}

impl Sim {
    fn new(home: u64, other: u64, reserve: Reserve) -> Self {
        let clock = Arc::new(SimClock::new());
        let disk = |(at, capacity): (u64, u64)| {
            let name = format!("d{at}");
            let disk =
                Disk::new(DiskConfig { name, capacity, device: at + 1, volatile: false, model: Model::EXT4 });
            disk.set_clock(Arc::clone(&clock));
            disk
        };
        let disks = [(0, home), (1, other)].map(disk);
        Self { disks, environment: Arc::new(SimEnvironment::new(clock, 1)), reserve }
    }

    fn config(&self) -> VolumeConfig {
        VolumeConfig {
            home: HomeConfig {
                name: "fast".into(),
                root: self.disks[0].root(),
                location: "fast".into(),
                weight: Some(1.0),
                profile: None,
                reserve: self.reserve,
            },
            tiers: vec![TierConfig {
                name: "slow".into(),
                store: Some(Arc::new(DirStore::new(self.disks[1].root()).unwrap())),
                location: "slow".into(),
                weight: Some(1.0),
                profile: None,
                reserve: Reserve::Bytes(0),
            }],
            create: true,
            range_size: None,
            policy: PolicyConfig::named("adaptive").unwrap(),
            rules: Vec::new(),
            hints: Default::default(),
            epoch_ns: braid_placement::EPOCH_NS_DEFAULT,
            heat_budget: braid_volume::HEAT_BUDGET_DEFAULT,
            monitor: true,
            movers: MoversConfig::NONE,
            environment: self.environment.clone(),
        }
    }
}

#[test]
fn what_small_files_take_counts_before_their_tier_is_measured_again() {
    let sim = Sim::new(16 * MIB, 48 * MIB, Reserve::Bytes(4 * MIB));
    let open = Open { volume: Volume::open(sim.config()).unwrap() };
    let data = pattern(1, 100 << 10);
    for file in 0..300 {
        let (ino, handle) = open.create(&format!("f{file}"));
        open.write(handle, 0, &data);
        open.volume.release(handle).unwrap();
        open.volume.forget(ino, 1);
        let said = open.volume.statfs(&caller()).unwrap().available;
        let there: u64 = sim.disks.iter().map(|disk| disk.root().usage().unwrap().space.available).sum();
        assert!(said <= there - there / 16, "file {file}: {said} of {there}");
    }
    open.close();
}

#[test]
fn small_files_use_every_tier_and_names_keep_their_room() {
    let sim = Sim::new(16 * MIB, 48 * MIB, Reserve::Bytes(4 * MIB));
    let open = Open { volume: Volume::open(sim.config()).unwrap() };
    let available = open.volume.statfs(&caller()).unwrap().available;
    let data = pattern(1, 100 << 10);
    let (mut taken, mut files) = (0, 0);
    let write = |name: &str, data: &[u8]| {
        let (ino, handle) = open.create(name);
        let flags = braid_contract::WriteFlags::default();
        let written = open.volume.write(&caller(), handle, 0, data, flags);
        open.volume.release(handle).unwrap();
        open.volume.forget(ino, 1);
        written
    };
    let error = loop {
        match write(&format!("f{files}"), &data) {
            Ok(written) => taken += written as u64,
            Err(error) => break error,
        }
        files += 1;
    };
    assert_eq!(error.errno(), braid_contract::Errno::ENOSPC);
    assert!(taken * 100 >= available * 95, "{taken} of {available} bytes after {files} files");
    // Names have room still.
    for at in 0..100 {
        let (ino, handle) = open.create(&format!("n{at}"));
        open.volume.release(handle).unwrap();
        open.volume.forget(ino, 1);
    }
    let used = sim.disks[0].root().usage().unwrap().space;
    assert!(used.available >= 3 * MIB, "data took what is kept for names: {used:?}");
    open.close();
    let report = check(sim.config(), false, &mut |_| {}).unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
}

#[test]
fn a_plain_file_grows_on_the_other_tier_when_home_is_full() {
    let sim = Sim::new(16 * MIB, 64 * MIB, Reserve::Bytes(4 * MIB));
    let open = Open { volume: Volume::open(sim.config()).unwrap() };
    let (ino, handle) = open.create("log");
    open.write(handle, 0, &pattern(1, 200 << 10));
    let (_, other) = open.create("big");
    let filler = pattern(2, 1 << 20);
    let mut at = 0;
    while open.volume.explain(open.lookup("big").unwrap()).unwrap().layout == FileLayout::Plain && at < 11 {
        open.write(other, at << 20, &filler);
        at += 1;
    }
    let mut expected = pattern(1, 200 << 10);
    for piece in pattern(3, 5 << 20).chunks(128 << 10) {
        open.write(handle, expected.len() as u64, piece);
        expected.extend_from_slice(piece);
    }
    assert_eq!(open.read(handle, 0, expected.len() + 1), expected);
    assert_eq!(open.size(ino), expected.len() as u64);
    let (_, reserved) = open.create("reserved");
    let mode = FallocateMode::Allocate { keep_size: false };
    open.volume.fallocate(&caller(), reserved, 0, 20 * MIB, mode).unwrap();
    open.close();
    let report = check(sim.config(), false, &mut |_| {}).unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
}
