//! Stacks that a program carries out itself: their modules run in its threads, and no mount or
//! daemon is in between (LabStor §3.1). `libbraid`, `braid kv` and `braid bench runtime` call
//! this.

use crate::bottom::{Bottom, modules_on};
use crate::config::{BottomNode, Config};
use crate::kv::{Owner, carry_out};
use crate::logfs::bottom::OpenLog;
use crate::modules::Modules;
use crate::refusal::{Place, Refusal};
use crate::source::Reading;
use crate::view::bottom::OpenView;
use crate::{stack_file, yaml};
use braid_contract::{Caller, Errno, Error, FileSystem, InodeId, KeyValue, Result};
use braid_ipc::protocol::{KvAnswer, KvOperation};
use braid_kv::Held;
use braid_stack::Registry;
use braid_sys::check_trusted;
use rustix::fs::{Mode, OFlags};
use std::fs::{File, Metadata};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An open stack that this process carries out itself. It is closed when this is dropped, but not by
/// a process that was forked meanwhile: that has no part in it.
pub struct DirectStack {
    open: OwnedByProcess<Open>,
    caller: Caller,
}

struct Open {
    bottom: Arc<dyn Bottom>,
    modules: Arc<Modules>,
    owner: Owner,
}

impl DirectStack {
    /// Opens the stack of the file `path`; `None` if that is no file, or does not say
    /// `exec: direct`.
    ///
    /// # Errors
    /// The first error of the file, or the reason why the stack can't be opened.
    pub fn find(path: &Path) -> std::result::Result<Option<Self>, Refusal> {
        // Not by its path from here on: that may lead to another file at any time.
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let Ok(file) = rustix::fs::open(path, flags, Mode::empty()).map(File::from) else { return Ok(None) };
        let Some(found) = file.metadata().ok().filter(Metadata::is_file) else { return Ok(None) };
        let registry = Arc::new(Registry::trusted_only());
        let base = path.parent().unwrap_or(Path::new(""));
        let config = read(&file, path, &Reading { base, profile: false, registry: &registry })?;
        let Some(place) = config.direct() else { return Ok(None) };
        check_trusted(&found).map_err(|_| {
            let advice = "let it be yours or root's, and writable for no one else";
            place.refuse("another user can write this file", advice).about(Errno::EPERM)
        })?;
        Self::of(&config).map(Some)
    }

    fn of(config: &Config) -> std::result::Result<Self, Refusal> {
        let bottom = match config.stack.bottom() {
            BottomNode::Log(log) => OpenLog::open(log)?,
            BottomNode::View(view) => OpenView::open(view)?,
            // The reader of stack files refuses it.
            BottomNode::Volume(volume) => return Err(volume.place.refuse("a volume is mounted", "mount it")),
        };
        let modules = modules_on(config, &bottom)?;
        let owner = bottom.owner(&modules, modules.file_system());
        Ok(Self { open: OwnedByProcess::new(Open { bottom, modules, owner }), caller: this_process() })
    }

    /// The stack as a file system.
    ///
    /// # Errors
    /// `EBADF` in a process that was forked meanwhile.
    pub fn file_system(&self) -> Result<Arc<dyn FileSystem>> {
        Ok(self.open.get()?.modules.file_system())
    }

    /// This process, as it was when the stack was opened: the caller of all its operations.
    #[must_use]
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// A directory as keys and values.
    ///
    /// # Errors
    /// `ENOTDIR`, those of the file system; `EBADF` in a process that was forked meanwhile.
    pub fn values(&self, dir: InodeId) -> Result<Arc<dyn KeyValue>> {
        let dir = Held::directory(&self.file_system()?, dir)?;
        Ok(self.open.get()?.owner.bucket(dir, None))
    }

    /// Carries out an operation on the keys and values of the root; returns its result, and values that
    /// were asked for.
    ///
    /// # Errors
    /// Those of the operation.
    pub fn kv(&self, operation: &KvOperation, value: &[u8]) -> Result<(KvAnswer, Vec<u8>)> {
        carry_out(&*self.values(InodeId::ROOT)?, &self.caller, operation, value)
    }

    /// Makes all earlier changes durable.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn sync(&self) -> Result<()> {
        self.values(InodeId::ROOT)?.sync()
    }

    /// Closes it.
    ///
    /// # Errors
    /// If it is not as it should be.
    pub fn close(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        let Some(open) = self.open.take() else { return Ok(()) };
        open.modules.end();
        open.bottom.close()
    }
}

