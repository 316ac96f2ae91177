//! Copying all of a file from one place to another, while it does not change.

use crate::core::Core;
use crate::file::extents::{next_data_on, next_home_data};
use crate::file::pieces::{read_home, read_to_copy, write_home};
use crate::file::share::Sharing;
use crate::live::{File, Spread};
use braid_contract::{Errno, Hint, ObjectId, Result, Store, StoreIo};
use braid_placement::Direction;
use braid_sys::AlignedBuf;
use braid_tiers::Tier;
use std::io::IoSlice;

/// Bytes copied at a time.
const CHUNK: u64 = 1 << 20;

/// Where a file's data is, or is to be.
#[derive(Clone, Copy)]
pub(super) enum DataLocation<'a> {
    /// In the home file, on this tier.
    Home(&'a File),
    /// In an object.
    Object(&'a dyn Store, ObjectId, &'a Tier),
    /// In the part that a file in use has on a tier.
    Spread(&'a File, &'a Spread, &'a Tier),
}

/// Copies the first `size` bytes; holes stay holes. An object is durable
/// after that, and as long as the file.
pub(super) fn copy_all(core: &Core, from: DataLocation<'_>, to: DataLocation<'_>, size: u64) -> Result<()> {
    let mut buf = AlignedBuf::new();
    let sharing = sharing_between(core, from, to);
    let mut at = 0;
    while let Some((start, end)) = next_part(from, at, size)? {
        at = sharing.as_ref().map_or(start, |sharing| sharing.copy(start..end));
        while at < end {
            let piece = buf.bytes((end - at).min(CHUNK) as usize);
            read_part(core, from, at, piece)?;
            write_part(core, to, at, piece)?;
            at += piece.len() as u64;
        }
    }
    let DataLocation::Object(store, id, tier) = to else { return Ok(()) };
    let finish = || -> Result<()> {
        if store.stat(id)?.size != size {
            store.truncate(id, size)?;
        }
        store.sync(&[id], true)
    };
    finish().map_err(|error| tier.note_error(error))
}

/// How the two share blocks, if they can.
fn sharing_between<'a>(core: &'a Core, from: DataLocation<'a>, to: DataLocation<'a>) -> Option<Sharing<'a>> {
    let home = core.tiers.home();
    match (from, to) {
        (DataLocation::Home(file), DataLocation::Object(_, id, to)) => Sharing::between(file, id, home, to),
        (DataLocation::Spread(file, spread, from), DataLocation::Object(_, _, to)) => {
            Sharing::between(file, spread.id(), from, to)
        }
        (DataLocation::Spread(file, spread, from), DataLocation::Home(_)) => {
            Sharing::between(file, spread.id(), from, home)
        }
        _ => None,
    }
}

fn next_part(from: DataLocation<'_>, at: u64, size: u64) -> Result<Option<(u64, u64)>> {
    match from {
        DataLocation::Home(file) => next_home_data(file, at, size),
        DataLocation::Spread(file, spread, tier) => next_data_on(file, spread, tier, at, size),
        DataLocation::Object(..) => Err(Errno::EINVAL.into()),
    }
}

/// Reads a piece; bytes past the end are zeros.
fn read_part(core: &Core, from: DataLocation<'_>, at: u64, buf: &mut [u8]) -> Result<()> {
    match from {
        DataLocation::Home(file) => {
            let mut done = 0;
            while done < buf.len() {
                match read_home(core, file.unnoticed(), at + done as u64, &mut buf[done..], false)? {
                    0 => break,
                    more => done += more,
                }
            }
            buf[done..].fill(0);
            Ok(())
        }
        DataLocation::Spread(file, spread, tier) => read_to_copy(file, spread, tier, at, buf),
        DataLocation::Object(..) => Err(Errno::EINVAL.into()),
    }
}

fn write_part(core: &Core, to: DataLocation<'_>, at: u64, data: &[u8]) -> Result<()> {
    let mut done = 0;
    while done < data.len() {
        let (offset, rest) = (at + done as u64, &data[done..]);
        let written = match to {
            DataLocation::Home(file) => write_home(core, file, offset, rest, false)?,
            DataLocation::Object(store, id, tier) => {
                let io = StoreIo { direct: true, hint: Hint::default() };
                let write = || store.write_at(id, offset, &[IoSlice::new(rest)], io);
                let written = tier.count(Direction::Write, (rest.len(), true), write);
                written.map_err(|error| tier.note_error(error))?
            }
            DataLocation::Spread(..) => return Err(Errno::EINVAL.into()),
        };
        match written {
            0 => return Err(Errno::EIO.into()),
            more => done += more,
        }
    }
    Ok(())
}
