//! A zoned device as the zoned store uses it: zones that are written from their
//! beginning to their end, and emptied as a whole.
//!
//! The kernel's zonefs and raw zoned block devices implement it, block devices without
//! zones that are cut into units, and an emulator that keeps to the same rules, so that
//! all above it can be tested anywhere.

use crate::{Result, StreamId};
use std::fmt;
use std::io::IoSlice;

/// The size of a device's zones, and its limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZonedGeometry {
    /// The unit of all offsets and lengths, in bytes.
    pub block: u64,
    /// Number of zones.
    pub zones: u32,
    /// Most sequential zones that may be open at a time; `None` without a limit.
    pub open_max: Option<u32>,
    /// Most that may be open or closed, but begun and not full.
    pub active_max: Option<u32>,
}

/// How a zone may be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ZoneKind {
    /// Anywhere, again and again.
    Conventional,
    /// At its write pointer only.
    Sequential,
}

/// The state of a zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ZoneState {
    /// Nothing was written to it since it was reset.
    Empty,
    /// It was begun, and holds resources of the device.
    Open,
    /// It was begun, and may go on.
    Closed,
    /// Nothing more can be written until it is reset. Conventional zones count as
    /// full too.
    Full,
    /// It can be read, and never written or reset again.
    ReadOnly,
    /// Its data is lost, for good.
    Offline,
}

impl ZoneState {
    /// Whether the zone can be written, at least after a reset.
    #[must_use]
    pub fn is_usable(self) -> bool {
        !matches!(self, Self::ReadOnly | Self::Offline)
    }
}

/// A device's report of a zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZoneReport {
    /// How it may be written.
    pub kind: ZoneKind,
    /// Its state.
    pub state: ZoneState,
    /// Bytes that can be written to it.
    pub capacity: u64,
    /// Where the next write has to begin, in bytes from its beginning; of a
    /// conventional zone, its capacity.
    pub write_pointer: u64,
}

/// A zoned device. Zones are numbered from 0 on; offsets are within a zone. All
/// offsets and lengths are multiples of the block, and memory is aligned for
/// direct I/O. All methods block and may be called from any thread; one thread at a
/// time writes to a zone.
///
/// A write, a reset or a finish is durable after [`flush`](Self::flush); power loss leaves any
/// beginning of the data written to a sequential zone, and never data that does not lead up to its
/// write pointer, but for a full one. A zone that fails answers `EIO`, a device that is gone
/// `ENODEV`.
pub trait ZonedDevice: Send + Sync + fmt::Debug {
    /// Its zones and limits.
    fn geometry(&self) -> ZonedGeometry;

    /// The state of a zone.
    fn report(&self, zone: u32) -> Result<ZoneReport>;

    /// Fills `buf` from `offset` on. `EIO` beyond the write pointer.
    fn read(&self, zone: u32, offset: u64, buf: &mut [u8]) -> Result<()>;

    /// Writes all of `bufs` at `offset`, which is the write pointer in a sequential
    /// zone. After an error, a part may have been written: a [`report`](Self::report)
    /// tells how much. `EOVERFLOW` if it would make more zones open or active than
    /// there may be.
    fn write(&self, zone: u32, offset: u64, bufs: &[IoSlice<'_>]) -> Result<()>;

    /// Empties a sequential zone.
    fn reset(&self, zone: u32) -> Result<()>;

    /// Makes a sequential zone full as it is, which frees the device's resources that it holds.
    fn finish(&self, zone: u32) -> Result<()>;

    /// Makes everything durable that was done.
    fn flush(&self) -> Result<()>;

    /// A number that tells the device apart from others.
    fn device(&self) -> u64;

    /// Whether it knows how far a zone was written after it was closed or lost power.
    /// Of one that does not, each sequential zone is full when it is opened, until
    /// [`set_write_pointer`](Self::set_write_pointer) says otherwise, and may hold anything behind
    /// the flushed data.
    fn keeps_write_pointers(&self) -> bool {
        true
    }

    /// Sets the end of the used data in a sequential zone of a device that does not
    /// [keep](Self::keeps_write_pointers) write pointers. To be called before any write to the
    /// zone.
    fn set_write_pointer(&self, _zone: u32, _end: u64) {}

    /// Data written to a sequential zone from now on is of a stream, or of none: the device may
    /// place it with other data of that stream.
    fn assign(&self, _zone: u32, _stream: Option<StreamId>) {}

    /// The number under which the device places the data of a stream, if it does so and
    /// has been given any.
    fn placement(&self, _stream: Option<StreamId>) -> Option<u16> {
        None
    }
}
