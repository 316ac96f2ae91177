//! Removing and replacing names. The home name goes first, with the home file
//! system's atomicity; index and objects of a spread file go later, when the
//! removal is durable (ordering rule 4).

use crate::core::Core;
use crate::file::learned::data_gone;
use crate::file::mark::mark_orphan;
use crate::file::open::last_name_gone;
use crate::file::owner::check_index_of;
use crate::live::Shape;
use crate::namespace::change::{inode_changed, inode_will_change};
use crate::namespace::make::acting;
use crate::namespace::resolve::{dir_for, identify_name};
use braid_contract::{
    Access, Caller, Errno, Fd, FileKind, InodeId, NativeFd, NativeStat, ObjectId, RenameMode, Result,
};
use braid_home::Identity;
use std::ffi::OsStr;

/// An inode that loses a name.
struct Displaced {
    fd: Fd,
    ino: InodeId,
    /// It has other names.
    has_others: bool,
    /// This name is its last.
    is_last: bool,
    /// The id by which it is marked, if it is a spread file.
    marked: Option<ObjectId>,
}

impl Displaced {
    /// The name is about to go.
    fn is_about_to_go(&self, core: &Core) {
        if self.is_last {
            core.inodes.loses_last_name(self.ino, &self.fd);
        }
    }

    /// It has a name after all.
    fn stays(&self, core: &Core) {
        if self.is_last {
            core.inodes.named(self.ino);
        }
    }
}

/// Removes a name of anything but a directory.
pub fn remove_name(core: &Core, parent: InodeId, name: &OsStr) -> Result<()> {
    let _alone = core.names.alone_in(parent);
    let dir = dir_for(core, parent, name)?;
    let displaced = find_displaced(core, &*dir, name)?;
    let others = displaced.has_others.then_some(displaced.ino);
    let prepared = others.map_or(Ok(()), |ino| name_will_change(core, ino));
    displaced.is_about_to_go(core);
    if let Err(error) = prepared.and_then(|()| dir.remove_at(name, false)) {
        displaced.stays(core);
        spare(core, displaced.marked)?;
        return Err(error);
    }
    name_gone(core, displaced, &dir)
}

/// Removes an empty directory.
pub fn remove_dir(core: &Core, parent: InodeId, name: &OsStr) -> Result<()> {
    let _alone = core.names.alone_in(parent);
    let dir = dir_for(core, parent, name)?;
    let removed = identify_name(core, &*dir, name);
    let removed = removed.map(|(fd, identity)| (core.home.public_ino(identity.ino()), fd));
    if let Ok((ino, fd)) = &removed {
        core.inodes.loses_last_name(*ino, fd);
    }
    if let Err(error) = dir.remove_at(name, true) {
        removed.into_iter().for_each(|(ino, _)| core.inodes.named(ino));
        return Err(error);
    }
    if let Ok((ino, fd)) = removed {
        core.inodes.release_path(ino);
        core.inodes.keep_nameless(ino, fd);
    }
    Ok(())
}

/// Renames, replacing or exchanging as `mode` says.
pub fn rename_name(
    core: &Core,
    caller: &Caller,
    (parent, name): (InodeId, &OsStr),
    (new_parent, new_name): (InodeId, &OsStr),
    mode: RenameMode,
) -> Result<()> {
    let _alone = core.names.alone_in_both(parent, new_parent);
    let from = dir_for(core, parent, name)?;
    let to = dir_for(core, new_parent, new_name)?;
    let replaced = match mode {
        RenameMode::Replace | RenameMode::Whiteout => match find_displaced(core, &*to, new_name) {
            // Nothing is replaced.
            Err(error) if error.errno() == Errno::ENOENT => None,
            displaced => Some(displaced?),
        },
        RenameMode::NoReplace | RenameMode::Exchange => None,
    };
    let moved = named(core, &*from, name);
    let back = if mode == RenameMode::Exchange { named(core, &*to, new_name) } else { None };
    let others = replaced.as_ref().filter(|displaced| displaced.has_others).map(|displaced| displaced.ino);
    replaced.iter().for_each(|displaced| displaced.is_about_to_go(core));
    let mut changed = [moved, back, others].into_iter().flatten();
    let prepared = changed.try_for_each(|ino| name_will_change(core, ino));
    let rename = || {
        // The whiteout that it leaves is the caller's.
        let _acting = (mode == RenameMode::Whiteout).then(|| acting(caller, 0)).transpose()?;
        from.rename_at(name, &*to, new_name, mode)
    };
    if let Err(error) = prepared.and_then(|()| rename()) {
        replaced.iter().for_each(|displaced| displaced.stays(core));
        spare(core, replaced.and_then(|displaced| displaced.marked))?;
        return Err(error);
    }
    // A walk of all names may meet it twice, or not at all.
    core.tiers.disturb_count();
    // The rename is done. Where this fails, the mark stays, by which the next
    // mount finishes.
    let gone = replaced.map_or(Ok(()), |displaced| name_gone(core, displaced, &to));
    let changed = [moved, back].into_iter().flatten().try_for_each(|ino| name_changed(core, ino));
    gone.and(changed)
}

