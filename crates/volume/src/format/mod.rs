//! The bytes on disk (`docs/format.md`) as types, and back. Pure: no I/O.
//!
//! What comes from a disk is never believed: every decoder checks magic,
//! version and CRC, and answers a [`FormatError`] instead of panicking.

mod bytes;
mod counts;
mod header;
mod heat;
mod id_attr;
mod label;
mod pin_attr;
mod range_size;
mod rehome;
mod seal;
mod words;

pub(crate) use counts::SavedCounts;
pub(crate) use header::{HEADER_LEN, Header, MUTABLE_FROM};
pub(crate) use heat::{decode_heat, encode_heat};
pub(crate) use id_attr::{IdAttr, IdKind};
pub(crate) use label::{Label, Removed, TABLE_LEN, VolumeTable};
pub(crate) use pin_attr::{PinAttr, StoredPin};
pub use range_size::RangeSize;
pub(crate) use range_size::RangeSizes;
pub(crate) use rehome::{RehomeRecord, RehomeStage};
pub(crate) use seal::{Seal, Secret};
pub(crate) use words::{Entry, Owners, Reason, RuleNumber, SIZE_MAX, Words};

use std::fmt;

/// The newest version of a volume that this code reads, and the one that it
/// writes. What is smaller counts versions of its own.
pub const FORMAT_VERSION: u16 = 2;

/// What was read can't be what Braid wrote, or not what this Braid knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FormatError {
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
