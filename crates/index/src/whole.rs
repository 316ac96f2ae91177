//! What an index says of a file all of whose data is on one tier: so little
//! that no file is needed for it. The file's attribute names the tier; the rest
//! follows, or is memory only.

use braid_contract::TierId;
use braid_format::{Entry, Owners, Reason};

/// Where a whole file is, and what is known of it.
#[derive(Clone, Copy, Debug)]
pub struct Whole {
    /// The tier with all its data.
    pub tier: TierId,
    /// Why it is there.
    pub reason: Reason,
    /// So many ranges, from the first one on, are there.
    pub ranges: u64,
    /// So many of them are in the tier's count.
    pub counted: u64,
    /// Size of the file in bytes.
    pub size: u64,
    /// Size of the file at its last `fsync`.
    pub synced_size: u64,
    /// Which tiers have something of the file.
    pub owners: Owners,
    /// As the index's flag of that name.
    pub gaps: bool,
    /// The object was made durable.
    pub durable: bool,
    /// The attribute says so.
    pub durable_stored: bool,
}

impl Whole {
    /// A file of `size` bytes with so many ranges, with nothing ahead of what
    /// its home inode says.
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
            owners: Owners { size: tier, mtime: home, atime: home, synced_mtime: home },
            gaps: false,
            durable,
            durable_stored: durable,
        }
    }

    /// Where range `range` is.
    pub fn entry(&self, range: u64) -> Option<Entry> {
        (range < self.ranges).then_some(Entry { tier: self.tier, reason: self.reason, version: 0 })
    }
}
