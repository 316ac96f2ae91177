//! A directory, the engine over it, and one file.

use crate::Member;
use crate::frames::codec::Codec;
use crate::frames::geometry::Side;
use crate::frames::key::tests::key;
use crate::frames::{Framed, Pipeline};
use braid_contract::{
    Attr, Caller, FallocateMode, FileSystem, HandleId, InodeId, OpenFlags, Result, SetAttr, WriteFlags,
};
use braid_testkit::dir_fs::{Choice, DirFs};
use std::ffi::OsStr;
use std::fs;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::sync::Arc;
use tempfile::TempDir;

pub(super) const ROOT: InodeId = InodeId::ROOT;

pub(super) struct Bed {
    pub(super) dir: TempDir,
    pub(super) pipeline: Pipeline,
    pub(super) fs: Framed,
}

/// Frames of 4 KiB that are only checked.
pub(super) fn checked() -> Pipeline {
    Pipeline::in_frames_of(4096).unwrap()
}

pub(super) fn compressed(codec: Codec, bytes: u64) -> Pipeline {
    Pipeline { codec: Some(codec), ..Pipeline::in_frames_of(bytes).unwrap() }
}

pub(super) fn encrypted(byte: u8) -> Pipeline {
    Pipeline { key: Some(Arc::new(key(byte))), ..compressed(Codec::Lz4, 8192) }
}

impl Bed {
    pub(super) fn new(pipeline: Pipeline) -> Self {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let fs = framed(&dir, &pipeline).unwrap();
        Self { dir, pipeline, fs }
    }

    /// The stack is another one from now on; the old one ended.
    pub(super) fn mount(&mut self, pipeline: Pipeline) -> Result<()> {
        self.fs.end();
        self.fs = framed(&self.dir, &pipeline)?;
        self.pipeline = pipeline;
        Ok(())
    }

    /// The daemon is killed, and comes again.
    pub(super) fn kill(&mut self) {
        self.fs = framed(&self.dir, &self.pipeline).unwrap();
    }

    /// The daemon is killed, and comes again over this file system.
    pub(super) fn kill_over(&mut self, child: Arc<dyn FileSystem>) {
        self.fs = Framed::new(self.pipeline.clone(), child, false).unwrap();
    }

    /// Another process goes on with the open files.
    pub(super) fn hand_over(&mut self) {
        let child = Arc::clone(&self.fs.engine.shared.child);
        let state = self.fs.give().unwrap();
        let next = Framed::new(self.pipeline.clone(), child, false).unwrap();
        next.import(&state).unwrap();
        self.fs = next;
    }

    /// As a front end sees it.
    pub(super) fn door(&self) -> &dyn FileSystem {
        &self.fs
    }

    pub(super) fn create(&self, name: &str) -> (InodeId, HandleId) {
        let flags = OpenFlags { read: true, write: true, ..OpenFlags::default() };
        let made = self.door().create(&Caller::root(), ROOT, OsStr::new(name), 0o644, 0, true, flags.into());
        let (entry, opened) = made.unwrap();
        (entry.attr.ino, opened.handle)
    }

    pub(super) fn open(&self, name: &str, write: bool) -> Result<(InodeId, HandleId)> {
        let ino = self.door().lookup(&Caller::root(), ROOT, OsStr::new(name))?.attr.ino;
        let flags = OpenFlags { read: true, write, ..OpenFlags::default() };
        Ok((ino, self.door().open(&Caller::root(), ino, flags.into())?.handle))
    }

    pub(super) fn write(&self, handle: HandleId, offset: u64, data: &[u8]) {
        let flags = WriteFlags::default();
        assert_eq!(self.door().write(&Caller::root(), handle, offset, data, flags), Ok(data.len()));
    }

    pub(super) fn read(&self, handle: HandleId, offset: u64, len: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0xee; len];
        let count = self.door().read(&Caller::root(), handle, offset, &mut bytes, false)?;
        bytes.truncate(count);
        Ok(bytes)
    }

    pub(super) fn truncate(&self, ino: InodeId, handle: Option<HandleId>, size: u64) -> Result<Attr> {
        let changes = SetAttr { size: Some(size), ..SetAttr::default() };
        self.door().setattr(&Caller::root(), ino, handle, &changes)
    }

    pub(super) fn fallocate(
        &self,
        handle: HandleId,
        offset: u64,
        len: u64,
        mode: FallocateMode,
    ) -> Result<()> {
        self.door().fallocate(&Caller::root(), handle, offset, len, mode)
    }

    pub(super) fn fsync(&self, handle: HandleId) {
        self.door().fsync(&Caller::root(), handle, false).unwrap();
    }

    pub(super) fn attr(&self, ino: InodeId) -> Attr {
        self.door().getattr(&Caller::root(), ino, None).unwrap()
    }

    pub(super) fn close(&self, handle: HandleId) {
        self.door().release(handle).unwrap();
    }

    /// All of a file, by its name.
    pub(super) fn content(&self, name: &str) -> Result<Vec<u8>> {
        let (ino, handle) = self.open(name, false)?;
        let content = self.read(handle, 0, self.attr(ino).size as usize);
        self.close(handle);
        content
    }

    /// Where the child has a file.
    pub(super) fn below(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Bytes that a file takes below.
    pub(super) fn space(&self, name: &str) -> u64 {
        fs::metadata(self.below(name)).unwrap().blocks() * 512
    }

    /// Changes a byte of the child's file.
    pub(super) fn damage(&self, name: &str, offset: u64) {
        let file = fs::OpenOptions::new().read(true).write(true).open(self.below(name)).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, offset).unwrap();
        file.write_all_at(&[byte[0] ^ 1], offset).unwrap();
    }

    /// As if the data of these versions of a file's first frame, each filled with its number, had not
    /// reached the device.
    pub(super) fn tear(&self, name: &str, versions: Range<u8>) {
        let below = fs::read(self.below(name)).unwrap();
        let geometry = self.pipeline.geometry();
        for at in Side::ALL.map(|side| geometry.slot_at(0, side)) {
            if below.get(at as usize).is_some_and(|byte| versions.contains(byte)) {
                self.damage(name, at);
            }
        }
    }
}

fn framed(dir: &TempDir, pipeline: &Pipeline) -> Result<Framed> {
    let child = Arc::new(DirFs::new(dir.path(), Choice::Cached));
    Framed::new(pipeline.clone(), child, false)
}
