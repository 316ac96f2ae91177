//! Ranges move while threads read, write, truncate and punch the file: the
//! application must not notice.

use crate::common::{Bed, Open, RANGE, caller, pattern};
use braid_contract::{Errno, FallocateMode, FileSystem, HandleId, InodeId, SeekTarget};
use braid_testkit::SplitMix;
use braid_volume::{Volume, VolumeConfig, check};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const TIERS: [&str; 3] = ["fast", "slow", "third"];

fn config(bed: &Bed) -> VolumeConfig {
    let mut config = bed.config();
    config.tiers.push(bed.tier("third"));
    config
}

fn open(bed: &Bed) -> Open {
    Open { volume: Volume::open(config(bed)).unwrap() }
}

/// Moves random ranges until stopped, and counts the moves.
fn move_about(volume: &Volume, ino: InodeId, ranges: u64, seed: u64, end: &AtomicBool, moved: &AtomicU64) {
    let mut dice = SplitMix::new(seed);
    while !end.load(Ordering::Relaxed) {
        let tier = TIERS[dice.below(3) as usize];
        match volume.move_range(ino, dice.below(ranges) * RANGE, tier, &mut || {}) {
            Ok(()) => _ = moved.fetch_add(1, Ordering::Relaxed),
            // Another mover has the range, or the file was truncated or
            // punched.
            Err(error) => assert_eq!(error.errno(), Errno::EBUSY, "{error}"),
        }
    }
}

/// Runs `work` while two threads move ranges of the file.
fn beside_movers(open: &Open, ino: InodeId, ranges: u64, work: impl FnOnce(&AtomicU64)) {
    let (end, moved) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for seed in [5, 77] {
            let (end, moved, volume) = (&end, &moved, &open.volume);
            scope.spawn(move || move_about(volume, ino, ranges, seed, end, moved));
        }
        let worked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(&moved)));
        end.store(true, Ordering::Relaxed);
        worked.unwrap();
    });
    assert!(moved.into_inner() > 10, "hardly anything moved");
}

fn assert_clean(bed: &Bed) {
    let report = check(config(bed), false, &mut |_| {}).unwrap();
    let problems: Vec<_> = report.problems.iter().map(|problem| &problem.what).collect();
    assert!(problems.is_empty(), "{problems:?}");
}

/// Writes and reads back blocks of its own, next to those of others.
fn own_blocks(open: &Open, handle: HandleId, (me, writers): (u64, u64), ranges: u64, moved: &AtomicU64) {
    const BLOCK: u64 = 700;
    let blocks = ranges * RANGE / BLOCK;
    let (mut dice, mut last) = (SplitMix::new(me), vec![0_u8; blocks as usize]);
    let mut round = 0;
    while round < 1000 || moved.load(Ordering::Relaxed) < 60 {
        round += 1;
        let block = dice.below(blocks / writers) * writers + me;
        let value = (round % 251) as u8 + 1;
        open.write(handle, block * BLOCK, &[value; BLOCK as usize]);
        last[block as usize] = value;
        let seen = dice.below(blocks / writers) * writers + me;
        let data = open.read(handle, seen * BLOCK, BLOCK as usize);
        assert!(data.iter().all(|byte| *byte == last[seen as usize]), "block {seen} of writer {me}");
    }
    for block in (me..blocks / writers * writers).step_by(writers as usize) {
        let data = open.read(handle, block * BLOCK, BLOCK as usize);
        assert!(data.iter().all(|byte| *byte == last[block as usize]), "block {block} of writer {me}");
    }
}

#[test]
fn many_writers_of_one_file_lose_nothing() {
    const RANGES: u64 = 6;
    let bed = Bed::new();
    let open = open(&bed);
    let (ino, handle) = open.create("f");
    open.write_ranges(handle, &vec![0; (RANGES * RANGE) as usize]);
    beside_movers(&open, ino, RANGES, |moved| {
        std::thread::scope(|scope| {
            for me in 0..4 {
                let open = &open;
                scope.spawn(move || own_blocks(open, handle, (me, 4), RANGES, moved));
            }
        });
    });
    open.volume.release(handle).unwrap();
    open.close();
    assert_clean(&bed);
}

