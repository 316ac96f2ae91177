//! Records operations of applications, as a trace. The daemon puts this module
//! on top of every stack. Without a recording, an operation only costs a check
//! of a flag. `docs/trace.md` describes the recorded operations and the format.

mod files;
mod recorder;

pub use recorder::{Recorded, Recording, Traced};

use braid_contract::{
    Attr, Caller, Entry, Environment, FallocateMode, Figure, FileKind, FileSystem, HandleId, InodeId, IoMode,
    Layer, OpenFlags, OpenRequest, Opened, RenameMode, Result, SetAttr, WriteFlags,
};
use braid_placement::{Record, TraceOpKind};
use files::File;
use recorder::Tracing;
use std::ffi::OsStr;
use std::sync::Arc;

/// A file system that can be recorded.
pub struct Trace {
    child: Arc<dyn FileSystem>,
    environment: Arc<dyn Environment>,
    tracing: Arc<Tracing>,
}

/// An operation under way that is to be recorded.
struct Begun {
    file: Arc<File>,
    at_ns: u64,
    /// Size of the file then.
    size: u64,
}

impl Trace {
    /// Puts the module on top of `child`.
    #[must_use]
    pub fn new(child: Arc<dyn FileSystem>, environment: Arc<dyn Environment>) -> Self {
        Self { child, environment, tracing: Arc::new(Tracing::new()) }
    }

    /// Starts to record operations on files whose paths match `path`, a pattern
    /// as in rules, or on all files.
    ///
    /// # Errors
    /// `EINVAL` if `path` is not a pattern, `EBUSY` if a recording is under
    /// way, `ENODEV` after [`close`](Self::close).
    pub fn start_recording(&self, traced: Traced, path: Option<&str>) -> Result<Recording> {
        Recording::begin(&self.tracing, &self.environment, traced, path)
    }

    /// Ends the recording of this number. Answers whether it was under way.
    pub fn stop_recording(&self, number: u64) -> bool {
        self.tracing.stop(number)
    }

    /// The figures of the records of all recordings since the mount.
    #[must_use]
    pub fn figures(&self) -> Vec<Figure> {
        let totals = self.tracing.totals();
        vec![
            Figure::counter("records", "Operations that were recorded in traces", totals.records.get()),
            Figure::counter(
                "records_dropped",
                "Operations that a trace had no room for",
                totals.dropped.get(),
            ),
        ]
    }

    /// Notes the end of the mount: ends the current recording, and allows no
    /// more.
    pub fn close(&self) {
        self.tracing.close();
    }

    fn now_ns(&self) -> u64 {
        self.environment.monotonic_ns()
    }

    /// The start time of an operation; `None` without a recording.
    fn now_if_on(&self) -> Option<u64> {
        self.tracing.is_on().then(|| self.now_ns())
    }

    /// Notes the start of an operation on an open file; `None` without a
    /// recording.
    fn begin(&self, caller: &Caller, handle: HandleId) -> Option<Begun> {
        if !self.tracing.is_on() {
            return None;
        }
        // Before the lookup of the file: an operation that belongs to an
        // earlier recording began before this one, and is left out.
        let at_ns = self.now_ns();
        let file = self.file_of(caller, handle)?;
        Some(Begun { at_ns, size: file.size_now(), file })
    }

    /// The file behind a handle, which may have been opened before the
    /// recording began.
    fn file_of(&self, caller: &Caller, handle: HandleId) -> Option<Arc<File>> {
        if let Some(file) = self.tracing.with(|recorder| recorder.files.get(handle)).flatten() {
            return Some(file);
        }
        let attr = self.child.getattr(caller, InodeId::ROOT, Some(handle)).ok()?;
        self.enter(handle, &attr, caller)
    }

    fn enter(&self, handle: HandleId, attr: &Attr, caller: &Caller) -> Option<Arc<File>> {
        if attr.kind != FileKind::Regular {
            return None;
        }
        self.tracing.with(|recorder| recorder.files.enter(handle, attr, caller))
    }

    /// Names the opener of the handle, as placement does for data that the
    /// kernel writes back.
    fn of_opener(&self, handle: HandleId, record: Record) -> Record {
        match self.tracing.with(|recorder| recorder.files.opener(handle)).flatten() {
            Some(opener) => Record { thread: opener.thread, uid: opener.uid, gid: opener.gid, ..record },
            None => record,
        }
    }