/// The inode that `name` leads to, if it does.
fn named(core: &Core, dir: &dyn NativeFd, name: &OsStr) -> Option<InodeId> {
    let (_, identity) = identify_name(core, dir, name).ok()?;
    Some(core.home.public_ino(identity.ino()))
}

/// Prepares a file to get or lose a name.
fn name_will_change(core: &Core, ino: InodeId) -> Result<()> {
    core.inodes.get(ino).map_or(Ok(()), |inode| inode_will_change(&inode))
}

/// Records that a file got a name: its next `fsync` makes that durable too, as
/// on native file systems.
fn name_changed(core: &Core, ino: InodeId) -> Result<()> {
    core.inodes.get(ino).map_or(Ok(()), |inode| inode_changed(core, &inode))
}

/// Looks at the inode that `name` leads to. If it is a spread file, it is
/// marked before its name goes, so that a crash on the way is found. One that
/// can't be used, since attribute and index do not agree or one of them is
/// missing or damaged, keeps its name until it is repaired: `EUCLEAN`.
fn find_displaced(core: &Core, dir: &dyn NativeFd, name: &OsStr) -> Result<Displaced> {
    let fd = dir.open_at(name, Access::Path)?;
    let home = core.home.attr(&*fd)?;
    let ino = core.home.public_ino(home.ino.0);
    let has_others = home.kind == FileKind::Regular && home.nlink > 1;
    let is_last = home.kind == FileKind::Directory || home.nlink <= 1;
    let plain = Displaced { fd: Fd::clone(&fd), ino, has_others, is_last, marked: None };
    let identity = Identity { attr: home, handle: None };
    let Some(attr) = core.home.id_attr(&*fd, &identity)? else { return Ok(plain) };
    let identity = Identity { handle: fd.handle().ok(), ..identity };
    if attr.kind.whole().is_none() {
        check_index_of(core, &*fd, &identity, attr.id)?;
    }
    mark_orphan(core, attr.id, attr.kind.whole().and(identity.handle.as_ref()))?;
    Ok(Displaced { marked: Some(attr.id), ..plain })
}

/// The name is gone.
fn name_gone(core: &Core, displaced: Displaced, parent: &Fd) -> Result<()> {
    core.inodes.release_path(displaced.ino);
    if displaced.has_others {
        core.removals.lost_a_name(core.environment.monotonic_ns(), displaced.ino);
    }
    let queued = queue_orphan(core, &displaced, parent);
    // Whether a removed directory counts links, file systems disagree.
    let nameless = |stat: &NativeStat| stat.attr.kind == FileKind::Directory || stat.attr.nlink == 0;
    match displaced.fd.stat().as_ref().is_ok_and(nameless) {
        true => core.inodes.keep_nameless(displaced.ino, displaced.fd),
        // The rename was of one link to another of the same file.
        false => displaced.stays(core),
    }
    // Where the kernel does not know the inode, its space is free now.
    core.freed.note();
    queued
}

/// The name stays after all.
fn spare(core: &Core, marked: Option<ObjectId>) -> Result<()> {
    marked.map_or(Ok(()), |id| core.index.unmark(id))
}

/// The name is gone. If it was the last one, the file's data is removed when
/// the last open is gone too. Since the file was examined, it may have been
/// written to, emptied, moved or closed: its present state is removed.
fn queue_orphan(core: &Core, displaced: &Displaced, parent: &Fd) -> Result<()> {
    let Displaced { fd, ino, marked, .. } = displaced;
    let inode = core.inodes.get(*ino).ok();
    if marked.is_none() && inode.as_ref().is_none_or(|inode| inode.shape() != Shape::Spread) {
        return Ok(());
    }
    if fd.stat()?.attr.nlink > 0 {
        // Another name came in between, or the rename was of one link to
        // another of the same file.
        return spare(core, *marked);
    }
    // Syncing the directory later needs a descriptor that can. Where that can't
    // be had, or another name's removal may not be durable either, the whole
    // file system is synced.
    let depends_on = match core.removals.had_other_names(*ino) {
        true => None,
        false => parent.reopen(Access::Directory).ok(),
    };
    if let Some(file) = inode.and_then(|inode| inode.file.lock().upgrade()) {
        return last_name_gone(core, &file, depends_on);
    }
    // Without a name, it does not come into use any more.
    let identity = core.home.identify(&**fd)?;
    let Some(attr) = core.home.id_attr(&**fd, &identity)? else { return Ok(()) };
    let marked = match *marked == Some(attr.id) {
        true => Ok(()),
        false => mark_orphan(core, attr.id, attr.kind.whole().and(identity.handle.as_ref())),
    };
    data_gone(core, *ino);
    if core.removals.add(core.environment.monotonic_ns(), attr.id, depends_on)
        && let Some(whole) = attr.kind.whole()
    {
        let ranges = whole.range_size.count(identity.size());
        (0..ranges).for_each(|_| core.tiers.count_range(Some(whole.tier), None));
    }
    marked
}
