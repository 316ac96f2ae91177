//! Salvage: sound file systems are read whole, of damaged ones what is left, and nothing is ever
//! written or changed.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(dead_code, reason = "the tree has more than this needs")]

mod common;
#[path = "log_crash/tree.rs"]
mod tree;

use braid_contract::key_value::VALUE_MAX;
use braid_contract::{
    Caller, Environment, Errno, Error, FallocateMode, FileKind, FileSystem, InodeId, KeyChange, KeyValue,
    OpenFlags, PutOptions, RenameMode, Result, SetAttr, SplitMix, WriteFlags, XattrMode,
};
use braid_log::{BLOCK, Device, LogFs, NAMED_MAX, Owner, Salvaged, Settings, Trouble, check, format, is_log};
use braid_testkit::sim::{SimClock, SimEnvironment};
use common::{Left, SimDisk};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::IoSlice;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, RwLock};
use tree::Tree;

const SIZE: u64 = 24 << 20;
const GROUP: usize = 64 * BLOCK as usize;
const READ: OpenFlags = OpenFlags { read: true, write: false, direct: false, sync: false };
const READ_WRITE: OpenFlags = OpenFlags { read: true, write: true, direct: false, sync: false };
const DIRS: u64 = 40;
/// Files that are made last.
const LAST: u64 = 3;

/// A device in memory, which can refuse to be written.
#[derive(Debug)]
struct Memory {
    bytes: RwLock<Vec<u8>>,
    is_frozen: AtomicBool,
    /// Blocks that can't be read.
    bad: RwLock<Vec<u64>>,
}

impl Memory {
    fn new(bytes: Vec<u8>) -> Arc<Self> {
        Arc::new(Self { bytes: RwLock::new(bytes), is_frozen: AtomicBool::default(), bad: RwLock::default() })
    }

    fn bytes(&self) -> Vec<u8> {
        self.bytes.read().unwrap().clone()
    }

    fn freeze(self: &Arc<Self>) -> Arc<dyn Device> {
        self.is_frozen.store(true, Ordering::Relaxed);
        self.clone()
    }
}

impl Device for Memory {
    fn size(&self) -> u64 {
        self.bytes.read().unwrap().len() as u64
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let bytes = self.bytes.read().unwrap();
        let from = bytes.get(offset as usize..).and_then(|rest| rest.get(..buf.len())).ok_or(Errno::EIO)?;
        let blocks = offset / BLOCK..(offset + buf.len() as u64).div_ceil(BLOCK);
        if self.bad.read().unwrap().iter().any(|bad| blocks.contains(bad)) {
            return Err(Error::new(Errno::EIO, "a bad block"));
        }
        buf.copy_from_slice(from);
        Ok(())
    }

