//! Finding, making, linking and removing names.

use crate::core::{Core, Write};
use crate::directory::{Named, kind_bits};
use crate::inode::{Inode, State};
use crate::record::{Begin, Change, Name};
use crate::room;
use braid_contract::{Caller, Entry, Errno, FileKind, HandleId, InodeId, OpenFlags, Result, Timestamp};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

/// Longest name in bytes.
pub(crate) const NAME_MAX: usize = 255;
/// Longest target of a symbolic link in bytes.
const TARGET_MAX: usize = 4095;

/// The bytes of a name.
///
/// # Errors
/// `ENAMETOOLONG`, and `EINVAL` for an invalid name.
pub(crate) fn name_of(name: &OsStr) -> Result<&[u8]> {
    let name = name.as_bytes();
    match name {
        _ if name.len() > NAME_MAX => Err(Errno::ENAMETOOLONG.into()),
        b"" | b"." | b".." => Err(Errno::EINVAL.into()),
        _ if name.contains(&b'/') || name.contains(&0) => Err(Errno::EINVAL.into()),
        _ => Ok(name),
    }
}

/// A directory's entry of a name.
///
/// # Errors
/// `ENOTDIR`, and `ENOENT` for a directory that is gone.
pub(crate) fn find(dir: &State, name: &[u8]) -> Result<Option<Named>> {
    Ok(dir.directory()?.find(name).cloned())
}

/// The changes of a directory whose names change.
pub(crate) fn touched(now: Timestamp) -> [Change; 2] {
    [Change::Modified(now), Change::Changed(now)]
}

pub(crate) fn lookup(core: &Core, parent: InodeId, name: &OsStr) -> Result<Entry> {
    let dir = core.inode(parent)?;
    if name == "." {
        let state = dir.state.read();
        return if state.is_gone { Err(Errno::ESTALE.into()) } else { Ok(core.entry(&dir, &state)) };
    }
    if name == ".." {
        let above = {
            let state = dir.state.read();
            state.require_dir()?;
            state.parent
        };
        let above = core.inode(InodeId(above))?;
        let state = above.state.read();
        return Ok(core.entry(&above, &state));
    }
    let name = match name_of(name) {
        Err(error) if error.errno() == Errno::EINVAL => return Err(Errno::ENOENT.into()),
        name => name?,
    };
    loop {
        let found = find(&dir.state.read(), name)?.ok_or(Errno::ENOENT)?;
        // It may lose the name at this moment, and another one get it.
        let Some(inode) = core.table.get(found.ino) else {
            if find(&dir.state.read(), name)?.as_ref() == Some(&found) {
                return core.named(found.ino).and(Err(Errno::EUCLEAN.into()));
            }
            continue;
        };
        let state = inode.state.read();
        if state.is_live() {
            return Ok(core.entry(&inode, &state));
        }
    }
}

/// The inode to be made.
#[derive(Clone, Copy, Default)]
pub(crate) struct Making<'a> {
    /// Type and permission bits, before the mask.
    pub(crate) mode: u32,
    pub(crate) umask: u32,
    pub(crate) rdev: u32,
    /// The target of a symbolic link.
    pub(crate) target: &'a [u8],
    /// It is opened at once.
    pub(crate) open: Option<OpenFlags>,
}

/// How an inode begins that `caller` makes in a directory.
pub(crate) fn begin(core: &Core, caller: &Caller, dir: (u64, &State), making: &Making<'_>) -> Begin {
    let is_dir = making.mode & 0o170_000 == FileKind::Directory.mode();
    // A set-group-id directory hands its group on, and to directories the bit.
    let inherits = dir.1.mode & 0o2000 != 0;
    let permissions = if is_dir { 0o1777 } else { 0o7777 };
    let mut mode = making.mode & 0o170_000 | making.mode & permissions & !(making.umask & 0o777);
    if is_dir && inherits {
        mode |= 0o2000;
    }
    Begin {
        mode,
        uid: caller.uid,
        gid: if inherits { dir.1.gid } else { caller.gid },
        rdev: making.rdev,
        nlink: if is_dir { 2 } else { 1 },
        parent: dir.0,
        generation: core.generation,
        time: core.now(),
        actor: core.actor(caller),
    }
}

