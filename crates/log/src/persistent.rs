//! A regular file in persistent memory as a device: mapped.

use crate::device::Device;
use braid_contract::{Error, Result, Shown};
use braid_sys::PersistentMap;
use rustix::fs::{AtFlags, FallocateFlags, StatxAttributes, StatxFlags};
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::path::PathBuf;

/// A mapped file.
#[derive(Debug)]
pub(crate) struct Persistent {
    path: PathBuf,
    size: u64,
    map: PersistentMap,
    _file: OwnedFd,
}

impl Persistent {
    /// Maps a regular file of this size, if it is in persistent memory, and has all of its
    /// blocks or can get them; else gives it back.
    ///
    /// # Errors
    /// Those of `statx(2)`.
    pub(crate) fn of(
        file: OwnedFd,
        size: u64,
        path: PathBuf,
    ) -> rustix::io::Result<std::result::Result<Self, OwnedFd>> {
        let found = rustix::fs::statx(&file, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)?;
        let len = usize::try_from(size).ok().filter(|len| *len > 0);
        let Some(len) = len.filter(|_| found.stx_attributes.contains(StatxAttributes::DAX)) else {
            return Ok(Err(file));
        };
        let map = PersistentMap::new(&file, len);
        let reserved = rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, size);
        match (map, reserved) {
            (Ok(map), Ok(())) => Ok(Ok(Self { path, size, map, _file: file })),
            (map, reserved) => {
                tracing::info!(?map, ?reserved, "persistent memory is used by system calls");
                Ok(Err(file))
            }
        }
    }

    fn error(&self, what: &str, offset: u64, error: io::Error) -> Error {
        Error::from(error).context(format!("{}: {what} at byte {offset}", self.path.shown()))
    }
}

impl Device for Persistent {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.map.read(offset as usize, buf).map_err(|error| self.error("reading", offset, error))
    }

    fn write_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> Result<()> {
        self.map.write(offset as usize, bufs).map_err(|error| self.error("writing", offset, error))
    }

    /// What was written is durable.
    fn flush(&self) -> Result<()> {
        Ok(())
    }

    /// A block that is not there could not be written to where the space is gone.
    fn discard(&self, _offset: u64, _len: u64) {}
}
