//! Renames. A rename within one directory that moves no directory locks only that one;
//! all others run one at a time, so that several directories can be locked in any order.

use crate::core::{Core, Write};
use crate::directory::{Named, kind_bits};
use crate::inode::{Inode, State};
use crate::ops::names::{find, loses_name, name_of, touched};
use crate::record::{Begin, Change, Name};
use crate::room;
use crate::sync::RwLockWriteGuard;
use braid_contract::{Caller, Errno, FileKind, InodeId, RenameMode, Result, Timestamp};
use std::ffi::OsStr;
use std::sync::Arc;

/// Directories in one another, at most, as renames see it.
const DEPTH_MAX: u32 = 1 << 20;

/// A rename of one name to another.
#[derive(Clone, Copy)]
pub(crate) struct Rename<'a> {
    pub(crate) parent: InodeId,
    pub(crate) name: &'a OsStr,
    pub(crate) new_parent: InodeId,
    pub(crate) new_name: &'a OsStr,
    pub(crate) mode: RenameMode,
}

/// The directories of a rename, locked; the second is `None` if it is the first.
struct Dirs<'a> {
    from: (u64, RwLockWriteGuard<'a, State>),
    to: Option<(u64, RwLockWriteGuard<'a, State>)>,
}

impl Dirs<'_> {
    fn to(&self) -> &State {
        self.to.as_ref().map_or(&self.from.1, |(_, state)| state)
    }

    fn to_ino(&self) -> u64 {
        self.to.as_ref().map_or(self.from.0, |(ino, _)| *ino)
    }

    /// The directory that one is in.
    fn above(&self, core: &Core, ino: u64) -> u64 {
        let locked = [Some(&self.from), self.to.as_ref()].into_iter().flatten();
        for (of, state) in locked {
            if *of == ino {
                return state.parent;
            }
        }
        core.table.get(ino).map_or(ino, |inode| inode.state.read().parent)
    }

    /// Whether `dir` is `ino` or below it.
    fn is_below(&self, core: &Core, mut dir: u64, ino: u64) -> bool {
        // Where damage made a circle of directories, nothing is moved.
        for _ in 0..DEPTH_MAX {
            if dir == ino {
                return true;
            }
            let above = self.above(core, dir);
            if above == dir {
                return false;
            }
            dir = above;
        }
        true
    }
}

pub(crate) fn rename(core: &Core, caller: &Caller, request: Rename<'_>) -> Result<()> {
    let (from, to) = (core.inode(request.parent)?, core.inode(request.new_parent)?);
    from.state.read().require_dir()?;
    to.state.read().require_dir()?;
    match request.mode {
        RenameMode::Whiteout => room::ensure_room(core)?,
        _ => room::checkpoint_if_urgent(core)?,
    }
    // A longer name takes room.
    room::retry_with_room(core, || rename_between(core, caller, &request, (&from, &to)))
}

fn rename_between(
    core: &Core,
    caller: &Caller,
    request: &Rename<'_>,
    (from, to): (&Arc<Inode>, &Arc<Inode>),
) -> Result<()> {
    if from.ino == to.ino && rename_alone(core, caller, request, from)? {
        return Ok(());
    }
    let _alone = core.renames.lock();
    let locked = (from.ino, from.state.write());
    let other = (from.ino != to.ino).then(|| (to.ino, to.state.write()));
    rename_in(core, caller, request, Dirs { from: locked, to: other })
}

/// Renames within one directory, unless directories are renamed; returns whether it did.
fn rename_alone(core: &Core, caller: &Caller, request: &Rename<'_>, dir: &Arc<Inode>) -> Result<bool> {
    let locked = dir.state.write();
    let found =
        [request.name, request.new_name].map(|name| name_of(name).and_then(|name| find(&locked, name)));
    if found.iter().flatten().flatten().any(Named::is_dir) {
        return Ok(false);
    }
    rename_in(core, caller, request, Dirs { from: (dir.ino, locked), to: None }).map(|()| true)
}

