//! Repairs in place: the result is sound, is what salvage reads, and can be used; one that is cut
//! off costs nothing.

use crate::common::{Left, SimDisk};
use crate::made::*;
use crate::tree::Tree;
use braid_contract::{Errno, FileSystem, InodeId, Result, SplitMix, WriteFlags};
use braid_log::{BLOCK, Device, LogFs, Salvaged, Trouble, check, repair};
use braid_testkit::sim::{SimClock, SimEnvironment};
use std::io::IoSlice;
use std::sync::Arc;

fn repaired(device: &Arc<Memory>) -> Result<Salvaged> {
    let disk: Arc<dyn Device> = device.clone();
    // With other numbers than those that the file system was made with.
    repair(&disk, &SimEnvironment::new(Arc::new(SimClock::new()), 4))
}

#[track_caller]
fn assert_sound(device: &dyn Device, what: &str) {
    let checked = check(device).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(checked.problems.is_empty(), "{what}: {:?}", checked.problems);
    assert!(checked.figures.unwrap().is_clean, "{what}");
}

/// Opens it, reads it, and uses it.
fn used(device: &Arc<Memory>, workers: usize, what: &str) -> Tree {
    let open = || LogFs::open(device.clone(), settings(workers), environment());
    let fs = open().unwrap_or_else(|error| panic!("{what}: {error}"));
    let tree = Tree::read(&fs).unwrap();
    fill(&fs, 100_000, 60);
    fs.sync().unwrap();
    fs.audit().unwrap();
    let more = Tree::read(&fs).unwrap();
    fs.close().unwrap();
    drop(fs);
    assert_sound(&**device, what);
    let fs = open().unwrap();
    let read = Tree::read(&fs).unwrap();
    assert!(read == more, "{what}: {}", more.difference(&read));
    fs.close().unwrap();
    tree
}

#[test]
fn it_is_what_salvage_reads() {
    for (later, workers) in [(0, 2), (700, 1), (700, 3)] {
        let (bytes, _) = made(2000, later, workers);
        let (places, mut random) = (metadata(&bytes), SplitMix::new(6));
        for (how, place) in places.iter().step_by(19).enumerate() {
            let what = format!("block {place}");
            let mut damaged = bytes.clone();
            let at = (*place * BLOCK) as usize;
            damage(&mut damaged[at..at + BLOCK as usize], &mut random, how as u64);
            let (fs, salvaged) = salvage(&Memory::new(damaged.clone())).unwrap();
            let wanted = Tree::read(&fs).unwrap();
            let device = Memory::new(damaged);
            assert_eq!(repaired(&device).unwrap(), salvaged, "{what}");
            assert_sound(&*device, &what);
            let tree = used(&device, workers, &what);
            assert!(tree == wanted, "{what}: {}", wanted.difference(&tree));
        }
    }
}

#[test]
fn without_a_superblock_it_gets_another_identity() {
    let (bytes, tree) = made(1500, 700, 2);
    let last = bytes.len() - BLOCK as usize;
    let mut before = bytes[20..36].to_vec();
    let device = Memory::new(bytes);
    let mut wanted = tree;
    for round in 0..3 {
        for at in [0, last] {
            device.bytes.write().unwrap()[at..at + 100].fill(0x11);
        }
        let salvaged = repaired(&device).unwrap();
        assert_eq!(salvaged.count(Trouble::Superblock), 2);
        assert_sound(&*device, "repaired");
        let fs = LogFs::open(device.clone(), settings(2), environment()).unwrap();
        let identity = device.bytes.read().unwrap()[20..36].to_vec();
        // The second repair comes to the same numbers.
        assert!(identity != before || round > 0);
        before = identity;
        let read = Tree::read(&fs).unwrap();
        let (kept, all) = same(&wanted, &read);
        assert_eq!(kept, all, "round {round}: {salvaged:?}\n{}", wanted.difference(&read));
        fill(&fs, 200_000 + round * 100, 60);
        fs.checkpoint().unwrap();
        wanted = Tree::read(&fs).unwrap();
        fs.close().unwrap();
    }
}

/// Repairs a damaged one, and uses it.
fn is_of_use(damaged: Vec<u8>, what: &str) {
    let device = Memory::new(damaged);
    repaired(&device).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_sound(&*device, what);
    used(&device, 2, what);
}

#[test]
fn after_heavy_damage_it_is_sound() {
    let (bytes, _) = made(1200, 500, 2);
    let (places, mut random) = (metadata(&bytes), SplitMix::new(78));
    for round in 0..60 {
        let mut damaged = bytes.clone();
        damage_many(&mut damaged, &places, &mut random, round);
        is_of_use(damaged, &format!("round {round}"));
    }
}

#[test]
fn records_that_make_no_sense_leave_a_sound_one() {
    let (bytes, _) = made(600, 300, 2);
    let (places, mut random) = (records(&bytes), SplitMix::new(5));
    for round in 0..60 {
        let mut damaged = bytes.clone();
        forge_records(&mut damaged, &places, &mut random, round);
        is_of_use(damaged, &format!("round {round}"));
    }
}

