//! Total, free and used space of a store or a native file system.

/// Space of a store or a file system, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    /// Size of the device or file system beneath.
    pub total: u64,
    /// Not used by anyone.
    pub free: u64,
    /// Usable by this process; at most `free`.
    pub available: u64,
    /// Identifies the file system below, so that one shared by two tiers is
    /// counted once.
    pub device: u64,
}
