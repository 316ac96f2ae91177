//! File systems to be salvaged, on a device in memory, and what is left of them.

use crate::tree::Tree;
use braid_contract::{
    Caller, Environment, Errno, Error, FileSystem, InodeId, OpenFlags, Result, SplitMix, WriteFlags,
    XattrMode,
};
use braid_log::{BLOCK, Device, LogFs, Owner, Salvaged, Settings, format};
use braid_testkit::sim::{SimClock, SimEnvironment};
use std::ffi::OsStr;
use std::io::IoSlice;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, RwLock};

pub(crate) const SIZE: u64 = 24 << 20;
pub(crate) const GROUP: usize = 64 * BLOCK as usize;
pub(crate) const READ: OpenFlags = OpenFlags { read: true, write: false, direct: false, sync: false };
pub(crate) const READ_WRITE: OpenFlags = OpenFlags { read: true, write: true, direct: false, sync: false };
pub(crate) const DIRS: u64 = 40;
/// The bytes of the file of a whole group.
pub(crate) const FILLED: u8 = 0x77;
/// Files that are made last.
pub(crate) const LAST: u64 = 3;

/// A device in memory, which can refuse to be written.
#[derive(Debug)]
pub(crate) struct Memory {
    pub(crate) bytes: RwLock<Vec<u8>>,
    is_frozen: AtomicBool,
    /// Blocks that can't be read.
    pub(crate) bad: RwLock<Vec<u64>>,
}

impl Memory {
    pub(crate) fn new(bytes: Vec<u8>) -> Arc<Self> {
        Arc::new(Self { bytes: RwLock::new(bytes), is_frozen: AtomicBool::default(), bad: RwLock::default() })
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.bytes.read().unwrap().clone()
    }

