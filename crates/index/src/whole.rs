//! The index of a whole file, which has all its data on one tier: so small that
//! it needs no file. The file's attribute names the tier; the rest follows from
//! that, or is in memory only.

use braid_contract::TierId;
use braid_format::{Entry, Owners, Reason};

/// The tier of a whole file, and its state.
#[derive(Clone, Copy, Debug)]
pub struct Whole {
    /// The tier with all its data.
    pub tier: TierId,
    /// Why it is there.
    pub reason: Reason,
    /// Number of ranges there, from the first one on.
    pub ranges: u64,
    /// Number of them that are in the tier's count.
    pub counted: u64,
    /// Size of the file in bytes.
    pub size: u64,
    /// Size of the file at its last `fsync`.
    pub synced_size: u64,
    /// The tiers that own attributes of the file.
    pub owners: Owners,
    /// As the index's flag of this name.
    pub gaps: bool,
    /// Whether the object was made durable.
    pub durable: bool,
    /// Whether the attribute records that.
    pub durable_stored: bool,
}

impl Whole {
    /// A file of `size` bytes with so many ranges, none ahead of its home
    /// inode.
    pub fn settled(
        (tier, reason): (TierId, Reason),
        (size, ranges): (u64, u64),
        durable: bool,
        home: TierId,
    ) -> Self {
        Self {
            tier,
            reason,
            ranges,
            counted: 0,
            size,
            synced_size: size,
            // The object's access time counts, if it has one.
            owners: Owners { size: tier, mtime: home, atime: tier, synced_mtime: home },
            gaps: false,
            durable,
            durable_stored: durable,
        }
    }

    /// The entry of a range.
    pub fn entry(&self, range: u64) -> Option<Entry> {
        (range < self.ranges).then_some(Entry { tier: self.tier, reason: self.reason, version: 0 })
    }
}
