//! The offline check, and the figures of a file system that is not in use. Nothing is
//! written.

use crate::device::{BLOCK, Device};
use crate::directory::kind_of;
use crate::inode::State;
use crate::layout::{GROUP, Superblock};
use crate::load::{Left, Loaded, load};
use crate::scan::{has_blocks, superblock_offsets};
use crate::space::Space;
use braid_contract::{FileKind, Result};
use std::collections::HashMap;

/// Most problems of a kind that are listed each by itself.
const TOLD_MAX: usize = 50;

/// Figures of a file system.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Figures {
    /// Its identity.
    pub uuid: [u8; 16],
    /// When it was made, in nanoseconds since the epoch.
    pub made_ns: i64,
    /// When the last checkpoint was, in nanoseconds since the epoch.
    pub checkpoint_ns: i64,
    /// Counts checkpoints and uses.
    pub generation: u64,
    /// Whether it was closed: then nothing is to be recovered.
    pub is_clean: bool,
    /// Bytes in all, and those that are free.
    pub bytes: u64,
    /// Free bytes.
    pub free: u64,
    /// Segments of each worker's log.
    pub segments: Vec<usize>,
    /// Bytes of a segment.
    pub segment_bytes: u64,
    /// Segments of the image of the last checkpoint, and its records.
    pub image_segments: usize,
    /// Records of the image.
    pub image_records: u64,
    /// Records of the logs behind the image.
    pub records: u64,
    /// Records that power loss cut off.
    pub lost: usize,
    /// Files that were open and have no name.
    pub orphans: usize,
    /// Directories.
    pub directories: usize,
    /// Regular files.
    pub files: usize,
    /// Inodes of all other kinds.
    pub others: usize,
    /// Bytes of blocks that files have.
    pub data: u64,
}

/// The result of a check.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Checked {
    /// The problems, each with its place.
    pub problems: Vec<String>,
    /// The figures, if it can be read.
    pub figures: Option<Figures>,
}

/// Reads a file system, and returns its figures.
///
/// # Errors
/// `EINVAL` if there is none, `EUCLEAN` if it can't be used, those of the device.
pub fn figures(device: &dyn Device) -> Result<Figures> {
    let loaded = load(device, Left::default())?;
    let space = Space::new(loaded.superblock.blocks, loaded.superblock.logs.len());
    loaded.mark_blocks(&space);
    Ok(of(&loaded, &space))
}

fn of(loaded: &Loaded, space: &Space) -> Figures {
    let superblock = &loaded.superblock;
    let mut figures = Figures {
        uuid: superblock.uuid,
        made_ns: superblock.made_ns,
        checkpoint_ns: superblock.written_ns,
        generation: superblock.generation,
        is_clean: superblock.is_clean,
        bytes: space.blocks() * BLOCK,
        free: space.free_blocks() * BLOCK,
        segments: loaded.segments.clone(),
        segment_bytes: GROUP,
        image_segments: loaded.image.len(),
        image_records: superblock.image_records,
        records: loaded.last_record + 1 - superblock.first_record,
        lost: loaded.lost,
        orphans: loaded.orphans,
        directories: 0,
        files: 0,
        others: 0,
        data: 0,
    };
    for inode in loaded.table.iter() {
        let state = inode.state.read();
        match state.kind() {
            FileKind::Directory => figures.directories += 1,
            FileKind::Regular => figures.files += 1,
            _ => figures.others += 1,
        }
        figures.data += state.extents().map_or(0, |extents| extents.blocks() * BLOCK);
    }
    figures
}

/// Checks a file system: superblocks, checksums, that every name leads to an inode and
/// every inode has as many names as it says, and that no block belongs to two.
///
/// # Errors
/// Those of the device, and `EINVAL` if there is no file system at all.
pub fn check(device: &dyn Device) -> Result<Checked> {
    let mut problems = superblocks(device)?;
    let loaded = match load(device, Left::default()) {
        Ok(loaded) => loaded,
        Err(error) if error.errno() == braid_contract::Errno::EUCLEAN => {
            problems.push(error.to_string());
            return Ok(Checked { problems, figures: None });
        }
        Err(error) => return Err(error),
    };
    let space = Space::new(loaded.superblock.blocks, loaded.superblock.logs.len());
    let doubled = loaded.mark_blocks(&space).into_iter().map(|(run, of)| {
        let (first, last) = (run.start, run.end() - 1);
        format!("{of}: blocks {first} to {last} belong to something else, too, or do not exist")
    });
    problems.extend(doubled.take(TOLD_MAX));
    problems.extend(Names::of(&loaded).problems(&loaded).into_iter().take(TOLD_MAX));
    let figures = Some(of(&loaded, &space));
    Ok(Checked { problems, figures })
}

