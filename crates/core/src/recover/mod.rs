//! Recovery, the first step of a mount: it finishes operations that a crash
//! interrupted, and learns how many ranges each tier holds.
//!
//! Only marked files are looked at: those that were in use, or being removed,
//! when the volume went down.

mod counts;
mod unnamed;

pub use counts::{count_ranges, each_open_whole_file, each_whole_file, save_counts};
pub use unnamed::{IMPORT_DIR, discard_unnamed};

use crate::core::Core;
use crate::file::emptying::finish_emptying;
use crate::file::mark::mark_orphan;
use crate::file::owner::check_own;
use crate::file::recover_whole::{OwnerInode, recover_whole};
use crate::file::unneeded::remove_after_crash;
use crate::live::keeping_capability;
use crate::reap::remove_data;
use crate::recover::counts::load_counts;
use braid_contract::{Access, Errno, Error, Fd, InodeId, NativeFd, ObjectId, Result, SetTime, Timestamp};
use braid_format::{Entry, IdKind, Mark, Owners};
use braid_home::TEMPORARIES;
use braid_index::Index;
use braid_tiers::{Backend, cut_object, next_data};
use std::collections::{HashMap, HashSet};

/// The result of a search of the home tree, where handles can't be opened.
#[derive(Default)]
pub struct OwnerSearch {
    /// The inodes that marked files belong to.
    by_id: HashMap<ObjectId, Fd>,
    /// Inode numbers of files whose attribute can't be read or is invalid: any
    /// mark may be theirs, so no file is taken for removed because of its mark.
    unreadable: HashSet<u64>,
    /// The tree was searched.
    searched: bool,
    /// Inodes that are open, whether they have a name or not.
    open: HashSet<InodeId>,
    /// Files that are open and have no name.
    nameless: HashSet<ObjectId>,
}

impl OwnerSearch {
    /// Whether a mark without an owner belongs to no file.
    fn tells(&self, mark: &Mark) -> bool {
        mark.handle.is_some() || self.searched && self.unreadable.is_empty()
    }
}

/// Recovers from a crash since the last clean unmount, if there was one.
pub fn recover(core: &Core) -> Result<()> {
    recover_beside(core, HashSet::new())
}

/// The same while the inodes `open` are open: data of those without a name stays.
pub(crate) fn recover_beside(core: &Core, open: HashSet<InodeId>) -> Result<()> {
    remove_temporaries(core)?;
    if let Err(error) = discard_unnamed(core) {
        tracing::warn!(%error, "what an import left is removed by a later mount");
    }
    let marked = core.index.find_marks()?;
    if !marked.is_empty() {
        tracing::info!(files = marked.len(), "recovering files that were in use");
        // A removed name must not come back when its data is gone.
        core.home.root().sync_fs()?;
        let mut found = match look_for_owners(core, &marked) {
            Ok(found) => found,
            Err(error) => {
                // A file that was not found must not be taken for removed.
                tracing::error!(%error, "can't search the home tree; its files are recovered at a later mount");
                return load_counts(core);
            }
        };
        found.open = open;
        for mark in marked {
            let id = mark.id;
            // One file that can't be recovered must not keep the others
            // from being used. It keeps its mark, and is tried again.
            if let Err(error) = recover_file(core, &mark, &mut found) {
                tracing::error!(file = %id, %error, "can't recover a file; run fsck");
            }
            // It goes with its last open.
            if found.nameless.contains(&id) {
                mark_orphan(core, id, mark.handle.as_ref())?;
            }
        }
    }
    load_counts(core)
}

/// Removes temporaries of small files that were being replaced.
fn remove_temporaries(core: &Core) -> Result<()> {
    let braid = core.home.braid()?;
    for name in TEMPORARIES {
        braid.ensure_gone_at(name)?;
    }
    Ok(())
}

