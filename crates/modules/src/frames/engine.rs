//! Shared by all operations: the child, the settings of frames, and the files in use.

use super::access::Access;
use super::codec::{Seal, fill_random};
use super::door::Door;
use super::file::{File, Form, Format, State};
use super::files::{Files, Kind};
use super::header::Head;
use super::pipeline::Pipeline;
use super::record::ATTRIBUTES;
use super::shared::Shared;
use braid_contract::{
    Caller, Errno, Error, FileSystem, HandleId, InodeId, OpenFlags, Result, Shown, WriteFlags, XattrMode,
};
use std::ffi::OsStr;
use std::sync::Arc;

/// The module without its thread.
pub(crate) struct Engine {
    pub(crate) shared: Shared,
    pub(crate) files: Files,
}

impl Engine {
    pub(crate) fn new(pipeline: Pipeline, child: Arc<dyn FileSystem>) -> Result<Self> {
        Ok(Self { shared: Shared::new(pipeline, child)?, files: Files::default() })
    }

    pub(crate) fn child(&self) -> &dyn FileSystem {
        &*self.shared.child
    }

    /// The head of a file; `None` if it is not framed.
    pub(crate) fn head(&self, ino: InodeId) -> Result<Option<Head>> {
        let known = self.shared.sequence.names();
        let names = known.as_ref().map_or(&ATTRIBUTES[..], std::slice::from_ref);
        for names in names {
            match self.child().getxattr(&Caller::stack(), ino, OsStr::new(names.head)) {
                Ok(bytes) => {
                    let message = || {
                        format!("{}: the attribute {} is damaged", self.shared.path(ino).shown(), names.head)
                    };
                    let head = Head::decode(&bytes);
                    return head.map(Some).ok_or_else(|| Error::new(Errno::EUCLEAN, message()));
                }
                Err(error) if matches!(error.errno(), Errno::ENODATA | Errno::EOPNOTSUPP | Errno::EPERM) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// The kind of a regular file with data.
    pub(crate) fn kind(&self, ino: InodeId, generation: Option<u64>) -> Result<Kind> {
        if let Some(kind) = self.files.kind(ino, generation) {
            return Ok(kind);
        }
        let head = self.head(ino)?;
        let kind = head.map_or(Kind::Plain, |head| Kind::Framed(head.geometry));
        self.files.found(ino, generation, kind);
        Ok(kind)
    }

    /// A file that is not in use yet, by an open one of the child if there is any. `is_new`: it was
    /// just made.
    pub(crate) fn load(&self, ino: InodeId, handle: Option<HandleId>, is_new: bool) -> Result<File> {
        let stored = self.child().getattr(&Caller::stack(), ino, handle)?.size;
        let head = if is_new { None } else { self.head(ino)? };
        if let Some(head) = &head
            && stored > 0
        {
            self.expect_head(ino, handle, head)?;
        }
        let (form, size) = match head {
            None if stored == 0 => (Form::Empty, 0),
            None => (Form::Plain, stored),
            Some(head) => match (head.geometry.size(stored), self.format(head)) {
                // It is written with the stack's present settings.
                (0, _) if head.is_sealed != self.shared.pipeline.key.is_some() => (Form::Empty, 0),
                (size, Some(format)) => (Form::Framed(Arc::new(format)), size),
                (_, None) => return Err(self.unusable(ino, "is encrypted, and the stack has no encrypt")),
            },
        };
        Ok(File::new(ino, form, size))
    }

    fn expect_head(&self, ino: InodeId, handle: Option<HandleId>, head: &Head) -> Result<()> {
        let caller = Caller::stack();
        let expect = |handle| self.shared.expect_head(&self.own_door(&caller, ino, handle), head);
        if let Some(handle) = handle {
            return expect(handle);
        }
        let own = self.open_own(ino)?;
        let expected = expect(own);
        self.child().release(own)?;
        expected
    }

    fn format(&self, head: Head) -> Option<Format> {
        let cipher = match head.is_sealed {
            true => Some(self.shared.pipeline.key.as_ref()?.cipher(&head.id)),
            false => None,
        };
        Some(Format { head, seal: Seal { id: head.id, cipher } })
    }

    /// Refuses a file that the settings keep from being read or written.
    pub(crate) fn admit(&self, file: &File, writes: bool) -> Result<()> {
        if self.shared.pipeline.key.is_none() {
            return Ok(());
        }
        let is_open = match &file.state.read().form {
            Form::Empty => return Ok(()),
            Form::Plain => true,
            Form::Framed(format) => !format.head.is_sealed,
        };
        match (is_open, self.shared.pipeline.reads_plain) {
            (false, _) => Ok(()),
            (true, true) if !writes => Ok(()),
            (true, true) => {
                let path = self.shared.path(file.ino);
                let message = format!("{}: it is not encrypted, and can only be read", path.shown());
                Err(Error::new(Errno::EPERM, message))
            }
            (true, false) => Err(self.unusable(file.ino, "is not encrypted, and the stack has encrypt")),
        }
    }

    fn unusable(&self, ino: InodeId, why: &str) -> Error {
        let path = self.shared.path(ino);
        tracing::error!(path = %path.shown(), "the file {why}");
        Error::new(Errno::EIO, format!("{}: the file {why}", path.shown()))
    }

    pub(crate) fn access<'a>(&'a self, file: &'a File, format: &'a Format, door: Door<'a>) -> Access<'a> {
        Access { shared: &self.shared, file, format, door }
    }

    /// The format of a file that is about to get data; `None` if it is plain.
    pub(crate) fn framed(
        &self,
        file: &File,
        state: &mut State,
        door: &Door<'_>,
    ) -> Result<Option<Arc<Format>>> {
        match &state.form {
            Form::Plain => return Ok(None),
            Form::Framed(format) => return Ok(Some(Arc::clone(format))),
            Form::Empty => {}
        }
        if self.files.is_emptied(file.ino) {
            // Data in another form must not come back.
            self.shared.sync(file, state.last, || door.sync())?;
            self.files.is_durably_empty(file.ino);
        }
        let mut id = [0; 16];
        fill_random(&mut id)?;
        let head = Head {
            geometry: self.shared.pipeline.geometry(),
            is_sealed: self.shared.pipeline.key.is_some(),
            id,
        };
        let names = self.shared.sequence.names().unwrap_or(ATTRIBUTES[0]);
        let name = OsStr::new(names.head);
        let set = self.child().setxattr(&Caller::stack(), file.ino, name, &head.encode(), XattrMode::Set);
        set.map_err(|error| error.context("a file can't be marked as one of frames"))?;
        self.files.becomes(file.ino, Kind::Framed(head.geometry));
        let format = Arc::new(self.format(head).ok_or(Errno::EIO)?);
        state.form = Form::Framed(Arc::clone(&format));
        state.is_trimmed = false;
        Ok(Some(format))
    }

    /// Opens the child's file for work of the module's own.
    pub(crate) fn open_own(&self, ino: InodeId) -> Result<HandleId> {
        let flags = OpenFlags { read: true, write: true, ..OpenFlags::default() };
        Ok(self.child().open(&Caller::stack(), ino, flags.into())?.handle)
    }

    pub(crate) fn own_door<'a>(&'a self, caller: &'a Caller, ino: InodeId, handle: HandleId) -> Door<'a> {
        Door { child: self.child(), caller, ino, handle, flags: WriteFlags::default() }
    }

    /// After a change: has the file tidied, if there are older slots.
    pub(crate) fn was_changed(&self, file: &File, state: &mut State) {
        if state.untidy.is_empty() || state.own.is_some() {
            return;
        }
        match self.open_own(file.ino) {
            Ok(handle) => state.own = Some(handle),
            // The space is given back when the frame is written again.
            Err(error) => return tracing::debug!(ino = file.ino.0, %error, "a file can't be tidied"),
        }
        self.files.set_untidy(file.ino, true);
    }

    /// Makes everything durable (not within a request, which the child's sync may wait for),
    /// records that at the root, and gives space back.
    pub(crate) fn settle(&self) -> Result<()> {
        let untidy = self.files.untidy().into_iter().map(|file| {
            let passes = file.state.read().passes;
            (file, passes)
        });
        let untidy: Vec<_> = untidy.collect();
        let done = self.shared.sequence.done();
        self.shared.sync_all()?;
        self.shared.sequence.settle(self.child(), done)?;
        self.files.were_settled(|number| self.shared.sequence.is_settled(number));
        for (file, passes) in untidy {
            if let Err(error) = self.tidy(&file, passes) {
                tracing::warn!(ino = file.ino.0, %error, "space of a file could not be given back");
            }
        }
        self.forget_unused();
        Ok(())
    }

    /// Gives the space of older slots back at once; answers whether there were any. The child is
    /// not synced as a whole: it may wait for requests that wait for this one.
    pub(crate) fn relieve(&self) -> bool {
        let untidy = self.files.untidy();
        for file in &untidy {
            let (own, last, passes) = {
                let state = file.state.read();
                (state.own, state.last, state.passes)
            };
            let Some(own) = own else { continue };
            let sync = || self.child().fsync(&Caller::stack(), own, true);
            let tidied = self.shared.sync(file, last, sync).and_then(|()| self.tidy(file, passes));
            if let Err(error) = tidied {
                tracing::warn!(ino = file.ino.0, %error, "space of a file could not be given back");
            }
        }
        !untidy.is_empty()
    }

    /// Whether there is anything to settle.
    pub(crate) fn is_unsettled(&self) -> bool {
        self.shared.sequence.is_unsettled() || !self.files.untidy().is_empty()
    }

    /// After a sync that began when the file had been tidied `synced` times.
    pub(crate) fn tidy(&self, file: &File, synced: u64) -> Result<()> {
        let mut state = file.state.write();
        let (Some(own), Form::Framed(format)) = (state.own, &state.form) else { return Ok(()) };
        let (caller, format) = (Caller::stack(), Arc::clone(format));
        let door = self.own_door(&caller, file.ino, own);
        self.access(file, &format, door).tidy(&mut state, synced)?;
        if state.untidy.is_empty() { self.leave(file, &mut state) } else { Ok(()) }
    }

    /// A file without names that is not open is not tidied.
    pub(crate) fn was_released(&self, file: &File) -> Result<()> {
        let mut state = file.state.write();
        let Some(own) = state.own else { return Ok(()) };
        if self.child().getattr(&Caller::stack(), file.ino, Some(own))?.nlink == 0 {
            state.untidy.clear();
            return self.leave(file, &mut state);
        }
        Ok(())
    }

    pub(crate) fn leave(&self, file: &File, state: &mut State) -> Result<()> {
        self.files.set_untidy(file.ino, false);
        state.own.take().map_or(Ok(()), |own| self.child().release(own))
    }

    /// The front end forgets an inode. One in use is still found by its number.
    pub(crate) fn forget(&self, ino: InodeId, count: u64) {
        self.files.forget(ino);
        if self.files.is_in_use_unheld(ino)
            && self.child().lookup(&Caller::stack(), ino, OsStr::new(".")).is_ok()
        {
            self.files.is_held(ino);
            self.forget_unused();
        }
        self.child().forget(ino, count);
    }

    /// Forgets inodes that were kept for as long as they were in use.
    pub(crate) fn forget_unused(&self) {
        for ino in self.files.take_unused() {
            self.child().forget(ino, 1);
        }
    }

    /// Settles for the last time.
    pub(crate) fn end(&self) -> Result<()> {
        if !self.shared.sequence.has_begun() {
            return Ok(());
        }
        self.settle()?;
        // Once more, so that the tidying is durable.
        self.shared.sync_all()?;
        for file in self.files.untidy() {
            self.leave(&file, &mut file.state.write())?;
        }
        self.shared.sequence.end(self.child())
    }
}