fn superblocks(device: &dyn Device) -> Result<Vec<String>> {
    has_blocks(device)?;
    let mut problems = Vec::new();
    let mut block = vec![0; BLOCK as usize];
    let mut generations = Vec::new();
    for offset in superblock_offsets(device.size()) {
        device.read_at(offset, &mut block)?;
        match Superblock::decode(&block) {
            Ok(copy) => generations.push(copy.generation),
            Err(error) => problems.push(format!("copy of the superblock at byte {offset}: {error}")),
        }
    }
    if generations.is_empty() {
        problems.clear();
    }
    Ok(problems)
}

/// The names that lead to each inode.
#[derive(Default)]
struct Names {
    /// How many, and in which directory one of them is.
    of: HashMap<u64, (u32, u64)>,
    /// Directories in each directory.
    below: HashMap<u64, u32>,
    problems: Vec<String>,
}

impl Names {
    fn of(loaded: &Loaded) -> Self {
        let mut found = Self::default();
        for dir in loaded.table.iter() {
            let state = dir.state.read();
            for (_, named) in state.names().into_iter().flat_map(|names| names.after(0)) {
                let name = String::from_utf8_lossy(&named.name).escape_debug().to_string();
                let kind = match loaded.table.get(named.ino) {
                    // Its own lock is held: a directory does not hold itself.
                    Some(_) if named.ino == dir.ino => None,
                    inode => inode.map(|inode| inode.state.read().kind_bits()),
                };
                match kind {
                    None => found.problems.push(format!(
                        "inode {}: the name '{name}' leads to inode {}, which is not there",
                        dir.ino, named.ino
                    )),
                    Some(kind) if kind != named.kind => found.problems.push(format!(
                        "inode {}: the name '{name}' leads to inode {} of another type",
                        dir.ino, named.ino
                    )),
                    Some(kind) => found.note(dir.ino, named.ino, kind),
                }
            }
        }
        found
    }

    fn note(&mut self, dir: u64, ino: u64, kind: u8) {
        let count = self.of.entry(ino).or_insert((0, dir));
        count.0 += 1;
        if kind_of(kind) == Some(FileKind::Directory) {
            *self.below.entry(dir).or_default() += 1;
        }
    }

    fn problems(mut self, loaded: &Loaded) -> Vec<String> {
        if loaded.table.get(1).is_none_or(|root| !root.state.read().is_dir()) {
            self.problems.push("there is no root directory".into());
        }
        for inode in loaded.table.iter() {
            let state = inode.state.read();
            if let Some(problem) = self.problem(inode.ino, &state) {
                self.problems.push(format!("inode {}: {problem}", inode.ino));
            }
        }
        self.problems.sort();
        self.problems
    }

    fn problem(&self, ino: u64, state: &State) -> Option<String> {
        let (names, dir) = self.of.get(&ino).copied().unwrap_or_default();
        if state.mode == 0 {
            return Some("it never began".into());
        }
        if !state.is_dir() {
            let is = state.nlink;
            return (names != is).then(|| format!("it says that it has {is} names, and has {names}"));
        }
        let (is, should) = (state.nlink, 2 + self.below.get(&ino).copied().unwrap_or_default());
        let wanted = u32::from(ino != 1);
        if names != wanted {
            return Some(format!("a directory has {names} names, not {wanted}"));
        }
        if ino != 1 && state.parent != dir {
            return Some(format!("it says that it is in directory {}, and is in {dir}", state.parent));
        }
        (is != should).then(|| format!("it says that it has {is} links, and has {should}"))
    }
}