/// Refuses a name that the directory has.
fn refuse_taken(dir: &State, name: &[u8]) -> Result<()> {
    if find(dir, name)?.is_some() { Err(Errno::EEXIST.into()) } else { Ok(()) }
}

/// Makes an inode with a name; `EEXIST` if the name is taken.
pub(crate) fn make(
    core: &Core,
    caller: &Caller,
    parent: InodeId,
    name: &OsStr,
    making: &Making<'_>,
) -> Result<(Entry, Option<HandleId>)> {
    let dir = core.inode(parent)?;
    dir.state.read().require_dir()?;
    let name = name_of(name)?;
    if making.target.len() > TARGET_MAX {
        return Err(Errno::ENAMETOOLONG.into());
    }
    // A name that is there needs no room.
    refuse_taken(&dir.state.read(), name)?;
    room::ensure_room(core)?;
    let mut state = dir.state.write();
    refuse_taken(&state, name)?;
    let begin = begin(core, caller, (dir.ino, &state), making);
    let inode = core.new_inode();
    let (now, kind) = (begin.time, kind_bits(begin.mode));
    let mut changes = vec![Change::Enter(Name::from(name), inode.ino, kind)];
    changes.extend(touched(now));
    if begin.nlink == 2 {
        changes.push(Change::Links(state.nlink.saturating_add(1)));
    }
    let mut begun = vec![Change::Begin(Box::new(begin))];
    if !making.target.is_empty() {
        begun.push(Change::Target(making.target.to_vec()));
    }
    add(core, caller, &inode, (dir.ino, &mut state, changes), begun, making.open)
}

/// Records a new inode, with the change of its directory.
fn add(
    core: &Core,
    caller: &Caller,
    inode: &Arc<Inode>,
    (parent, dir, changes): (u64, &mut State, Vec<Change>),
    begun: Vec<Change>,
    open: Option<OpenFlags>,
) -> Result<(Entry, Option<HandleId>)> {
    let mut state = inode.state.write();
    // A checkpoint that does not find it in the table has to find its record in the log:
    // it is in the table first, and locked.
    core.table.insert(inode.ino, Arc::clone(inode));
    let writes = vec![
        Write { ino: parent, state: dir, changes },
        Write { ino: inode.ino, state: &mut state, changes: begun },
    ];
    if let Err(error) = core.record(core.worker(caller), writes) {
        core.table.remove(inode.ino);
        return Err(error);
    }
    let handle = open.map(|flags| core.open(caller, inode, flags, false));
    Ok((core.entry(inode, &state), handle))
}

/// Makes a file without a name, and opens it.
pub(crate) fn make_unnamed(
    core: &Core,
    caller: &Caller,
    parent: InodeId,
    making: &Making<'_>,
) -> Result<(Entry, Option<HandleId>)> {
    let dir = core.inode(parent)?;
    room::ensure_room(core)?;
    let begin = {
        let state = dir.state.read();
        state.require_dir()?;
        Begin { nlink: 0, ..begin(core, caller, (dir.ino, &state), making) }
    };
    let inode = core.new_inode();
    let begun = vec![Change::Begin(Box::new(begin))];
    add(core, caller, &inode, (0, &mut State::default(), Vec::new()), begun, making.open)
}