/// One step of a random sequence on the file, and on a model of it.
fn step(open: &Open, (ino, handle): (InodeId, HandleId), dice: &mut SplitMix, model: &mut Vec<u8>) {
    let (at, len) = (dice.below(5 * RANGE), dice.below(RANGE) + 1);
    let end = (at + len) as usize;
    match dice.below(10) {
        0 => {
            open.truncate(ino, at);
            model.resize(at as usize, 0);
        }
        1 => {
            let size = dice.below(2) * RANGE;
            open.truncate(ino, size);
            model.resize(size as usize, 0);
        }
        2 => {
            open.volume.fallocate(&caller(), handle, at, len, FallocateMode::PunchHole).unwrap();
            let size = model.len();
            model[(at as usize).min(size)..end.min(size)].fill(0);
        }
        3 => {
            let zero = FallocateMode::ZeroRange { keep_size: false };
            open.volume.fallocate(&caller(), handle, at, len, zero).unwrap();
            model.resize(model.len().max(end), 0);
            model[at as usize..end].fill(0);
        }
        4 => open.volume.fsync(&caller(), handle, false).unwrap(),
        5 => {
            // From data on, there is no hole where there is data.
            if let Ok(hole) = open.volume.seek(&caller(), handle, at, SeekTarget::Hole) {
                let hole = hole as usize;
                let rest = &model[hole.min(model.len())..(hole + 1).min(model.len())];
                assert!(rest.iter().all(|byte| *byte == 0), "a hole at {hole} in data");
            }
        }
        _ => {
            let data = pattern(at ^ len, len as usize);
            open.write(handle, at, &data);
            model.resize(model.len().max(end), 0);
            model[at as usize..end].copy_from_slice(&data);
        }
    }
}

#[test]
fn every_operation_goes_on_beside_moves() {
    let bed = Bed::new();
    let open = open(&bed);
    let (ino, handle) = open.create("f");
    let mut model = pattern(9, 4 * RANGE as usize);
    open.write_ranges(handle, &model);
    beside_movers(&open, ino, 5, |_| {
        let mut dice = SplitMix::new(3);
        for round in 0..600 {
            step(&open, (ino, handle), &mut dice, &mut model);
            assert_eq!(open.size(ino), model.len() as u64, "round {round}");
            assert!(open.read(handle, 0, model.len() + 10) == model, "round {round}");
        }
    });
    open.volume.release(handle).unwrap();
    open.close();
    assert_clean(&bed);
    let open = self::open(&bed);
    let ino = open.lookup("f").unwrap();
    let handle = open.open(ino);
    assert!(open.read(handle, 0, model.len() + 10) == model);
}

#[test]
fn a_check_beside_moves_finds_nothing_and_breaks_nothing() {
    let bed = Bed::new();
    let open = open(&bed);
    let (ino, handle) = open.create("f");
    let data = pattern(4, 6 * RANGE as usize);
    open.write_ranges(handle, &data);
    beside_movers(&open, ino, 6, |moved| {
        let mut checks = 0;
        while checks < 20 || moved.load(Ordering::Relaxed) < 20 {
            checks += 1;
            let options =
                braid_volume::CheckOptions { repair: true, ..braid_volume::CheckOptions::default() };
            let report = open.volume.check(&options, &mut |_| true).unwrap();
            let problems: Vec<_> = report.problems.iter().map(|problem| &problem.what).collect();
            assert!(problems.is_empty(), "{problems:?}");
            assert!(open.read(handle, 0, data.len()) == data);
        }
    });
    open.volume.release(handle).unwrap();
    open.close();
    assert_clean(&bed);
}
