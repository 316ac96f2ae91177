//! Gathers the inodes: as the current image and logs have them, and, of those that are missing
//! there, as earlier ones do.

use super::current::{Current, Partial, Source};
use super::older::older;
use super::report::{Salvaged, Trouble};
use super::segments::Survey;
use crate::device::Device;
use crate::inode::State;
use crate::layout::GROUP_BLOCKS;
use crate::record::{Begin, Change};
use braid_contract::{FileKind, InodeId};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

/// Permissions of an inode whose own are not known: its owner's, who is root.
const MODE_UNKNOWN: u32 = 0o600;
/// Those of a directory.
const MODE_OF_DIRECTORY: u32 = 0o700;

/// All inodes that are known.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    pub(super) inodes: BTreeMap<u64, State>,
    /// Those that are as they were earlier.
    pub(super) older: BTreeSet<u64>,
    /// Those that may lack a part.
    pub(super) lacking: BTreeSet<u64>,
    /// Those of which only a content is known.
    pub(super) bare: BTreeSet<u64>,
    /// Groups of the image and of the logs.
    pub(super) groups: BTreeSet<u64>,
    pub(super) last_record: u64,
}

/// Gathers them, and tells the damage.
pub(super) fn gather(device: &dyn Device, survey: &Survey, salvaged: &mut Salvaged) -> Gathered {
    let nothing = HashSet::new();
    let linked = Source { device, survey, without: &nothing, linked_only: true };
    let mut current = Current::read(linked);
    // A file may hold a copy of a log, or what someone made to look like one: where it is known
    // which blocks are files', nothing in them counts.
    let without = groups_of_files(&current, survey.blocks);
    let all = Source { without: &without, linked_only: false, ..linked };
    if survey.superblock.is_none() || !current.is_complete() {
        current = Current::read(all);
    }
    current.tell(salvaged);
    let Current { groups, last_record, .. } = &current;
    let mut found = Gathered { groups: groups.clone(), last_record: *last_record, ..Gathered::default() };
    let is_complete = survey.superblock.is_some() && current.is_complete();
    // Then what the current ones lack was removed.
    let mut older = if is_complete { HashMap::new() } else { older(all, &current) };
    let partial = if is_complete { BTreeMap::new() } else { std::mem::take(&mut current.partial) };
    (found.inodes, found.lacking) = (current.inodes, current.lacking);
    found.complete(partial, &mut older);
    found.accept(older);
    found
}

/// The groups with blocks of files.
fn groups_of_files(current: &Current, blocks: u64) -> HashSet<u64> {
    let pieces = current.inodes.values().flat_map(|state| state.extents()).flat_map(|extents| extents.iter());
    let mut groups = HashSet::new();
    for run in pieces.map(|piece| piece.run) {
        let (first, end) =
            (run.start.min(blocks) / GROUP_BLOCKS, run.end().min(blocks).div_ceil(GROUP_BLOCKS));
        groups.extend(first..end);
    }
    groups
}

impl Gathered {
    /// Puts changes on top of older states, or in the place of a beginning that is lost.
    fn complete(&mut self, partial: BTreeMap<u64, Partial>, older: &mut HashMap<u64, State>) {
        let kinds = self.kinds_of(&partial);
        for (ino, Partial { version, mut changes }) in partial {
            let is_older = older.contains_key(&ino);
            let mut state = older.remove(&ino).unwrap_or_default();
            if !is_older {
                let by_name = kinds.get(&ino).copied();
                let Some(kind) = kind_by_content(&changes).or(by_name) else { continue };
                changes.insert(0, beginning(kind));
                self.bare.insert(ino);
            }
            state.apply(version, changes, &mut Vec::new());
            if is_older {
                self.older.insert(ino);
            }
            self.lacking.insert(ino);
            self.inodes.insert(ino, state);
        }
    }

    /// The types that names give to inodes whose beginning is lost.
    fn kinds_of(&self, partial: &BTreeMap<u64, Partial>) -> HashMap<u64, FileKind> {
        let named = self.inodes.values().flat_map(|state| state.names()).flat_map(|names| names.after(0));
        let lost = named.filter(|(_, named)| partial.contains_key(&named.ino));
        lost.filter_map(|(_, named)| Some((named.ino, named.kind()?))).collect()
    }

    /// Takes those of the older inodes to which names lead: all others may have been removed.
    fn accept(&mut self, mut older: HashMap<u64, State>) {
        let root = older.get(&InodeId::ROOT.0).map(|root| (InodeId::ROOT.0, root.kind_bits()));
        let mut wanted: Vec<(u64, u8)> = root.into_iter().collect();
        for state in self.inodes.values() {
            wanted.extend(names_of(state).filter(|(ino, _)| older.contains_key(ino)));
        }
        while let Some((ino, kind)) = wanted.pop() {
            if self.inodes.contains_key(&ino) || older.get(&ino).is_none_or(|state| state.kind_bits() != kind)
            {
                continue;
            }
            let Some(state) = older.remove(&ino) else { continue };
            wanted.extend(names_of(&state).filter(|(ino, _)| older.contains_key(ino)));
            self.older.insert(ino);
            self.inodes.insert(ino, state);
        }
    }
}

fn names_of(state: &State) -> impl Iterator<Item = (u64, u8)> + '_ {
    let names = state.names().into_iter().flat_map(|names| names.after(0));
    names.map(|(_, named)| (named.ino, named.kind))
}

/// The type of an inode that has these changes.
fn kind_by_content(changes: &[Change]) -> Option<FileKind> {
    changes.iter().find_map(|change| match change {
        Change::Enter(..) | Change::Leave(_) | Change::Offset(_) => Some(FileKind::Directory),
        Change::Target(_) => Some(FileKind::Symlink),
        Change::Map(_) | Change::Inline(_) | Change::Size(_) | Change::Unmap(..) => Some(FileKind::Regular),
        _ => None,
    })
}

/// A beginning in the place of one that is lost.
fn beginning(kind: FileKind) -> Change {
    let permissions = if kind == FileKind::Directory { MODE_OF_DIRECTORY } else { MODE_UNKNOWN };
    Change::Begin(Box::new(Begin {
        mode: kind.mode() | permissions,
        uid: 0,
        gid: 0,
        rdev: 0,
        nlink: 1,
        parent: InodeId::ROOT.0,
        generation: 0,
        time: Default::default(),
        actor: Arc::default(),
    }))
}

impl Gathered {
    /// Tells which inodes are not as they should be, with their paths.
    pub(super) fn tell(&self, salvaged: &mut Salvaged, place_of: &dyn Fn(u64) -> String) {
        for (trouble, inodes) in [
            (Trouble::Older, &self.older),
            (Trouble::Lacking, &self.lacking),
            (Trouble::Attributes, &self.bare),
        ] {
            for ino in inodes.iter().filter(|ino| self.inodes.contains_key(ino)) {
                salvaged.note(trouble, || place_of(*ino));
            }
        }
    }
}
