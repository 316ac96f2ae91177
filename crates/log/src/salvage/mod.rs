//! Reads what can be read of a damaged file system, and writes nothing. `segments` finds the
//! segments on the device, `chunks` the records in them; `current` and `older` make inodes
//! of them, as the last image and its logs have them and as earlier ones do; `gather` puts
//! these together, `mend` and `blocks` make them agree, `report` tells what was wrong. Only
//! `repair` writes: a sound file system, of the result.

mod blocks;
mod chunks;
mod current;
mod gather;
mod mend;
mod older;
mod read_only;
mod repair;
mod report;
mod segments;
#[cfg(test)]
mod tests;

pub use repair::repair;
pub use report::{Findings, NAMED_MAX, Salvaged, Trouble};

use crate::account::{Users, mark_all};
use crate::core::{Anchor, Core, Start};
use crate::device::Device;
use crate::inode::{Inode, State};
use crate::journal::Journal;
use crate::layout::Superblock;
use crate::load::{Left, Loaded, load};
use crate::settings::Settings;
use crate::space::Space;
use crate::table::Table;
use crate::writer::Medium;
use braid_contract::{Environment, InodeId, Result, Timestamp};
use gather::{Gathered, gather};
use read_only::ReadOnly;
use segments::Survey;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Directories of a path that are told, at most.
const DEPTH_MAX: usize = 64;

/// Reads what can be read of the file system on a device.
///
/// # Errors
/// `EINVAL` if there is none, or it has another format; those of the device if nothing of it
/// can be read.
pub(crate) fn salvage(
    device: &Arc<dyn Device>,
    settings: Settings,
    environment: Arc<dyn Environment>,
) -> Result<(Core, Salvaged)> {
    let Reading { survey, found, salvaged } = read(device, &*environment)?;
    let device = Arc::new(ReadOnly(Arc::clone(device)));
    Ok((core(device, &survey, found, settings, environment), salvaged))
}

/// What was read, and what was wrong with it.
struct Reading {
    survey: Survey,
    found: Gathered,
    salvaged: Salvaged,
}

fn read(device: &Arc<dyn Device>, environment: &dyn Environment) -> Result<Reading> {
    let now = Timestamp::from_nanos(environment.wall_ns());
    let device = ReadOnly(Arc::clone(device));
    let mut salvaged = Salvaged::default();
    let survey = segments::survey(&device)?;
    for place in &survey.bad_copies {
        salvaged.note(Trouble::Superblock, || format!("at byte {place} of the device"));
    }
    let mut found = match sound(&device, &survey) {
        Some(loaded) => gathered(loaded),
        None => gather(&device, &survey, &mut salvaged),
    };
    mend::mend(&mut found, survey.blocks, now, &mut salvaged);
    found.tell(&mut salvaged, &|ino| shown(&found.inodes, ino));
    salvaged.inodes = found.inodes.len() as u64;
    Ok(Reading { survey, found, salvaged })
}

/// The file system, if it can be mounted, and nothing is behind the place where recovery ends.
fn sound(device: &dyn Device, survey: &Survey) -> Option<Loaded> {
    let loaded = load(device, Left::default()).ok()?;
    if loaded.superblock.blocks > survey.blocks {
        return None;
    }
    let nothing = HashSet::new();
    let source = current::Source { device, survey, without: &nothing, linked_only: true };
    let mut logs = source.segments(|segment| survey.era.has_log(segment));
    let goes_on = logs.any(|segment| {
        let mut records = source.chunks(segment).into_iter().flat_map(|chunk| chunk.records);
        records.any(|record| record.number > loaded.last_record)
    });
    (!goes_on).then_some(loaded)
}

fn gathered(loaded: Loaded) -> Gathered {
    let groups = loaded.image.iter().chain(&loaded.logs).copied().collect();
    let inodes = loaded.table.iter().map(|inode| (inode.ino, std::mem::take(&mut *inode.state.write())));
    Gathered { inodes: inodes.collect(), groups, last_record: loaded.last_record, ..Gathered::default() }
}

/// An inode as the report names it: with its path.
fn shown(inodes: &BTreeMap<u64, State>, ino: u64) -> String {
    let (mut path, mut at) = (Vec::new(), ino);
    while at != InodeId::ROOT.0 && path.len() < DEPTH_MAX {
        let above = inodes.get(&at).map_or(InodeId::ROOT.0, |state| state.parent);
        let names = inodes.get(&above).and_then(State::names).into_iter().flat_map(|names| names.after(0));
        let name = names.map(|(_, named)| named).find(|named| named.ino == at);
        path.push(name.map_or("?".into(), |named| String::from_utf8_lossy(&named.name).into_owned()));
        at = above;
    }
    path.reverse();
    format!("inode {ino}, /{}", path.join("/").escape_debug())
}

/// A file system in use that takes no changes.
fn core(
    device: Arc<dyn Device>,
    survey: &Survey,
    found: Gathered,
    settings: Settings,
    environment: Arc<dyn Environment>,
) -> Core {
    let next_ino = found.inodes.keys().next_back().map_or(InodeId::ROOT.0, |last| *last) + 1;
    let table = table_of(found.inodes);
    let space = Arc::new(Space::new(survey.blocks, 1));
    let groups: Vec<u64> = found.groups.into_iter().collect();
    // None is used twice any more.
    mark_all(survey.blocks, Users { logs: &groups, images: &[], table: &table }, &space);
    let superblock = survey.superblock.clone().unwrap_or_else(|| stand_in(survey));
    let medium =
        Medium { device, space, salt: survey.salt, next_segment: AtomicU64::new(superblock.next_segment) };
    let anchor = Anchor { superblock, image: Vec::new(), stale: Vec::new() };
    let journal = Journal::read_only(medium, found.last_record);
    Core::new(Start { journal, table, settings, environment, anchor, next_ino })
}

fn table_of(inodes: BTreeMap<u64, State>) -> Table {
    let table = Table::default();
    for (ino, state) in inodes {
        let inode = Inode::new(ino);
        *inode.state.write() = state;
        table.insert(ino, Arc::new(inode));
    }
    table
}

/// A superblock in the place of one that is lost. Of the identity only the checksum is known.
fn stand_in(survey: &Survey) -> Superblock {
    let mut uuid = [0; 16];
    uuid[..4].copy_from_slice(&survey.salt.to_le_bytes());
    Superblock {
        uuid,
        blocks: survey.blocks,
        generation: 0,
        made_ns: 0,
        is_clean: false,
        written_ns: 0,
        first_record: 1,
        next_ino: 1,
        next_segment: 1,
        image: Default::default(),
        image_records: 0,
        logs: Vec::new(),
    }
}
