//! The results of operations, in a form in which two sides can be compared.

use rustix::fs::FileType;
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

/// The result of an operation.
pub type Outcome = Result<Answer, Failed>;

/// An error number that prints its name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Failed(pub Errno);

impl fmt::Debug for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", braid_contract::Errno(self.0.raw_os_error()))
    }
}

/// Bytes that print in short.
#[derive(Clone, PartialEq, Eq)]
pub struct Bytes(pub Vec<u8>);

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = &self.0[..self.0.len().min(32)];
        let more = if shown.len() < self.0.len() { " …" } else { "" };
        write!(f, "{} bytes \"{}\"{more}", self.0.len(), shown.escape_ascii())
    }
}

/// The answer of a successful operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// The operation is not possible on both sides, so neither was asked.
    Skipped,
    /// Nothing but success.
    Unit,
    /// A named pipe was opened; it is closed again.
    Fifo,
    /// Bytes moved.
    Count(u64),
    /// The position in the file afterwards, with the bytes moved.
    Position {
        /// Bytes moved.
        moved: u64,
        /// The position.
        position: u64,
    },
    /// Bytes read.
    Bytes(Bytes),
    /// The names of a directory.
    Names(BTreeMap<String, Kind>),
    /// The names of extended attributes.
    Xattrs(BTreeSet<String>),
    /// Attributes.
    Stat(Stat),
    /// The answer of `SEEK_DATA` or `SEEK_HOLE` is consistent with the file's
    /// contents, though another one might be too.
    Consistent,
    /// The answer contradicts the file itself.
    Inconsistent(String),
}

/// The kind of an inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Dir,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// Anything else, which no operation here makes.
    Other,
}

impl From<FileType> for Kind {
    fn from(kind: FileType) -> Self {
        match kind {
            FileType::RegularFile => Self::File,
            FileType::Directory => Self::Dir,
            FileType::Symlink => Self::Symlink,
            FileType::Fifo => Self::Fifo,
            _ => Self::Other,
        }
    }
}

/// A time as far as two sides can be compared in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Time {
    /// Set by an operation: seconds and nanoseconds.
    Explicit(i64, u32),
    /// Given by the file system's clock.
    Recent,
    /// Not compared.
    Any,
}

/// Times that operations set lie outside of this many seconds around now.
const RECENT_SECS: i64 = 24 * 60 * 60;

impl Time {
    /// Distinguishes a time that was set from one of the clock.
    #[must_use]
    pub fn of(secs: i64, nanos: u32) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
        if (secs - i64::try_from(now).unwrap_or(i64::MAX)).abs() < RECENT_SECS {
            Self::Recent
        } else {
            Self::Explicit(secs, nanos)
        }
    }
}

/// Attributes, without those that two file systems may report differently.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stat {
    /// Kind of inode.
    pub kind: Kind,
    /// Permission, set-id and sticky bits.
    pub mode: u16,
    /// Links; 0 for directories if the sides count those differently.
    pub nlink: u64,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Size in bytes; 0 for directories.
    pub size: u64,
    /// Last change of the contents.
    pub mtime: Time,
    /// Last access: known only right after it was set, since reading changes
    /// it by rules that depend on mount options and caches.
    pub atime: Time,
    /// An internal contradiction in the attributes.
    pub wrong: Option<String>,
}
