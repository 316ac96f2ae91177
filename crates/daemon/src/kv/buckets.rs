//! The directories of a mounted file system as keys and values, for users who could reach them
//! through the mount.

use super::gated::{Gated, enter};
use super::log::LogStack;
use crate::config::is_readonly;
use braid_contract::rights::{ACL, Guard, SEARCH};
use braid_contract::{Caller, Context, Errno, Error, FileSystem, FrontCache, InodeId, KeyValue, Result};
use braid_kv::{FileBucket, Held, Listings, resolve};
use braid_runtime::{Gate, Values};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The owner of the directories.
pub(crate) enum Owner {
    /// Those of any file system: each value is a file.
    Files(Arc<dyn FileSystem>, Arc<Listings>),
    /// Those of a log file system, which has keys and values of its own.
    Log(LogStack),
}

/// All directories of a mount.
pub(crate) struct Buckets {
    owner: Owner,
    /// That of the kernel.
    cache: Arc<dyn FrontCache>,
    mountpoint: PathBuf,
    allow_other: bool,
    is_readonly: bool,
    gate: Arc<Gate>,
}

impl Buckets {
    /// Those of the mount at `mountpoint`, with these options.
    pub(crate) fn new(
        owner: Owner,
        cache: Arc<dyn FrontCache>,
        mountpoint: &Path,
        (allow_other, options): (bool, &[String]),
    ) -> Self {
        let is_readonly = is_readonly(options);
        let mountpoint = mountpoint.to_owned();
        Self { owner, cache, mountpoint, allow_other, is_readonly, gate: Arc::default() }
    }

    /// The gate that is to be closed before requests of the kernel are held up.
    pub(crate) fn gate(&self) -> &Gate {
        &self.gate
    }

    /// Refuses a caller that could not get to the mount point, or that the mount does not let in.
    ///
    /// # Errors
    /// `EACCES`.
    pub(crate) fn admit(&self, caller: &Caller) -> Result<()> {
        let own = rustix::process::geteuid().as_raw();
        if [0, own].contains(&caller.uid) {
            return Ok(());
        }
        // A daemon without privilege can't act for others.
        if !self.allow_other || own != 0 {
            return Err(Error::new(Errno::EACCES, "the mount is for the user who mounted it alone"));
        }
        for above in self.mountpoint.ancestors().skip(1) {
            let found = std::fs::symlink_metadata(above).map_err(Error::from)?;
            let guard = Guard { uid: found.uid(), gid: found.gid(), mode: (found.mode() & 0o7777) as u16 };
            // As the kernel asks it.
            let asks = found.uid() != caller.uid && guard.mode & 0o070 != 0;
            let acl = if asks { acl_of(above) } else { None };
            let lets = match &acl {
                Some(acl) => guard.lets_by_acl(acl, caller, SEARCH).unwrap_or(false),
                None => guard.lets(caller, SEARCH),
            };
            if !lets {
                return Err(Error::new(Errno::EACCES, "the mount point is out of reach"));
            }
        }
        Ok(())
    }

    /// A directory, by its path below the root.
    ///
    /// # Errors
    /// `EACCES` if the caller can't get there, `ENOENT`, `ENOTDIR`.
    pub(crate) fn open(&self, caller: &Caller, path: &Path) -> Result<Arc<dyn KeyValue>> {
        let _pass = enter(&self.gate)?;
        self.admit(caller)?;
        let values = self.owner.open(caller, path, Some(Arc::clone(&self.cache)))?;
        Ok(Arc::new(Gated { values, gate: Arc::clone(&self.gate), is_readonly: self.is_readonly }))
    }
}

/// The ACL of a native directory, if it has one; an empty one if it can't be read.
fn acl_of(dir: &Path) -> Option<Vec<u8>> {
    let mut acl = Vec::new();
    let without = [rustix::io::Errno::NODATA, rustix::io::Errno::OPNOTSUPP];
    let len = match rustix::fs::getxattr(dir, ACL, &mut [0_u8; 0][..]) {
        Err(error) if without.contains(&error) => return None,
        Err(_) => return Some(acl),
        Ok(len) => len,
    };
    acl.resize(len, 0);
    let read = rustix::fs::getxattr(dir, ACL, &mut acl[..]).unwrap_or(0);
    acl.truncate(read);
    Some(acl)
}

impl Values for Buckets {
    fn bucket(&self, dir: InodeId) -> Result<Arc<dyn KeyValue>> {
        let dir = Held::directory(&self.owner.file_system(), dir)?;
        Ok(self.owner.bucket(dir, Some(Arc::clone(&self.cache))))
    }
}

impl Owner {
    /// The files of this file system.
    pub(crate) fn of_files(fs: Arc<dyn FileSystem>) -> Self {
        Self::Files(fs, Arc::default())
    }

    fn file_system(&self) -> Arc<dyn FileSystem> {
        match self {
            Self::Files(fs, _) => Arc::clone(fs),
            Self::Log(stack) => Arc::clone(&stack.top),
        }
    }

    /// Whether there is such a directory.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`.
    pub(super) fn look(&self, path: &Path) -> Result<()> {
        resolve(&self.file_system(), &Caller::root(), path).map(drop)
    }

    fn open(
        &self,
        caller: &Caller,
        path: &Path,
        cache: Option<Arc<dyn FrontCache>>,
    ) -> Result<Arc<dyn KeyValue>> {
        let dir = resolve(&self.file_system(), caller, path).context("finding the directory")?;
        Ok(self.bucket(dir, cache))
    }

    /// A directory as keys and values, with the cache of the mount that shows the same files, if
    /// there is one.
    pub(crate) fn bucket(&self, dir: Held, cache: Option<Arc<dyn FrontCache>>) -> Arc<dyn KeyValue> {
        match self {
            Self::Files(fs, listings) => Arc::new(FileBucket::new(Arc::clone(fs), dir, cache, listings)),
            Self::Log(stack) => Arc::new(stack.bucket(dir, cache)),
        }
    }
}
