//! The language of operations, as generated, replayed and stored.

use crate::random::SplitMix;
use serde::{Deserialize, Serialize};
use std::fmt;

/// How many open files a sequence can hold at once.
pub const SLOTS: u8 = 6;

/// One name in a path. A few short names, so that operations meet.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Name {
    /// A name mostly used for files.
    F(u8),
    /// A name mostly used for directories.
    D(u8),
    /// A name of bytes that are unusual in names.
    Odd(u8),
    /// A name of this length.
    Long(u16),
}

impl Name {
    /// The name's bytes.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        const ODD: [&[u8]; 8] =
            [b"\xff\xfe", b"new\nline", b" ", b"...", b"a\\b", b"\x01", "na\u{ef}ve".as_bytes(), b"-rf *"];
        match self {
            Self::F(n) => format!("f{n}").into_bytes(),
            Self::D(n) => format!("d{n}").into_bytes(),
            Self::Odd(n) => ODD[usize::from(*n) % ODD.len()].to_vec(),
            Self::Long(len) => vec![b'l'; usize::from(*len)],
        }
    }
}

/// A path below the root of the sequence's tree; empty for the root itself.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Path(pub Vec<Name>);

impl Path {
    /// The path as system calls take it.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        if self.0.is_empty() {
            return b".".to_vec();
        }
        self.0.iter().map(Name::bytes).collect::<Vec<_>>().join(&b'/')
    }
}

impl fmt::Debug for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"")?;
        for (i, name) in self.0.iter().enumerate() {
            let slash = if i == 0 { "" } else { "/" };
            match name {
                Name::Long(len) => write!(f, "{slash}<{len} bytes>")?,
                name => write!(f, "{slash}{}", name.bytes().escape_ascii())?,
            }
        }
        write!(f, "\"")
    }
}

/// Bytes to write, made from a seed; seed 0 stands for zeros.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Data {
    /// Decides the contents.
    pub seed: u8,
    /// How many bytes.
    pub len: u32,
}

impl Data {
    /// The bytes.
    #[must_use]
    pub fn bytes(self) -> Vec<u8> {
        if self.seed == 0 {
            return vec![0; self.len as usize];
        }
        let mut bytes = vec![0; self.len as usize];
        SplitMix::new(u64::from(self.seed)).fill(&mut bytes);
        bytes.iter_mut().for_each(|byte| *byte |= 1);
        bytes
    }
}

/// The target of an operation on attributes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Target {
    /// The file that a path leads to.
    Path(Path),
    /// The file at a path, even if it is a symbolic link.
    NoFollow(Path),
    /// An open file.
    Slot(u8),
}

/// How a file is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Access {
    /// `O_RDONLY`
    Read,
    /// `O_WRONLY`
    Write,
    /// `O_RDWR`
    Both,
}

impl Access {
    /// Whether reading is part of it.
    #[must_use]
    pub fn reads(self) -> bool {
        self != Self::Write
    }

    /// Whether writing is part of it.
    #[must_use]
    pub fn writes(self) -> bool {
        self != Self::Read
    }
}

/// Flags of `open(2)`.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "each is the flag of open(2) of its name")]
pub struct OpenSpec {
    pub access: Access,
    pub create: bool,
    pub exclusive: bool,
    pub truncate: bool,
    pub append: bool,
    pub no_follow: bool,
    pub directory: bool,
    pub direct: bool,
}

impl fmt::Debug for OpenSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.access {
            Access::Read => "RDONLY",
            Access::Write => "WRONLY",
            Access::Both => "RDWR",
        })?;
        for (set, name) in [
            (self.create, "CREAT"),
            (self.exclusive, "EXCL"),
            (self.truncate, "TRUNC"),
            (self.append, "APPEND"),
            (self.no_follow, "NOFOLLOW"),
            (self.directory, "DIRECTORY"),
            (self.direct, "DIRECT"),
        ] {
            if set {
                write!(f, "|{name}")?;
            }
        }
        Ok(())
    }
}

impl OpenSpec {
    /// Only an access mode.
    #[must_use]
    pub fn plain(access: Access) -> Self {
        Self {
            access,
            create: false,
            exclusive: false,
            truncate: false,
            append: false,
            no_follow: false,
            directory: false,
            direct: false,
        }
    }
}

/// Where `lseek(2)` goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum SeekTo {
    /// `SEEK_SET`
    Start(u64),
    /// `SEEK_END`
    End(i64),
    /// `SEEK_DATA`; the position is put back afterwards.
    Data(u64),
    /// `SEEK_HOLE`; the position is put back afterwards.
    Hole(u64),
}

/// Modes of `fallocate(2)`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum AllocateMode {
    /// Allocate, and grow the file.
    Grow,
    /// Allocate, also beyond the end.
    KeepSize,
    /// Make a hole.
    Punch,
    /// Zero, and grow the file.
    Zero,
    /// Zero, also beyond the end.
    ZeroKeepSize,
}

impl AllocateMode {
    /// All modes.
    pub const ALL: [Self; 5] = [Self::Grow, Self::KeepSize, Self::Punch, Self::Zero, Self::ZeroKeepSize];
}

/// Modes of `renameat2(2)`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum RenameMode {
    /// Replaces an existing file of the new name.
    Replace,
    /// Fail if the new name exists.
    NoReplace,
    /// Swap the two.
    Exchange,
}

