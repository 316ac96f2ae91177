//! The notice to an observer of a disk that an effect is about to happen.

use std::fmt;
use std::sync::Arc;

/// A change of a disk, or a sync, that is about to take place.
#[derive(Clone, Debug)]
pub struct Effect {
    /// Name of the disk.
    pub disk: Arc<str>,
    /// The operation: `write`, `rename`, `sync` …
    pub operation: &'static str,
    /// The inode that it is done to, or the directory that a name is in.
    pub ino: u64,
    /// A path of the inode and, where a name is changed, that name.
    pub path: String,
    /// Offset in the file, for an operation on a part of it.
    pub offset: u64,
    /// Number of bytes, for an operation on a part of a file.
    pub len: u64,
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} {} (inode {})", self.disk, self.operation, self.path, self.ino)?;
        if self.len > 0 || self.offset > 0 {
            write!(f, " at {} len {}", self.offset, self.len)?;
        }
        Ok(())
    }
}