fn rename_in(core: &Core, caller: &Caller, request: &Rename<'_>, dirs: Dirs<'_>) -> Result<()> {
    let source = find(&dirs.from.1, name_of(request.name)?)?.ok_or(Errno::ENOENT)?;
    let target = find(dirs.to(), name_of(request.new_name)?)?;
    match (request.mode, &target) {
        (RenameMode::NoReplace, Some(_)) => return Err(Errno::EEXIST.into()),
        (RenameMode::Exchange, None) => return Err(Errno::ENOENT.into()),
        _ => {}
    }
    let exchange = request.mode == RenameMode::Exchange;
    if dirs.to.is_some() {
        if source.is_dir() && dirs.is_below(core, dirs.to_ino(), source.ino) {
            return Err(Errno::EINVAL.into());
        }
        if let Some(victim) = target.as_ref().filter(|victim| victim.is_dir())
            && dirs.is_below(core, dirs.from.0, victim.ino)
        {
            return Err(if exchange { Errno::EINVAL } else { Errno::ENOTEMPTY }.into());
        }
    }
    if target.as_ref().is_some_and(|victim| victim.ino == source.ino) {
        return Ok(());
    }
    let moved = core.named(source.ino)?;
    let victim = target.as_ref().map(|victim| core.named(victim.ino)).transpose()?;
    // Directories before files, as everywhere.
    let victim_first = victim.as_ref().is_some_and(|victim| {
        let key = |named: &Named, inode: &Inode| (!named.is_dir(), inode.ino);
        target.as_ref().is_some_and(|named| key(named, victim) < key(&source, &moved))
    });
    let early = victim.as_ref().filter(|_| victim_first).map(|victim| victim.state.write());
    let moved_state = moved.state.write();
    let victim_state = early.or_else(|| victim.as_ref().map(|victim| victim.state.write()));
    let other = victim.as_deref().zip(victim_state);
    if exchange {
        return other.map_or(Ok(()), |other| {
            swap(core, caller, dirs, (source, &moved, moved_state), (target, other))
        });
    }
    if let Some((_, state)) = &other {
        check_victim(&moved_state, state)?;
    }
    let moving = Moving { source, moved: &moved, new_name: Name::from(name_of(request.new_name)?) };
    replace(core, caller, dirs, moving, moved_state, other, request.mode == RenameMode::Whiteout)
}

fn check_victim(moved: &State, victim: &State) -> Result<()> {
    match (moved.is_dir(), victim.is_dir()) {
        (true, false) => Err(Errno::ENOTDIR.into()),
        (false, true) => Err(Errno::EISDIR.into()),
        _ if victim.names().is_some_and(|names| !names.is_empty()) => Err(Errno::ENOTEMPTY.into()),
        _ => Ok(()),
    }
}

struct Moving<'a> {
    source: Named,
    moved: &'a Inode,
    new_name: Name,
}