    /// Records the end of an operation that consists of a part of a file.
    fn span(&self, begun: Option<Begun>, kind: TraceOpKind, caller: &Caller, (offset, length): (u64, u64)) {
        let Some(begun) = begun else { return };
        self.put(&begun, Record { offset, length, ..record(kind, &begun, caller) });
    }

    /// Records an open or a creation.
    fn opened(
        &self,
        at_ns: Option<u64>,
        caller: &Caller,
        opened: &Opened,
        flags: OpenFlags,
        made: Option<&Attr>,
    ) {
        let Some(at_ns) = at_ns else { return };
        let looked_at = match made {
            Some(attr) => Ok(*attr),
            None => self.child.getattr(caller, InodeId::ROOT, Some(opened.handle)),
        };
        let Some(file) = looked_at.ok().and_then(|attr| self.enter(opened.handle, &attr, caller)) else {
            return;
        };
        let begun = Begun { at_ns, size: file.size_now(), file };
        // Another caller may have created it a moment before.
        let is_new = made.is_some() && begun.size == 0;
        let kind = if is_new { TraceOpKind::Create } else { TraceOpKind::Open };
        let record = Record {
            write: flags.write,
            sync: flags.sync,
            direct: flags.direct,
            passthrough: matches!(opened.mode, IoMode::Passthrough(_)),
            ..record(kind, &begun, caller)
        };
        self.put(&begun, record);
    }

    /// Records a change of a file's size.
    fn truncated(&self, at_ns: Option<u64>, caller: &Caller, attr: &Attr, size: u64) {
        let Some(at_ns) = at_ns else { return };
        let Some(file) = self.tracing.with(|recorder| recorder.files.of(attr)) else { return };
        file.cut(size);
        let begun = Begun { file, at_ns, size };
        self.put(&begun, record(TraceOpKind::Truncate, &begun, caller));
    }

    /// The file that is about to lose its last name.
    fn doomed(&self, caller: &Caller, parent: InodeId, name: &OsStr) -> Option<InodeId> {
        if !self.tracing.is_on() {
            return None;
        }
        let attr = self.child.lookup(caller, parent, name).ok()?.attr;
        self.child.forget(attr.ino, 1);
        (attr.kind == FileKind::Regular && attr.nlink <= 1).then_some(attr.ino)
    }

    /// Notes that its name is gone. An open file is removed at its last close.
    fn unnamed(&self, doomed: Option<InodeId>) {
        let Some(ino) = doomed else { return };
        let is_gone = self.tracing.with(|recorder| !recorder.files.unname(ino));
        if is_gone == Some(true) {
            self.gone(ino);
        }
    }

    fn gone(&self, ino: InodeId) {
        let now_ns = self.now_ns();
        self.tracing.with(|recorder| recorder.gone(ino, now_ns));
    }

    fn put(&self, begun: &Begun, record: Record) {
        let now_ns = self.now_ns();
        self.tracing.with(|recorder| {
            // Operations from before the recording do not belong to it.
            let Some(at) = begun.at_ns.checked_sub(recorder.began_ns) else { return };
            let path = || self.child.path(begun.file.ino).map(|path| path.to_string_lossy().into_owned());
            // A file without a name has no path.
            let describe =
                || begun.file.record(at, begun.size, path().unwrap_or_default(), self.environment.wall_ns());
            if recorder.describes(&begun.file, describe) {
                let took = now_ns.saturating_sub(begun.at_ns);
                recorder.put(Record { at, took, size: begun.size, ..record });
            }
        });
    }
}

fn record(kind: TraceOpKind, begun: &Begun, caller: &Caller) -> Record {
    Record { thread: caller.tid, uid: caller.uid, gid: caller.gid, ..Record::of(kind, begun.file.ino.0) }
}

