//! What an index says of a file all of whose data is on one tier: so little
//! that no file is needed for it. The file's attribute names the tier; the rest
//! follows, or is memory only.

use braid_contract::TierId;
use braid_format::{Entry, Owners, Reason};

/// Where a whole file is, and what is known of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Whole {
    /// The tier with all its data.
    pub(crate) tier: TierId,
    /// Why it is there.
    pub(crate) reason: Reason,
    /// So many ranges, from the first one on, are there.
    pub(crate) ranges: u64,
    /// So many of them are in the tier's count.
    pub(crate) counted: u64,
    pub(crate) size: u64,
    /// Size of the file at its last `fsync`.
    pub(crate) synced_size: u64,
    pub(crate) owners: Owners,
    /// As the index's flag of that name.
    pub(crate) gaps: bool,
    /// The object was made durable.
    pub(crate) durable: bool,
    /// The attribute says so.
    pub(crate) durable_stored: bool,
}

impl Whole {
    /// A file of `size` bytes with so many ranges, with nothing ahead of what
    /// its home inode says.
    pub(crate) fn settled(
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
    pub(super) fn entry(&self, range: u64) -> Option<Entry> {
        (range < self.ranges).then_some(Entry { tier: self.tier, reason: self.reason, version: 0 })
    }
}