fn replace(
    core: &Core,
    caller: &Caller,
    mut dirs: Dirs<'_>,
    moving: Moving<'_>,
    mut moved_state: RwLockWriteGuard<'_, State>,
    mut victim: Option<(&Inode, RwLockWriteGuard<'_, State>)>,
    leaves_whiteout: bool,
) -> Result<()> {
    let (now, Moving { source, moved, new_name }) = (core.now(), moving);
    let whiteout = leaves_whiteout.then(|| core.new_inode());
    let mut whiteout_state = whiteout.as_ref().map(|inode| inode.state.write());
    let mut from = vec![match &whiteout {
        Some(inode) => Change::Enter(source.name.clone(), inode.ino, kind_bits(FileKind::CharDevice.mode())),
        None => Change::Leave(source.name.clone()),
    }];
    let mut to = vec![Change::Enter(new_name, moved.ino, source.kind)];
    let is_dir = i64::from(moved_state.is_dir());
    let lost = i64::from(victim.as_ref().is_some_and(|(_, state)| state.is_dir()));
    let mut changed = vec![Change::Changed(now)];
    let (mut gains, to_gains) = (-is_dir, is_dir - lost);
    if dirs.to.is_some() {
        changed.push(Change::Parent(dirs.to_ino()));
        to.extend(links(dirs.to(), to_gains));
        to.extend(touched(now));
    } else {
        gains += to_gains;
        from.append(&mut to);
    }
    from.extend(links(&dirs.from.1, gains));
    from.extend(touched(now));
    let begun = whiteout
        .as_ref()
        .map(|_| vec![Change::Begin(Box::new(whiteout_begin(core, caller, dirs.from.0, now)))]);
    let mut writes = vec![Write { ino: dirs.from.0, state: &mut dirs.from.1, changes: from }];
    if let Some((ino, state)) = &mut dirs.to {
        writes.push(Write { ino: *ino, state, changes: to });
    }
    writes.push(Write { ino: moved.ino, state: &mut moved_state, changes: changed });
    if let Some((inode, state)) = &mut victim {
        let changes = loses_name(inode, state, now);
        writes.push(Write { ino: inode.ino, state, changes });
    }
    if let Some(((inode, state), changes)) = whiteout.as_ref().zip(whiteout_state.as_mut()).zip(begun) {
        core.table.insert(inode.ino, Arc::clone(inode));
        writes.push(Write { ino: inode.ino, state, changes });
    }
    core.record(core.worker(caller), writes).inspect_err(|_| {
        whiteout.iter().for_each(|inode| drop(core.table.remove(inode.ino)));
    })?;
    if let Some((inode, state)) = &victim {
        core.drop_unused(inode, state);
    }
    Ok(())
}

/// The change of a directory's count of links, if there is one.
fn links(dir: &State, gains: i64) -> Option<Change> {
    (gains != 0).then(|| Change::Links((i64::from(dir.nlink) + gains).max(0) as u32))
}

fn whiteout_begin(core: &Core, caller: &Caller, parent: u64, time: Timestamp) -> Begin {
    Begin {
        mode: FileKind::CharDevice.mode(),
        uid: caller.uid,
        gid: caller.gid,
        rdev: 0,
        nlink: 1,
        parent,
        generation: core.generation,
        time,
        actor: core.actor(caller),
    }
}

/// Exchanges two names.
fn swap(
    core: &Core,
    caller: &Caller,
    mut dirs: Dirs<'_>,
    (source, moved, mut moved_state): (Named, &Inode, RwLockWriteGuard<'_, State>),
    (target, (other, mut other_state)): (Option<Named>, (&Inode, RwLockWriteGuard<'_, State>)),
) -> Result<()> {
    let now = core.now();
    let Some(target) = target else { return Err(Errno::ENOENT.into()) };
    let gains = i64::from(other_state.is_dir()) - i64::from(moved_state.is_dir());
    let mut from = vec![Change::Enter(source.name.clone(), other.ino, target.kind)];
    let mut to = vec![Change::Enter(target.name.clone(), moved.ino, source.kind)];
    let (mut moved_changes, mut other_changes) = (vec![Change::Changed(now)], vec![Change::Changed(now)]);
    if dirs.to.is_some() {
        moved_changes.push(Change::Parent(dirs.to_ino()));
        other_changes.push(Change::Parent(dirs.from.0));
        from.extend(links(&dirs.from.1, gains));
        to.extend(links(dirs.to(), -gains));
        to.extend(touched(now));
    } else {
        from.append(&mut to);
    }
    from.extend(touched(now));
    let mut writes = vec![Write { ino: dirs.from.0, state: &mut dirs.from.1, changes: from }];
    if let Some((ino, state)) = &mut dirs.to {
        writes.push(Write { ino: *ino, state, changes: to });
    }
    writes.push(Write { ino: moved.ino, state: &mut moved_state, changes: moved_changes });
    writes.push(Write { ino: other.ino, state: &mut other_state, changes: other_changes });
    core.record(core.worker(caller), writes)
}