#[test]
fn one_that_is_cut_off_costs_nothing() {
    let (bytes, _) = made(700, 300, 2);
    let last = bytes.len() - BLOCK as usize;
    let image = u64::from_le_bytes(bytes[96..104].try_into().unwrap()) * 64 + 2;
    for (damage, without_superblock) in [(image, false), (image + 5, true)] {
        let mut damaged = bytes.clone();
        damaged[(damage * BLOCK) as usize..][..BLOCK as usize].fill(0);
        if without_superblock {
            damaged[..100].fill(0x11);
            damaged[last..last + 100].fill(0x11);
        }
        let device = SimDisk::new(damaged.len() as u64);
        device.write_at(0, &[IoSlice::new(&damaged)]).unwrap();
        device.flush().unwrap();
        let disk: Arc<dyn Device> = device.clone();
        let read = |disk: &Arc<dyn Device>| {
            Tree::read(&LogFs::salvage(disk, settings(2), environment()).unwrap().0).unwrap()
        };
        let wanted = read(&disk);
        device.record();
        repair(&disk, &*environment()).unwrap();
        let (mut before, mut after) = (0, 0);
        for (at, moment) in device.moments().iter().chain([&device.moment()]).enumerate() {
            for left in [Left::Nothing, Left::All, Left::Some(at as u64), Left::Most(at as u64)] {
                let disk: Arc<dyn Device> = moment.after_power_loss(left);
                let tree = read(&disk);
                let what = format!("block {damage}, moment {at}, {left:?}");
                assert!(tree == wanted, "{what}: {}", wanted.difference(&tree));
                match LogFs::open(disk, settings(2), environment()) {
                    Ok(fs) => {
                        let tree = Tree::read(&fs).unwrap();
                        assert!(tree == wanted, "{what}: {}", wanted.difference(&tree));
                        after += 1;
                    }
                    Err(_) => before += 1,
                }
            }
        }
        println!("block {damage}: {before} states before the repair, {after} after it");
        assert!(before > 10 && after > 3);
    }
}

#[test]
fn a_device_that_became_larger_is_used_to_its_end() {
    let (bytes, tree) = made(600, 200, 2);
    for more in [BLOCK as usize, 3 << 20] {
        let mut larger = bytes.clone();
        larger.resize(bytes.len() + more, 0);
        let device = Memory::new(larger);
        assert!(!check(&*device).unwrap().problems.is_empty());
        repaired(&device).unwrap();
        assert_sound(&*device, "larger");
        let read = used(&device, 2, "larger");
        assert!(read == tree, "{}", tree.difference(&read));
    }
}

#[test]
fn what_is_too_small_for_anything_is_none() {
    for len in [0, 3, 5000] {
        let device = Memory::new(vec![0; len]);
        assert_eq!(repaired(&device).unwrap_err().errno(), Errno::EINVAL);
        assert_eq!(check(&*device).unwrap_err().errno(), Errno::EINVAL);
    }
}

/// Fills it until there is no room.
fn fill_up(device: &Arc<Memory>) {
    let fs = LogFs::open(device.clone(), settings(2), environment()).unwrap();
    let made = fs.create(&caller(1), InodeId::ROOT, os("filler"), 0o600, 0, true, READ_WRITE.into()).unwrap();
    let (mut at, mut len) = (0, 1 << 20);
    while len >= BLOCK {
        match fs.write(&caller(1), made.1.handle, at, &vec![3; len as usize], WriteFlags::default()) {
            Ok(written) => at += written as u64,
            Err(error) => {
                assert_eq!(error.errno(), Errno::ENOSPC);
                len /= 2;
            }
        }
    }
    fs.release(made.1.handle).unwrap();
    fs.close().unwrap();
}

/// A full one has room for the next checkpoint, and so for a repair, even where segments of
/// earlier ones are on all other groups.
#[test]
fn a_full_one_can_be_repaired() {
    for uses in [0, 5] {
        let (bytes, _) = made(900, 0, 2);
        let device = Memory::new(bytes);
        for turn in 0..uses {
            let fs = LogFs::open(device.clone(), settings(2), environment()).unwrap();
            fill(&fs, 10_000 + turn * 500, 400);
            fs.checkpoint().unwrap();
            fs.close().unwrap();
        }
        fill_up(&device);
        let full = device.bytes();
        let image = u64::from_le_bytes(full[96..104].try_into().unwrap()) as usize;
        for place in [0, image * GROUP + 2 * BLOCK as usize + 50] {
            let mut damaged = full.clone();
            damaged[place] ^= 1;
            let device = Memory::new(damaged);
            let salvaged = repaired(&device).unwrap_or_else(|error| panic!("{uses}, {place}: {error}"));
            assert!(!salvaged.is_sound());
            assert_sound(&*device, "full");
        }
    }
}