pub(crate) fn link(
    core: &Core,
    caller: &Caller,
    ino: InodeId,
    parent: InodeId,
    name: &OsStr,
) -> Result<Entry> {
    let (dir, inode) = (core.inode(parent)?, core.inode(ino)?);
    dir.state.read().require_dir()?;
    let name = name_of(name)?;
    // Directories are locked before files, and never two of them here.
    if inode.state.read().is_dir() {
        return Err(Errno::EPERM.into());
    }
    refuse_taken(&dir.state.read(), name)?;
    room::ensure_room(core)?;
    let mut dir_state = dir.state.write();
    refuse_taken(&dir_state, name)?;
    let mut state = inode.state.write();
    if !state.is_live() || state.nlink == 0 && !state.is_unnamed {
        return Err(Errno::ENOENT.into());
    }
    let now = core.now();
    let mut changes = vec![Change::Enter(Name::from(name), inode.ino, state.kind_bits())];
    changes.extend(touched(now));
    let linked = vec![Change::Links(state.nlink.saturating_add(1)), Change::Changed(now)];
    let writes = vec![
        Write { ino: dir.ino, state: &mut dir_state, changes },
        Write { ino: inode.ino, state: &mut state, changes: linked },
    ];
    core.record(core.worker(caller), writes)?;
    Ok(core.entry(&inode, &state))
}

/// The change of a file that loses a name: it stays as long as it is open.
pub(crate) fn loses_name(inode: &Inode, state: &State, now: Timestamp) -> Vec<Change> {
    match state.nlink.saturating_sub(1) {
        _ if state.is_dir() => vec![Change::End],
        0 if !inode.is_open() => vec![Change::End],
        left => vec![Change::Links(left), Change::Changed(now)],
    }
}

pub(crate) fn unlink(core: &Core, caller: &Caller, parent: InodeId, name: &OsStr) -> Result<()> {
    let dir = core.inode(parent)?;
    dir.state.read().require_dir()?;
    let name = name_of(name)?;
    room::checkpoint_if_urgent(core)?;
    let mut dir_state = dir.state.write();
    let found = find(&dir_state, name)?.ok_or(Errno::ENOENT)?;
    if found.is_dir() {
        return Err(Errno::EISDIR.into());
    }
    let inode = core.named(found.ino)?;
    let mut state = inode.state.write();
    remove(core, caller, (&dir, &mut dir_state), found.name, (&inode, &mut state), Vec::new())
}

pub(crate) fn rmdir(core: &Core, caller: &Caller, parent: InodeId, name: &OsStr) -> Result<()> {
    let dir = core.inode(parent)?;
    dir.state.read().require_dir()?;
    let name = match name.as_bytes() {
        b".." => return Err(Errno::ENOTEMPTY.into()),
        _ => name_of(name)?,
    };
    room::checkpoint_if_urgent(core)?;
    let _alone = core.renames.lock();
    let mut dir_state = dir.state.write();
    let found = find(&dir_state, name)?.ok_or(Errno::ENOENT)?;
    if !found.is_dir() {
        return Err(Errno::ENOTDIR.into());
    }
    let inode = core.named(found.ino)?;
    let mut state = inode.state.write();
    if state.names().is_some_and(|names| !names.is_empty()) {
        return Err(Errno::ENOTEMPTY.into());
    }
    let links = vec![Change::Links(dir_state.nlink.saturating_sub(1))];
    remove(core, caller, (&dir, &mut dir_state), found.name, (&inode, &mut state), links)
}

fn remove(
    core: &Core,
    caller: &Caller,
    (dir, dir_state): (&Inode, &mut State),
    name: Name,
    (inode, state): (&Inode, &mut State),
    mut changes: Vec<Change>,
) -> Result<()> {
    let now = core.now();
    changes.push(Change::Leave(name));
    changes.extend(touched(now));
    let lost = loses_name(inode, state, now);
    let writes = vec![
        Write { ino: dir.ino, state: dir_state, changes },
        Write { ino: inode.ino, state: &mut *state, changes: lost },
    ];
    core.record(core.worker(caller), writes)?;
    core.drop_unused(inode, state);
    Ok(())
}
