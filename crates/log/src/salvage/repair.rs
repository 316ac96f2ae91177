//! Repairs a file system in place: what can be read of it becomes an image, with empty logs. All
//! of it is written where nothing was, so that nothing is changed before it counts.

use super::gather::Gathered;
use super::report::Salvaged;
use super::segments::Survey;
use super::{Reading, read, table_of};
use crate::account::{Users, mark_all};
use crate::core::groups_of_image;
use crate::device::{BLOCK, Device};
use crate::extents::Run;
use crate::layout::{COUNT_MAX, GROUP_BLOCKS, Superblock};
use crate::open::{anew, medium, skip};
use crate::table::Table;
use crate::writer::{Medium, group};
use braid_contract::{Context, Environment, Errno, InodeId, Result};
use std::collections::BTreeSet;
use std::io::IoSlice;
use std::sync::Arc;

/// Makes a sound file system of what can be read of the one on a device, and tells what was
/// wrong. The next use begins at once. After an error, or a loss of power, the file system is
/// as it was, or it is repaired. On a device that became larger, it takes all of it.
///
/// Where both copies of the superblock are lost, so is the identity, and it gets another.
///
/// # Errors
/// `EINVAL` if there is none, or it has another format; `ENOSPC` without room for the image
/// beside everything that is there; those of the device.
pub fn repair(device: &Arc<dyn Device>, environment: &dyn Environment) -> Result<Salvaged> {
    let Reading { survey, mut found, salvaged } = read(device, environment)?;
    let before = before(&survey, device.size() / BLOCK, &mut found, environment)?;
    // What it was made of has to stay until the repair counts; without room for that, what
    // came before the current image and logs may go where nothing of it was needed.
    let all: BTreeSet<u64> = survey.segments.iter().map(|segment| segment.group).collect();
    let current = std::mem::take(&mut found.groups);
    let needs_older = !found.older.is_empty();
    let table = table_of(found.inodes);
    let image = groups_of_image(table.iter().map(|inode| inode.state.read().weight()).sum());
    let mut room = Room::beside(&all, device, &before, &table);
    if room.medium.space.free_groups() < image + CHAIN_GROUPS && !needs_older {
        room = Room::beside(&current, device, &before, &table);
    }
    let Room { medium, marks } = room;
    match anew(&before, &table, &medium, 1, true) {
        Err(error) if error.errno() == Errno::ENOSPC => {
            return Err(error).context("writing an image beside everything that is there");
        }
        made => made.map(drop)?,
    }
    if survey.superblock.is_none() {
        forget(&**device, &marks)?;
    }
    Ok(salvaged)
}

/// Groups that an empty log takes.
const CHAIN_GROUPS: i64 = 2;

/// The blocks for a repair.
struct Room {
    medium: Medium,
    /// The beginnings of segments in which no file has blocks.
    marks: Vec<Run>,
}

impl Room {
    /// All blocks but those of files and of these groups, which have segments.
    fn beside(groups: &BTreeSet<u64>, device: &Arc<dyn Device>, of: &Superblock, table: &Table) -> Self {
        let medium = medium(device, of, 1, of.next_segment);
        mark_all(of.blocks, Users { logs: &[], images: &[], table }, &medium.space);
        let marks = groups.iter().map(|at| Run { start: at * GROUP_BLOCKS, len: 2 });
        let marks = marks.flat_map(|run| medium.space.free_within(run)).collect();
        groups.iter().for_each(|at| _ = medium.space.mark(group(*at)));
        Self { medium, marks }
    }
}

/// The superblock that comes before that of the repair: behind everything that was.
fn before(
    survey: &Survey,
    blocks: u64,
    found: &mut Gathered,
    environment: &dyn Environment,
) -> Result<Superblock> {
    let now = environment.wall_ns();
    let blank = || -> Result<Superblock> {
        let mut uuid = [0; 16];
        environment.fill_random(&mut uuid)?;
        Ok(Superblock { uuid, made_ns: now, next_segment: 1, ..super::stand_in(survey) })
    };
    let known = survey.superblock.clone().map_or_else(blank, Ok)?;
    // A damaged record may have any number. What is lower than a number that can't be is not
    // damaged, or as good as any other.
    let highest = |numbers: &mut dyn Iterator<Item = u64>| {
        numbers.filter(|number| *number < COUNT_MAX / 2).max().unwrap_or_default()
    };
    let versions = &mut found.inodes.values().map(|state| state.version);
    let last_record = highest(&mut versions.chain([found.last_record, known.first_record]));
    for state in found.inodes.values_mut() {
        state.version = state.version.min(last_record);
    }
    let numbers = &mut survey.segments.iter().map(|segment| segment.number);
    let next_segment = highest(&mut numbers.chain([known.next_segment]));
    let last_ino = found.inodes.keys().next_back().map_or(InodeId::ROOT.0, |last| *last);
    Ok(Superblock {
        // Its copies are looked for at both ends of the device.
        blocks,
        written_ns: now,
        first_record: last_record + 1,
        next_ino: known.next_ino.max(last_ino + 1).min(COUNT_MAX - 1),
        next_segment: skip(next_segment, environment)?,
        ..known
    })
}

/// Overwrites the beginnings of segments of an identity that is lost: if the superblocks were
/// lost once more, they would be taken for it.
fn forget(device: &dyn Device, marks: &[Run]) -> Result<()> {
    let zeros = [0; BLOCK as usize];
    for block in marks.iter().flat_map(|run| run.start..run.end()) {
        device.write_at(block * BLOCK, &[IoSlice::new(&zeros)])?;
    }
    device.flush()
}
