//! Checkpoints: an image of all inodes, from which recovery starts instead of the logs
//! before it, which are freed. Operations go on meanwhile. The image has each inode as
//! it is when its turn comes, with the number of its last record; recovery applies to
//! each inode the records behind that.

use crate::core::{Anchor, Core, groups_of_image};
use crate::device::{BLOCK, Device};
use crate::inode::Inode;
use crate::journal::Cut;
use crate::layout::{RECORD_HEADER, SegmentAt, Superblock};
use crate::record::put_part;
use crate::scan::superblock_offsets;
use crate::sync::MutexGuard;
use crate::table::Table;
use crate::writer::{Chain, Medium, group};
use braid_contract::{Errno, Error, Result};
use std::io::IoSlice;
use std::sync::atomic::Ordering;

/// Bytes of a record of an image, about.
const PORTION: usize = 16 << 10;

/// An image on the device, not durable yet.
#[derive(Debug)]
pub(crate) struct Image {
    pub(crate) at: SegmentAt,
    pub(crate) groups: Vec<u64>,
    pub(crate) records: u64,
}

/// Writes an image of all inodes.
///
/// # Errors
/// `ENOSPC` if there is no room, those of the device; then nothing is left of it.
pub(crate) fn write_image(table: &Table, medium: &Medium) -> Result<Image> {
    let mut chain = Chain::begin(0, medium)?;
    let (at, mut records) = (chain.at(), 0);
    let written = table.iter().try_for_each(|inode| {
        for (version, bytes) in describe(&inode) {
            chain.prepare(bytes.len(), 0, medium)?;
            chain.add(version, &bytes, medium.salt);
            records += 1;
        }
        Ok(())
    });
    let written = written.and_then(|()| chain.write_out(0, medium));
    let mut groups = chain.all_groups();
    // The one behind the last is not needed.
    groups.pop().into_iter().for_each(|next| medium.space.free(group(next)));
    if let Err(error) = written {
        groups.into_iter().for_each(|left| medium.space.free(group(left)));
        return Err(error);
    }
    Ok(Image { at, groups, records })
}

/// The records of an inode in an image.
fn describe(inode: &Inode) -> Vec<(u64, Vec<u8>)> {
    let state = inode.state.read();
    if !state.is_live() {
        return Vec::new();
    }
    let portions = state.describe(PORTION).into_iter().map(|changes| {
        let mut bytes = Vec::new();
        put_part(&mut bytes, inode.ino, &changes);
        (state.version, bytes)
    });
    portions.collect()
}

/// Writes both copies of the superblock, one after the other, each durably: at any moment
/// one of them is whole.
///
/// # Errors
/// Those of the device.
pub(crate) fn write_superblock(device: &dyn Device, superblock: &Superblock) -> Result<()> {
    let block = superblock.encode();
    for offset in superblock_offsets(superblock.blocks * BLOCK) {
        device.write_at(offset, &[IoSlice::new(&block)])?;
        device.flush()?;
    }
    Ok(())
}

/// Whether there is room for a checkpoint. One that fails for want of it takes groups for the logs
/// all the same, which recovery may need.
fn has_room(core: &Core) -> bool {
    let spare = core.journal.medium.space.free_groups() - core.journal.workers() as i64 - 1;
    let records = || core.table.iter().flat_map(|inode| describe(&inode));
    let bytes = || records().map(|(_, bytes)| (RECORD_HEADER + bytes.len()) as i64).sum::<i64>();
    spare >= core.image_groups() || spare >= groups_of_image(bytes())
}

/// Makes a checkpoint; one that is clean says that nothing will be written behind it.
///
/// # Errors
/// `ENOSPC` if there is no room for it, those of the device. The checkpoint before is the
/// one that counts then.
pub(crate) fn checkpoint(core: &Core, is_clean: bool) -> Result<()> {
    make(core, core.anchor.lock(), is_clean)
}

/// Makes one, unless there was one since [`Core::anchored_segment`] was `seen`.
///
/// # Errors
/// As [`checkpoint`].
pub(crate) fn checkpoint_since(core: &Core, seen: u64) -> Result<()> {
    let anchor = core.anchor.lock();
    if core.anchored_segment.load(Ordering::Relaxed) == seen { make(core, anchor, false) } else { Ok(()) }
}

fn make(core: &Core, mut anchor: MutexGuard<'_, Anchor>, is_clean: bool) -> Result<()> {
    core.journal.check()?;
    if !has_room(core) {
        return Err(Error::new(Errno::ENOSPC, "there is no room for a checkpoint"));
    }
    let cut = core.journal.cut()?;
    anchor.stale.extend(&cut.before);
    let coming_back = (anchor.image.len() + anchor.stale.len()) as i64;
    core.coming_back.store(coming_back, Ordering::Release);
    let made = write_and_switch(core, &mut anchor, cut, is_clean);
    core.coming_back.store(0, Ordering::Release);
    made
}

fn write_and_switch(core: &Core, anchor: &mut Anchor, cut: Cut, is_clean: bool) -> Result<()> {
    let (first_record, medium) = (cut.first_record, &core.journal.medium);
    let image = write_image(&core.table, medium)?;
    let switched = switch(core, anchor, cut, &image, is_clean);
    // The device's state is unknown if this failed: it is left alone.
    switched?;
    let before = std::mem::replace(&mut anchor.image, image.groups);
    before
        .into_iter()
        .chain(std::mem::take(&mut anchor.stale))
        .for_each(|left| medium.space.free(group(left)));
    core.journal.release(first_record - 1);
    core.anchored_segment.store(medium.next_segment.load(Ordering::Relaxed), Ordering::Relaxed);
    Ok(())
}

fn switch(core: &Core, anchor: &mut Anchor, cut: Cut, image: &Image, is_clean: bool) -> Result<()> {
    // The image may have changes of records that are not durable yet.
    core.journal.flush(false)?;
    let superblock = Superblock {
        generation: anchor.superblock.generation + 1,
        is_clean,
        written_ns: core.environment.wall_ns(),
        first_record: cut.first_record,
        next_ino: core.next_ino.load(Ordering::Relaxed),
        next_segment: core.journal.medium.next_segment.load(Ordering::Relaxed),
        image: image.at,
        image_records: image.records,
        logs: cut.logs,
        ..anchor.superblock.clone()
    };
    core.journal.fail_on_error(write_superblock(core.journal.device(), &superblock))?;
    anchor.superblock = superblock;
    Ok(())
}
