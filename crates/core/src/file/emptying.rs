//! The end of a truncation to nothing: the attribute goes, and then what the
//! file has elsewhere.

use crate::core::Core;
use crate::file::owner::check_own;
use braid_contract::{Access, Errno, Fd, ObjectId, Result};
use braid_home::Identity;

/// Finishes what a crash left of a truncation to nothing. What the file has
/// elsewhere goes if its index says that it is the file's; answers whether it
/// does.
pub(crate) fn finish_emptying(core: &Core, data: &Fd, identity: &Identity, id: ObjectId) -> Result<bool> {
    let own = match core.index.header_of(id) {
        Ok(header) => check_own(core, &header, identity).map(|()| true)?,
        // A whole file has none: its mark tells.
        Err(error) if error.errno() == Errno::ENOENT => core.index.is_unrecovered(id),
        Err(error) => return Err(error),
    };
    if own {
        core.index.mark(id, None)?;
    }
    data.truncate(0)?;
    core.home.remove_id_attr(&**data)?;
    if own {
        reap_emptied(core, data, id)?;
    }
    Ok(own)
}

/// What the file has elsewhere goes.
pub(super) fn reap_emptied(core: &Core, data: &Fd, id: ObjectId) -> Result<()> {
    // The home file itself is what has to be durable before they go.
    let home_file = data.reopen(Access::Read).or_else(|_| data.reopen(Access::Write))?;
    core.removals.add(core.environment.monotonic_ns(), id, Some(home_file));
    Ok(())
}
