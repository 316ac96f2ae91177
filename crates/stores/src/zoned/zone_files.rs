//! Zones that are files of a directory, laid out as zonefs does: `cnv/N` for
//! conventional ones, `seq/N` for sequential ones, whose size is the write pointer.
//! zonefs keeps to the rules itself; the emulator uses the same layout on any file
//! system, and keeps to them in its place.

use braid_contract::{Access, Context, Errno, Error, Fd, Result, ZoneKind, ZoneReport, ZoneState};
use std::ffi::OsStr;
use std::io::{IoSlice, IoSliceMut};

/// The directories of the zones, conventional ones first, as on a device.
pub(super) const DIRS: [(ZoneKind, &str); 2] =
    [(ZoneKind::Conventional, "cnv"), (ZoneKind::Sequential, "seq")];

/// The path of the file of a zone, by its number among those of its kind.
pub(super) fn path_of(kind: ZoneKind, number: u32) -> String {
    let dir = DIRS.iter().find(|(of, _)| *of == kind).map_or("", |(_, dir)| *dir);
    format!("{dir}/{number}")
}

/// Permissions that a file system removes from a file when its zone fails, as
/// zonefs does: writing where it is read-only, all where it is offline.
const WRITABLE: u32 = 0o200;
const READABLE: u32 = 0o400;

/// The state of a zone by the size and mode of its file; one that was begun counts
/// as closed.
pub(super) fn report_of(kind: ZoneKind, (size, mode): (u64, u32), capacity: u64) -> ZoneReport {
    let size = size.min(capacity);
    let state = match (mode, kind) {
        (mode, _) if mode & READABLE == 0 => ZoneState::Offline,
        (mode, _) if mode & WRITABLE == 0 => ZoneState::ReadOnly,
        (_, ZoneKind::Conventional) => ZoneState::Full,
        (_, ZoneKind::Sequential) if size == 0 => ZoneState::Empty,
        (_, ZoneKind::Sequential) if size == capacity => ZoneState::Full,
        (_, ZoneKind::Sequential) => ZoneState::Closed,
    };
    let write_pointer = if kind == ZoneKind::Conventional { capacity } else { size };
    ZoneReport { kind, state, capacity, write_pointer }
}

/// The file of a zone.
#[derive(Debug)]
pub(super) struct ZoneFile {
    pub(super) kind: ZoneKind,
    fd: Fd,
}

impl ZoneFile {
    /// Opens zone `number` of its kind below `root`.
    pub(super) fn open(root: &Fd, kind: ZoneKind, number: u32) -> Result<Self> {
        let path = path_of(kind, number);
        let open = |access| root.open_at(OsStr::new(&path), access);
        let fd = match open(Access::ReadWrite) {
            Err(error) if matches!(error.errno(), Errno::EACCES | Errno::EROFS | Errno::EPERM) => {
                // It failed: the rest can be read, or examined.
                open(Access::Read).or_else(|_| open(Access::Path))
            }
            opened => opened,
        };
        Ok(Self { kind, fd: fd.with_context(|| format!("zone {path}"))? })
    }

    /// The state of the zone, of which `capacity` bytes can be written; one that
    /// was begun counts as closed.
    pub(super) fn report(&self, capacity: u64) -> Result<ZoneReport> {
        let attr = self.fd.stat()?.attr;
        Ok(report_of(self.kind, (attr.size, attr.mode.into()), capacity))
    }

    /// Fills all of `buf`.
    pub(super) fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let mut done = 0;
        while done < buf.len() {
            match self.fd.read_at(offset + done as u64, &mut [IoSliceMut::new(&mut buf[done..])], true)? {
                0 => {
                    return Err(Error::new(
                        Errno::EIO,
                        format!("nothing is at {} in the zone", offset + done as u64),
                    ));
                }
                read => done += read,
            }
        }
        Ok(())
    }

    /// Writes all of `bufs`, one after the other.
    pub(super) fn write(&self, offset: u64, bufs: &[IoSlice<'_>]) -> Result<()> {
        let mut at = offset;
        for buf in bufs {
            let mut done = 0;
            while done < buf.len() {
                match self.fd.write_at(at, &[IoSlice::new(&buf[done..])], true)? {
                    0 => return Err(Errno::EIO.into()),
                    written => (done, at) = (done + written, at + written as u64),
                }
            }
        }
        Ok(())
    }

    /// Sets the write pointer: to 0, which resets the zone, or to its capacity,
    /// which finishes it.
    pub(super) fn set_write_pointer(&self, to: u64) -> Result<()> {
        self.fd.truncate(to)
    }

    pub(super) fn sync(&self) -> Result<()> {
        self.fd.sync(false)
    }
}
