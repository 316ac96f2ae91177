//! Salvage: sound file systems are read whole, of damaged ones what is left, and nothing is ever
//! written or changed.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(dead_code, reason = "the tree has more than this needs")]

#[path = "../common/mod.rs"]
mod common;
mod made;
mod repair;
#[path = "../log_crash/tree.rs"]
mod tree;

use braid_contract::key_value::VALUE_MAX;
use braid_contract::{
    Errno, FallocateMode, FileKind, FileSystem, InodeId, KeyChange, KeyValue, PutOptions, RenameMode,
    SetAttr, SplitMix, WriteFlags, XattrMode,
};
use braid_log::{BLOCK, Device, LogFs, NAMED_MAX, Owner, Trouble, check, format, is_log};
use common::{Left, SimDisk};
use made::*;
use std::collections::BTreeSet;
use std::sync::Arc;
use tree::Tree;

#[test]
fn a_sound_log_is_read_whole() {
    for (later, workers) in [(0, 2), (400, 1), (400, 3)] {
        let (bytes, tree) = made(1500, later, workers);
        let device = Memory::new(bytes);
        let (fs, salvaged) = salvage(&device).unwrap();
        assert!(salvaged.is_sound(), "{salvaged:?}");
        assert_eq!(salvaged.lost_and_found, None);
        let read = Tree::read(&fs).unwrap();
        assert!(read == tree, "{}", tree.difference(&read));
        let dir = fs.lookup(&caller(1), InodeId::ROOT, os("dir3")).unwrap().attr.ino;
        let mut value = Vec::new();
        let bucket = fs.bucket(dir, None).unwrap();
        assert!(bucket.read(&caller(1), b"file3", &mut value, VALUE_MAX).unwrap());
        assert!(fs.statfs(&caller(1)).unwrap().free < SIZE);
        fs.sync().unwrap();
        fs.close().unwrap();
    }
}

#[test]
fn after_a_crash_it_is_what_recovery_leaves() {
    let device = SimDisk::new(16 << 20);
    let disk: Arc<dyn Device> = device.clone();
    format(&disk, Owner::default(), &*environment()).unwrap();
    let fs = LogFs::open(disk, settings(2), environment()).unwrap();
    device.record();
    for round in 0..12 {
        fill(&fs, round * 20, 20);
        match round % 4 {
            1 => fs.sync().unwrap(),
            3 => fs.checkpoint().unwrap(),
            _ => {}
        }
    }
    fs.sync().unwrap();
    let (mut sound, mut tried) = (0, 0);
    for (at, moment) in device.moments().iter().enumerate() {
        for left in [Left::Nothing, Left::All, Left::Some(at as u64), Left::Most(at as u64)] {
            let crashed = moment.after_power_loss(left);
            let disk: Arc<dyn Device> = crashed.clone();
            let (salvaged_fs, salvaged) = LogFs::salvage(&disk, settings(2), environment()).unwrap();
            let read = Tree::read(&salvaged_fs).unwrap();
            let recovered = LogFs::open(disk, settings(2), environment()).unwrap();
            let wanted = Tree::read(&recovered).unwrap();
            tried += 1;
            if salvaged.is_sound() {
                sound += 1;
                assert!(read == wanted, "moment {at}, {left:?}: {}", wanted.difference(&read));
            } else {
                let (kept, all) = same(&wanted, &read);
                assert!(kept * 10 >= all * 9, "moment {at}, {left:?}: {kept} of {all}: {salvaged:?}");
            }
        }
    }
    println!("{sound} of {tried} crash states say that nothing is wrong");
    assert!(tried > 100 && sound * 2 > tried);
}

#[test]
fn one_damaged_place_costs_little_wherever_it_is() {
    for (later, workers) in [(0, 2), (700, 1), (700, 3)] {
        let (bytes, tree) = made(2500, later, workers);
        let places = metadata(&bytes);
        let (mut least, mut tried, mut random) = (1.0_f64, 0, SplitMix::new(5));
        let device = Memory::new(bytes.clone());
        for (how, place) in places.iter().step_by(6).enumerate() {
            let at = (*place * BLOCK) as usize;
            let range = at..at + BLOCK as usize;
            damage(&mut device.bytes.write().unwrap()[range.clone()], &mut random, how as u64);
            let damaged = device.bytes();
            let (fs, salvaged) = salvage(&device).unwrap_or_else(|error| panic!("block {place}: {error}"));
            let read = Tree::read(&fs).unwrap_or_else(|error| panic!("block {place}: {error}"));
            fs.close().unwrap();
            drop(fs);
            assert!(*device.bytes.read().unwrap() == damaged, "block {place}: the device is changed");
            let (kept, all) = same(&tree, &read);
            let part = kept as f64 / all as f64;
            assert!(part >= 0.9, "block {place}: {kept} of {all}: {salvaged:?}");
            // The last records look as if power loss had cut them off.
            let untold = untold(&tree, &read, &salvaged);
            assert!(later > 0 || untold.is_empty(), "block {place}: {untold:?}");
            let is_told = !salvaged.is_sound() || all - kept <= LAST as usize;
            assert!(is_told, "block {place}: {kept} of {all}, and nothing is said");
            (least, tried) = (least.min(part), tried + 1);
            device.bytes.write().unwrap()[range.clone()].copy_from_slice(&bytes[range]);
        }
        println!("later {later}, workers {workers}: {tried} of {} places, at least {least:.4}", places.len());
    }
}

