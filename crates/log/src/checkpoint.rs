//! Checkpoints: an image of all inodes, from which recovery starts instead of the logs
//! before it, which are freed. Operations go on meanwhile. The image has each inode as
//! it is when its turn comes, with the number of its last record; recovery applies to
//! each inode the records behind that.

use crate::core::{Anchor, Core};
use crate::device::{BLOCK, Device};
use crate::inode::Inode;
use crate::journal::Cut;
use crate::layout::{SegmentAt, Superblock};
use crate::record::put_part;
use crate::scan::superblock_offsets;
use crate::table::Table;
use crate::writer::{Chain, Medium, group};
use braid_contract::Result;
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

/// Makes a checkpoint; one that is clean says that nothing will be written behind it.
///
/// # Errors
/// `ENOSPC` if there is no room for it, those of the device. The checkpoint before is the
/// one that counts then.
pub(crate) fn checkpoint(core: &Core, is_clean: bool) -> Result<()> {
    let mut anchor = core.anchor.lock();
    core.journal.check()?;
    let cut = core.journal.cut()?;
    let (first_record, medium) = (cut.first_record, &core.journal.medium);
    anchor.stale.extend(&cut.before);
    let image = write_image(&core.table, medium)?;
    let switched = switch(core, &mut anchor, cut, &image, is_clean);
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