impl Drop for DirectStack {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            tracing::error!(%error, "a stack was not closed cleanly");
        }
    }
}

/// A value with threads, locks or devices of the process that made it. A process that was forked
/// meanwhile can't use it, and forgets it instead of dropping it.
#[derive(Debug)]
pub struct OwnedByProcess<T> {
    /// `None` once it was taken.
    value: Option<T>,
    process: u32,
}

impl<T> OwnedByProcess<T> {
    /// A value of this process.
    pub fn new(value: T) -> Self {
        Self { value: Some(value), process: std::process::id() }
    }

    /// The value.
    ///
    /// # Errors
    /// `EBADF` in a process that was forked meanwhile.
    pub fn get(&self) -> Result<&T> {
        let own = self.value.as_ref().filter(|_| !self.is_forked());
        own.ok_or_else(|| {
            Error::new(Errno::EBADF, "it was opened before a fork: open it anew in this process")
        })
    }

    /// Takes the value out, once; `None` in a process that was forked meanwhile.
    pub fn take(&mut self) -> Option<T> {
        let value = self.value.take();
        if self.is_forked() {
            std::mem::forget(value);
            return None;
        }
        value
    }

    fn is_forked(&self) -> bool {
        self.process != std::process::id()
    }
}

impl<T> Drop for OwnedByProcess<T> {
    fn drop(&mut self) {
        self.take();
    }
}

/// Reads a stack file that is open, as the one at `path`.
fn read(file: &File, path: &Path, reading: &Reading<'_>) -> std::result::Result<Config, Refusal> {
    let name = path.to_string_lossy();
    let place = Place::file(&name);
    let open = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    let text = stack_file::text(&open).map_err(|refusal| Refusal { place: place.clone(), ..refusal })?;
    stack_file::of_document(yaml::parse(&text, &place)?, &name, reading)
}

/// This process as a caller.
fn this_process() -> Caller {
    let groups = rustix::process::getgroups().unwrap_or_default();
    let pid = std::process::id();
    Caller {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        groups: Some(groups.into_iter().map(rustix::process::Gid::as_raw).collect()),
        pid,
        tid: pid,
        of_stack: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// Counts how often it is dropped.
    struct Counts<'a>(&'a AtomicU32);

    impl Drop for Counts<'_> {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn the_stack_file_that_was_checked_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let (path, other) = (dir.path().join("stack.yaml"), dir.path().join("other"));
        std::fs::write(&path, "exec: direct\nstack: { log: { device: fs } }\n").unwrap();
        std::fs::write(&other, "exec: runtime\nstack: { log: { device: fs } }\n").unwrap();
        let open = || File::from(rustix::fs::open(&path, OFlags::PATH, Mode::empty()).unwrap());
        let registry = Arc::default();
        let reading = Reading { base: dir.path(), profile: false, registry: &registry };
        let (checked, is_direct) =
            (open(), |file: &File| read(file, &path, &reading).map(|config| config.direct().is_some()));
        std::fs::rename(&other, &path).unwrap();
        assert_eq!((is_direct(&checked), is_direct(&open())), (Ok(true), Ok(false)));
        std::fs::write(&path, [0xff]).unwrap();
        let refusal = is_direct(&open()).unwrap_err();
        assert_eq!(refusal.place, Place::file(&path.to_string_lossy()), "{refusal}");
        assert_eq!(refusal.found, "not a text file");
    }

    #[test]
    fn a_value_is_dropped_by_its_process_alone() {
        let drops = AtomicU32::new(0);
        let dropped = || drops.load(Ordering::Relaxed);
        let mut own = OwnedByProcess::new(Counts(&drops));
        assert!(own.get().is_ok());
        drop(own.take().unwrap());
        assert!(own.take().is_none() && own.get().is_err());
        drop(own);
        assert_eq!(dropped(), 1);
        drop(OwnedByProcess::new(Counts(&drops)));
        assert_eq!(dropped(), 2);
        let forked = || OwnedByProcess { value: Some(Counts(&drops)), process: 0 };
        assert_eq!(forked().get().err().map(|error| error.errno()), Some(Errno::EBADF));
        assert!(forked().take().is_none());
        drop(forked());
        assert_eq!(dropped(), 2);
    }
}
