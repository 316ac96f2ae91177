//! Recovery of whole files: the object says how long a file is, and the home
//! inode is brought up to date from it.

use crate::core::Core;
use crate::file::emptying::finish_emptying;
use crate::live::{Inode, keeping_capability};
use braid_contract::{
    Access, Errno, Error, FallocateMode, Fd, ObjectId, ObjectStat, Result, SetTime, Timestamp,
};
use braid_format::IdAttr;
use braid_home::Identity;
use braid_tiers::{Backend, Tier};
use std::sync::Arc;

/// A home inode that was found to carry an id.
pub struct OwnerInode {
    /// A descriptor of it, from the mark's handle or from the search.
    pub fd: Fd,
    /// Its attributes and handle.
    pub identity: Identity,
    pub(crate) attr: IdAttr,
}

/// Recovers a file whose attribute says that it is a whole one.
pub(crate) fn recover_whole(core: &Core, owner: &OwnerInode) -> Result<()> {
    let (id, Some(whole)) = (owner.attr.id, owner.attr.kind.whole()) else { return Ok(()) };
    // A crash may have come while it got one.
    core.index.remove_index(id)?;
    // A move between other tiers may have left an object.
    for (tier, store) in core.tiers.stores().filter(|(tier, _)| tier.id != whole.tier) {
        // A tier that is absent keeps it: it costs space only, and the check
        // finds it.
        if let Err(error) = store.remove(&[id]) {
            tracing::debug!(file = %id, tier = %tier.name, %error, "can't look for leftovers");
        }
    }
    let tier = core.tiers.get(whole.tier)?;
    let Backend::Store(store) = &tier.backend else {
        return Err(Error::new(Errno::EUCLEAN, "its attribute says that its data is in an object on home"));
    };
    match store.stat(id) {
        Ok(stat) if stat.size > 0 => {
            recover_from_object(owner, &tier, &stat)?;
            store.sync(&[id], true).map_err(|error| tier.note_error(error))?;
        }
        Err(error) if error.errno() == Errno::ENOENT && whole.durable => {
            let what = format!("its object on tier {} is missing; run fsck", tier.name);
            return Err(Error::new(Errno::EUCLEAN, what));
        }
        Err(error) if error.errno() != Errno::ENOENT => return Err(tier.note_error(error)),
        // Nothing in it was ever synced, or it is empty.
        _ => {
            let fd = owner.fd.reopen(Access::Write)?;
            return finish_emptying(core, &fd, &owner.identity, id).map(drop);
        }
    }
    core.index.unmark_gone(id)
}

/// Brings size and time to the home inode, durably, and removes the data that
/// the home file has.
fn recover_from_object(owner: &OwnerInode, tier: &Tier, stat: &ObjectStat) -> Result<()> {
    let attr = &owner.identity.attr;
    if attr.size != stat.size {
        tracing::debug!(file = %owner.attr.id, tier = %tier.name, size = stat.size, "a file has the size of its object");
    }
    let home = owner.fd.reopen(Access::Write)?;
    keeping_capability(&*owner.fd, || -> Result<()> {
        if attr.blocks > 0 && home.reopen(Access::Read)?.next_data(0)?.is_some() {
            home.allocate(FallocateMode::PunchHole, 0, attr.size.next_multiple_of(4096).max(4096))?;
        }
        if attr.size != stat.size { home.truncate(stat.size) } else { Ok(()) }
    })?;
    // The home inode has the time of a write that is older than its last
    // change.
    let time = |at: Timestamp| (at.secs, at.nanos);
    let mtime = if time(stat.mtime) > time(attr.ctime) { stat.mtime } else { attr.mtime };
    owner.fd.set_times(None, Some(SetTime::At(mtime)))?;
    owner.fd.reopen(Access::Read)?.sync(false)
}

/// Tries again to recover a file whose tier could not be asked when the
/// volume was opened.
pub(crate) fn recover_now(core: &Core, inode: &Arc<Inode>, id: ObjectId) -> Result<()> {
    let fd = Arc::clone(&core.inodes.path(&core.home, inode)?);
    let identity = core.home.identify(&*fd)?;
    match core.home.id_attr(&*fd, &identity)?.filter(|attr| attr.id == id) {
        Some(attr) => recover_whole(core, &OwnerInode { fd, identity, attr }),
        None => Ok(()),
    }
}
