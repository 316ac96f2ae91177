//! Sessions with the runtime of a mount, and operations through them.

use crate::common::Bench;
use braid_contract::{Caller, FileSystem, InodeId, OpenFlags, WriteFlags};
use braid_runtime::{Options, Session};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;

pub(crate) const READ: OpenFlags = OpenFlags { read: true, write: false, direct: false, sync: false };
pub(crate) const BOTH: OpenFlags = OpenFlags { read: true, write: true, direct: false, sync: false };

/// A session, and the directory that it sees.
pub(crate) struct Seen {
    pub(crate) session: Arc<Session>,
    pub(crate) fs: Arc<dyn FileSystem>,
    pub(crate) root: InodeId,
}

impl Seen {
    pub(crate) fn of(bench: &Bench, dir: &str) -> Self {
        Self::with(bench, dir, Options::default()).unwrap()
    }

    pub(crate) fn with(bench: &Bench, dir: &str, options: Options) -> Result<Self, braid_contract::Error> {
        let (session, root) = Session::begin(&socket(bench), &bench.path(dir), options)?;
        Ok(Self { fs: session.file_system(), session, root })
    }

    pub(crate) fn look(&self, name: &str) -> Result<InodeId, i32> {
        errno(self.fs.lookup(&me(), self.root, OsStr::new(name)).map(|entry| entry.attr.ino))
    }

    pub(crate) fn read(&self, name: &str) -> Result<Vec<u8>, i32> {
        let ino = self.look(name)?;
        // Data that only the kernel's cache has is there once the file is open.
        let handle = errno(self.fs.open(&me(), ino, READ.into()))?.handle;
        let size = errno(self.fs.getattr(&me(), ino, Some(handle)))?.size as usize;
        let mut data = vec![0; size];
        let read = errno(self.fs.read(&me(), handle, 0, &mut data, false))?;
        data.truncate(read);
        errno(self.fs.release(handle))?;
        Ok(data)
    }

    pub(crate) fn write(&self, name: &str, data: &[u8]) -> Result<(), i32> {
        let (_, opened) =
            errno(self.fs.create(&me(), self.root, OsStr::new(name), 0o644, 0, false, BOTH.into()))?;
        let mut at = 0;
        while at < data.len() {
            at += errno(self.fs.write(&me(), opened.handle, at as u64, &data[at..], WriteFlags::default()))?;
        }
        errno(self.fs.flush(&me(), opened.handle))?;
        errno(self.fs.release(opened.handle))
    }
}

/// The runtime knows better than any claim.
pub(crate) fn me() -> Caller {
    Caller::root()
}

pub(crate) fn errno<T>(result: braid_contract::Result<T>) -> Result<T, i32> {
    result.map_err(|error| error.errno().0)
}

pub(crate) fn socket(bench: &Bench) -> PathBuf {
    let device = fs::metadata(bench.path("m")).unwrap().dev();
    PathBuf::from(format!("/run/braid/{device:x}.run"))
}