impl Layer for Trace {
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
        let begun = changes.size.and_then(|_| self.now_if_on());
        let attr = self.child.setattr(caller, ino, handle, changes)?;
        if let Some(size) = changes.size {
            self.truncated(begun, caller, &attr, size);
        }
        Ok(attr)
    }

    fn link(&self, caller: &Caller, ino: InodeId, parent: InodeId, name: &OsStr) -> Result<Entry> {
        let entry = self.child.link(caller, ino, parent, name)?;
        if self.tracing.is_on() {
            // It may have been made without a name.
            self.tracing.with(|recorder| recorder.files.name(ino));
        }
        Ok(entry)
    }

    fn unlink(&self, caller: &Caller, parent: InodeId, name: &OsStr) -> Result<()> {
        let doomed = self.doomed(caller, parent, name);
        self.child.unlink(caller, parent, name)?;
        self.unnamed(doomed);
        Ok(())
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
        let replaces = matches!(mode, RenameMode::Replace | RenameMode::Whiteout);
        let doomed = if replaces { self.doomed(caller, new_parent, new_name) } else { None };
        self.child.rename(caller, parent, name, new_parent, new_name, mode)?;
        self.unnamed(doomed);
        Ok(())
    }

    fn open(&self, caller: &Caller, ino: InodeId, request: OpenRequest) -> Result<Opened> {
        let begun = self.now_if_on();
        let opened = self.child.open(caller, ino, request)?;
        self.opened(begun, caller, &opened, request.flags, None);
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
        let begun = self.now_if_on();
        let made = self.child.create(caller, parent, name, mode, umask, exclusive, request)?;
        self.opened(begun, caller, &made.1, request.flags, Some(&made.0.attr));
        Ok(made)
    }

    fn tmpfile(
        &self,
        caller: &Caller,
        parent: InodeId,
        mode: u32,
        umask: u32,
        request: OpenRequest,
    ) -> Result<(Entry, Opened)> {
        let begun = self.now_if_on();
        let made = self.child.tmpfile(caller, parent, mode, umask, request)?;
        self.opened(begun, caller, &made.1, request.flags, Some(&made.0.attr));
        Ok(made)
    }

    fn read(
        &self,
        caller: &Caller,
        handle: HandleId,
        offset: u64,
        buf: &mut [u8],
        direct: bool,
    ) -> Result<usize> {
        let begun = self.begin(caller, handle);
        let done = self.child.read(caller, handle, offset, buf, direct)?;
        if let Some(begun) = begun {
            let record = record(TraceOpKind::Read, &begun, caller);
            self.put(&begun, Record { offset, length: done as u64, direct, ..record });
        }
        Ok(done)
    }

    fn write(
        &self,
        caller: &Caller,
        handle: HandleId,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
    ) -> Result<usize> {
        let begun = self.begin(caller, handle);
        let done = self.child.write(caller, handle, offset, data, flags)?;
        if let Some(begun) = begun {
            begun.file.reach(offset, done as u64);
            let record = Record {
                offset,
                length: done as u64,
                append: offset >= begun.size,
                sync: flags.sync,
                direct: flags.direct,
                stream: flags.hint.stream.map(|stream| stream.0),
                ..record(TraceOpKind::Write, &begun, caller)
            };
            self.put(&begun, if flags.write_back { self.of_opener(handle, record) } else { record });
        }
        Ok(done)
    }

    fn release(&self, handle: HandleId) -> Result<()> {
        let last = match self.tracing.is_on() {
            true => self.tracing.with(|recorder| recorder.files.leave(handle)).flatten(),
            false => None,
        };
        let result = self.child.release(handle);
        if let Some(ino) = last {
            self.gone(ino);
        }
        result
    }

    fn fsync(&self, caller: &Caller, handle: HandleId, data_only: bool) -> Result<()> {
        let begun = self.begin(caller, handle);
        self.child.fsync(caller, handle, data_only)?;
        self.span(begun, TraceOpKind::Sync, caller, (0, 0));
        Ok(())
    }

    fn fallocate(
        &self,
        caller: &Caller,
        handle: HandleId,
        offset: u64,
        len: u64,
        mode: FallocateMode,
    ) -> Result<()> {
        // With an unchanged size, there is no growth for a simulation.
        let grows = matches!(
            mode,
            FallocateMode::Allocate { keep_size: false } | FallocateMode::ZeroRange { keep_size: false }
        );
        let begun = if grows { self.begin(caller, handle) } else { None };
        self.child.fallocate(caller, handle, offset, len, mode)?;
        if let Some(begun) = &begun {
            begun.file.reach(offset, len);
        }
        self.span(begun, TraceOpKind::Allocate, caller, (offset, len));
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
        let (read, written) = (self.begin(caller, from), self.begin(caller, to));
        let copied = self.child.copy_range(caller, from, from_offset, to, to_offset, len)?;
        if let Some(written) = &written {
            written.file.reach(to_offset, copied);
        }
        self.span(read, TraceOpKind::Read, caller, (from_offset, copied));
        self.span(written, TraceOpKind::Write, caller, (to_offset, copied));
        Ok(copied)
    }
}
