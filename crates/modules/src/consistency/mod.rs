//! Decides when changes are durable (LabStor §3, tunable consistency): when an operation returns,
//! when a file is closed, or some time after programs asked for it. `docs/configuration.md`
//! describes the modes and their limits.

mod durable;
mod files;
mod later;
#[cfg(test)]
mod tests;

use crate::count::Count;
use crate::{Module, State};
use braid_contract::units::parse_duration;
use braid_contract::{
    Attr, Caller, Crash, Entry, Errno, Error, FallocateMode, Figure, FileSystem, FileSystemCapabilities,
    HandleId, InodeId, IoMode, Layer, OpenRequest, Opened, RenameMode, Result, SetAttr, WriteFlags,
    XattrMode,
};
use durable::Durable;
use files::Files;
use later::Later;
use serde::Deserialize;
use std::ffi::OsStr;
use std::sync::Arc;
use std::time::Duration;

/// How long a sync may be put off, unless the settings say otherwise.
const WITHIN: Duration = Duration::from_secs(5);
/// The bounds of that, in nanoseconds.
const WITHIN_NS: [u64; 2] = [10_000_000, 300_000_000_000];

/// When written data is durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    /// When the operation returns.
    Strict,
    /// When a descriptor of the file is closed, or as programs ask for.
    CloseToOpen,
    /// At most this long after programs asked for it.
    Relaxed(Duration),
}

/// The mode.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "Given")]
pub struct Settings(Mode);

/// Settings as a stack file gives them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Given {
    mode: String,
    within: Option<String>,
}

impl TryFrom<Given> for Settings {
    type Error = String;

    fn try_from(given: Given) -> std::result::Result<Self, String> {
        let mode = match given.mode.as_str() {
            "strict" => Mode::Strict,
            "close-to-open" => Mode::CloseToOpen,
            "relaxed" => Mode::Relaxed(given.within.as_deref().map_or(Ok(WITHIN), within)?),
            other => return Err(format!("'{other}' is no mode: write strict, close-to-open or relaxed")),
        };
        match (mode, given.within) {
            (Mode::Strict | Mode::CloseToOpen, Some(_)) => {
                Err(format!("{} puts nothing off: leave 'within' out", given.mode))
            }
            _ => Ok(Self(mode)),
        }
    }
}

fn within(text: &str) -> std::result::Result<Duration, String> {
    let [least, most] = WITHIN_NS;
    let nanos = parse_duration(text).ok().filter(|nanos| (least..=most).contains(nanos));
    nanos.map(Duration::from_nanos).ok_or_else(|| format!("within: '{text}' is not from 10ms to 300s"))
}

/// The module.
pub struct Consistency {
    mode: Mode,
    files: Files,
    /// In the mode `relaxed`.
    later: Option<Later>,
    /// Syncs that programs asked for, also by closing, or by any change in the mode `strict`.
    asked: Count,
    /// Syncs of the child for it.
    done: Count,
    child: Arc<dyn FileSystem>,
}

impl Module for Consistency {
    const NAME: &'static str = "consistency";
    type Settings = Settings;

    fn puts_off_syncs(settings: &Settings) -> bool {
        matches!(settings.0, Mode::Relaxed(_))
    }

    fn new(settings: &Settings, child: Arc<dyn FileSystem>) -> Result<Self> {
        let later = match settings.0 {
            Mode::Relaxed(within) => Later::begin(within, Arc::clone(&child)),
            Mode::Strict | Mode::CloseToOpen => None,
        };
        let (files, asked, done) = (Files::default(), Count::default(), Count::default());
        Ok(Self { mode: settings.0, files, later, asked, done, child })
    }

