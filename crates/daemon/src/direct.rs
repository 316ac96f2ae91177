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
use crate::stack_file;
use crate::view::bottom::OpenView;
use braid_contract::{Caller, Errno, Error, FileSystem, InodeId, KeyValue, Result};
use braid_ipc::protocol::{KvAnswer, KvOperation};
use braid_kv::Held;
use braid_stack::Registry;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

/// An open stack that this process carries out itself. It is closed when this is dropped, but not by
/// a process that was forked meanwhile: that has no part in it.
pub struct DirectStack {
    /// `None` once it is closed.
    open: Option<Open>,
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
        if !std::fs::metadata(path).is_ok_and(|found| found.is_file()) {
            return Ok(None);
        }
        let registry = Arc::new(Registry::trusted_only());
        let base = path.parent().unwrap_or(Path::new(""));
        let config = stack_file::read_at(path, &Reading { base, profile: false, registry: &registry })?;
        let Some(place) = config.direct() else { return Ok(None) };
        owned(path, place)?;
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
        Ok(Self { open: Some(Open { bottom, modules, owner }), caller: this_process() })
    }

    /// What is open, in the process that opened it.
    fn open(&self) -> Result<&Open> {
        let open = self.open.as_ref().filter(|_| !self.is_forked());
        open.ok_or_else(|| {
            Error::new(Errno::EBADF, "it was opened before a fork: open it anew in this process")
        })
    }

    /// Whether this is another process than the one that opened it.
    fn is_forked(&self) -> bool {
        own_pid() != self.caller.pid
    }

    /// The stack as a file system.
    ///
    /// # Errors
    /// `EBADF` in a process that was forked meanwhile.
    pub fn file_system(&self) -> Result<Arc<dyn FileSystem>> {
        Ok(self.open()?.modules.file_system())
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
        Ok(self.open()?.owner.bucket(dir, None))
    }

    /// Carries out an operation on the keys and values of the root; answers with values that
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
        let Some(Open { bottom, modules, .. }) = &self.open else { return Ok(()) };
        if self.is_forked() {
            // The threads that it would end, and the device, are those of the other process.
            std::mem::forget(self.open.take());
            return Ok(());
        }
        modules.end();
        let closed = bottom.close();
        self.open = None;
        closed
    }
}

impl Drop for DirectStack {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            tracing::error!(%error, "a stack was not closed cleanly");
        }
    }
}

/// Refuses a stack file that another user, but root, can write: it names devices and keys that are
/// used with the rights of this process.
fn owned(path: &Path, place: &Place) -> std::result::Result<(), Refusal> {
    let advice = "let it be yours or root's, and writable for no one else";
    let found = std::fs::metadata(path);
    let found = found.map_err(|error| place.refuse(error.to_string(), "try again"))?;
    let is_ours = [0, rustix::process::geteuid().as_raw()].contains(&found.uid());
    if is_ours && found.mode() & 0o022 == 0 {
        return Ok(());
    }
    Err(place.refuse("another user can write this file", advice).about(Errno::EPERM))
}

/// This process as a caller.
fn this_process() -> Caller {
    let groups = rustix::process::getgroups().unwrap_or_default();
    let pid = own_pid();
    Caller {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        groups: Some(groups.into_iter().map(rustix::process::Gid::as_raw).collect()),
        pid,
        tid: pid,
    }
}

fn own_pid() -> u32 {
    rustix::process::getpid().as_raw_nonzero().get().cast_unsigned()
}
