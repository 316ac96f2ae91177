//! Requests for recordings, and their replies.

use serde::{Deserialize, Serialize};

/// The operations to record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceRequest {
    /// A pattern of paths below the volume's root; all files if `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

/// A recording began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceBegun {
    /// Its number, for ending it.
    pub id: u64,
    /// The first line of the trace (`docs/trace.md`).
    pub head: String,
}

/// The operations recorded since the last such reply, possibly none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceLines {
    /// Whole lines of the trace.
    pub lines: String,
    /// Operations in these lines.
    pub ops: u64,
    /// Operations that are missing for lack of room.
    pub dropped: u64,
    /// Opens among them whose reads the kernel does itself.
    pub passthrough_opens: u64,
    /// Nanoseconds since the recording began.
    pub age_ns: u64,
}

/// A recording ended, and all of it was sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceEnded {
    /// Nanoseconds since it began.
    pub age_ns: u64,
    /// Whether the unmount of the volume ended it.
    pub unmounted: bool,
}