    pub(crate) fn freeze(self: &Arc<Self>) -> Arc<dyn Device> {
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

pub(crate) fn environment() -> Arc<dyn Environment> {
    Arc::new(SimEnvironment::new(Arc::new(SimClock::new()), 3))
}

pub(crate) fn settings(workers: usize) -> Settings {
    Settings { workers, log_bytes: 4 << 20, commands: false }
}

pub(crate) fn caller(tid: u32) -> Caller {
    Caller { tid, pid: tid, ..Caller::root() }
}

pub(crate) fn os(name: &str) -> &OsStr {
    OsStr::new(name)
}

/// Makes files of all kinds in directories, `count` of them with these numbers.
pub(crate) fn fill(fs: &LogFs, from: u64, count: u64) {
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
pub(crate) fn fill_large(fs: &LogFs) {
    let caller = caller(1);
    let made = fs.create(&caller, InodeId::ROOT, os("large"), 0o600, 0, true, READ_WRITE.into()).unwrap();
    // Every other block first, so that none lies behind the one before it.
    for at in (0..1000).step_by(2).chain((1..1000).step_by(2)) {
        fs.write(&caller, made.1.handle, at * BLOCK, &u64::to_le_bytes(at), WriteFlags::default()).unwrap();
    }
    fs.release(made.1.handle).unwrap();
}

/// A file of a whole group of blocks.
fn fill_group(fs: &LogFs) {
    let caller = caller(1);
    let made = fs.create(&caller, InodeId::ROOT, os("group"), 0o600, 0, true, READ_WRITE.into()).unwrap();
    fs.write(&caller, made.1.handle, 0, &[FILLED; GROUP], WriteFlags::default()).unwrap();
    fs.release(made.1.handle).unwrap();
}

/// A group that looks like a segment of the image: it says that an inode is user 666's.
pub(crate) fn forged_group(salt: u32, image: u64, ino: u64) -> Vec<u8> {
    let number = |to: &mut Vec<u8>, mut value: u64| {
        while value >= 0x80 {
            to.push(value as u8 | 0x80);
            value >>= 7;
        }
        to.push(value as u8);
    };
    let sealed = |mut header: Vec<u8>| {
        let sum = crc32c::crc32c(&header);
        header.extend(sum.to_le_bytes());
        header
    };
    let mut parts = Vec::new();
    // The inode, one change; mode, owner, device, links, directory, generation, time, maker.
    let begin = [1, 0o104_755, 666, 666, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0];
    [ino, 1].iter().chain(&begin).for_each(|value| number(&mut parts, *value));
    let mut record = (1_u64 << 40).to_le_bytes().to_vec();
    record.extend(&parts);
    let sum = crc32c::crc32c_append(salt ^ parts.len() as u32, &record);
    let mut chunk = [b"Bchk".to_vec(), salt.to_le_bytes().to_vec(), image.to_le_bytes().to_vec()].concat();
    chunk.extend(1_u32.to_le_bytes());
    chunk.extend((8 + record.len() as u32).to_le_bytes());
    chunk.extend([0; 8]);
    let mut chunk = sealed(chunk);
    chunk.resize(48, 0);
    chunk.extend((parts.len() as u32).to_le_bytes());
    chunk.extend(sum.to_le_bytes());
    chunk.extend(record);
    let segment = [b"Bseg".to_vec(), salt.to_le_bytes().to_vec(), image.to_le_bytes().to_vec(), vec![0; 16]];
    let mut group = sealed(segment.concat());
    group.resize(BLOCK as usize, 0);
    group.extend(chunk);
    group
}

/// A file system with image and, unless it is closed, logs; and what is in it.
pub(crate) fn made(files: u64, later: u64, workers: usize) -> (Vec<u8>, Tree) {
    let device = Memory::new(vec![0xa5; SIZE as usize]);
    let disk: Arc<dyn Device> = device.clone();
    format(&disk, Owner::default(), &*environment()).unwrap();
    let fs = LogFs::open(disk.clone(), settings(workers), environment()).unwrap();
    fill(&fs, 0, files);
    fill_large(&fs);
    fill_group(&fs);
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

pub(crate) fn salvage(device: &Arc<Memory>) -> Result<(LogFs, Salvaged)> {
    LogFs::salvage(&device.freeze(), settings(2), environment())
}

/// The part of a line that shows no directory's number of links and no other's damage.
pub(crate) fn files(tree: &Tree) -> impl Iterator<Item = (&String, &String)> {
    let lines = tree.lines.iter().filter(|(_, (_, line))| !line.contains("Directory"));
    lines.map(|(path, (_, line))| (path, line))
}

/// How many files are as they were, and how many were.
pub(crate) fn same(before: &Tree, after: &Tree) -> (usize, usize) {
    let found = |path: &String| after.lines.get(path).map(|(_, line)| line);
    let kept = files(before).filter(|(path, line)| found(path) == Some(*line)).count();
    (kept, files(before).count())
}

/// The files that are there and are not as they were, although the report does not name them.
pub(crate) fn untold(before: &Tree, after: &Tree, salvaged: &Salvaged) -> Vec<String> {
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
pub(crate) fn metadata(bytes: &[u8]) -> Vec<u64> {
    let is_segment = |group: &&[u8]| group.starts_with(b"Bseg");
    let groups = bytes.chunks(GROUP).enumerate().filter(|(_, group)| is_segment(group));
    let blocks = groups.flat_map(|(at, group)| {
        let used = group.chunks(BLOCK as usize).enumerate();
        let used = used.filter(|(_, block)| block.iter().any(|byte| *byte != 0xa5 && *byte != 0));
        used.map(move |(block, _)| (at * 64 + block) as u64)
    });
    blocks.collect()
}

pub(crate) fn damage(block: &mut [u8], random: &mut SplitMix, how: u64) {
    match how % 3 {
        0 => block[random.below(64) as usize] ^= 1 << random.below(8),
        1 => block.fill(0),
        _ => block.iter_mut().for_each(|byte| *byte = random.below(256) as u8),
    }
}

/// Damages as many blocks as the round says, most of them of metadata.
pub(crate) fn damage_many(bytes: &mut Vec<u8>, places: &[u64], random: &mut SplitMix, round: u64) {
    let blocks = bytes.len() as u64 / BLOCK;
    for _ in 0..1 << (round % 9) {
        let place = if random.below(4) > 0 { random.pick(places) } else { random.below(blocks) };
        let (at, from) = ((place * BLOCK) as usize, (random.pick(places) * BLOCK) as usize);
        match random.below(4) {
            // One block in the place of another.
            0 => bytes.copy_within(from..from + BLOCK as usize, at),
            how => damage(&mut bytes[at..at + BLOCK as usize], random, how),
        }
    }
    if round % 10 == 9 {
        bytes.truncate(bytes.len() / 3);
    }
}

/// Changes as many records as the round says, with checksums that fit; in every other round, a
/// superblock is damaged, too.
pub(crate) fn forge_records(bytes: &mut [u8], places: &[(usize, usize)], random: &mut SplitMix, round: u64) {
    let salt = crc32c::crc32c(&bytes[20..36]);
    for _ in 0..1 << (round % 10) {
        let (at, len) = random.pick(places);
        // Its number, or what it says.
        let from = if random.below(4) == 0 { at + 8 } else { at + 16 };
        let byte = from + random.below((at + 16 + len - from) as u64) as usize;
        bytes[byte] = if random.below(2) == 0 { random.below(256) as u8 } else { bytes[byte] ^ 1 };
        let sum = crc32c::crc32c_append(salt ^ len as u32, &bytes[at + 8..at + 16 + len]);
        bytes[at + 4..at + 8].copy_from_slice(&sum.to_le_bytes());
    }
    if round.is_multiple_of(2) {
        damage(&mut bytes[..BLOCK as usize], random, 1);
    }
}

/// The places and lengths of all records, as bytes of the device.
pub(crate) fn records(bytes: &[u8]) -> Vec<(usize, usize)> {
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