/// Damage is no power loss: what was durable before something behind it was written must not
/// be cut off by recovery.
#[test]
fn a_damaged_log_is_not_taken_for_one_that_lost_power() {
    for (later, workers) in [(700, 1), (700, 3), (3500, 1)] {
        let (bytes, tree) = made(800, later, workers);
        let (mut random, mut refused) = (SplitMix::new(8), 0);
        // Beginnings of segments, and others.
        let places = metadata(&bytes).into_iter().filter(|place| later < 1000 || place % 64 == 0);
        for (how, place) in places.enumerate() {
            let mut damaged = bytes.clone();
            let at = (place * BLOCK) as usize;
            damage(&mut damaged[at..at + BLOCK as usize], &mut random, how as u64);
            let device = Memory::new(damaged);
            if check(&*device).map_or(true, |checked| !checked.problems.is_empty()) {
                refused += 1;
                continue;
            }
            let fs = LogFs::open(device, settings(workers), environment()).unwrap();
            let (kept, all) = same(&tree, &Tree::read(&fs).unwrap());
            fs.close().unwrap();
            assert!(kept + LAST as usize >= all, "block {place}: {kept} of {all}");
        }
        println!("later {later}, {workers} workers: {refused} places are refused");
        assert!(refused > if later < 1000 { 10 } else { 2 });
    }
}

#[test]
fn superblocks_may_be_lost() {
    for (later, workers) in [(0, 2), (700, 3)] {
        let (bytes, tree) = made(1500, later, workers);
        let last = bytes.len() - BLOCK as usize;
        for (first, second, troubles) in [(true, false, 1), (false, true, 1), (true, true, 2)] {
            let mut damaged = bytes.clone();
            for (is_damaged, at) in [(first, 0), (second, last)] {
                if is_damaged {
                    damaged[at..at + 100].fill(0x11);
                }
            }
            let (fs, salvaged) = salvage(&Memory::new(damaged)).unwrap();
            assert_eq!(salvaged.count(Trouble::Superblock), troubles);
            let read = Tree::read(&fs).unwrap();
            let (kept, all) = same(&tree, &read);
            assert_eq!(kept, all, "{salvaged:?}\n{}", tree.difference(&read));
        }
    }
}

#[test]
fn heavy_damage_ends_in_what_is_left() {
    let (bytes, _) = made(1200, 500, 2);
    let places = metadata(&bytes);
    let mut random = SplitMix::new(77);
    for round in 0..40 {
        let mut damaged = bytes.clone();
        damage_many(&mut damaged, &places, &mut random, round);
        let device = Memory::new(damaged.clone());
        if round % 4 == 0 {
            *device.bad.write().unwrap() = (0..5).map(|_| random.pick(&places)).collect();
        }
        // Nothing may be left at all.
        let Ok((fs, salvaged)) = salvage(&device) else { continue };
        let read = read_leniently(&fs);
        assert!(salvaged.wrong.values().all(|found| found.named.len() <= NAMED_MAX));
        assert!(read >= 1, "round {round}");
        drop(fs);
        assert!(*device.bytes.read().unwrap() == damaged, "round {round}: the device is changed");
    }
}

#[test]
fn records_that_make_no_sense_do_no_harm() {
    let (bytes, _) = made(600, 300, 2);
    let places = records(&bytes);
    assert!(places.len() > 1000);
    let mut random = SplitMix::new(4);
    for round in 0..60 {
        let mut damaged = bytes.clone();
        forge_records(&mut damaged, &places, &mut random, round);
        let device = Memory::new(damaged.clone());
        let (fs, salvaged) = salvage(&device).unwrap();
        let read = Tree::read(&fs).unwrap_or_else(|error| panic!("round {round}: {error}: {salvaged:?}"));
        assert!(read.lines.len() > 1 && salvaged.inodes > 1, "round {round}");
        for path in read.lines.values() {
            fs.path(InodeId(path.0)).ok();
        }
        drop(fs);
        assert!(*device.bytes.read().unwrap() == damaged, "round {round}: the device is changed");
    }
}

