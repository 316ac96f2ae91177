//! The end of a truncation to nothing: the attribute goes, and then index and
//! objects.

use crate::core::Core;
use crate::file::owner::check_own;
use braid_contract::{Access, Errno, Fd, ObjectId, Result};
use braid_home::Identity;

/// Finishes a truncation to nothing that a crash interrupted. Index and objects
/// go if they are the file's own; answers whether they are.
pub(crate) fn finish_emptying(core: &Core, data: &Fd, identity: &Identity, id: ObjectId) -> Result<bool> {
    let own = match core.index.header_of(id) {
        Ok(header) => check_own(core, &header, identity).map(|()| true)?,
        // A whole file has none, but a mark.
        Err(error) if error.errno() == Errno::ENOENT => core.index.is_unrecovered(id),
        Err(error) => return Err(error),
    };
    if own {
        core.index.mark(id, None)?;
    }
    data.truncate(0)?;
    core.home.remove_id_attr(&**data)?;
    if own {
        reap_emptied(core, data, id);
    }
    Ok(own)
}

/// Queues the removal of index and objects. It can't fail: the attribute is gone, so that nothing
/// may go there any more.
pub(super) fn reap_emptied(core: &Core, data: &Fd, id: ObjectId) {
    // The home file has to be durable before they go. Without a descriptor, all of home is synced.
    let home_file = data.reopen(Access::Read).or_else(|_| data.reopen(Access::Write)).ok();
    core.removals.add(core.environment.monotonic_ns(), id, home_file);
}
