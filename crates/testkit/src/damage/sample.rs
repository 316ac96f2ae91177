//! A volume made by hand, in the state after a clean unmount.

use super::format::{
    Entry, Header, IdAttr, Label, OWNERS, SIZE, SYNCED_SIZE, counts, durable_at, entry_at, flag_word,
    owners_word, size_word, volume_table,
};
use super::scene::{identity, write};
use super::{Error, Volume};
use braid_contract::{ObjectId, VolumeId};
use rustix::fs::XattrFlags;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

const RANGE: usize = 1 << 16;
const VOLUME: VolumeId = VolumeId(*b"volume by hand..");
const NAMES: [&str; 3] = ["fast", "slow", "far"];
const XATTR: &str = "user.braid.id";

/// The tier of each range; `None` is a hole.
type Layout = [Option<u8>];

/// A volume of three tiers with a plain file and three spread ones. Where a
/// tier holds no range of a file, its object has nonsense.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The directories of its tiers.
    pub volume: Volume,
    /// Its files.
    pub files: Vec<SampleFile>,
}

/// A file of a [`Sample`].
#[derive(Clone, Debug)]
pub struct SampleFile {
    /// Its path below the volume's root.
    pub path: PathBuf,
    /// Its contents.
    pub contents: Vec<u8>,
}

/// The label of a tier of a sample, which is of version 1: the programs that
/// read it have to know both.
fn label(range_size: u32, name: &str) -> Label {
    let (tier, home, user_xattr, name) = (0, true, true, name.to_owned());
    Label { volume: VOLUME, tier, home, user_xattr, range_size, name, key: None }
}

impl Sample {
    /// Makes one in `dir`, a tier in each subdirectory.
    ///
    /// # Errors
    /// The error that kept it from being made.
    pub fn make(dir: &Path) -> Result<Self, Error> {
        let dirs = NAMES.map(|name| dir.join(name));
        for (tier, (name, dir)) in NAMES.into_iter().zip(&dirs).enumerate() {
            let (tier, home, range_size) = (tier as u8, tier == 0, RANGE as u32);
            write(&dir.join(".braid/label"), &Label { tier, home, ..label(range_size, name) }.encode())?;
            let braid = dir.join(".braid");
            fs::set_permissions(&braid, Permissions::from_mode(0o700)).map_err(|e| Error::io(&braid, e))?;
        }
        let tiers: Vec<_> = (0..).zip(NAMES).collect();
        write(&dirs[0].join(".braid/volume"), &volume_table(VOLUME, RANGE as u32, 0, &tiers))?;
        write(&dirs[0].join(".braid/ballast"), &[0; 4096])?;
        fs::create_dir(dirs[0].join(".braid/open")).map_err(|error| Error::io(&dirs[0], error))?;
        let plain = SampleFile { path: "plain".into(), contents: b"plain data".to_vec() };
        write(&dirs[0].join(&plain.path), &plain.contents)?;
        let [home, first, second] = dirs;
        let mut sample = Self { volume: Volume { home, others: vec![first, second] }, files: vec![plain] };
        let mut held = [0; 63];
        let layouts: [(&str, usize, &Layout); 3] = [
            ("big", 5 * RANGE + 100, &[Some(0), Some(1), None, Some(2), Some(1), Some(2)]),
            ("dir/second", 4 * RANGE, &[Some(0), Some(1), Some(1), Some(0)]),
            ("sparse", 3 * RANGE + 7, &[Some(0), None, Some(1), None]),
        ];
        for (number, (path, size, layout)) in layouts.into_iter().enumerate() {
            sample.spread(path, number as u8 + 1, size, layout)?;
            layout.iter().flatten().for_each(|tier| held[usize::from(*tier)] += 1);
        }
        write(&sample.volume.home.join(".braid/counts"), &counts(&held))?;
        Ok(sample)
    }

    fn spread(&mut self, path: &str, number: u8, size: usize, layout: &Layout) -> Result<(), Error> {
        let id = ObjectId([number * 17; 16]);
        let mut contents = vec![0; size];
        let mut pieces = vec![vec![0xee; size]; NAMES.len()];
        let mut index = Vec::new();
        for (range, tier) in layout.iter().enumerate() {
            let bytes = range * RANGE..size.min((range + 1) * RANGE);
            let Some(tier) = *tier else {
                // Nothing says that a hole's bytes were ever anywhere.
                pieces.iter_mut().for_each(|piece| piece[bytes.clone()].fill(0));
                continue;
            };
            contents[bytes.clone()].fill(number * 16 + range as u8 + 1);
            pieces[usize::from(tier)][bytes.clone()].copy_from_slice(&contents[bytes]);
            let entry = Entry { tier, reason: 2, version: range as u16 };
            index.push((entry_at(range as u64), entry.encode(id, range as u64)));
        }
        let home = self.volume.home.join(path);
        write(&home, &pieces[0])?;
        for tier in layout.iter().flatten().copied().filter(|tier| *tier > 0) {
            let dir = self.volume.others[usize::from(tier) - 1].join(".braid/data");
            write(&dir.join(id.shard()).join(id.to_string()), &pieces[usize::from(tier)])?;
            index.push((durable_at(tier), flag_word(id, durable_at(tier))));
        }
        let (ino, btime_ns) = identity(&home)?;
        let attr = IdAttr { kind: 1, id, ino, btime_ns }.encode(&label(RANGE as u32, NAMES[0]));
        rustix::fs::setxattr(&home, XATTR, &attr, XattrFlags::empty())
            .map_err(|error| Error::io(&home, error.into()))?;
        let last = layout.last().copied().flatten().unwrap_or(0);
        let size = size as u64;
        index.extend([(SIZE, size_word(id, SIZE, size)), (SYNCED_SIZE, size_word(id, SYNCED_SIZE, size))]);
        index.push((OWNERS, owners_word(id, [last, last, 0])));
        let mut bytes = Header { volume: VOLUME, id, range_size: RANGE as u32, ino, btime_ns }.encode();
        bytes.resize(1 << 16, 0);
        for (at, word) in index {
            bytes[at as usize..at as usize + 8].copy_from_slice(&word.to_le_bytes());
        }
        write(&self.volume.home.join(".braid/index").join(id.shard()).join(id.to_string()), &bytes)?;
        self.files.push(SampleFile { path: path.into(), contents });
        Ok(())
    }
}