    fn figures(&self) -> Vec<Figure> {
        let later = self.later.as_ref().map_or(0, Later::done);
        let pending = self.later.as_ref().map_or(0, |later| later.waiting().len() as u64);
        let pending_help = "Files for which a sync that programs asked for is put off";
        vec![
            Figure::counter(
                "syncs_asked",
                "Syncs that programs asked for, and closes and changes that are syncs",
                self.asked.get(),
            ),
            Figure::counter(
                "syncs_done",
                "Syncs that were done, of files, directories or all",
                self.done.get() + later,
            ),
            Figure::gauge("syncs_pending", pending_help, pending),
        ]
    }

    fn export(&self) -> State {
        let waiting = self.later.as_ref().map_or_else(Vec::new, Later::waiting);
        let bytes = waiting.iter().flat_map(|ino| ino.0.to_le_bytes()).collect();
        State { version: 1, bytes }
    }

    fn import(&self, state: &State) -> Result<()> {
        state.expect_version(1)?;
        let (waiting, rest) = state.bytes.as_chunks::<8>();
        if !rest.is_empty() {
            return Err(Error::new(Errno::EINVAL, "numbers of inodes are 8 bytes each"));
        }
        if let Some(later) = &self.later {
            for ino in waiting {
                later.put_off(InodeId(u64::from_le_bytes(*ino)));
            }
        }
        Ok(())
    }

    /// The syncs put off are not known: every inode counts as put off, which is more than a state
    /// of a moment before would have had.
    fn repair(&self, _after: Crash) -> Result<()> {
        self.later.iter().for_each(Later::put_all_off);
        Ok(())
    }
}

impl Consistency {
    /// The request that goes to the child in place of this one.
    fn asked(&self, mut request: OpenRequest) -> OpenRequest {
        request.flags.sync &= self.later.is_none();
        request
    }

    /// Remembers an open file.
    fn is_opened(&self, ino: InodeId, request: OpenRequest, opened: &Opened) {
        let is_unseen = matches!(opened.mode, IoMode::Passthrough(_)) && request.flags.write;
        self.files.open(opened.handle, ino, is_unseen);
    }

    /// An open file is about to be changed, which only matters where closes make it durable.
    fn is_changed(&self, handle: HandleId) {
        if self.mode == Mode::CloseToOpen {
            self.files.is_changed(handle);
        }
    }

    /// Puts it off to make an open file durable; answers whether that is done.
    fn put_off(&self, handle: HandleId) -> bool {
        let (Some(later), Some(ino)) = (&self.later, self.files.inode(handle)) else { return false };
        later.put_off(ino)
    }

    /// Makes the file durable whose name is to replace another one, if that was put off:
    /// durable data under that name must not be lost in exchange for data that is not.
    fn before_it_replaces(
        &self,
        caller: &Caller,
        (parent, name): (InodeId, &OsStr),
        (new_parent, new_name): (InodeId, &OsStr),
    ) -> Result<()> {
        let Some(later) = self.later.as_ref().filter(|later| later.is_any()) else { return Ok(()) };
        let look_up = |parent, name| {
            let found = self.child.lookup(caller, parent, name).ok()?.attr.ino;
            self.child.forget(found, 1);
            Some(found)
        };
        match look_up(parent, name).filter(|ino| later.is_put_off(*ino)) {
            Some(ino) if look_up(new_parent, new_name).is_some() => self.durable().closed_file(ino),
            _ => Ok(()),
        }
    }

