//! From the device to inodes in memory: the image, and the logs on top of it. Nothing is
//! written here.

use crate::account::{Users, mark_all};
use crate::device::{BLOCK, Device};
use crate::extents::{Extents, Piece, Run};
use crate::failpoint::{Failpoint, fails_at};
use crate::inode::Inode;
use crate::layout::{SegmentAt, Superblock};
use crate::record::{Change, Part, take_parts};
use crate::scan::{Numbered, durable_anywhere, find_superblock, scan};
use crate::space::Space;
use crate::table::Table;
use crate::tail;
use braid_contract::{Errno, Error, Result};
use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Bytes that are read at a time to be checked.
const AT_A_TIME: u64 = 256 << 10;

/// A file system as it is on a device.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) superblock: Superblock,
    pub(crate) table: Table,
    /// Groups of the image.
    pub(crate) image: Vec<u64>,
    /// Groups of logs, with those that are taken for later segments.
    pub(crate) logs: Vec<u64>,
    /// How many segments each log has.
    pub(crate) segments: Vec<usize>,
    /// Where each log would go on after its first segment.
    pub(crate) nexts: Vec<SegmentAt>,
    /// The last record that counts.
    pub(crate) last_record: u64,
    /// Records behind it that don't: those before them did not reach the device.
    pub(crate) lost: usize,
    pub(crate) next_ino: u64,
    /// A number that no segment has.
    pub(crate) next_segment: u64,
    /// Blocks that have to stay until nothing depends on the old logs: their data was checked, and
    /// would be again; records that are not known to be durable gave them up; or they are orphans'.
    pub(crate) held: Vec<Run>,
    /// Files without a name that were open.
    pub(crate) orphans: usize,
}

/// What is left of a process that had the file system in use, beside the device.
#[derive(Debug, Default)]
pub(crate) struct Left {
    /// Inodes that are open: without a name, they stay.
    pub(crate) open: HashSet<u64>,
    /// If the process crashed: the memory of the records of each worker that it had not written.
    pub(crate) tails: Option<Vec<OwnedFd>>,
}

/// Reads a file system, with what is left of the process before.
///
/// # Errors
/// `EINVAL` if there is none, `EUCLEAN` if it is damaged, with the place; those of the
/// device.
pub(crate) fn load(device: &dyn Device, left: Left) -> Result<Loaded> {
    let superblock = find_superblock(device)?;
    let unwritten = left.tails.map(|tails| unwritten(tails, &superblock)).transpose()?;
    let mut loaded = Loaded {
        table: Table::default(),
        image: Vec::new(),
        logs: Vec::new(),
        segments: Vec::new(),
        nexts: Vec::new(),
        last_record: superblock.first_record - 1,
        lost: 0,
        next_ino: superblock.next_ino,
        next_segment: superblock.next_segment,
        held: Vec::new(),
        orphans: 0,
        superblock,
    };
    loaded.read_image(device)?;
    loaded.replay(device, unwritten)?;
    loaded.drop_orphans(&left.open);
    Ok(loaded)
}

/// The records that a process had not written, and that the image does not have.
fn unwritten(tails: Vec<OwnedFd>, superblock: &Superblock) -> Result<Vec<Numbered>> {
    let tails = tails.into_iter().map(|memory| tail::records(memory, superblock.salt()));
    let records = tails.collect::<Result<Vec<_>>>()?.into_iter().flatten();
    Ok(records.filter(|(record, _)| *record >= superblock.first_record).collect())
}

impl Loaded {
    /// Marks all blocks in use; returns those in use twice or beyond the end, with their
    /// users.
    pub(crate) fn mark_blocks(&self, space: &Space) -> Vec<(Run, String)> {
        let users = Users { logs: &self.logs, images: &self.image, table: &self.table };
        mark_all(self.superblock.blocks, users, space)
    }

    fn read_image(&mut self, device: &dyn Device) -> Result<()> {
        let (at, wanted) = (self.superblock.image, self.superblock.image_records);
        let image = scan(device, &self.superblock, at, wanted)?;
        if (image.records.len() as u64) < wanted {
            let (read, last) = (image.records.len(), image.segments.last().copied().unwrap_or(at));
            let text = format!(
                "of {wanted} records of the image {read} can be read: segment {}, at byte {}, is damaged",
                last.number,
                last.offset()
            );
            return Err(Error::new(Errno::EUCLEAN, text));
        }
        self.image = image.segments.iter().map(|segment| segment.group).collect();
        for (version, bytes) in image.records {
            for (ino, changes) in parts_of(version, &bytes)? {
                let inode = self.inode(ino);
                inode.state.write().apply(version, changes, &mut Vec::new());
            }
        }
        Ok(())
    }

    /// The inode of this number, which may be new.
    fn inode(&mut self, ino: u64) -> Arc<Inode> {
        self.next_ino = self.next_ino.max(ino + 1);
        self.table.get(ino).unwrap_or_else(|| {
            let inode = Arc::new(Inode::new(ino));
            self.table.insert(ino, Arc::clone(&inode));
            inode
        })
    }

