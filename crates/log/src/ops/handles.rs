//! Opening, closing, syncing, and reading directories.

use crate::core::{Core, Open, Write};
use crate::inode::Inode;
use crate::record::{Change, Name};
use braid_contract::{
    Caller, DirEntry, DirSink, Entry, Errno, FileKind, HandleId, InodeId, OpenFlags, Result,
};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Entries that are taken out of a directory at a time.
const AT_A_TIME: usize = 128;

pub(crate) fn open(core: &Core, caller: &Caller, ino: InodeId, flags: OpenFlags) -> Result<HandleId> {
    let inode = core.inode(ino)?;
    // The operation that takes the last name away has this lock alone, and looks whether it is open.
    let state = inode.state.read();
    match state.kind() {
        _ if !state.is_live() => Err(Errno::ESTALE.into()),
        FileKind::Regular => Ok(core.open(caller, &inode, flags, false)),
        FileKind::Directory => Err(Errno::EISDIR.into()),
        _ => Err(Errno::EINVAL.into()),
    }
}

pub(crate) fn open_dir(core: &Core, caller: &Caller, ino: InodeId) -> Result<HandleId> {
    let inode = core.inode(ino)?;
    let state = inode.state.read();
    state.require_dir()?;
    Ok(core.open(caller, &inode, OpenFlags::default(), true))
}

pub(crate) fn release(core: &Core, handle: HandleId, is_dir: bool) -> Result<()> {
    let open = if is_dir { core.dir(handle) } else { core.file(handle) }?;
    core.handles.remove(handle.0).ok_or(Errno::EBADF)?;
    let Open { inode, .. } = &*open;
    if inode.opens.fetch_sub(1, Ordering::AcqRel) > 1 {
        return Ok(());
    }
    let ended = end_if_unnamed(core, inode);
    core.drop_unused(inode, &inode.state.read());
    ended
}

/// Frees the blocks of a file that has no name and is not open any more.
fn end_if_unnamed(core: &Core, inode: &Inode) -> Result<()> {
    // A name is only removed under the lock, by an operation that sees whether the
    // file is open.
    if inode.state.read().nlink > 0 {
        return Ok(());
    }
    let mut state = inode.state.write();
    if !state.is_live() || state.nlink > 0 || inode.is_open() {
        return Ok(());
    }
    let writes = vec![Write { ino: inode.ino, state: &mut state, changes: vec![Change::End] }];
    core.record(inode.ino as usize % core.journal.workers(), writes)
}

/// Takes lookups back. Of an inode that an earlier process may have told of, they are taken for all
/// that there are, as the kernel takes them back.
pub(crate) fn forget(core: &Core, ino: InodeId, count: u64) {
    if let Some(inode) = core.table.get(ino.0) {
        inode.may_be_known.store(false, Ordering::Release);
        take_back(core, &inode, count);
    }
}

/// Takes back lookups of this file system's own.
pub(crate) fn take_back(core: &Core, inode: &Inode, count: u64) {
    let less = |lookups: u64| Some(lookups.saturating_sub(count));
    let _ = inode.lookups.fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
    core.drop_unused(inode, &inode.state.read());
}

/// Makes everything durable that happened to an inode.
pub(crate) fn sync(core: &Core, open: &Open) -> Result<()> {
    let version = open.inode.state.read().version;
    core.journal.commit(version)
}

/// An entry that was taken out of a directory.
struct Taken {
    offset: u64,
    name: Name,
    ino: u64,
    kind: Option<FileKind>,
}

pub(crate) fn read_dir(
    core: &Core,
    open: &Open,
    offset: i64,
    plus: bool,
    sink: &mut dyn DirSink,
) -> Result<()> {
    let mut offset = u64::try_from(offset).map_err(|_| Errno::EINVAL)?;
    for (at, name) in [(1, "."), (2, "..")] {
        if offset < at {
            let ino = if at == 1 { open.inode.ino } else { open.inode.state.read().parent };
            let entry = DirEntry {
                ino: InodeId(ino),
                next_offset: at as i64,
                kind: Some(FileKind::Directory),
                name: OsStr::new(name),
                entry: None,
                damaged: false,
            };
            if !sink.add(&entry) {
                return Ok(());
            }
            offset = at;
        }
    }
    loop {
        // Inodes are locked when the directory is not any more.
        let taken = take(open, offset)?;
        let Some(last) = taken.last() else { return Ok(()) };
        offset = last.offset;
        for one in &taken {
            if !add(core, one, plus, sink) {
                return Ok(());
            }
        }
    }
}

fn take(open: &Open, offset: u64) -> Result<Vec<Taken>> {
    let state = open.inode.state.read();
    let Some(names) = state.names() else {
        return if state.is_gone { Ok(Vec::new()) } else { Err(Errno::ENOTDIR.into()) };
    };
    let taken = names.after(offset).take(AT_A_TIME).map(|(offset, named)| Taken {
        offset,
        name: Arc::clone(&named.name),
        ino: named.ino,
        kind: named.kind(),
    });
    Ok(taken.collect())
}

fn add(core: &Core, taken: &Taken, plus: bool, sink: &mut dyn DirSink) -> bool {
    let inode = if plus { core.table.get(taken.ino) } else { None };
    let entry: Option<Entry> = inode.as_ref().and_then(|inode| {
        let state = inode.state.read();
        state.is_live().then(|| core.entry(inode, &state))
    });
    let added = sink.add(&DirEntry {
        ino: InodeId(taken.ino),
        next_offset: taken.offset as i64,
        kind: taken.kind,
        name: OsStr::from_bytes(&taken.name),
        entry,
        damaged: false,
    });
    if let Some(inode) = inode.filter(|_| !added && entry.is_some()) {
        take_back(core, &inode, 1);
    }
    added
}