/// Searches the owners of marked files where neither an index nor the mark
/// names them, and where there may be data.
fn look_for_owners(core: &Core, marked: &[Mark]) -> Result<OwnerSearch> {
    let ids: Vec<ObjectId> = marked.iter().map(|mark| mark.id).collect();
    let mut found = walk_if_needed(core, &ids)?;
    let mut unknown = HashSet::new();
    for mark in marked.iter().filter(|mark| mark.handle.is_none() && !found.searched) {
        let id = mark.id;
        if core.index.open_index(id).is_err() && has_object(core, id)? {
            unknown.insert(id);
        }
    }
    if !unknown.is_empty() {
        walk_for(core, &unknown.iter().collect(), &mut found)?;
    }
    Ok(found)
}

/// Where handles can't be opened, the tree is searched once for the
/// inodes that the marked files belong to.
pub fn walk_if_needed(core: &Core, marked: &[ObjectId]) -> Result<OwnerSearch> {
    let mut found = OwnerSearch::default();
    if core.home.opens_handles() {
        return Ok(found);
    }
    walk_for(core, &marked.iter().collect(), &mut found)?;
    Ok(found)
}

fn walk_for(core: &Core, marked: &HashSet<&ObjectId>, found: &mut OwnerSearch) -> Result<()> {
    found.searched = true;
    core.home.walk(&mut |_, fd, identity| {
        match core.home.id_attr(&**fd, identity) {
            Ok(Some(attr)) if marked.contains(&attr.id) => {
                found.by_id.insert(attr.id, Fd::clone(fd));
            }
            Ok(_) => {}
            Err(_) => {
                found.unreadable.insert(identity.ino());
            }
        }
        Ok(())
    })
}

fn recover_file(core: &Core, mark: &Mark, found: &mut OwnerSearch) -> Result<()> {
    let id = mark.id;
    let index = match core.index.open_index(id) {
        Ok(index) => Some(index),
        Err(error) if error.errno() == Errno::ENOENT => None,
        Err(_) if was_never_made(core, id)? => None,
        Err(error) => {
            // A whole file may have been getting one.
            match find_owner(core, mark, None, found)? {
                Some(owner) if owner.attr.kind.whole().is_some() => {
                    return recover_whole(core, &owner);
                }
                // It was, and was then truncated to nothing.
                Some(owner) if owner.attr.kind == IdKind::Emptied && core.index.lacks_header(id)? => {
                    core.index.remove_index(id)?;
                    return recover_emptied(core, &owner);
                }
                // It was, and is gone itself.
                None if found.tells(mark) && core.index.lacks_header(id)? => {
                    remove_data(core, vec![id]);
                    return Ok(());
                }
                _ => {}
            }
            // The check judges damage; the mark leads it there.
            tracing::error!(file = %id, %error, "can't recover a file; run fsck");
            return Ok(());
        }
    };
    let owner = find_owner(core, mark, index.as_ref(), found)?;
    match (owner, index) {
        (Some(owner), _) if owner.attr.kind == IdKind::Emptied => recover_emptied(core, &owner),
        (Some(owner), _) if owner.attr.kind.whole().is_some() => recover_whole(core, &owner),
        (Some(owner), Some(index)) => recover_spread(core, &owner, &index),
        // No inode carries the id: the file was removed, or was never
        // spread to the end.
        (None, Some(_)) => {
            remove_data(core, vec![id]);
            Ok(())
        }
        (None, None) if mark.handle.is_none() && !found.searched && has_object(core, id)? => {
            tracing::error!(file = %id, "there is data of a file whose index is missing; run fsck");
            Ok(())
        }
        (None, None) => {
            remove_data(core, vec![id]);
            Ok(())
        }
        (Some(_), None) => {
            tracing::error!(file = %id, "a spread file has no index; run fsck");
            Ok(())
        }
    }
}

/// Ends a truncation to nothing.
fn recover_emptied(core: &Core, owner: &OwnerInode) -> Result<()> {
    let fd = owner.fd.reopen(Access::Write)?;
    // Where nothing goes, nothing else takes the mark away.
    match finish_emptying(core, &fd, &owner.identity, owner.attr.id)? {
        true => Ok(()),
        false => core.index.unmark_gone(owner.attr.id),
    }
}

