//! What is said about recording.

use serde::{Deserialize, Serialize};

/// What is to be recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceRequest {
    /// A pattern of paths below the volume's root; all files if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

/// A recording began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceBegun {
    /// Its number, to end it by.
    pub id: u64,
    /// The first line of the trace (`docs/trace.md`).
    pub head: String,
}

/// What was recorded since the last such reply; nothing, if nothing was done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceLines {
    /// Whole lines of the trace.
    pub lines: String,
    /// Operations that they tell.
    pub ops: u64,
    /// Operations that are missing, since there was no room for them.
    pub dropped: u64,
    /// Opens among them of which the kernel does the reads by itself.
    pub passthrough_opens: u64,
    /// Nanoseconds since the recording began.
    pub age_ns: u64,
}

/// A recording ended, and all of it was sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceEnded {
    /// Nanoseconds since it began.
    pub age_ns: u64,
    /// Nobody ended it: the volume was unmounted.
    pub unmounted: bool,
}
