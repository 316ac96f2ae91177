//! Operations on files in use.

use super::access::Access;
use super::door::Door;
use super::engine::Engine;
use super::file::{File, Form, State};
use braid_contract::{
    Attr, Caller, Errno, FallocateMode, FileKind, HandleId, InodeId, IoMode, OpenRequest, Opened, Result,
    SeekTarget, SetAttr, WriteFlags,
};
use std::sync::Arc;

impl Engine {
    /// The request that goes to the child: frames are read before parts of them are written, and
    /// lie at other places than the program's bytes.
    pub(crate) fn asked(request: OpenRequest) -> OpenRequest {
        let mut flags = request.flags;
        flags.read |= flags.write;
        (flags.direct, flags.sync) = (false, false);
        flags.into()
    }

    /// The child has opened a file.
    pub(crate) fn opened(
        &self,
        ino: InodeId,
        mut opened: Opened,
        request: OpenRequest,
        is_new: bool,
    ) -> Result<Opened> {
        let handle = opened.handle;
        let held = self.hold(ino, handle, is_new);
        let admitted = held.and_then(|file| match self.admit(&file, request.flags.write) {
            Ok(()) => Ok(file),
            Err(error) => {
                self.files.release(ino);
                Err(error)
            }
        });
        let file = match admitted {
            Ok(file) => file,
            Err(error) => {
                self.child().release(handle)?;
                return Err(error);
            }
        };
        self.files.opened(handle, file);
        if request.flags.direct {
            opened.mode = IoMode::Direct;
        }
        Ok(opened)
    }

    /// The file of an open one of the child, which it is held for.
    pub(crate) fn hold(&self, ino: InodeId, handle: HandleId, is_new: bool) -> Result<Arc<File>> {
        self.files.hold(ino, || self.load(ino, Some(handle), is_new))
    }

    pub(crate) fn release(&self, handle: HandleId) -> Result<()> {
        let Some(file) = self.files.closed(handle) else { return Err(Errno::EBADF.into()) };
        let released = self.child().release(handle);
        if self.files.release(file.ino) {
            self.was_released(&file)?;
        }
        self.forget_unused();
        released
    }

    fn door<'a>(&'a self, caller: &'a Caller, file: &File, handle: HandleId) -> Door<'a> {
        Door { child: self.child(), caller, ino: file.ino, handle, flags: WriteFlags::default() }
    }

