//! Records the maker of each file, and its last writer (LabStor §3, provenance): kept as an
//! extended attribute, and shown as `braid.provenance`. `docs/configuration.md` describes its
//! limits.

mod files;
mod record;
#[cfg(test)]
mod tests;
mod who;

use crate::count::Count;
use crate::traffic::visible;
use crate::{Module, State};
use braid_contract::{
    Attr, Caller, Crash, Entry, Errno, Error, FallocateMode, Figure, FileSystem, HandleId, InodeId, IoMode,
    Layer, OpenRequest, Opened, Result, SetAttr, WriteFlags, XattrMode,
};
use files::Files;
use record::{Records, SHOWN, is_kept, last_written, with_written};
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use who::{Deed, People, Who, now};

/// Version of the format of the exported state.
const VERSION: u32 = 1;

/// Version of the format of the state kept for a crash.
const KEPT_VERSION: u32 = 2;

/// An open file: handle, inode, opener, whether writes do not come to the module.
type Open = (u64, u64, Who, bool);

/// The state kept for a crash.
#[derive(Serialize, Deserialize)]
struct Kept {
    opened: Vec<Open>,
    written: Vec<(u64, Deed)>,
}

/// There are none.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {}

/// The module.
pub struct Provenance {
    people: People,
    files: Files,
    records: Records,
    kept: Count,
    lost: Count,
    child: Arc<dyn FileSystem>,
}

impl Module for Provenance {
    const NAME: &'static str = "provenance";
    type Settings = Settings;

    fn new(_settings: &Settings, child: Arc<dyn FileSystem>) -> Result<Self> {
        let (people, files, records) = (People::default(), Files::default(), Records::default());
        Ok(Self { people, files, records, kept: Count::default(), lost: Count::default(), child })
    }

    fn figures(&self) -> Vec<Figure> {
        let lost = "Files of which it could not be kept who made or wrote them";
        vec![
            Figure::counter(
                "provenance_kept",
                "Times that it was kept who made or wrote a file",
                self.kept.get(),
            ),
            Figure::counter("provenance_lost", lost, self.lost.get()),
        ]
    }

    /// The openers of files; the writers are recorded now.
    fn export(&self) -> State {
        self.keep_all();
        // All of it can be serialized.
        State { version: VERSION, bytes: serde_json::to_vec(&self.open_files()).unwrap_or_default() }
    }

    fn import(&self, state: &State) -> Result<()> {
        let odd = |error| Error::new(Errno::EINVAL, format!("not a state of provenance: {error}"));
        let Kept { opened, written } = match state.version {
            KEPT_VERSION => serde_json::from_slice(&state.bytes).map_err(odd)?,
            _ => {
                state.expect_version(VERSION)?;
                Kept { opened: serde_json::from_slice(&state.bytes).map_err(odd)?, written: Vec::new() }
            }
        };
        for (handle, ino, opener, is_unseen) in opened {
            self.files.open(HandleId(handle), files::Opened { ino: InodeId(ino), opener, is_unseen });
        }
        for (ino, deed) in written {
            self.files.was_written(InodeId(ino), deed);
        }
        Ok(())
    }

    /// The openers and writers of files.
    fn snapshot(&self) -> Option<State> {
        let written = self.files.writers().into_iter().map(|(ino, deed)| (ino.0, deed)).collect();
        let kept = Kept { opened: self.open_files(), written };
        // All of it can be serialized.
        Some(State { version: KEPT_VERSION, bytes: serde_json::to_vec(&kept).unwrap_or_default() })
    }

    /// Keeps writers with their files, unless a later writer was kept in the last moment, and
    /// forgets closed files.
    fn repair(&self, _after: Crash) -> Result<()> {
        for (ino, deed) in self.files.take_writers() {
            let kept = self.records.read(&*self.child, ino);
            if kept.is_ok_and(|kept| last_written(&kept).is_none_or(|at| at < deed.at)) {
                self.count(self.records.written(&*self.child, ino, &deed));
            }
        }
        for (handle, _) in self.files.all() {
            if self.child.getattr(&Caller::stack(), InodeId::ROOT, Some(handle)).is_err() {
                self.files.close(handle);
            }
        }
        Ok(())
    }

    fn end(&self) {
        self.keep_all();
    }
}

impl Provenance {
    fn open_files(&self) -> Vec<Open> {
        let files = self.files.all().into_iter();
        files.map(|(handle, file)| (handle.0, file.ino.0, file.opener, file.is_unseen)).collect()
    }

    /// A file was made; answers its attributes after the record.
    fn made(&self, caller: &Caller, mut entry: Entry) -> Entry {
        let deed = Deed { who: self.people.of(caller), at: now() };
        let ino = entry.attr.ino;
        self.count(self.records.made(&*self.child, ino, &deed));
        // The time of its last change is another one now.
        if let Ok(attr) = self.child.getattr(caller, ino, None) {
            entry.attr = attr;
        }
        entry
    }

    fn opened(&self, caller: &Caller, ino: InodeId, request: OpenRequest, opened: &Opened) {
        let is_unseen = request.flags.write && matches!(opened.mode, IoMode::Passthrough(_));
        let opener = self.people.of(caller);
        self.files.open(opened.handle, files::Opened { ino, opener, is_unseen });
    }

    /// An open file was changed. The writer of data that the kernel writes back is not known.
    fn changed(&self, caller: &Caller, handle: HandleId, is_written_back: bool) {
        match self.files.get(handle) {
            Some(opened) if is_written_back => self.files.is_written(opened.ino, opened.opener),
            Some(opened) => self.files.is_written(opened.ino, self.people.of(caller)),
            None if is_written_back => {}
            None => {
                // It was opened before the module came.
                if let Ok(attr) = self.child.getattr(caller, InodeId::ROOT, Some(handle)) {
                    self.files.is_written(attr.ino, self.people.of(caller));
                }
            }
        }
    }

