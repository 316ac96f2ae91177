//! Inodes of the home tier: their identity, and how to open them again.

use braid_contract::{Attr, Fd, FileKind, NativeHandle};

/// How to open an inode again.
#[derive(Debug)]
pub enum Node {
    /// By file handle, with the number of the home that it belongs to: costs
    /// nothing while the inode is not used.
    Handle(NativeHandle, u32),
    /// By a descriptor, where handles may not be opened (unprivileged) or do
    /// not exist.
    Pinned(Fd),
}

/// The identity of an inode, and its attributes when it was looked at.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Its attributes.
    pub attr: Attr,
    /// Its file handle, if the file system has handles.
    pub handle: Option<NativeHandle>,
}

impl Identity {
    /// Native inode number.
    pub fn ino(&self) -> u64 {
        self.attr.ino.0
    }

    /// The kind of inode.
    pub fn kind(&self) -> FileKind {
        self.attr.kind
    }

    /// Birth time in nanoseconds since the epoch; 0 where it is not recorded.
    pub fn btime_ns(&self) -> i64 {
        self.attr.btime.map_or(0, |btime| {
            btime.secs.saturating_mul(1_000_000_000).saturating_add(i64::from(btime.nanos))
        })
    }

    /// Its size in bytes.
    pub fn size(&self) -> u64 {
        self.attr.size
    }

    /// Whether this is the inode with this number and birth time; 0 stands for
    /// an unknown time.
    pub fn is(&self, ino: u64, btime_ns: i64) -> bool {
        let mine = self.btime_ns();
        ino == self.ino() && (btime_ns == mine || btime_ns == 0 || mine == 0)
    }
}