/// Walks through everything, where only reading bad blocks of the device may fail; returns how
/// many inodes were found.
fn read_leniently(fs: &LogFs) -> usize {
    match Tree::read(fs) {
        Ok(tree) => tree.lines.len(),
        Err(error) => {
            assert_eq!(error.errno(), Errno::EIO, "{error}");
            1
        }
    }
}

#[test]
fn blocks_that_can_not_be_read_are_damage_like_other() {
    let (bytes, tree) = made(1200, 0, 2);
    let places = metadata(&bytes);
    let device = Memory::new(bytes);
    for place in places.iter().step_by(25) {
        *device.bad.write().unwrap() = vec![*place];
        let (fs, _) = salvage(&device).unwrap();
        let (kept, all) = same(&tree, &Tree::read(&fs).unwrap());
        assert!(kept * 10 >= all * 9, "block {place}: {kept} of {all}");
    }
}

#[test]
fn what_was_lost_is_told_and_has_a_place() {
    let (bytes, tree) = made(1500, 0, 1);
    let (mut told, mut found, mut least) = (0, 0, usize::MAX);
    for place in metadata(&bytes).into_iter().step_by(5) {
        let mut damaged = bytes.clone();
        // Nothing earlier is left, either.
        for other in metadata(&bytes).into_iter().filter(|other| other / 64 != place / 64) {
            if check_is_stale(&bytes, other) {
                damaged[(other * BLOCK) as usize..][..BLOCK as usize].fill(0);
            }
        }
        damaged[(place * BLOCK) as usize..][..BLOCK as usize].fill(0);
        let (fs, salvaged) = salvage(&Memory::new(damaged)).unwrap();
        let read = Tree::read(&fs).unwrap();
        let (kept, all) = same(&tree, &read);
        let untold = untold(&tree, &read, &salvaged);
        assert!(untold.is_empty(), "block {place}: {untold:?}");
        let anywhere: BTreeSet<&String> = files(&read).map(|(_, line)| line).collect();
        let left = files(&tree).filter(|(_, line)| anywhere.contains(line)).count();
        assert!(left * 10 >= all * 9, "block {place}: {left} of {all}");
        least = least.min(left);
        if kept < all {
            told += 1;
            assert!(salvaged.count(Trouble::ImageRecord) > 0, "{salvaged:?}");
        }
        if let Some(name) = &salvaged.lost_and_found {
            found += 1;
            let at = fs.lookup(&caller(1), InodeId::ROOT, os(name)).unwrap().attr;
            assert_eq!((at.kind, at.mode), (FileKind::Directory, 0o700));
            assert!(salvaged.count(Trouble::Unnamed) > 0);
        }
    }
    println!("{told} places with losses, {found} with lost+found, at least {least} files left");
    assert!(told > 10 && found > 0);
}

/// Whether a block is of a segment that the superblock of a closed file system does not need:
/// the image that it names comes last.
fn check_is_stale(bytes: &[u8], block: u64) -> bool {
    let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let (image, own) = (number(104), number(block as usize / 64 * GROUP + 8));
    own < image
}

#[test]
fn what_a_file_holds_is_no_segment_whatever_it_looks_like() {
    let (mut bytes, tree) = made(600, 0, 1);
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let (image_group, image, salt) = (word(96) as usize, word(104), crc32c::crc32c(&bytes[20..36]));
    // A file of a whole group of blocks, which looks like a part of the image: with an inode that is
    // another user's.
    let group = bytes.chunks(GROUP).position(|group| group.iter().all(|byte| *byte == FILLED)).unwrap();
    let forged = forged_group(salt, image, tree.lines["/dir4/file4"].0);
    bytes[group * GROUP..][..forged.len()].copy_from_slice(&forged);
    // A damage that has all segments looked at.
    bytes[image_group * GROUP + 2 * BLOCK as usize + 50] ^= 1;
    let (fs, salvaged) = salvage(&Memory::new(bytes)).unwrap();
    assert!(!salvaged.is_sound());
    let read = Tree::read(&fs).unwrap();
    let (kept, all) = same(&tree, &read);
    assert!(kept + 1 >= all, "{kept} of {all}: {salvaged:?}");
    assert!(read.lines.values().all(|(_, line)| !line.contains(" 666:666 ")));
}

