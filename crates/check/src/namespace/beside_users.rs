//! Access to files of a mounted volume while others use them.

use braid_contract::{Fd, ObjectId, Result};
use braid_core::Core;
use braid_core::live::Layout;
use braid_core::namespace::found;
use braid_home::Identity;
use std::sync::Arc;

/// Calls `look` with whether the file is in use, and keeps it meanwhile from
/// being spread, cut or moved, or from being opened if it is not open.
pub(super) fn beside_users(
    core: &Core,
    fd: &Fd,
    identity: &Identity,
    look: impl FnOnce(bool) -> Result<()>,
) -> Result<()> {
    let found = found(core, identity, Fd::clone(fd));
    let mut slot = found.inode.file.lock();
    let Some(file) = slot.upgrade() else {
        // A repair may change the known state.
        slot.forget();
        return look(false);
    };
    drop(slot);
    // The partial copy of a move under way would look like leftovers.
    let moving = match &*file.layout.read() {
        Layout::Plain => None,
        Layout::Spread(spread) => Some(spread.moving.clone()),
    };
    let _held = moving.map(|moving| moving.hold());
    let _layout = file.layout.read();
    look(true)
}

/// Ids of spread files that are open, with a name or without.
pub(crate) fn open_ids(core: &Core) -> Vec<ObjectId> {
    let files = core.handles.files();
    files.iter().filter_map(|open| Arc::clone(&open.file).ahead()).map(|ahead| ahead.id).collect()
}