    /// Applies the records of the logs; `unwritten` has further ones of a process that crashed, which
    /// all count.
    fn replay(&mut self, device: &dyn Device, unwritten: Option<Vec<Numbered>>) -> Result<()> {
        let (mut records, mut durable, mut is_cut) = (Vec::new(), self.last_record, false);
        for start in self.superblock.logs.clone() {
            let log = scan(device, &self.superblock, start, u64::MAX)?;
            self.logs.extend(log.segments.iter().chain([&log.next]).map(|segment| segment.group));
            self.next_segment = self.next_segment.max(log.next.number + 1);
            self.segments.push(log.segments.len());
            self.nexts.push(log.next);
            durable = durable.max(log.durable);
            is_cut |= log.is_cut;
            records.extend(log.records);
        }
        if is_cut {
            durable = durable.max(durable_anywhere(device, &self.superblock)?);
        }
        let is_after_crash = unwritten.is_some();
        records.extend(unwritten.unwrap_or_default());
        records.sort_by_key(|(record, _)| *record);
        // One that was just written is in memory, too.
        records.dedup_by_key(|(record, _)| *record);
        let count = records.len();
        let played = self.play(device, records, durable, is_after_crash)?;
        self.lost = count - played;
        let is_missing = self.last_record + 1;
        if self.last_record < durable {
            let text = format!(
                "record {is_missing} of the log is damaged or missing, and records up to {durable} were durable"
            );
            return Err(Error::new(Errno::EUCLEAN, text));
        }
        if is_after_crash && self.lost > 0 {
            let text = format!("record {is_missing} of the log, by a process that crashed, is missing");
            return Err(Error::new(Errno::EUCLEAN, text));
        }
        Ok(())
    }

    /// Applies records, up to the first that is missing or lacks its data; returns how
    /// many these are.
    ///
    /// After a crash of the process alone, nothing is missing but the one record that each worker
    /// may have been about to add, of which only the number was taken, and all data is there.
    fn play(
        &mut self,
        device: &dyn Device,
        records: Vec<Numbered>,
        durable: u64,
        is_after_crash: bool,
    ) -> Result<usize> {
        let mut may_be_missing = if is_after_crash { self.superblock.logs.len() as u64 } else { 0 };
        let mut played = 0;
        for (record, bytes) in records {
            let Some(missing) = record.checked_sub(self.last_record + 1) else { break };
            if missing > may_be_missing || missing > 0 && self.last_record < durable {
                break;
            }
            may_be_missing -= missing;
            let parts = parts_of(record, &bytes)?;
            if record > durable {
                let pieces = written(&parts);
                let is_trusted = is_after_crash || fails_at(Failpoint::TrustData);
                if !is_trusted && !has_data(device, &parts, &pieces)? {
                    break;
                }
                self.held.extend(pieces.iter().map(|piece| piece.run));
            }
            let mut freed = Vec::new();
            parts.into_iter().for_each(|part| self.apply(record, part, &mut freed));
            if is_after_crash && record > durable {
                self.held.append(&mut freed);
            }
            self.last_record = record;
            played += 1;
        }
        Ok(played)
    }

    /// Applies the changes of one inode, unless the image has them already.
    fn apply(&mut self, record: u64, (ino, changes): Part, freed: &mut Vec<Run>) {
        let begins = matches!(changes.first(), Some(Change::Begin(_)));
        // One that is not there ended before the image was made of it.
        let Some(inode) = self.table.get(ino).or_else(|| begins.then(|| self.inode(ino))) else { return };
        let mut state = inode.state.write();
        if state.version < record {
            state.apply(record, changes, freed);
        }
        if state.is_gone {
            self.table.remove(ino);
        }
        self.next_ino = self.next_ino.max(ino + 1);
    }

    fn drop_orphans(&mut self, open: &HashSet<u64>) {
        let is_orphan = |inode: &Arc<Inode>| inode.state.read().nlink == 0 && !open.contains(&inode.ino);
        let orphans: Vec<u64> = self.table.iter().filter(is_orphan).map(|inode| inode.ino).collect();
        self.orphans = orphans.len();
        for orphan in orphans.iter().filter_map(|ino| self.table.remove(*ino)) {
            // Its last name may be there still, if the power is lost now.
            let state = orphan.state.read();
            self.held.extend(state.extents().into_iter().flat_map(Extents::iter).map(|piece| piece.run));
        }
    }
}

fn parts_of(record: u64, bytes: &[u8]) -> Result<Vec<Part>> {
    let damaged = || Error::new(Errno::EUCLEAN, format!("record {record} makes no sense"));
    take_parts(bytes).ok_or_else(damaged)
}

/// The blocks that a record has as written, in its order.
pub(crate) fn written(parts: &[Part]) -> Vec<Piece> {
    let maps = parts.iter().flat_map(|(_, changes)| changes).filter_map(|change| match change {
        Change::Map(pieces) => Some(pieces),
        _ => None,
    });
    maps.flatten().filter(|piece| piece.is_written).copied().collect()
}

/// Whether the data of a record is on the device.
pub(crate) fn has_data(device: &dyn Device, parts: &[Part], pieces: &[Piece]) -> Result<bool> {
    let mut sums = parts.iter().flat_map(|(_, changes)| changes).filter_map(|change| match change {
        Change::Sum(sum) => Some(*sum),
        _ => None,
    });
    let Some(wanted) = sums.next_back() else { return Ok(true) };
    let (mut sum, mut buf) = (0, Vec::new());
    for piece in pieces {
        let (mut at, end) = (piece.run.start * BLOCK, piece.run.end() * BLOCK);
        if end > device.size() {
            return Ok(false);
        }
        while at < end {
            buf.resize(AT_A_TIME.min(end - at) as usize, 0);
            device.read_at(at, &mut buf)?;
            sum = crc32c::crc32c_append(sum, &buf);
            at += buf.len() as u64;
        }
    }
    Ok(sum == wanted)
}
