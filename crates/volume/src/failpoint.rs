//! Bugs on purpose, for the proof that the crash explorer would find them.
//! Without the feature `failpoints` nothing of this is in the code.

use crate::Volume;

/// A step of an ordering rule that is left out.
#[cfg_attr(not(feature = "failpoints"), expect(unreachable_pub, reason = "exported with the feature only"))]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failpoint {
    /// A range that moves has its entry switched before its copy is durable.
    SwitchBeforeCopyIsDurable,
    /// A range that moved is punched at its source before the entry is durable.
    PunchBeforeEntryIsDurable,
    /// The size grows over entries whose clearing is not durable.
    GrowOverUnclearedEntries,
    /// A new mode or extended attribute of a spread file is not a matter of its
    /// `fsync`.
    AttributesAreNotSynced,
    /// A spread file is told to have one name.
    LinksAreForgotten,
    /// A file that could not be spread keeps its index, without a mark.
    FailedSpreadLeavesIndex,
    /// What could not be synced is believed clean.
    FailedSyncIsForgotten,
}

impl Volume {
    /// Sets a bug; at most one.
    #[cfg(feature = "failpoints")]
    pub fn set_failpoint(&self, failpoint: Failpoint) {
        let _ = self.failpoint.set(failpoint);
    }

    /// Whether this bug was set.
    #[cfg(feature = "failpoints")]
    pub(crate) fn fails_at(&self, failpoint: Failpoint) -> bool {
        self.failpoint.get() == Some(&failpoint)
    }

    /// No bug is.
    #[cfg(not(feature = "failpoints"))]
    #[expect(clippy::unused_self, reason = "called as with the feature")]
    pub(crate) fn fails_at(&self, _: Failpoint) -> bool {
        false
    }
}