    fn durable(&self) -> Durable<'_> {
        Durable { child: &*self.child, syncs: &self.done }
    }

    /// Makes a change durable in the mode `strict`.
    fn changed(&self, make_durable: impl FnOnce(&Durable<'_>) -> Result<()>) -> Result<()> {
        if self.mode != Mode::Strict {
            return Ok(());
        }
        self.asked.one();
        make_durable(&self.durable())
    }

    /// The same of a new name; the caller does not get the entry if that fails.
    fn made(
        &self,
        parent: InodeId,
        entry: Entry,
        first: impl FnOnce(&Durable<'_>) -> Result<()>,
    ) -> Result<Entry> {
        let done = self.changed(|durable| first(durable).and_then(|()| durable.directory(parent)));
        if done.is_err() {
            self.child.forget(entry.attr.ino, 1);
        }
        done.map(|()| entry)
    }

    fn changed_inode(&self, caller: &Caller, ino: InodeId) -> Result<()> {
        self.changed(|durable| durable.attributes(&self.child.getattr(caller, ino, None)?))
    }
}

impl Layer for Consistency {
    fn child(&self) -> &dyn FileSystem {
        &*self.child
    }

    fn capabilities(&self) -> FileSystemCapabilities {
        // Whatever the mode is: it may be another one later.
        let can = FileSystemCapabilities { flush_at_close: true, ..self.child.capabilities() };
        match self.mode {
            Mode::Strict => {
                FileSystemCapabilities { passthrough: false, holds_up: true, writes_through: true, ..can }
            }
            Mode::CloseToOpen | Mode::Relaxed(_) => can,
        }
    }

    fn setattr(
        &self,
        caller: &Caller,
        ino: InodeId,
        handle: Option<HandleId>,
        changes: &SetAttr,
    ) -> Result<Attr> {
        handle.into_iter().for_each(|handle| self.is_changed(handle));
        let attr = self.child.setattr(caller, ino, handle, changes)?;
        self.changed(|durable| match handle {
            Some(handle) => durable.file(handle, false),
            None => durable.attributes(&attr),
        })?;
        Ok(attr)
    }

    fn mknod(
        &self,
        caller: &Caller,
        parent: InodeId,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
    ) -> Result<Entry> {
        let entry = self.child.mknod(caller, parent, name, mode, umask, rdev)?;
        self.made(parent, entry, |_| Ok(()))
    }

    fn mkdir(&self, caller: &Caller, parent: InodeId, name: &OsStr, mode: u32, umask: u32) -> Result<Entry> {
        let entry = self.child.mkdir(caller, parent, name, mode, umask)?;
        self.made(parent, entry, |durable| durable.directory(entry.attr.ino))
    }

    fn symlink(&self, caller: &Caller, parent: InodeId, name: &OsStr, target: &OsStr) -> Result<Entry> {
        let entry = self.child.symlink(caller, parent, name, target)?;
        self.made(parent, entry, |_| Ok(()))
    }

    fn link(&self, caller: &Caller, ino: InodeId, parent: InodeId, name: &OsStr) -> Result<Entry> {
        let entry = self.child.link(caller, ino, parent, name)?;
        self.made(parent, entry, |durable| durable.attributes(&entry.attr))
    }

    fn unlink(&self, caller: &Caller, parent: InodeId, name: &OsStr) -> Result<()> {
        self.child.unlink(caller, parent, name)?;
        self.changed(|durable| durable.directory(parent))
    }

    fn rmdir(&self, caller: &Caller, parent: InodeId, name: &OsStr) -> Result<()> {
        self.child.rmdir(caller, parent, name)?;
        self.changed(|durable| durable.directory(parent))
    }

    fn rename(
        &self,
        caller: &Caller,
        parent: InodeId,
        name: &OsStr,
        new_parent: InodeId,
        new_name: &OsStr,
        mode: RenameMode,
    ) -> Result<()> {
        let (old, new) = ((parent, name), (new_parent, new_name));
        self.before_it_replaces(caller, old, new)?;
        if mode == RenameMode::Exchange {
            self.before_it_replaces(caller, new, old)?;
        }
        self.child.rename(caller, parent, name, new_parent, new_name, mode)?;
        self.changed(|durable| {
            durable.directory(new_parent)?;
            if parent == new_parent { Ok(()) } else { durable.directory(parent) }
        })
    }

    fn open(&self, caller: &Caller, ino: InodeId, request: OpenRequest) -> Result<Opened> {
        let opened = self.child.open(caller, ino, self.asked(request))?;
        self.is_opened(ino, request, &opened);
        Ok(opened)
    }

    fn create(
        &self,
        caller: &Caller,
        parent: InodeId,
        name: &OsStr,
        mode: u32,
        umask: u32,
        exclusive: bool,
        request: OpenRequest,
    ) -> Result<(Entry, Opened)> {
        let asked = self.asked(request);
        let (entry, opened) = self.child.create(caller, parent, name, mode, umask, exclusive, asked)?;
        self.is_opened(entry.attr.ino, request, &opened);
        match self.made(parent, entry, |durable| durable.file(opened.handle, false)) {
            Ok(entry) => Ok((entry, opened)),
            Err(error) => {
                Layer::release(self, opened.handle)?;
                Err(error)
            }
        }
    }

    fn tmpfile(
        &self,
        caller: &Caller,
        parent: InodeId,
        mode: u32,
        umask: u32,
        request: OpenRequest,
    ) -> Result<(Entry, Opened)> {
        let (entry, opened) = self.child.tmpfile(caller, parent, mode, umask, self.asked(request))?;
        self.is_opened(entry.attr.ino, request, &opened);
        Ok((entry, opened))
    }

    fn write(
        &self,
        caller: &Caller,
        handle: HandleId,
        offset: u64,
        data: &[u8],
        mut flags: WriteFlags,
    ) -> Result<usize> {
        self.is_changed(handle);
        flags.sync = flags.sync && !self.put_off(handle);
        let written = self.child.write(caller, handle, offset, data, flags)?;
        self.changed(|durable| durable.file(handle, true))?;
        Ok(written)
    }

    fn flush(&self, caller: &Caller, handle: HandleId) -> Result<()> {
        self.child.flush(caller, handle)?;
        if self.mode != Mode::CloseToOpen || !self.files.take_change(handle) {
            return Ok(());
        }
        self.asked.one();
        self.done.one();
        self.child.fsync(caller, handle, false).inspect_err(|_| self.files.is_changed(handle))
    }

    fn release(&self, handle: HandleId) -> Result<()> {
        self.files.close(handle);
        self.child.release(handle)
    }

    fn fsync(&self, caller: &Caller, handle: HandleId, data_only: bool) -> Result<()> {
        self.asked.one();
        if self.put_off(handle) {
            return Ok(());
        }
        self.done.one();
        self.child.fsync(caller, handle, data_only)
    }

    fn sync_dir(&self, caller: &Caller, handle: HandleId) -> Result<()> {
        // All is made durable together: any directory stands for this one.
        let is_put_off = self.later.as_ref().is_some_and(|later| later.put_off(InodeId::ROOT));
        self.asked.one();
        if is_put_off {
            return Ok(());
        }
        self.done.one();
        self.child.sync_dir(caller, handle)
    }

    fn fallocate(
        &self,
        caller: &Caller,
        handle: HandleId,
        offset: u64,
        len: u64,
        mode: FallocateMode,
    ) -> Result<()> {
        self.is_changed(handle);
        self.child.fallocate(caller, handle, offset, len, mode)?;
        self.changed(|durable| durable.file(handle, true))
    }

    fn copy_range(
        &self,
        caller: &Caller,
        from: HandleId,
        from_offset: u64,
        to: HandleId,
        to_offset: u64,
        len: u64,
    ) -> Result<u64> {
        self.is_changed(to);
        let copied = self.child.copy_range(caller, from, from_offset, to, to_offset, len)?;
        self.changed(|durable| durable.file(to, true))?;
        Ok(copied)
    }

    fn setxattr(
        &self,
        caller: &Caller,
        ino: InodeId,
        name: &OsStr,
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        self.child.setxattr(caller, ino, name, value, mode)?;
        self.changed_inode(caller, ino)
    }

    fn removexattr(&self, caller: &Caller, ino: InodeId, name: &OsStr) -> Result<()> {
        self.child.removexattr(caller, ino, name)?;
        self.changed_inode(caller, ino)
    }
}
