//! A tier's store: bytes in named objects.

use crate::{Errno, Fd, Hint, NativeFd, ObjectId, Result, Timestamp, Usage, ZoneStatus};
use std::io::{IoSlice, IoSliceMut};

/// The capabilities of a store beyond the basics. The documentation of a method names the
/// capability that it needs; without it, the method answers `EOPNOTSUPP`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StoreCapabilities {
    /// Objects are files of a native file system: [`Store::directory`],
    /// [`Store::adopt`], [`Store::object_file`] and [`Store::share_range`]
    /// answer.
    pub native_files: bool,
    /// [`Store::punch`] returns space.
    pub punch: bool,
    /// [`Store::allocate`] reserves space.
    pub allocate: bool,
    /// [`Store::next_data`] tells data from holes.
    pub seek_data: bool,
    /// Data may be overwritten in place. Without this, each byte of an object
    /// is written once: [`Store::write_at`] answers `EOPNOTSUPP`, and writes
    /// nothing, where any of the bytes was written before, unless with the same
    /// contents. A byte that was truncated away since may count as written too; one
    /// that was punched does not.
    pub overwrite: bool,
    /// An object keeps an access time: [`Store::set_access_time`] sets it, and
    /// nothing else does; no read changes it.
    pub access_times: bool,
    /// Synced data survives power loss.
    pub durable: bool,
    /// The store preallocates space for an object that is written past its end,
    /// unless that was allocated before.
    pub preallocates: bool,
    /// Operations that the store handles in parallel, at least 1. More only
    /// wait inside.
    pub queue_depth: u32,
}

/// How to carry out one read or write.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StoreIo {
    /// Bypass the kernel's page cache where alignment allows it; where it does
    /// not, the store uses its cached path and the result is the same.
    pub direct: bool,
    /// Knowledge about the data's future.
    pub hint: Hint,
}

/// Size and space of an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ObjectStat {
    /// One past the last byte ever written or allocated and not truncated.
    pub size: u64,
    /// Space used, in bytes.
    pub allocated: u64,
    /// When the store last changed the object's contents.
    pub mtime: Timestamp,
    /// The access time, if one was ever set.
    pub atime: Option<Timestamp>,
}

/// A read of one stretch of an object, among several.
#[derive(Debug)]
pub struct ReadPiece<'a> {
    /// Where in the object, in bytes.
    pub offset: u64,
    /// Filled up to the object's end.
    pub buf: &'a mut [u8],
    /// Bytes read.
    pub done: usize,
}

impl<'a> ReadPiece<'a> {
    /// A read that is still to be done.
    #[must_use]
    pub fn new(offset: u64, buf: &'a mut [u8]) -> Self {
        Self { offset, buf, done: 0 }
    }
}

/// The interface to bytes on a tier.
///
/// Objects are sparse: an offset never written reads as zeros below the
/// object's size. All methods block, may be called from any thread, and are
/// atomic only where they say so. An object that does not exist answers
/// `ENOENT`; a device that fails answers `EIO`, one that vanished `ESTALE` or
/// `ENODEV`, a full one `ENOSPC` or `EDQUOT`, a read-only one `EROFS`.
pub trait Store: Send + Sync {
    /// The capabilities of this store.
    fn capabilities(&self) -> StoreCapabilities;

    /// The state and counters of a store on a zoned device; `None` of any other one. Never waits
    /// for the device.
    fn zones(&self) -> Option<ZoneStatus> {
        None
    }

    /// Creates an empty object. Idempotent: an existing object is left as it
    /// is. Durable only after [`sync`](Self::sync) of the object.
    fn create(&self, id: ObjectId) -> Result<()>;

