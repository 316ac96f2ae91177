//! A volume that is not mounted and one of its files, before the damage.

use super::format::{
    self, Entry, HEADER_LEN, IdAttr, Label, RANGE_SIZE, SIZE, durable_at, entry_at, flag_word, number,
};
use super::{Error, Target, Volume};
use braid_contract::SplitMix;
use braid_contract::{ObjectId, VolumeId};
use rustix::fs::{AtFlags, CWD, StatxFlags, XattrFlags};
use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

type Result<T> = std::result::Result<T, Error>;

/// One tier.
pub(super) struct Tier {
    pub(super) dir: PathBuf,
    pub(super) label: Label,
}

/// A spread file.
#[derive(Clone)]
pub(super) struct Spread {
    /// Its path below the volume's root.
    pub(super) path: PathBuf,
    pub(super) id: ObjectId,
    pub(super) size: u64,
    /// How long its ranges are, as its index says.
    pub(super) range_size: u64,
    /// Its entries below the size.
    pub(super) entries: Vec<Option<Entry>>,
}

/// A volume and the file to be damaged.
pub(super) struct Scene {
    pub(super) tiers: Vec<Tier>,
    pub(super) file: Spread,
    /// All spread files, the damaged one among them.
    pub(super) files: Vec<Spread>,
    random: SplitMix,
}

impl Scene {
    pub(super) fn open(volume: &Volume, target: &Target, seed: u64) -> Result<Self> {
        let mut tiers = Vec::new();
        for dir in [&volume.home].into_iter().chain(&volume.others) {
            let path = dir.join(".braid/label");
            let bytes = fs::read(&path).map_err(|error| Error::io(&path, error))?;
            let label = Label::decode(&bytes).map_err(|why| Error::malformed(&path, why))?;
            tiers.push(Tier { dir: dir.clone(), label });
        }
        if !tiers[0].label.home {
            return Err(Error::Unsuited("the first tier is not the volume's home tier"));
        }
        let file = Spread {
            path: PathBuf::new(),
            id: ObjectId([0; 16]),
            size: 0,
            range_size: 1,
            entries: Vec::new(),
        };
        let mut scene = Self { tiers, file, files: Vec::new(), random: SplitMix::new(seed) };
        let mut files = Vec::new();
        scene.find_files(&volume.home, &mut files)?;
        files.sort_by(|a, b| a.path.cmp(&b.path));
        scene.files = files;
        scene.file = scene.choose(target)?;
        Ok(scene)
    }

    fn find_files(&self, dir: &Path, found: &mut Vec<Spread>) -> Result<()> {
        for entry in fs::read_dir(dir).map_err(|error| Error::io(dir, error))? {
            let entry = entry.map_err(|error| Error::io(dir, error))?;
            let path = entry.path();
            let kind = entry.file_type().map_err(|error| Error::io(&path, error))?;
            if kind.is_dir() && path != self.braid("") {
                self.find_files(&path, found)?;
            } else if kind.is_file() {
                found.extend(self.spread_file(&path)?);
            }
        }
        Ok(())
    }

    /// The spread file at `path`; none for a plain one and one that is damaged
    /// already.
    fn spread_file(&self, path: &Path) -> Result<Option<Spread>> {
        let mut value = [0; 128];
        let Ok(len) = rustix::fs::getxattr(path, self.xattr(), &mut value[..]) else { return Ok(None) };
        let Ok(attr) = IdAttr::decode(&value[..len]) else { return Ok(None) };
        let (ino, btime_ns) = identity(path)?;
        if attr.kind != 1 || (attr.ino, attr.btime_ns) != (ino, btime_ns) {
            return Ok(None);
        }
        let Ok(index) = fs::read(self.index(attr.id)) else { return Ok(None) };
        if index.len() < HEADER_LEN {
            return Ok(None);
        }
        let word = |at: u64| index.get(at as usize..at as usize + 8).map_or(0, number);
        let Ok(size) = format::decode_size(attr.id, SIZE, word(SIZE)) else { return Ok(None) };
        let range_size = number(&index[RANGE_SIZE..][..4]);
        if !range_size.is_power_of_two() {
            return Ok(None);
        }
        let ranges = 0..size.div_ceil(range_size);
        let entries = ranges.map(|range| Entry::decode(attr.id, range, word(entry_at(range))).ok().flatten());
        let entries = entries.collect();
        let path = path.strip_prefix(&self.tiers[0].dir).unwrap_or(path).to_owned();
        Ok(Some(Spread { path, id: attr.id, size, range_size, entries }))
    }