/// A time for `utimensat(2)`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum SetTime {
    /// `UTIME_OMIT`
    Omit,
    /// `UTIME_NOW`
    Now,
    /// Seconds and nanoseconds; far enough from now to be distinguished from
    /// it.
    At(i64, u32),
}

/// Modes of `setxattr(2)`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum XattrMode {
    /// Create or replace.
    Set,
    /// `XATTR_CREATE`
    Create,
    /// `XATTR_REPLACE`
    Replace,
}

/// The name of an extended attribute.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum XattrName {
    /// One of a few.
    Short(u8),
    /// `user.` and as many bytes as make this length together.
    Long(u16),
}

impl XattrName {
    /// The name's bytes.
    #[must_use]
    pub fn bytes(self) -> Vec<u8> {
        match self {
            Self::Short(n) => format!("user.x{n}").into_bytes(),
            Self::Long(len) => {
                let mut name = b"user.".to_vec();
                name.resize(usize::from(len).max(6), b'n');
                name
            }
        }
    }
}

/// Room that `getxattr(2)` is given for the value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Room {
    /// None: only the length is asked for.
    Query,
    /// As much as is needed.
    Ample,
    /// This many bytes, at least 1.
    Bytes(u16),
}

/// One operation. `slot` names an open file; a slot with none answers `EBADF`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[allow(
    missing_docs,
    reason = "the fields are the arguments of the system call that each variant stands for"
)]
pub enum Op {
    /// `openat(2)`; on success the slot's former file is closed.
    Open { slot: u8, path: Path, flags: OpenSpec, mode: u16 },
    /// `close(2)`
    Close { slot: u8 },
    /// `read(2)` at the file's position
    Read { slot: u8, len: u32 },
    /// `pread(2)`
    Pread { slot: u8, offset: u64, len: u32 },
    /// `write(2)` at the file's position, or its end with `O_APPEND`
    Write { slot: u8, data: Data },
    /// `pwrite(2)`
    Pwrite { slot: u8, offset: u64, data: Data },
    /// `lseek(2)`
    Seek { slot: u8, to: SeekTo },
    /// `truncate(2)` or `ftruncate(2)`
    Truncate { target: Target, len: u64 },
    /// `fallocate(2)`
    Allocate { slot: u8, mode: AllocateMode, offset: u64, len: u64 },
    /// `copy_file_range(2)`, repeated until all is copied or the source ends
    Copy { from: u8, from_offset: u64, to: u8, to_offset: u64, len: u32 },
    /// `fsync(2)` or `fdatasync(2)`
    Sync { slot: u8, data_only: bool },
    /// `renameat2(2)`
    Rename { from: Path, to: Path, mode: RenameMode },
    /// `linkat(2)`
    Link { from: Path, to: Path },
    /// `symlinkat(2)`
    Symlink { path: Path, target: Path },
    /// `readlinkat(2)`
    ReadLink { path: Path },
    /// `unlinkat(2)`
    Unlink { path: Path },
    /// `mkdirat(2)`
    MakeDir { path: Path, mode: u16 },
    /// `mkdirat(2)` of a chain of directories `d9/d9/…`
    MakeDirChain { depth: u8 },
    /// `unlinkat(2)` with `AT_REMOVEDIR`
    RemoveDir { path: Path },
    /// `mknodat(2)` of a named pipe
    MakeFifo { path: Path, mode: u16 },
    /// `fchmodat(2)` or `fchmod(2)`
    Chmod { target: Target, mode: u16 },
    /// `fchownat(2)` or `fchown(2)`
    Chown { target: Target, uid: Option<u32>, gid: Option<u32> },
    /// `utimensat(2)` or `futimens(2)`
    SetTimes { target: Target, atime: SetTime, mtime: SetTime },
    /// `setxattr(2)`
    SetXattr { target: Target, name: XattrName, data: Data, mode: XattrMode },
    /// `getxattr(2)`
    GetXattr { target: Target, name: XattrName, room: Room },
    /// `listxattr(2)`
    ListXattr { target: Target },
    /// `removexattr(2)`
    RemoveXattr { target: Target, name: XattrName },
    /// `stat(2)`, `lstat(2)` or `fstat(2)`
    Stat { target: Target },
    /// `getdents(2)` of a whole directory
    ReadDir { path: Path },
}

impl Op {
    /// The operation without set-id bits, and with all permissions for the owner.
    #[must_use]
    pub fn with_plain_mode(mut self) -> Self {
        if let Self::Open { mode, .. }
        | Self::MakeDir { mode, .. }
        | Self::MakeFifo { mode, .. }
        | Self::Chmod { mode, .. } = &mut self
        {
            *mode = *mode & 0o777 | 0o700;
        }
        self
    }
}

/// Alignment of transfers on a file opened with `O_DIRECT`, since native file
/// systems differ in their requirements.
pub(crate) const DIRECT_ALIGNMENT: u64 = 4096;

/// Offset and length of a transfer, rounded where it is direct.
pub(crate) fn aligned(direct: bool, offset: u64, len: u32) -> (u64, u32) {
    if !direct {
        return (offset, len);
    }
    let unit = DIRECT_ALIGNMENT as u32;
    (offset / DIRECT_ALIGNMENT * DIRECT_ALIGNMENT, len.div_ceil(unit) * unit)
}