    /// Records the writer of a file.
    fn keep(&self, ino: InodeId) {
        if let Some(deed) = self.files.take_writer(ino) {
            self.count(self.records.written(&*self.child, ino, &deed));
        }
    }

    fn keep_all(&self) {
        for (ino, deed) in self.files.take_writers() {
            self.count(self.records.written(&*self.child, ino, &deed));
        }
    }

    /// A file without a record can be used as any other.
    fn count(&self, done: Result<()>) {
        match done {
            Ok(()) => self.kept.one(),
            // It has no name any more.
            Err(error) if matches!(error.errno(), Errno::ENOENT | Errno::ESTALE) => {}
            Err(error) => {
                self.lost.one();
                tracing::debug!(%error, "it can't be kept who made or wrote a file");
            }
        }
    }

    fn shown(&self, ino: InodeId) -> Result<Vec<u8>> {
        let kept = self.records.read(&*self.child, ino)?;
        let record = match self.files.writer(ino) {
            Some(deed) => with_written(&kept, &deed),
            None => kept,
        };
        if record.is_empty() { Err(Errno::ENODATA.into()) } else { Ok(record.into_bytes()) }
    }
}

impl Layer for Provenance {
    fn child(&self) -> &dyn FileSystem {
        &*self.child
    }

    fn setattr(
        &self,
        caller: &Caller,
        ino: InodeId,
        handle: Option<HandleId>,
        changes: &SetAttr,
    ) -> Result<Attr> {
        let attr = self.child.setattr(caller, ino, handle, changes)?;
        if changes.size.is_some() {
            self.files.is_written(attr.ino, self.people.of(caller));
            if handle.is_none() {
                // No close may come.
                self.keep(attr.ino);
                return self.child.getattr(caller, ino, None);
            }
        }
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
        Ok(self.made(caller, self.child.mknod(caller, parent, name, mode, umask, rdev)?))
    }

    fn mkdir(&self, caller: &Caller, parent: InodeId, name: &OsStr, mode: u32, umask: u32) -> Result<Entry> {
        Ok(self.made(caller, self.child.mkdir(caller, parent, name, mode, umask)?))
    }

    fn open(&self, caller: &Caller, ino: InodeId, request: OpenRequest) -> Result<Opened> {
        let opened = self.child.open(caller, ino, request)?;
        if request.flags.write {
            self.opened(caller, ino, request, &opened);
        }
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
        let (entry, opened) = self.child.create(caller, parent, name, mode, umask, exclusive, request)?;
        self.opened(caller, entry.attr.ino, request, &opened);
        Ok((self.made(caller, entry), opened))
    }

    fn tmpfile(
        &self,
        caller: &Caller,
        parent: InodeId,
        mode: u32,
        umask: u32,
        request: OpenRequest,
    ) -> Result<(Entry, Opened)> {
        let (entry, opened) = self.child.tmpfile(caller, parent, mode, umask, request)?;
        self.opened(caller, entry.attr.ino, request, &opened);
        Ok((self.made(caller, entry), opened))
    }

    fn write(
        &self,
        caller: &Caller,
        handle: HandleId,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
    ) -> Result<usize> {
        let done = self.child.write(caller, handle, offset, data, flags)?;
        self.changed(caller, handle, flags.write_back);
        Ok(done)
    }

    fn release(&self, handle: HandleId) -> Result<()> {
        if let Some(opened) = self.files.close(handle) {
            if opened.is_unseen {
                self.files.is_written(opened.ino, opened.opener);
            }
            self.keep(opened.ino);
        }
        self.child.release(handle)
    }

    fn fallocate(
        &self,
        caller: &Caller,
        handle: HandleId,
        offset: u64,
        len: u64,
        mode: FallocateMode,
    ) -> Result<()> {
        self.child.fallocate(caller, handle, offset, len, mode)?;
        self.changed(caller, handle, false);
        Ok(())
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
        let done = self.child.copy_range(caller, from, from_offset, to, to_offset, len)?;
        self.changed(caller, to, false);
        Ok(done)
    }

    fn getxattr(&self, caller: &Caller, ino: InodeId, name: &OsStr) -> Result<Vec<u8>> {
        if name.as_bytes() == SHOWN.as_bytes() {
            return self.shown(ino);
        }
        if is_kept(name) {
            return Err(Errno::ENODATA.into());
        }
        self.child.getxattr(caller, ino, name)
    }

    fn listxattr(&self, caller: &Caller, ino: InodeId) -> Result<Vec<u8>> {
        let names = self.child.listxattr(caller, ino)?;
        Ok(visible(&names, |name| is_kept(OsStr::from_bytes(name))))
    }

    fn setxattr(
        &self,
        caller: &Caller,
        ino: InodeId,
        name: &OsStr,
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        if is_kept(name) || name.as_bytes() == SHOWN.as_bytes() {
            return Err(Error::new(Errno::EPERM, "the provenance of a file can't be changed"));
        }
        self.child.setxattr(caller, ino, name, value, mode)
    }

    fn removexattr(&self, caller: &Caller, ino: InodeId, name: &OsStr) -> Result<()> {
        if is_kept(name) || name.as_bytes() == SHOWN.as_bytes() {
            return Err(Error::new(Errno::EPERM, "the provenance of a file can't be changed"));
        }
        self.child.removexattr(caller, ino, name)
    }

    fn sync(&self) -> Result<()> {
        self.keep_all();
        self.child.sync()
    }
}
