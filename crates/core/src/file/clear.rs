//! Making part of a file read as zeros on a tier: it is freed there, or, where
//! the tier frees nothing, written over.

use crate::file::extents::next_data_on;
use crate::file::home_inode::unnoticed;
use crate::file::pieces::{punch_piece, write_piece};
use crate::file::release::note_release;
use crate::live::{File, Spread};
use braid_contract::{Context, Errno, Error, Result, StoreIo};
use braid_tiers::Tier;
use std::ops::Range;

static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// Makes `len` bytes of the file's part on `tier` read as zeros.
///
/// # Errors
/// `EOPNOTSUPP` where there is data that the tier can neither free nor write
/// over; those of the tier.
pub(crate) fn clear_piece(file: &File, spread: &Spread, tier: &Tier, offset: u64, len: u64) -> Result<()> {
    if tier.capabilities().punch {
        return punch_piece(file, spread, tier, offset, len);
    }
    let (mut at, end) = (offset, offset + len);
    while let Some((start, data_end)) = next_data_on(file, spread, tier, at, end)? {
        if !tier.capabilities().overwrite {
            let what = format!("tier {} can't remove a part of what it holds", tier.name);
            return Err(Error::new(Errno::EOPNOTSUPP, what));
        }
        write_zeros(file, spread, tier, start..data_end)?;
        at = data_end;
    }
    Ok(())
}

/// Clears a range of the file's part on a tier that is about to get it.
pub(crate) fn clear_range(file: &File, spread: &Spread, tier: &Tier, range: u64) -> Result<()> {
    let ranges = spread.range_size();
    note_release(spread, tier.id);
    let clear = || clear_piece(file, spread, tier, ranges.start_of(range), ranges.bytes());
    unnoticed(file, spread, tier, clear).context("clearing leftovers")
}

fn write_zeros(file: &File, spread: &Spread, tier: &Tier, bytes: Range<u64>) -> Result<()> {
    let mut at = bytes.start;
    while at < bytes.end {
        let zeros = &ZEROS[..(bytes.end - at).min(ZEROS.len() as u64) as usize];
        match write_piece(file, spread, tier, at, zeros, StoreIo::default())? {
            0 => return Err(Errno::EIO.into()),
            done => at += done as u64,
        }
    }
    Ok(())
}
