//! Attributes of a file, as `stat(2)` reports and `setattr` changes them.

use crate::InodeId;

/// A point in time: seconds since the epoch, which may be negative, and
/// nanoseconds `0..1_000_000_000` after it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Timestamp {
    /// Whole seconds since 1970-01-01 UTC.
    pub secs: i64,
    /// Nanoseconds after `secs`.
    pub nanos: u32,
}

impl Timestamp {
    /// This many nanoseconds after the epoch, or before it.
    #[must_use]
    pub const fn from_nanos(nanos: i64) -> Self {
        Self { secs: nanos.div_euclid(1_000_000_000), nanos: nanos.rem_euclid(1_000_000_000) as u32 }
    }
}

/// The kind of an inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileKind {
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A UNIX domain socket.
    Socket,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
}

impl FileKind {
    /// The kind that the type bits (`S_IFMT`) of a mode name; `None` for bits
    /// that name none.
    #[must_use]
    pub fn from_mode(mode: u32) -> Option<Self> {
        Some(match mode & 0o170_000 {
            0o100_000 => Self::Regular,
            0o040_000 => Self::Directory,
            0o120_000 => Self::Symlink,
            0o010_000 => Self::Fifo,
            0o140_000 => Self::Socket,
            0o020_000 => Self::CharDevice,
            0o060_000 => Self::BlockDevice,
            _ => return None,
        })
    }

    /// The type bits of its mode.
    #[must_use]
    pub fn mode(self) -> u32 {
        match self {
            Self::Regular => 0o100_000,
            Self::Directory => 0o040_000,
            Self::Symlink => 0o120_000,
            Self::Fifo => 0o010_000,
            Self::Socket => 0o140_000,
            Self::CharDevice => 0o020_000,
            Self::BlockDevice => 0o060_000,
        }
    }
}

/// The attributes that `stat(2)` reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attr {
    /// Inode number.
    pub ino: InodeId,
    /// Size in bytes.
    pub size: u64,
    /// Space used on all tiers together, in units of 512 bytes.
    pub blocks: u64,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of the contents.
    pub mtime: Timestamp,
    /// Last change of the inode.
    pub ctime: Timestamp,
    /// Birth, where the home file system records it.
    pub btime: Option<Timestamp>,
    /// Kind of inode.
    pub kind: FileKind,
    /// Permission, set-id and sticky bits (`0o7777`).
    pub mode: u16,
    /// Number of hard links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number, for devices.
    pub rdev: u32,
    /// Preferred I/O size in bytes.
    pub block_size: u32,
}

impl Attr {
    /// Whether executing the file may grant its owner's or its group's rights.
    #[must_use]
    pub fn is_set_id(&self) -> bool {
        self.kind == FileKind::Regular && self.mode & 0o6000 != 0
    }
}

/// A time to set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetTime {
    /// The file system's clock at the time of the change.
    Now,
    /// This time.
    At(Timestamp),
}

/// A change of attributes; `None` leaves one as it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SetAttr {
    /// Permission, set-id and sticky bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size in bytes: truncation or extension with zeros.
    pub size: Option<u64>,
    /// Last access.
    pub atime: Option<SetTime>,
    /// Last change of the contents.
    pub mtime: Option<SetTime>,
    /// Removes set-id bits and file capabilities from a regular file, as a
    /// write by the caller would. Always a request of its own.
    pub kill_set_id: bool,
}

impl SetAttr {
    /// Whether mode, owner or group change.
    #[must_use]
    pub fn changes_access(&self) -> bool {
        self.mode.is_some() || self.uid.is_some() || self.gid.is_some()
    }
}
