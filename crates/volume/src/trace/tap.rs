//! Where operations pass the recorder. While nothing is recorded, that is one
//! look at a flag.

use super::recorder::Recorder;
use crate::Volume;
use crate::file::choose::FileFacts;
use crate::file::open::file_of;
use crate::live::{File, Inode};
use crate::namespace::resolve::{dir_for, identify_name};
use braid_contract::{Caller, FileKind, HandleId, InodeId, OpenFlags, Opened, Result, WriteFlags};
use braid_placement::{Facts, Record, Told, TraceOpKind};
use std::ffi::OsStr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// An operation that is to be recorded began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begun {
    at_ns: u64,
    /// Size of the file then.
    size: u64,
}

/// A file that is about to lose its last name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Doomed(InodeId);

impl Volume {
    /// An operation begins; `None` if nothing is recorded.
    pub(crate) fn trace_begin(&self, file: &File) -> Option<Begun> {
        if !self.tracing.is_on() {
            return None;
        }
        Some(Begun { at_ns: self.core.environment.monotonic_ns(), size: file.size_now() })
    }

    /// The same for one that is not on an open file.
    pub(crate) fn trace_begin_unopened(&self) -> Option<Begun> {
        self.tracing.is_on().then(|| Begun { at_ns: self.core.environment.monotonic_ns(), size: 0 })
    }

    /// A read has ended.
    pub(crate) fn trace_read(
        &self,
        begun: Option<Begun>,
        file: &File,
        caller: &Caller,
        (offset, length): (u64, usize),
        direct: bool,
    ) {
        let Some(begun) = begun else { return };
        let record = Record { offset, length: length as u64, direct, ..op(TraceOpKind::Read, file, caller) };
        self.trace(begun, file, record);
    }

    /// A write has ended.
    pub(crate) fn trace_write(
        &self,
        begun: Option<Begun>,
        file: &File,
        caller: &Caller,
        (offset, length): (u64, usize),
        flags: WriteFlags,
    ) {
        let Some(begun) = begun else { return };
        let record = Record {
            offset,
            length: length as u64,
            append: offset >= begun.size,
            sync: flags.sync,
            direct: flags.direct,
            stream: flags.hint.stream.map(|stream| stream.0),
            ..op(TraceOpKind::Write, file, caller)
        };
        self.trace(begun, file, record);
    }

    /// Something has ended that is told by its place in the file alone.
    pub(crate) fn trace_span(
        &self,
        begun: Option<Begun>,
        kind: TraceOpKind,
        file: &File,
        caller: &Caller,
        (offset, length): (u64, u64),
    ) {
        let Some(begun) = begun else { return };
        self.trace(begun, file, Record { offset, length, ..op(kind, file, caller) });
    }

    /// The size of a file was set.
    pub(crate) fn trace_truncate(&self, begun: Option<Begun>, ino: InodeId, caller: &Caller, size: u64) {
        let Some(begun) = begun else { return };
        if let Ok(file) = self.core.inodes.get(ino).and_then(|inode: Arc<Inode>| file_of(&self.core, &inode))
        {
            self.trace(Begun { size, ..begun }, &file, op(TraceOpKind::Truncate, &file, caller));
        }
    }

    /// A file was opened, or made.
    pub(crate) fn trace_open(
        &self,
        begun: Option<Begun>,
        caller: &Caller,
        opened: &Opened,
        flags: OpenFlags,
        made: bool,
    ) {
        let Some(begun) = begun else { return };
        let Ok(open) = self.core.handles.file(opened.handle) else { return };
        let size = open.file.size_now();
        // Somebody else may have made it a moment before.
        let kind = if made && size == 0 { TraceOpKind::Create } else { TraceOpKind::Open };
        let record = Record {
            write: flags.write,
            sync: flags.sync,
            direct: flags.direct,
            passthrough: open.passthrough,
            ..op(kind, &open.file, caller)
        };
        self.trace(Begun { size, ..begun }, &open.file, record);
    }

