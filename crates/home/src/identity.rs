//! Inodes of the home tier: what is known of one, and how to come back to it.

use braid_contract::{Attr, Fd, FileKind, NativeHandle};

/// How to come back to an inode.
#[derive(Debug)]
pub enum Node {
    /// By its file handle, on the directory that was home when it was got:
    /// costs nothing while nobody uses the inode.
    Handle(NativeHandle, u32),
    /// By a descriptor, where handles may not be opened (unprivileged) or do
    /// not exist.
    Pinned(Fd),
}

/// What is known of an inode when it is looked at.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Its attributes.
    pub attr: Attr,
    /// Its file handle, where there are such.
    pub handle: Option<NativeHandle>,
}

impl Identity {
    /// Native inode number.
    pub fn ino(&self) -> u64 {
        self.attr.ino.0
    }

    /// What kind of inode it is.
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

    /// Whether it is the inode that had this number and this birth time, 0
    /// where that is not known.
    pub fn is(&self, ino: u64, btime_ns: i64) -> bool {
        let mine = self.btime_ns();
        ino == self.ino() && (btime_ns == mine || btime_ns == 0 || mine == 0)
    }
}