    pub(crate) fn read(
        &self,
        caller: &Caller,
        handle: HandleId,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<usize> {
        let file = self.files.of(handle)?;
        let state = file.state.read();
        match &state.form {
            Form::Empty => Ok(0),
            Form::Plain => self.child().read(caller, handle, offset, buf, false),
            Form::Framed(format) => {
                self.access(&file, format, self.door(caller, &file, handle)).read(&state, offset, buf)
            }
        }
    }

    pub(crate) fn write(
        &self,
        caller: &Caller,
        handle: HandleId,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
    ) -> Result<usize> {
        let file = self.files.of(handle)?;
        let (is_sync, flags) = (flags.sync, WriteFlags { sync: false, direct: false, ..flags });
        let door = Door { flags, ..self.door(caller, &file, handle) };
        if data.is_empty() {
            return Ok(0);
        }
        let change = |access: &Access<'_>, state: &mut State| access.write(state, offset, data);
        let count = match self.change(&file, door, &change)? {
            Some(count) => count,
            None => self.child().write(caller, handle, offset, data, flags)?,
        };
        if is_sync {
            self.fsync(caller, handle, true)?;
        }
        Ok(count)
    }

    /// Changes a file, which becomes a framed one if it was empty; `None` if it is plain. If there is
    /// no room, it is tried once more without what is old.
    fn change<T>(
        &self,
        file: &File,
        door: Door<'_>,
        change: &dyn Fn(&Access<'_>, &mut State) -> Result<T>,
    ) -> Result<Option<T>> {
        let changed = self.change_once(file, door, change);
        let is_full = changed.as_ref().is_err_and(|error| error.is_full());
        if is_full && self.relieve() { self.change_once(file, door, change) } else { changed }
    }

    fn change_once<T>(
        &self,
        file: &File,
        door: Door<'_>,
        change: &dyn Fn(&Access<'_>, &mut State) -> Result<T>,
    ) -> Result<Option<T>> {
        let mut state = file.state.write();
        if matches!(state.form, Form::Plain) {
            return Ok(None);
        }
        let _begun = self.shared.sequence.begin(self.child())?;
        let Some(format) = self.framed(file, &mut state, &door)? else { return Ok(None) };
        let changed = change(&self.access(file, &format, door), &mut state);
        self.was_changed(file, &mut state);
        changed.map(Some)
    }

    pub(crate) fn fsync(&self, caller: &Caller, handle: HandleId, data_only: bool) -> Result<()> {
        let file = self.files.of(handle)?;
        let (last, has_holes, passes) = {
            let state = file.state.read();
            (state.last, state.has_holes, state.passes)
        };
        self.shared.sync(&file, last, || self.child().fsync(caller, handle, data_only))?;
        // Programs that punch holes and sync expect the space.
        if has_holes { self.tidy(&file, passes) } else { Ok(()) }
    }

    pub(crate) fn fallocate(
        &self,
        caller: &Caller,
        handle: HandleId,
        offset: u64,
        len: u64,
        mode: FallocateMode,
    ) -> Result<()> {
        let file = self.files.of(handle)?;
        let end = offset.checked_add(len).ok_or(Errno::EFBIG)?;
        if len == 0 {
            return Err(Errno::EINVAL.into());
        }
        let door = self.door(caller, &file, handle);
        let change = |access: &Access<'_>, state: &mut State| access.fallocate(state, offset..end, mode);
        match self.change(&file, door, &change)? {
            Some(()) => Ok(()),
            None => self.child().fallocate(caller, handle, offset, len, mode),
        }
    }

    pub(crate) fn seek(
        &self,
        caller: &Caller,
        handle: HandleId,
        offset: u64,
        target: SeekTarget,
    ) -> Result<u64> {
        let file = self.files.of(handle)?;
        let state = file.state.read();
        match &state.form {
            Form::Empty => Err(Errno::ENXIO.into()),
            Form::Plain => self.child().seek(caller, handle, offset, target),
            Form::Framed(format) => {
                self.access(&file, format, self.door(caller, &file, handle)).seek(&state, offset, target)
            }
        }
    }

    /// Changes attributes other than the size. The child's are answered.
    pub(crate) fn set_attributes(
        &self,
        caller: &Caller,
        ino: InodeId,
        handle: Option<HandleId>,
        changes: &SetAttr,
    ) -> Result<Attr> {
        // Tidying puts the time back that it found.
        let file = self.files.in_use(ino);
        let _alone = file.as_ref().map(|file| file.state.write());
        self.child().setattr(caller, ino, handle, changes)
    }

    /// Changes attributes, and with them the size. The child's are answered.
    pub(crate) fn set_size(
        &self,
        caller: &Caller,
        ino: InodeId,
        handle: Option<HandleId>,
        changes: &SetAttr,
        size: u64,
    ) -> Result<Attr> {
        let about = self.child().getattr(&Caller::stack(), ino, handle)?;
        if about.kind != FileKind::Regular {
            return self.child().setattr(caller, ino, handle, changes);
        }
        let file = self.files.hold(ino, || self.load(ino, handle, false))?;
        let done =
            self.admit(&file, size > 0).and_then(|()| self.resize(caller, &file, handle, changes, size));
        if self.files.release(ino) {
            self.was_released(&file)?;
        }
        done
    }

    fn resize(
        &self,
        caller: &Caller,
        file: &Arc<File>,
        handle: Option<HandleId>,
        changes: &SetAttr,
        size: u64,
    ) -> Result<Attr> {
        let mut state = file.state.write();
        let is_longer = size > state.size;
        let stored = match &state.form {
            Form::Plain => {
                let attr = self.child().setattr(caller, file.ino, handle, changes)?;
                state.size = size;
                if size == 0 {
                    self.files.was_emptied(file.ino);
                    state.form = Form::Empty;
                }
                return Ok(attr);
            }
            Form::Framed(format) if !is_longer => {
                format.head.geometry.stored_size(size).ok_or(Errno::EFBIG)?
            }
            Form::Empty if !is_longer => 0,
            _ => {
                drop(state);
                self.lengthen(caller, file, size)?;
                // Others may have changed the size meanwhile.
                return self.set_attributes(caller, file.ino, handle, &SetAttr { size: None, ..*changes });
            }
        };
        let done =
            self.child().setattr(caller, file.ino, handle, &SetAttr { size: Some(stored), ..*changes });
        // One that failed may have changed the size all the same.
        let size = match &done {
            Ok(_) => Some(size),
            Err(_) => self.child().getattr(&Caller::stack(), file.ino, handle).ok().map(|attr| attr.size),
        };
        if let (Form::Framed(format), Some(size)) = (&state.form, size) {
            let format = Arc::clone(format);
            let size = if done.is_ok() { size } else { format.head.geometry.size(size) };
            let own = self.own_door(caller, file.ino, handle.unwrap_or(HandleId(0)));
            self.access(file, &format, own).was_cut(&mut state, size);
            if size == 0 && format.head.is_sealed != self.shared.pipeline.key.is_some() {
                self.files.was_emptied(file.ino);
                state.form = Form::Empty;
            }
        }
        done
    }

    /// Makes a framed file longer, which takes an open file of the child.
    fn lengthen(&self, caller: &Caller, file: &File, size: u64) -> Result<()> {
        let handle = self.open_own(file.ino)?;
        let door = self.own_door(caller, file.ino, handle);
        let grown = self.change(file, door, &|access, state| match state.size < size {
            true => access.grow(state, size),
            false => Ok(()),
        });
        self.child().release(handle)?;
        grown.map(drop)
    }
}