/// Whether a file was about to be spread, and its data is all home.
fn was_never_made(core: &Core, id: ObjectId) -> Result<bool> {
    Ok(core.index.is_unfinished(id)? && !has_object(core, id)?)
}

/// Whether a tier has an object of this id, or does not answer.
fn has_object(core: &Core, id: ObjectId) -> Result<bool> {
    for (_, store) in core.tiers.stores() {
        match store.stat(id) {
            Err(error) if error.errno() == Errno::ENOENT => {}
            _ => return Ok(true),
        }
    }
    Ok(false)
}

/// The home inode that carries the id, if it exists.
pub fn find_owner(
    core: &Core,
    mark: &Mark,
    index: Option<&Index>,
    found: &mut OwnerSearch,
) -> Result<Option<OwnerInode>> {
    let id = mark.id;
    if let Some(index) = index.filter(|index| found.unreadable.contains(&index.header().ino)) {
        let what = format!("inode {}, which its index names, can't be asked for its id", index.header().ino);
        return Err(Error::new(Errno::EUCLEAN, what));
    }
    let of_index = index.and_then(|index| index.header().handle.as_ref());
    let handle = of_index.or(mark.handle.as_ref());
    let fd = match (found.by_id.remove(&id), handle) {
        (Some(fd), _) => Some(fd),
        (None, Some(handle)) => match core.home.open_handle(handle) {
            Ok(fd) => fd,
            Err(error) if matches!(error.errno(), Errno::ESTALE | Errno::ENOENT) => None,
            Err(error) => return Err(error),
        },
        (None, None) => None,
    };
    let Some(fd) = fd else { return Ok(None) };
    let identity = core.home.identify(&*fd)?;
    if identity.attr.nlink == 0 {
        if !found.open.contains(&core.home.public_ino(identity.ino())) {
            return Ok(None);
        }
        found.nameless.insert(id);
    }
    let attr = core.home.id_attr(&*fd, &identity)?.filter(|attr| attr.id == id);
    if let (Some(_), Some(index)) = (&attr, index) {
        check_own(core, index.header(), &identity)?;
    }
    Ok(attr.map(|attr| OwnerInode { fd, identity, attr }))
}

/// Cuts data that can't be recovered, removes everything beyond the size, and
/// brings the home inode up to date from the owners of size and times.
fn recover_spread(core: &Core, owner: &OwnerInode, index: &Index) -> Result<()> {
    let known = known_size(core, owner, index)?;
    let size = recoverable_size(core, owner, index, known)?;
    if size < known {
        tracing::warn!(
            file = %index.id(), size, lost = known - size,
            "the end of a file that was never synced did not survive: it is cut"
        );
    }
    if size != index.size()? {
        index.set_size(size)?;
    }
    recover_inode(core, owner, index, size)?;
    // Until this is durable, a next recovery starts from where this did.
    core.index.sync(index)?;
    index.settle_size()?;
    index.clear_from(index.range_size().count(size.max(index.reserved()?)))?;
    core.index.sync(index)?;
    cut_objects(core, index.id(), size)?;
    remove_after_crash(core, owner, index);
    core.index.unmark_gone(owner.attr.id)
}

/// Brings size and modification time to the home inode, which owns both from
/// now on: recovery changes the times of objects.
fn recover_inode(core: &Core, owner: &OwnerInode, index: &Index, size: u64) -> Result<()> {
    let mtime = owned_mtime(core, owner, index)?;
    let resize = owner.identity.size() != size;
    if resize {
        let home = owner.fd.reopen(Access::Write)?;
        keeping_capability(&*owner.fd, || home.truncate(size))?;
    }
    if resize || mtime.is_some() {
        // Setting the size was no change of the user's.
        let mtime = mtime.unwrap_or(owner.identity.attr.mtime);
        owner.fd.set_times(None, Some(SetTime::At(mtime)))?;
        owner.fd.reopen(Access::Read)?.sync(false)?;
    }
    let (home, owners) = (core.tiers.home().id, index.owners()?);
    index.set_owners(Owners { mtime: home, synced_mtime: home, ..owners })
}

