//! Bugs on purpose, for the proof that the crash explorer would find them.
//! Without the feature `failpoints` nothing of this is in the code.

/// A step of an ordering rule that is left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failpoint {
    /// A range that moves has its entry switched before its copy is durable.
    SwitchBeforeCopyIsDurable,
    /// A range that moved is punched at its source before the entry is durable.
    PunchBeforeEntryIsDurable,
    /// The size grows over entries whose clearing is not durable.
    GrowOverUnclearedEntries,
    /// `fsync` of a spread file ignores a new mode or extended attribute.
    AttributesAreNotSynced,
    /// A spread file always has a link count of one.
    LinksAreForgotten,
    /// A file that could not be spread keeps its index, without a mark.
    FailedSpreadLeavesIndex,
    /// Data that could not be synced is believed clean.
    FailedSyncIsForgotten,
    /// `fdatasync` takes the size for that of the last part, without having said
    /// so in the index.
    GrowthIsNotRecorded,
}