#[test]
fn nothing_can_be_changed() {
    let (bytes, _) = made(300, 50, 2);
    let device = Memory::new(bytes.clone());
    let (fs, _) = salvage(&device).unwrap();
    let (caller, root) = (caller(1), InodeId::ROOT);
    let dir = fs.lookup(&caller, root, os("dir4")).unwrap().attr.ino;
    let file = fs.lookup(&caller, dir, os("file4")).unwrap().attr.ino;
    let handle = fs.open(&caller, file, READ.into()).unwrap().handle;
    let size = SetAttr { size: Some(1), ..SetAttr::default() };
    let mode = SetAttr { mode: Some(0o777), ..SetAttr::default() };
    let refused: Vec<Option<Errno>> = vec![
        fs.open(&caller, file, READ_WRITE.into()).err(),
        fs.create(&caller, dir, os("new"), 0o644, 0, false, READ.into()).err(),
        fs.create(&caller, dir, os("file4"), 0o644, 0, false, READ_WRITE.into()).err(),
        fs.create(&caller, dir, os("new"), 0o644, 0, true, READ_WRITE.into()).err(),
        fs.tmpfile(&caller, dir, 0o644, 0, READ_WRITE.into()).err(),
        fs.mknod(&caller, dir, os("new"), 0o100_644, 0, 0).err(),
        fs.mkdir(&caller, dir, os("new"), 0o755, 0).err(),
        fs.symlink(&caller, dir, os("new"), os("target")).err(),
        fs.link(&caller, file, root, os("new")).err(),
        fs.unlink(&caller, dir, os("file4")).err(),
        fs.rmdir(&caller, root, os("dir4")).err(),
        fs.rename(&caller, dir, os("file4"), root, os("new"), RenameMode::default()).err(),
        fs.setattr(&caller, file, None, &size).err(),
        fs.setattr(&caller, file, Some(handle), &mode).err(),
        fs.write(&caller, handle, 0, b"data", WriteFlags::default()).err(),
        fs.fallocate(&caller, handle, 0, 10, FallocateMode::PunchHole).err(),
        fs.copy_range(&caller, handle, 0, handle, 10, 1).err(),
        fs.setxattr(&caller, file, os("user.a"), b"a", XattrMode::Set).err(),
        fs.removexattr(&caller, file, os("user.a")).err(),
        fs.checkpoint().err(),
    ]
    .into_iter()
    .map(|error| error.map(|error| error.errno()))
    .collect();
    assert_eq!(refused, vec![Some(Errno::EROFS); refused.len()]);
    let bucket = fs.bucket(dir, None).unwrap();
    let batch = [KeyChange::Put(b"new", b"value")];
    for refused in [
        bucket.put(&caller, b"new", b"value", PutOptions::default()).err(),
        bucket.put(&caller, b"file4", &[7; 5000], PutOptions::default()).err(),
        bucket.delete(&caller, b"file4").err(),
        bucket.batch(&caller, &batch).err(),
    ] {
        assert_eq!(refused.map(|error| error.errno()), Some(Errno::EROFS));
    }
    let existing = fs.create(&caller, dir, os("file4"), 0o644, 0, false, READ.into()).unwrap();
    fs.fsync(&caller, existing.1.handle, false).unwrap();
    fs.release(existing.1.handle).unwrap();
    fs.release(handle).unwrap();
    bucket.sync().unwrap();
    drop(bucket);
    fs.sync().unwrap();
    fs.close().unwrap();
    assert!(device.bytes() == bytes);
}

#[test]
fn without_a_log_there_is_nothing_to_salvage() {
    let (bytes, _) = made(50, 0, 1);
    let error = salvage(&Memory::new(vec![0; SIZE as usize])).err().unwrap();
    assert_eq!(error.errno(), Errno::EINVAL, "{error}");
    // Of another version, which this program does not know.
    let mut other = bytes;
    for at in [0, other.len() - BLOCK as usize] {
        other[at + 8] = 3;
        let sum = crc32c::crc32c(&other[at..at + BLOCK as usize - 4]).to_le_bytes();
        other[at + BLOCK as usize - 4..][..4].copy_from_slice(&sum);
    }
    let device = Memory::new(other);
    let error = salvage(&device).err().unwrap();
    assert!(error.errno() == Errno::EINVAL && error.to_string().contains("format 3"), "{error}");
    assert!(is_log(&*device).unwrap() && check(&*device).is_err());
}