    /// Looks at what `name` leads to, before it goes.
    pub(crate) fn trace_doomed(&self, parent: InodeId, name: &OsStr) -> Option<Doomed> {
        if !self.tracing.is_on() {
            return None;
        }
        let look = || -> Result<Option<Doomed>> {
            let dir = dir_for(&self.core, parent, name)?;
            let (_, identity) = identify_name(&self.core, &*dir, name)?;
            let last = identity.kind() == FileKind::Regular && identity.attr.nlink <= 1;
            Ok(last.then(|| Doomed(self.core.home.public_ino(identity.ino()))))
        };
        // What has no such name is not removed either.
        look().ok().flatten()
    }

    /// The name is gone. A file that is open goes when it is closed.
    pub(crate) fn trace_unnamed(&self, doomed: Option<Doomed>) {
        let Some(Doomed(ino)) = doomed else { return };
        let live = self.core.inodes.get(ino).ok().and_then(|inode| inode.file.lock().upgrade());
        match live.filter(|file| file.opens.lock().handles > 0) {
            Some(file) => file.trace.nameless.store(true, Ordering::Relaxed),
            None => self.trace_gone(ino),
        }
    }

    /// The file behind a handle that is about to be closed, if closing it may
    /// be the end of it.
    pub(crate) fn trace_closing(&self, handle: HandleId) -> Option<Arc<File>> {
        if !self.tracing.is_on() {
            return None;
        }
        let file = Arc::clone(&self.core.handles.file(handle).ok()?.file);
        file.trace.nameless.load(Ordering::Relaxed).then_some(file)
    }

    /// It was closed.
    pub(crate) fn trace_closed(&self, file: Option<Arc<File>>) {
        let Some(file) = file else { return };
        if file.opens.lock().handles == 0 {
            self.trace_gone(file.inode.ino);
        }
    }

    fn trace_gone(&self, ino: InodeId) {
        let now_ns = self.core.environment.monotonic_ns();
        self.tracing.with(|recorder| {
            if recorder.forget(ino.0) {
                let at = now_ns.saturating_sub(recorder.began_ns);
                recorder.put(Record { at, ..Record::of(TraceOpKind::Remove, ino.0) });
            }
        });
    }

    fn trace(&self, begun: Begun, file: &File, record: Record) {
        let now_ns = self.core.environment.monotonic_ns();
        self.tracing.with(|recorder| {
            // What began before the recording did is none of it.
            let Some(at) = begun.at_ns.checked_sub(recorder.began_ns) else { return };
            if self.trace_file(recorder, file, begun) {
                let took = now_ns.saturating_sub(begun.at_ns);
                recorder.put(Record { at, took, size: begun.size, ..record });
            }
        });
    }

    /// Tells of the file, unless that was done. Answers whether it is to be
    /// recorded; one that could not be told of is not.
    fn trace_file(&self, recorder: &Recorder, file: &File, begun: Begun) -> bool {
        let told = file.trace.told.load(Ordering::Relaxed);
        if told >> 1 == recorder.number {
            return told & 1 == 0;
        }
        let facts = FileFacts { core: &self.core, file };
        // Not the one that rules see: they would see it from now on.
        let path = facts.path_now();
        let wanted = recorder.wants(&path);
        let ino = file.inode.ino.0;
        let told_now = !wanted
            || recorder.may_tell(ino)
                && recorder.put(Record {
                    op: Told::File,
                    at: begun.at_ns.saturating_sub(recorder.began_ns),
                    file: ino,
                    path: Some(path),
                    size: begun.size,
                    age: facts.age_ns().max(0).cast_unsigned(),
                    uid: u32::try_from(facts.owner()).unwrap_or(0),
                    ..Record::default()
                });
        if told_now {
            if wanted {
                recorder.tell_of(ino);
            }
            file.trace.told.store(recorder.number << 1 | u64::from(!wanted), Ordering::Relaxed);
        }
        wanted && told_now
    }
}

fn op(kind: TraceOpKind, file: &File, caller: &Caller) -> Record {
    Record { thread: caller.tid, uid: caller.uid, gid: caller.gid, ..Record::of(kind, file.inode.ino.0) }
}