/// Cuts the objects of a file that are longer than it, durably: they may
/// have been cut before the crash, and power loss could undo that even now.
fn cut_objects(core: &Core, id: ObjectId, size: u64) -> Result<()> {
    for (tier, store) in core.tiers.stores() {
        let cut = cut_object(&*store, id, size).and_then(|_| store.sync(&[id], true));
        match cut {
            Err(error) if error.errno() != Errno::ENOENT => return Err(tier.note_error(error)),
            _ => {}
        }
    }
    Ok(())
}

/// The size by the index or, of a file that was synced as it grew, by its part on
/// the tier of the last range ([`Index::sync_size`]).
fn known_size(core: &Core, owner: &OwnerInode, index: &Index) -> Result<u64> {
    let (size, end) = (index.size()?, index.grows_to()?);
    let Some(last) = index.range_size().grown_range(size, end) else { return Ok(size) };
    let Some(entry) = index.entry(last)? else { return Ok(size) };
    let tier = core.tiers.get(entry.tier)?;
    let part = match &tier.backend {
        Backend::Home(_) => owner.identity.size(),
        Backend::Store(store) => match store.stat(index.id()) {
            Ok(stat) => stat.size,
            Err(error) if error.errno() == Errno::ENOENT => 0,
            Err(error) => return Err(tier.note_error(error)),
        },
    };
    Ok(size.max(part.min(end)))
}

/// The size up to which nothing of a file that was appended to is lost: after a
/// hole in data that was never synced, nothing is kept (PolyStore §4.4.2). A
/// file in which holes may be meant keeps its size.
fn recoverable_size(core: &Core, owner: &OwnerInode, index: &Index, size: u64) -> Result<u64> {
    let was_plain = index.header().plain_size.min(owner.identity.size());
    let mut at = index.synced_size()?.max(was_plain);
    if at >= size || index.has_gaps()? {
        return Ok(size);
    }
    let home = owner.fd.reopen(Access::Read)?;
    while at < size {
        let range = index.range_size().range_of(at);
        let end = index.range_size().bytes_of(range..range + 1, size).end;
        let Some(entry) = index.entry(range)? else { return Ok(at) };
        match data_of(core, &*home, index.id(), entry, at) {
            Ok(Some((start, data_end))) if start <= at && data_end > at => at = data_end.min(end),
            Ok(_) => return Ok(at),
            Err(error) => {
                tracing::warn!(file = %index.id(), %error, "can't tell whether the end of a file survived");
                return Ok(size);
            }
        }
    }
    Ok(size)
}

/// The first stretch of data at or after `offset` on the tier that an
/// entry names.
fn data_of(
    core: &Core,
    home: &dyn NativeFd,
    id: ObjectId,
    entry: Entry,
    offset: u64,
) -> Result<Option<(u64, u64)>> {
    let found = match &core.tiers.get(entry.tier)?.backend {
        Backend::Store(store) => next_data(&**store, id, offset),
        Backend::Home(_) => home.next_data(offset),
    };
    match found {
        Err(error) if error.errno() == Errno::ENOENT => Ok(None),
        result => result,
    }
}

/// The modification time as its owner has it, or as of the last `fsync`, if
/// that is later than the time on home.
fn owned_mtime(core: &Core, owner: &OwnerInode, index: &Index) -> Result<Option<Timestamp>> {
    let owners = index.owners()?;
    let time_on = |id| match &core.tiers.get(id).ok()?.backend {
        Backend::Store(store) => store.stat(owner.attr.id).ok().map(|stat| stat.mtime),
        Backend::Home(_) => None,
    };
    let owned = time_on(owners.mtime).max(time_on(owners.synced_mtime));
    Ok(owned.filter(|mtime| *mtime > owner.identity.attr.mtime))
}