    fn choose(&mut self, target: &Target) -> Result<Spread> {
        let wanted = |file: &&Spread| match target {
            Target::Any => file.entries.iter().flatten().any(|entry| entry.tier != self.home()),
            Target::Path(path) => file.path == *path,
            Target::Id(id) => file.id == *id,
        };
        let files: Vec<_> = self.files.iter().filter(wanted).cloned().collect();
        match files.len() {
            0 => Err(Error::Unsuited("the volume has no such spread file")),
            count => Ok(files[self.below(count as u64) as usize].clone()),
        }
    }

    // What there is

    /// The number of the home tier.
    pub(super) fn home(&self) -> u8 {
        self.tiers[0].label.tier
    }

    pub(super) fn volume_id(&self) -> VolumeId {
        self.tiers[0].label.volume
    }

    /// How long the ranges of the file are.
    pub(super) fn range_size(&self) -> u64 {
        self.file.range_size
    }

    /// The name of Braid's extended attribute.
    pub(super) fn xattr(&self) -> &'static str {
        if self.tiers[0].label.user_xattr { "user.braid.id" } else { "trusted.braid.id" }
    }

    /// A tier other than home.
    pub(super) fn other_tier(&self) -> Result<&Tier> {
        self.tiers.get(1).ok_or(Error::Unsuited("the volume has one tier"))
    }

    /// A tier other than home that holds ranges of the file.
    pub(super) fn owner(&mut self) -> Result<u8> {
        let home = self.home();
        let given: Vec<_> = self.tiers.iter().map(|tier| tier.label.tier).collect();
        let mut owners: Vec<_> = self.file.entries.iter().flatten().map(|entry| entry.tier).collect();
        owners.sort_unstable();
        owners.dedup();
        owners.retain(|tier| *tier != home && given.contains(tier));
        self.one_of(&owners).ok_or(Error::Unsuited("the file has no range on another tier"))
    }

    /// Another spread file than the one to be damaged.
    pub(super) fn another(&self) -> Result<Spread> {
        let another = self.files.iter().find(|file| file.id != self.file.id);
        another.cloned().ok_or(Error::Unsuited("the volume has one spread file"))
    }

    /// A range of the file that is on some tier.
    pub(super) fn a_range(&mut self) -> Result<u64> {
        let ranges: Vec<_> = self.ranges(|_| true).collect();
        self.one_of(&ranges).ok_or(Error::Unsuited("the file has no data"))
    }

    /// The ranges of the file whose entries match.
    pub(super) fn ranges(&self, such: impl Fn(Entry) -> bool) -> impl Iterator<Item = u64> {
        let entries = self.file.entries.iter().enumerate();
        entries.filter(move |(_, entry)| entry.is_some_and(&such)).map(|(range, _)| range as u64)
    }

    /// The offsets in a range of the file.
    pub(super) fn bytes_of(&self, range: u64) -> Range<u64> {
        range * self.range_size()..self.file.size.min((range + 1) * self.range_size())
    }

    /// The offsets in all ranges of the file that a tier holds.
    pub(super) fn bytes_on(&self, tier: u8) -> Vec<Range<u64>> {
        self.ranges(|entry| entry.tier == tier).map(|range| self.bytes_of(range)).collect()
    }

    // Where it is

    /// A path below `.braid` of the home tier.
    pub(super) fn braid(&self, name: &str) -> PathBuf {
        if name.is_empty() {
            self.tiers[0].dir.join(".braid")
        } else {
            self.tiers[0].dir.join(".braid").join(name)
        }
    }

    pub(super) fn index(&self, id: ObjectId) -> PathBuf {
        self.braid("index").join(id.shard()).join(id.to_string())
    }

    pub(super) fn mark(&self, id: ObjectId) -> PathBuf {
        self.braid("open").join(id.to_string())
    }

    /// The home file.
    pub(super) fn home_file(&self) -> PathBuf {
        self.tiers[0].dir.join(&self.file.path)
    }

    pub(super) fn object(&self, tier: u8, id: ObjectId) -> Result<PathBuf> {
        let tier = self.tiers.iter().find(|candidate| candidate.label.tier == tier);
        let tier = tier.ok_or(Error::Unsuited("not all tiers are given"))?;
        Ok(tier.dir.join(".braid/data").join(id.shard()).join(id.to_string()))
    }

    // Changing it

    /// A number below `limit`.
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        // Not `SplitMix::below`: a seed stands for the damage that it always did.
        self.random.next_u64() % limit.max(1)
    }

    pub(super) fn one_of<T: Copy>(&mut self, all: &[T]) -> Option<T> {
        let at = self.below(all.len() as u64) as usize;
        all.get(at).copied()
    }

    /// An id that nothing has.
    pub(super) fn new_id(&mut self) -> ObjectId {
        let halves = [self.below(u64::MAX).to_le_bytes(), self.below(u64::MAX).to_le_bytes()];
        let mut id = [0; 16];
        id.copy_from_slice(&halves.concat());
        ObjectId(id)
    }

    /// Flips one bit of the bytes of a file.
    pub(super) fn flip(&mut self, path: &Path, bytes: Range<u64>) -> Result<()> {
        let at = bytes.start + self.below(bytes.end - bytes.start);
        let bit = 1 << self.below(8);
        let mut byte = read(path, at, 1)?;
        byte[0] ^= bit;
        patch(path, at, &byte)
    }

    /// Stores a word in the file's index.
    pub(super) fn set_word(&self, at: u64, word: u64) -> Result<()> {
        patch(&self.index(self.file.id), at, &word.to_le_bytes())
    }

    pub(super) fn word(&self, at: u64) -> Result<u64> {
        Ok(number(&read(&self.index(self.file.id), at, 8)?))
    }

    /// Notes that the file's object on a tier was, or was not, made durable.
    pub(super) fn set_durable(&self, tier: u8, durable: bool) -> Result<()> {
        let at = durable_at(tier);
        self.set_word(at, if durable { flag_word(self.file.id, at) } else { 0 })
    }

    /// Sets the id attribute of a file on the home tier.
    pub(super) fn set_attr(&self, path: &Path, value: &[u8]) -> Result<()> {
        let set = rustix::fs::setxattr(path, self.xattr(), value, XattrFlags::empty());
        set.map_err(|error| Error::io(path, error.into()))
    }

    /// The id attribute of the file.
    pub(super) fn attr(&self) -> Result<Vec<u8>> {
        let path = self.home_file();
        let mut value = vec![0; 128];
        let got = rustix::fs::getxattr(&path, self.xattr(), &mut value[..]);
        value.truncate(got.map_err(|error| Error::io(&path, error.into()))?);
        Ok(value)
    }

    /// The value of an id attribute.
    pub(super) fn encode(&self, attr: &IdAttr) -> Vec<u8> {
        attr.encode(&self.tiers[0].label)
    }

    /// The contents of the id attribute of a file with this id.
    pub(super) fn attr_for(&self, path: &Path, id: ObjectId) -> Result<IdAttr> {
        let (ino, btime_ns) = identity(path)?;
        Ok(IdAttr { kind: 1, id, ino, btime_ns })
    }
}

