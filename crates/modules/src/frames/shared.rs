//! Shared by the frames of all files.

use super::door::Door;
use super::file::File;
use super::header::{HEAD, Head};
use super::pipeline::Pipeline;
use super::sequence::Sequence;
use crate::count::Count;
use braid_contract::{Errno, Error, Figure, FileSystem, InodeId, Result, Shown};
use std::path::PathBuf;
use std::sync::Arc;

/// The child, the settings of frames, and the numbers of writes.
pub(crate) struct Shared {
    pub(crate) child: Arc<dyn FileSystem>,
    pub(crate) pipeline: Pipeline,
    pub(crate) sequence: Sequence,
    pub(crate) counts: Counts,
}

/// Counts of the work on frames.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) checked: Count,
    pub(crate) damaged: Count,
    /// Versions that a crash may have torn and that don't count.
    pub(crate) torn: Count,
    /// Bytes of data that were put into frames.
    pub(crate) data: Count,
    /// Bytes stored for it.
    pub(crate) stored: Count,
}

impl Counts {
    pub(crate) fn figures(&self) -> Vec<Figure> {
        vec![
            Figure::counter("frames_checked", "Frames that were read and checked", self.checked.get()),
            Figure::counter("frames_damaged", "Reads of frames that were found damaged", self.damaged.get()),
            Figure::counter(
                "frames_torn",
                "Versions of frames that did not count, torn by a crash or damaged after it",
                self.torn.get(),
            ),
            Figure::counter("data_bytes", "Bytes of data that were put into frames", self.data.get()),
            Figure::counter(
                "stored_bytes",
                "Bytes that the data put into frames takes there",
                self.stored.get(),
            ),
        ]
    }
}

impl Shared {
    pub(crate) fn new(pipeline: Pipeline, child: Arc<dyn FileSystem>) -> Result<Self> {
        let sequence = Sequence::open(&*child, pipeline.key.as_deref())?;
        Ok(Self { child, pipeline, sequence, counts: Counts::default() })
    }

    /// Makes the writes to a file up to number `last` durable by `sync`.
    pub(crate) fn sync(&self, file: &File, last: u64, sync: impl FnOnce() -> Result<()>) -> Result<()> {
        let attempt = self.sequence.attempt();
        sync().inspect_err(|_| self.sequence.doubt(&*self.child, attempt))?;
        file.is_synced(last, attempt.doubted);
        Ok(())
    }

    /// Makes all writes durable.
    pub(crate) fn sync_all(&self) -> Result<()> {
        let attempt = self.sequence.attempt();
        self.child.sync().inspect_err(|_| self.sequence.doubt(&*self.child, attempt))
    }

    /// Refuses a file with the head as its attribute and the bytes of something else: as one in
    /// frames it would be empty, or damaged throughout, and the next write the end of it.
    pub(crate) fn expect_head(&self, door: &Door<'_>, head: &Head) -> Result<()> {
        let mut first = [0; HEAD];
        door.read_at(0, &mut first)?;
        if head.may_be(&first) {
            return Ok(());
        }
        let path = self.path(door.ino);
        let why = "the file was written without the modules of frames";
        tracing::error!(path = %path.shown(), "{why}");
        Err(Error::new(Errno::EUCLEAN, format!("{}: {why}", path.shown())))
    }

    /// For messages.
    pub(crate) fn path(&self, ino: InodeId) -> PathBuf {
        self.child.path(ino).unwrap_or_else(|_| format!("inode {}", ino.0).into())
    }
}
