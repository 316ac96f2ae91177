//! Attributes: those of the home inode, corrected by those that are ahead of
//! it.

use crate::core::Core;
use crate::failpoint::Failpoint;
use crate::file::named_on;
use crate::file::open::file_of;
use crate::live::{AheadAttrs, File, Inode, Shape};
use braid_contract::{
    Attr, Errno, Error, Fd, FileKind, HandleId, InodeId, ObjectId, ObjectStat, Result, Store,
};
use braid_home::Identity;
use braid_tiers::{Tier, bit};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

/// Bytes of a block, as `stat` counts them.
const BLOCK: u64 = 512;

/// How long `stat` waits for a busy tier to count blocks.
const STAT_PATIENCE: Duration = Duration::from_millis(100);

/// The attributes of an inode; those of an open file where `handle` is one.
pub fn get_attr(core: &Core, ino: InodeId, handle: Option<HandleId>) -> Result<Attr> {
    match handle.and_then(|handle| core.handles.file(handle).ok()) {
        Some(open) => attr_of_file(core, &open.file.inode, &open.file),
        None => {
            let inode = core.inodes.get(ino)?;
            attr_now(core, &inode, || core.inodes.path(&core.home, &inode))
        }
    }
}

/// Attributes of an inode as they are now, by the descriptor that `path` gives
/// if it is not in use.
pub(crate) fn attr_now(core: &Core, inode: &Arc<Inode>, path: impl FnOnce() -> Result<Fd>) -> Result<Attr> {
    // An open file answers even when its last name is gone.
    let live = inode.file.lock().upgrade();
    match live {
        Some(file) => attr_of_file(core, inode, &file),
        None if inode.may_be_spread() => {
            let identity = core.home.identify(&*path()?)?;
            attr_at_rest(core, inode, &identity)
        }
        None => Ok(Attr { ino: inode.ino, ..core.home.attr(&*path()?)? }),
    }
}

/// Attributes of an inode that was just looked at.
pub(crate) fn attr_from(core: &Core, inode: &Arc<Inode>, identity: &Identity) -> Result<Attr> {
    let live = inode.file.lock().upgrade();
    match live.filter(|_| inode.kind == FileKind::Regular) {
        Some(file) => attr_of_file(core, inode, &file),
        None => attr_at_rest(core, inode, identity),
    }
}

/// Attributes of a file that is not in use.
fn attr_at_rest(core: &Core, inode: &Arc<Inode>, identity: &Identity) -> Result<Attr> {
    let attr = Attr { ino: inode.ino, ..identity.attr };
    if !inode.may_be_spread() {
        return Ok(attr);
    }
    // Asking for the attribute is cheaper than opening the file.
    let fd = core.inodes.path(&core.home, inode)?;
    match core.home.id_attr(&*fd, identity)? {
        None => {
            inode.set_shape(Shape::Plain);
            Ok(attr)
        }
        Some(_) => attr_of_file(core, inode, &*file_of(core, inode)?),
    }
}

/// Attributes of the home inode, corrected by those that are ahead of it, and
/// with the space that the file takes on other tiers.
fn attr_of_file(core: &Core, inode: &Inode, file: &File) -> Result<Attr> {
    // Read first: a file that becomes plain brings them to the home inode
    // before.
    let ahead = file.ahead();
    let mut attr = Attr { ino: inode.ino, ..file.data().stat()?.attr };
    if let Some(ahead) = ahead {
        attr.size = ahead.size;
        attr.mtime = ahead.mtime.unwrap_or(attr.mtime);
        attr.ctime = ahead.mtime.map_or(attr.ctime, |mtime| attr.ctime.max(mtime));
        attr.blocks = match blocks_elsewhere(core, file, &ahead) {
            Some(blocks) => attr.blocks + blocks,
            // Programs take a file without blocks for one without data.
            None => attr.blocks.max(ahead.size.div_ceil(BLOCK)),
        };
        if core.fails_at(Failpoint::LinksAreForgotten) {
            attr.nlink = 1;
        }
    }
    Ok(attr)
}

/// Blocks that a file takes on tiers other than home; `None` if one of them
/// does not answer at present.
fn blocks_elsewhere(core: &Core, file: &File, ahead: &AheadAttrs) -> Option<u64> {
    let may_have =
        |tier: &Tier| ahead.whole.is_none_or(|whole| whole == tier.id) && ahead.missing & bit(tier.id) == 0;
    let stores = core.tiers.stores().filter(|(tier, _)| may_have(tier));
    stores.into_iter().try_fold(0, |blocks, (tier, store)| match stat_soon(core, &tier, store, ahead.id) {
        Ok(stat) => Some(blocks + space_of(file, &tier, &stat) / BLOCK),
        Err(error) if error.errno() == Errno::ENOENT => {
            file.object_is_missing(ahead.id, tier.id);
            Some(blocks)
        }
        Err(_) => None,
    })
}

/// Bytes that a file takes on a tier, without those that it left there, where
/// they can't be freed by themselves.
fn space_of(file: &File, tier: &Tier, stat: &ObjectStat) -> u64 {
    match tier.capabilities().punch {
        true => stat.allocated,
        false => named_on(file, tier.id).map_or(stat.allocated, |named| named.min(stat.allocated)),
    }
}

/// The state of an object, unless its tier is slow: it may hang, and a
/// directory is listed without it.
fn stat_soon(core: &Core, tier: &Tier, store: Arc<dyn Store>, id: ObjectId) -> Result<ObjectStat> {
    let pool = match &core.pool {
        Some(pool) if tier.is_busy() => pool,
        _ => return store.stat(id),
    };
    let late = || Error::new(Errno::EAGAIN, format!("tier {} is slow to answer", tier.name));
    if !tier.is_prompt() {
        return Err(late());
    }
    let (tell, told) = channel();
    pool.spawn(move || drop(tell.send(store.stat(id))));
    told.recv_timeout(STAT_PATIENCE).unwrap_or_else(|_| Err(late()))
}
