//! The bytes on disk (`docs/format.md`) as types, and back. Pure: no I/O.
//!
//! Bytes from a disk are never trusted: every decoder checks magic, version and
//! CRC, and answers a [`FormatError`] instead of panicking. The volume, the
//! check and clients that map an index read and write through this crate; no
//! offset is defined elsewhere.
#![forbid(unsafe_code)]

mod bytes;
mod counts;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod header;
mod heat;
mod id_attr;
mod job;
mod label;
mod mark;
mod names;
mod pin_attr;
mod range_size;
mod rehome;
mod seal;
mod speeds;
mod streams;
mod unit_head;
mod words;
mod zone_log;

pub use counts::SavedCounts;
pub use header::{
    GAPS_AT, GROWS_TO_AT, HEADER_LEN, Header, MUTABLE_FROM, OWNERS_AT, RESERVED_AT, SIZE_AT, SYNCED_SIZE_AT,
    durable_at, entry_at,
};
pub use heat::{DEGREE_MAX, FileHeat, FileKey, RangeHeat, decode_heat, encode_heat};
pub use id_attr::{IdAttr, IdKind, WholeAttr};
pub use job::JobRecord;
pub use label::{Label, Removed, TABLE_LEN, VolumeTable};
pub use mark::Mark;
pub use names::{BRAID_DIR, index_path, is_below_root};
pub use pin_attr::{PinAttr, StoredPin};
pub use range_size::{RANGE_SIZE_DEFAULT, RANGE_SIZE_MAX, RANGE_SIZE_MIN, RangeSize, RangeSizes};
pub use rehome::{RehomeRecord, RehomeStage};
pub use seal::{Proof, Seal, Secret};
pub use speeds::{SavedBandwidth, SavedSpeed, SavedSpeeds};
pub use streams::{SAVED_KINDS_MAX, SavedKind, decode_kinds, encode_kinds};
pub use unit_head::{UNIT_HEAD_LEN, UNIT_HEAD_ROOM, UnitHead};
pub use words::{Entry, Owners, Reason, RuleNumber, SIZE_MAX, Words};
pub use zone_log::{FRAME_HEAD, FRAME_PAYLOAD_MAX, FrameHead, FrameKind, ZONED_LABEL_MAX, ZoneRecord};

use std::fmt;

/// The newest version of a volume that this code reads, and the one that it
/// writes. Smaller structures count versions of their own.
pub const FORMAT_VERSION: u16 = 2;

/// The bytes were not written by Braid, or by a later version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FormatError {
    /// Too short, wrong magic, wrong CRC or an impossible value; says which.
    Damaged(&'static str),
    /// Written by a later version of the format.
    Newer(u16),
}

impl fmt::Display for FormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Damaged(what) => f.write_str(what),
            Self::Newer(version) => {
                write!(f, "format version {version}, this Braid reads versions up to {FORMAT_VERSION}")
            }
        }
    }
}