    fn write_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> Result<()> {
        assert!(!self.is_frozen.load(Ordering::Relaxed), "a write at {offset}");
        let (mut bytes, mut at) = (self.bytes.write().unwrap(), offset as usize);
        for buf in bufs {
            bytes[at..at + buf.len()].copy_from_slice(buf);
            at += buf.len();
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        assert!(!self.is_frozen.load(Ordering::Relaxed), "a flush");
        Ok(())
    }

    fn discard(&self, offset: u64, _len: u64) {
        assert!(!self.is_frozen.load(Ordering::Relaxed), "a discard at {offset}");
    }
}

fn environment() -> Arc<dyn Environment> {
    Arc::new(SimEnvironment::new(Arc::new(SimClock::new()), 3))
}

fn settings(workers: usize) -> Settings {
    Settings { workers, log_bytes: 4 << 20, commands: false }
}

fn caller(tid: u32) -> Caller {
    Caller { tid, pid: tid, ..Caller::root() }
}

fn os(name: &str) -> &OsStr {
    OsStr::new(name)
}

/// Makes files of all kinds in directories, `count` of them with these numbers.
fn fill(fs: &LogFs, from: u64, count: u64) {
    let mut random = SplitMix::new(from);
    for number in from..from + count {
        let caller = caller(1 + number as u32 % 3);
        let (dir, name) = (format!("dir{}", number % DIRS), format!("file{number}"));
        let dir = match fs.lookup(&caller, InodeId::ROOT, os(&dir)) {
            Ok(entry) => entry.attr.ino,
            Err(_) => fs.mkdir(&caller, InodeId::ROOT, os(&dir), 0o755, 0).unwrap().attr.ino,
        };
        if number % 50 == 7 {
            fs.symlink(&caller, dir, os(&name), os(&format!("target{number}"))).unwrap();
            continue;
        }
        let made = fs.create(&caller, dir, os(&name), 0o640, 0, true, READ_WRITE.into()).unwrap();
        let (ino, handle) = (made.0.attr.ino, made.1.handle);
        let len = if number % 5 == 0 { random.below(9000) } else { random.below(300) };
        let data: Vec<u8> = (0..len).map(|at| (number * 7 + at) as u8).collect();
        fs.write(&caller, handle, 0, &data, WriteFlags::default()).unwrap();
        if number % 40 == 3 {
            fs.setxattr(&caller, ino, os("user.note"), name.as_bytes(), XattrMode::Set).unwrap();
            fs.link(&caller, ino, InodeId::ROOT, os(&format!("link{number}"))).unwrap();
        }
        fs.release(handle).unwrap();
    }
}

/// A file of very many pieces, so that more than one record of an image describes it.
fn fill_large(fs: &LogFs) {
    let caller = caller(1);
    let made = fs.create(&caller, InodeId::ROOT, os("large"), 0o600, 0, true, READ_WRITE.into()).unwrap();
    // Every other block first, so that none lies behind the one before it.
    for at in (0..1000).step_by(2).chain((1..1000).step_by(2)) {
        fs.write(&caller, made.1.handle, at * BLOCK, &u64::to_le_bytes(at), WriteFlags::default()).unwrap();
    }
    fs.release(made.1.handle).unwrap();
}

/// A file system with image and, unless it is closed, logs; and what is in it.
fn made(files: u64, later: u64, workers: usize) -> (Vec<u8>, Tree) {
    let device = Memory::new(vec![0xa5; SIZE as usize]);
    let disk: Arc<dyn Device> = device.clone();
    format(&disk, Owner::default(), &*environment()).unwrap();
    let fs = LogFs::open(disk.clone(), settings(workers), environment()).unwrap();
    fill(&fs, 0, files);
    fill_large(&fs);
    fs.checkpoint().unwrap();
    for number in (1..files).step_by(97) {
        let dir =
            fs.lookup(&caller(1), InodeId::ROOT, os(&format!("dir{}", number % DIRS))).unwrap().attr.ino;
        fs.unlink(&caller(1), dir, os(&format!("file{number}"))).unwrap();
    }
    if later == 0 {
        fs.close().unwrap();
    } else {
        fs.checkpoint().unwrap();
        fill(&fs, files, later);
        fs.sync().unwrap();
        // So that the logs say that it was durable.
        fill(&fs, files + later, LAST);
        fs.sync().unwrap();
    }
    let tree = Tree::read(&fs).unwrap();
    (device.bytes(), tree)
}

fn salvage(device: &Arc<Memory>) -> Result<(LogFs, Salvaged)> {
    LogFs::salvage(&device.freeze(), settings(2), environment())
}

/// The part of a line that shows no directory's number of links and no other's damage.
fn files(tree: &Tree) -> impl Iterator<Item = (&String, &String)> {
    let lines = tree.lines.iter().filter(|(_, (_, line))| !line.contains("Directory"));
    lines.map(|(path, (_, line))| (path, line))
}

/// How many files are as they were, and how many were.
fn same(before: &Tree, after: &Tree) -> (usize, usize) {
    let found = |path: &String| after.lines.get(path).map(|(_, line)| line);
    let kept = files(before).filter(|(path, line)| found(path) == Some(*line)).count();
    (kept, files(before).count())
}

/// The files that are there and are not as they were, although the report does not name them.
fn untold(before: &Tree, after: &Tree, salvaged: &Salvaged) -> Vec<String> {
    let has_more = salvaged.wrong.values().any(|found| found.count > found.named.len() as u64);
    let names = |ino: u64| {
        let (one, other) = (format!("inode {ino}"), format!("inode {ino}, "));
        let mut named = salvaged.wrong.values().flat_map(|found| &found.named);
        named.any(|named| named.ends_with(&one) || named.starts_with(&other))
    };
    let differs = files(before).filter_map(|(path, line)| {
        let (ino, found) = after.lines.get(path)?;
        (found != line && !has_more && !names(*ino)).then(|| format!("{path}: {line}, now {found}"))
    });
    differs.collect()
}

/// The blocks of segments that have something in them.
fn metadata(bytes: &[u8]) -> Vec<u64> {
    let is_segment = |group: &&[u8]| group.starts_with(b"Bseg");
    let groups = bytes.chunks(GROUP).enumerate().filter(|(_, group)| is_segment(group));
    let blocks = groups.flat_map(|(at, group)| {
        let used = group.chunks(BLOCK as usize).enumerate();
        let used = used.filter(|(_, block)| block.iter().any(|byte| *byte != 0xa5 && *byte != 0));
        used.map(move |(block, _)| (at * 64 + block) as u64)
    });
    blocks.collect()
}

fn damage(block: &mut [u8], random: &mut SplitMix, how: u64) {
    match how % 3 {
        0 => block[random.below(64) as usize] ^= 1 << random.below(8),
        1 => block.fill(0),
        _ => block.iter_mut().for_each(|byte| *byte = random.below(256) as u8),
    }
}

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
        let blocks = damaged.len() as u64 / BLOCK;
        for _ in 0..1 << (round % 9) {
            let place = if random.below(4) > 0 { random.pick(&places) } else { random.below(blocks) };
            let (at, from) = ((place * BLOCK) as usize, (random.pick(&places) * BLOCK) as usize);
            match random.below(4) {
                // One block in the place of another.
                0 => damaged.copy_within(from..from + BLOCK as usize, at),
                how => damage(&mut damaged[at..at + BLOCK as usize], &mut random, how),
            }
        }
        if round % 10 == 9 {
            damaged.truncate(damaged.len() / 3);
        }
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

/// The places and lengths of all records, as bytes of the device.
fn records(bytes: &[u8]) -> Vec<(usize, usize)> {
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    let chunks = metadata(bytes).into_iter().map(|block| (block * BLOCK) as usize);
    let mut found = Vec::new();
    for chunk in chunks.filter(|at| bytes[*at..].starts_with(b"Bchk")) {
        let (mut at, end) = (chunk + 48, chunk + 48 + word(chunk + 20));
        while at < end {
            found.push((at, word(at)));
            at += 16 + word(at);
        }
    }
    found
}

#[test]
fn records_that_make_no_sense_do_no_harm() {
    let (bytes, _) = made(600, 300, 2);
    let (places, salt) = (records(&bytes), crc32c::crc32c(&bytes[20..36]));
    assert!(places.len() > 1000);
    let mut random = SplitMix::new(4);
    for round in 0..60 {
        let mut damaged = bytes.clone();
        for _ in 0..1 << (round % 10) {
            let (at, len) = random.pick(&places);
            // Its number, or what it says; with a checksum that fits.
            let from = if random.below(10) == 0 { at + 8 } else { at + 16 };
            let byte = from + random.below((at + 16 + len - from) as u64) as usize;
            damaged[byte] = if random.below(2) == 0 { random.below(256) as u8 } else { damaged[byte] ^ 1 };
            let sum = crc32c::crc32c_append(salt ^ len as u32, &damaged[at + 8..at + 16 + len]);
            damaged[at + 4..at + 8].copy_from_slice(&sum.to_le_bytes());
        }
        if round % 2 == 0 {
            damage(&mut damaged[..BLOCK as usize], &mut random, 1);
        }
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
        other[at + 8] = 2;
        let sum = crc32c::crc32c(&other[at..at + BLOCK as usize - 4]).to_le_bytes();
        other[at + BLOCK as usize - 4..][..4].copy_from_slice(&sum);
    }
    let device = Memory::new(other);
    let error = salvage(&device).err().unwrap();
    assert!(error.errno() == Errno::EINVAL && error.to_string().contains("format 2"), "{error}");
    assert!(is_log(&*device).unwrap() && check(&*device).is_err());
}
