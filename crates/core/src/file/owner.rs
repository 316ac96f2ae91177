//! Making sure that an index is that of a file. An id comes from an attribute,
//! which on some volumes the owner of a file can write; the index names its
//! inode, and only Braid can write that. So each is checked against the other
//! before anything that the id leads to is read, changed or removed.

use crate::core::Core;
use braid_contract::{Errno, Error, NativeFd, ObjectId, Result};
use braid_format::Header;
use braid_home::Identity;
use braid_index::Index;

/// The index of the file behind `fd`, whose attribute has this id. `EUCLEAN` if
/// there is none, or if it is that of another file; `ESTALE` if the file was
/// removed or emptied meanwhile.
pub fn index_of(core: &Core, fd: &dyn NativeFd, identity: &Identity, id: ObjectId) -> Result<Index> {
    match core.index.open_index(id) {
        Ok(index) => check_own(core, index.header(), identity).map(|()| index),
        Err(error) if error.errno() == Errno::ENOENT => Err(without_index(core, fd, identity, id)?),
        Err(error) => Err(error),
    }
}

/// Makes sure that the file behind `fd` has an index, which is its own.
pub(crate) fn check_index_of(
    core: &Core,
    fd: &dyn NativeFd,
    identity: &Identity,
    id: ObjectId,
) -> Result<()> {
    match core.index.header_of(id) {
        Ok(header) => check_own(core, &header, identity),
        Err(error) if error.errno() == Errno::ENOENT => Err(without_index(core, fd, identity, id)?),
        Err(error) => Err(error),
    }
}

/// The error for a file whose index is missing.
fn without_index(core: &Core, fd: &dyn NativeFd, identity: &Identity, id: ObjectId) -> Result<Error> {
    let now = core.home.identify(fd)?;
    let still = now.attr.nlink > 0 && core.home.id_attr(fd, &now)?.is_some_and(|attr| attr.id == id);
    if !still {
        return Ok(Errno::ESTALE.into());
    }
    let what = format!("index {id}, of inode {}, is missing; braid fsck tells more", identity.ino());
    Ok(Error::new(Errno::EUCLEAN, what))
}

/// Whether an index is that of an inode: `EUCLEAN` if not.
pub(crate) fn check_own(core: &Core, header: &Header, identity: &Identity) -> Result<()> {
    if header.volume != core.id {
        let what = format!("index {} belongs to another volume, {}", header.id, header.volume);
        return Err(Error::new(Errno::EUCLEAN, what));
    }
    // The kind of handle that a file system gives may change between mounts.
    let same_handle = match (&header.handle, &identity.handle) {
        (Some(theirs), Some(mine)) => theirs.parts().0 != mine.parts().0 || theirs == mine,
        _ => true,
    };
    if identity.is(header.ino, header.btime_ns) && same_handle {
        return Ok(());
    }
    let (id, ino) = (header.id, identity.ino());
    let what = format!("index {id} is not that of inode {ino}, whose id attribute names it");
    Err(Error::new(Errno::EUCLEAN, what))
}