/// Inode number and birth time of a file.
pub(super) fn identity(path: &Path) -> Result<(u64, i64)> {
    let want = StatxFlags::INO | StatxFlags::BTIME;
    let stat = rustix::fs::statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, want)
        .map_err(|error| Error::io(path, error.into()))?;
    let has_btime = stat.stx_mask & StatxFlags::BTIME.bits() != 0;
    let btime = stat.stx_btime.tv_sec * 1_000_000_000 + i64::from(stat.stx_btime.tv_nsec);
    Ok((stat.stx_ino, if has_btime { btime } else { 0 }))
}

/// `len` bytes of a file; bytes past its end are zero.
pub(super) fn read(path: &Path, at: u64, len: usize) -> Result<Vec<u8>> {
    let file = File::open(path).map_err(|error| Error::io(path, error))?;
    let mut bytes = vec![0; len];
    let mut done = 0;
    while done < len {
        match file.read_at(&mut bytes[done..], at + done as u64).map_err(|error| Error::io(path, error))? {
            0 => break,
            count => done += count,
        }
    }
    Ok(bytes)
}

/// Stores bytes in a file that exists.
pub(super) fn patch(path: &Path, at: u64, bytes: &[u8]) -> Result<()> {
    let file = File::options().write(true).open(path).map_err(|error| Error::io(path, error))?;
    file.write_all_at(bytes, at).map_err(|error| Error::io(path, error))
}

/// Makes or replaces a file, and the directory that it is in.
pub(super) fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let made = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(path, bytes));
    made.map_err(|error| Error::io(path, error))
}

pub(super) fn remove(path: &Path) -> Result<()> {
    fs::remove_file(path).map_err(|error| Error::io(path, error))
}

/// Renames a file, and makes the directory that it goes to.
pub(super) fn rename(from: &Path, to: &Path) -> Result<()> {
    let made = to.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::rename(from, to));
    made.map_err(|error| Error::io(from, error))
}

/// Cuts or extends a file.
pub(super) fn set_len(path: &Path, len: u64) -> Result<()> {
    let file = File::options().write(true).open(path).map_err(|error| Error::io(path, error))?;
    file.set_len(len).map_err(|error| Error::io(path, error))
}

pub(super) fn len(path: &Path) -> Result<u64> {
    fs::metadata(path).map(|stat| stat.len()).map_err(|error| Error::io(path, error))
}
