//! What the frames of all files share.

use super::pipeline::Pipeline;
use super::sequence::Sequence;
use braid_contract::{FileSystem, InodeId, Result};
use std::path::PathBuf;
use std::sync::Arc;

/// The child, what is done to frames, and the numbers of writes.
pub(crate) struct Shared {
    pub(crate) child: Arc<dyn FileSystem>,
    pub(crate) pipeline: Pipeline,
    pub(crate) sequence: Sequence,
}

impl Shared {
    pub(crate) fn new(pipeline: Pipeline, child: Arc<dyn FileSystem>) -> Result<Self> {
        let sequence = Sequence::open(&*child, pipeline.key.as_deref())?;
        Ok(Self { child, pipeline, sequence })
    }

    /// For messages.
    pub(crate) fn path(&self, ino: InodeId) -> PathBuf {
        self.child.path(ino).unwrap_or_else(|_| format!("inode {}", ino.0).into())
    }
}