    /// Reads into `bufs` from `offset` on. Returns the count of bytes read,
    /// which is short only at the object's end.
    fn read_at(&self, id: ObjectId, offset: u64, bufs: &mut [IoSliceMut<'_>], io: StoreIo) -> Result<usize>;

    /// Writes `bufs` at `offset`, growing the object if needed. Overwriting
    /// data needs the capability `overwrite`. Returns the count of bytes
    /// written; after a short count, the error that caused it is answered when
    /// the rest is written.
    fn write_at(&self, id: ObjectId, offset: u64, bufs: &[IoSlice<'_>], io: StoreIo) -> Result<usize>;

    /// Reads all pieces, in any order and at the same time where the store can;
    /// each is as if by [`read_at`](Self::read_at). Begins no further piece after
    /// one that failed; the `done` of each tells how far it came.
    fn read_pieces(&self, id: ObjectId, pieces: &mut [ReadPiece<'_>], io: StoreIo) -> Result<()> {
        for piece in pieces {
            piece.done = self.read_at(id, piece.offset, &mut [IoSliceMut::new(piece.buf)], io)?;
        }
        Ok(())
    }

    /// Reserves space for `len` bytes at `offset`, so that a later write there
    /// does not fail for lack of it. Grows the object unless `keep_size`.
    /// Needs the capability `allocate`.
    fn allocate(&self, id: ObjectId, offset: u64, len: u64, keep_size: bool) -> Result<()>;

    /// Makes `len` bytes at `offset` read as zeros and returns their space.
    /// The object's size stays. Needs the capability `punch`.
    fn punch(&self, id: ObjectId, offset: u64, len: u64) -> Result<()>;

    /// Shrinks or grows the object to `size` bytes. New bytes read as zeros.
    fn truncate(&self, id: ObjectId, size: u64) -> Result<()>;

    /// Begins to write this data to the device, if it would be kept in memory for
    /// a while. Waits for nothing but room in the device's queue.
    fn start_write_back(&self, id: ObjectId, offset: u64, len: u64) -> Result<()> {
        let _ = (id, offset, len);
        Ok(())
    }

    /// Begins to read this data into memory, where the store keeps some. Waits for
    /// nothing but room in the device's queue.
    fn start_read(&self, id: ObjectId, offset: u64, len: u64) -> Result<()> {
        let _ = (id, offset, len);
        Ok(())
    }

    /// Makes the contents of the objects, and their existence, survive power
    /// loss (if the store is `durable`). With `data_only`, times may be left
    /// out, sizes not.
    fn sync(&self, ids: &[ObjectId], data_only: bool) -> Result<()>;

    /// Makes everything on the tier durable.
    fn sync_all(&self) -> Result<()>;

    /// Removes objects. A missing one is no error. Not durable until the device
    /// writes it back; power loss may undo a removal.
    fn remove(&self, ids: &[ObjectId]) -> Result<()>;

    /// Size and space of an object.
    fn stat(&self, id: ObjectId) -> Result<ObjectStat>;

    /// Sets the access time of an object; its contents, and `mtime`, stay. Durable
    /// when the store next makes the object durable with its times. Needs the
    /// capability `access_times`.
    fn set_access_time(&self, id: ObjectId, time: Timestamp) -> Result<()> {
        let _ = (id, time);
        Err(Errno::EOPNOTSUPP.into())
    }

    /// The first stretch of data at or after `offset` as `(start, end)`, or
    /// `None` where only a hole follows. `end` may be early, never late. Needs
    /// the capability `seek_data`.
    fn next_data(&self, id: ObjectId, offset: u64) -> Result<Option<(u64, u64)>>;

    /// Current space of the store.
    fn usage(&self) -> Result<Usage>;

    /// The label that was last set on the tier, opaque to the store; `None` on
    /// a tier that never had one. Changes nothing on the tier.
    fn label(&self) -> Result<Option<Vec<u8>>>;

    /// Sets the tier's label, at most 4096 bytes, atomically and durably. The
    /// first label also creates all else that the store needs to keep objects.
    fn set_label(&self, label: &[u8]) -> Result<()>;

    /// Writes a text for people who find the tier's directory by other means
    /// than the volume; does nothing if it exists already.
    /// [`clear`](Self::clear) removes it. A store without a directory does
    /// nothing.
    fn leave_notice(&self, _text: &[u8]) -> Result<()> {
        Ok(())
    }

    /// Checks that the tier can be relied on, or can be again after a failure:
    /// opens it again if needed, and makes sure that it still is the tier with
    /// this label. `ESTALE` if it is not, or absent; `EROFS` if it refuses
    /// writes. Unsynced writes may be lost when a tier comes back;
    /// [`sync`](Self::sync) of such an object fails once.
    fn probe(&self, label: &[u8]) -> Result<()>;

    /// Removes everything that the store keeps, durably, so that its place can
    /// be reused: the objects, then the label. Other files are left alone.
    /// After a failure this can be repeated, since the label is removed last.
    /// `ENOTEMPTY` if files that are not the store's are in the way.
    fn clear(&self) -> Result<()>;

    /// Calls `visit` with every object, in no order. For checking.
    fn list(&self, visit: &mut dyn FnMut(ObjectId)) -> Result<()>;

    /// The directory that the tier is, with all files that were in it before. Needs the capability
    /// `native_files`.
    fn directory(&self) -> Result<Fd> {
        Err(Errno::EOPNOTSUPP.into())
    }

    /// Makes the regular file behind `file`, which is on the tier's own file
    /// system, an object: it gets one more name, and its other names lead to
    /// the object's bytes until they are removed. Durable after
    /// [`sync_all`](Self::sync_all). `EEXIST` if there is such an object,
    /// `EXDEV` if the file is elsewhere. Needs the capability `native_files`.
    fn adopt(&self, id: ObjectId, file: &dyn NativeFd) -> Result<()> {
        let _ = (id, file);
        Err(Errno::EOPNOTSUPP.into())
    }

    /// The file that keeps an object, to be looked at. Needs the capability
    /// `native_files`.
    fn object_file(&self, id: ObjectId) -> Result<Fd> {
        let _ = id;
        Err(Errno::EOPNOTSUPP.into())
    }

    /// Copies `len` bytes of a file from `from_offset` on to the object at
    /// `offset`, by the file system that both are on, which shares their blocks
    /// if it can. Returns the count of bytes copied, which may be short.
    /// Otherwise as [`write_at`](Self::write_at). `EXDEV` if the file is
    /// elsewhere; needs the capability `native_files`.
    fn share_range(
        &self,
        id: ObjectId,
        offset: u64,
        from: &dyn NativeFd,
        from_offset: u64,
        len: u64,
    ) -> Result<u64> {
        let _ = (id, offset, from, from_offset, len);
        Err(Errno::EOPNOTSUPP.into())
    }
}
