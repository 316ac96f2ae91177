//! The device beneath the file system: blocks, whose writes may be lost until they
//! are flushed.

use braid_contract::Result;
use std::fmt;
use std::io::IoSlice;

/// Bytes of a block: the unit of allocation, which a device writes as a whole or
/// not at all.
pub const BLOCK: u64 = 4096;

/// A device, or something that is used like one. All methods block, and may be called
/// from any thread; writes that overlap in time are to different blocks.
pub trait Device: Send + Sync + fmt::Debug {
    /// Its size in bytes. It does not change while the device is in use.
    fn size(&self) -> u64;

    /// Fills `buf` with the bytes from `offset` on. Bytes that were never written
    /// read as anything.
    ///
    /// # Errors
    /// `EIO` if they can't be read, or lie beyond the end.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()>;

    /// Writes `bufs`, one after another, from `offset` on; offset and length in all are
    /// multiples of [`BLOCK`]. Reads see it from then on; power loss leaves each block
    /// in its old or its new state, until [`flush`](Self::flush) returns.
    ///
    /// # Errors
    /// `EIO` and other errors of the device; then any of the blocks may be written.
    fn write_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> Result<()>;

    /// Makes everything durable that was written before.
    ///
    /// # Errors
    /// That of the device. Data written since the last flush may be lost then,
    /// even if a later flush succeeds.
    fn flush(&self) -> Result<()>;

    /// Discards these bytes: they read as anything from then on. A device may ignore
    /// that.
    fn discard(&self, offset: u64, len: u64);
}
