//! The lines of a trace. A missing field is 0, false or empty.

use serde::{Deserialize, Serialize};

/// The supported version of the format.
pub const TRACE_VERSION: u32 = 1;

/// The first line.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// [`TRACE_VERSION`].
    #[serde(rename = "braid-trace")]
    pub version: u32,
    /// Version of the program that recorded.
    pub braid: String,
    /// The volume's id.
    pub volume: String,
    /// Size of its ranges in bytes.
    pub range: u32,
    /// Its policy at the time.
    pub policy: String,
    /// When it began, in seconds since 1970.
    pub began: i64,
    /// Pattern of the recorded files; all if `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

/// The version alone, which the first line of every version has.
#[derive(Deserialize)]
pub(super) struct VersionOnly {
    #[serde(rename = "braid-trace")]
    pub(super) version: u32,
}

/// The kind of a line after the first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LineKind {
    /// A file, before it is used.
    #[default]
    File,
    /// Operations that are missing here.
    Dropped,
    /// The end of the trace.
    End,
    /// An operation.
    #[serde(untagged)]
    Op(TraceOpKind),
}

/// An operation of an application.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TraceOpKind {
    /// A file is created and opened.
    Create,
    /// A file is opened.
    Open,
    /// Bytes are read.
    Read,
    /// Bytes are written.
    Write,
    /// Space is reserved.
    Allocate,
    /// The size is set.
    Truncate,
    /// The file is made durable.
    Sync,
    /// The last name and the last open of a file are gone.
    Remove,
}

/// A line after the first.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Record {
    /// The kind of the line.
    pub op: LineKind,
    /// When it began, in nanoseconds since the recording did.
    pub at: u64,
    /// How long it took, in nanoseconds.
    #[serde(skip_serializing_if = "is_zero")]
    pub took: u64,
    /// Thread of the caller; 0 if it is not known.
    #[serde(skip_serializing_if = "is_zero_32")]
    pub thread: u32,
    /// Inode number.
    #[serde(skip_serializing_if = "is_zero")]
    pub file: u64,
    /// For a file: its path below the volume's root.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// First byte.
    #[serde(skip_serializing_if = "is_zero")]
    pub offset: u64,
    /// Requested bytes.
    #[serde(skip_serializing_if = "is_zero")]
    pub length: u64,
    /// Size of the file before the operation; after it for a truncation.
    #[serde(skip_serializing_if = "is_zero")]
    pub size: u64,
    /// For a file: nanoseconds since its creation.
    #[serde(skip_serializing_if = "is_zero")]
    pub age: u64,
    /// It began at the end of the file, or beyond.
    #[serde(skip_serializing_if = "is_false")]
    pub append: bool,
    /// It had to be durable when it returned.
    #[serde(skip_serializing_if = "is_false")]
    pub sync: bool,
    /// It had to bypass the page cache.
    #[serde(skip_serializing_if = "is_false")]
    pub direct: bool,
    /// For an open: whether for writing.
    #[serde(skip_serializing_if = "is_false")]
    pub write: bool,
    /// For an open: whether the kernel does its I/O itself.
    #[serde(skip_serializing_if = "is_false")]
    pub passthrough: bool,
    /// User of the caller; for a file, its owner.
    #[serde(skip_serializing_if = "is_zero_32")]
    pub uid: u32,
    /// As `uid`, the group.
    #[serde(skip_serializing_if = "is_zero_32")]
    pub gid: u32,
    /// The stream of the data, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream: Option<u32>,
    /// Operations that are missing, here or in all.
    #[serde(skip_serializing_if = "is_zero")]
    pub dropped: u64,
    /// For the end: number of lines of operations.
    #[serde(skip_serializing_if = "is_zero")]
    pub ops: u64,
    /// For the end: the reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

impl Record {
    /// A record of an operation on the file of this number.
    pub fn of(kind: TraceOpKind, file: u64) -> Self {
        Self { op: LineKind::Op(kind), file, ..Self::default() }
    }

    /// Whether it is an operation.
    #[must_use]
    pub fn is_op(&self) -> bool {
        matches!(self.op, LineKind::Op(_))
    }
}

/// The last line of a trace that was ended, with its line end: `ops` were
/// recorded and `dropped` were not, within so many nanoseconds.
#[must_use]
pub fn end_line(at_ns: u64, ops: u64, dropped: u64, why: &str) -> String {
    line(&Record { op: LineKind::End, at: at_ns, ops, dropped, why: Some(why.into()), ..Record::default() })
}

/// A value as a line.
pub fn line(value: &impl Serialize) -> String {
    // All fields can be serialized, and there is no other way to fail.
    let mut text = serde_json::to_string(value).unwrap_or_default();
    text.push('\n');
    text
}

fn is_zero(value: &u64) -> bool {
    *value == 0
}

fn is_zero_32(value: &u32) -> bool {
    *value == 0
}

fn is_false(value: &bool) -> bool {
    !value
}
