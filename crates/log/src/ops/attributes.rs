//! Attributes that `stat` shows.

use crate::core::{Core, Open, Write, attr};
use crate::inode::{Inode, State};
use crate::ops::data;
use crate::ops::set_id::without_set_id;
use crate::record::Change;
use crate::room;
use braid_contract::{Attr, Caller, Errno, HandleId, InodeId, Result, SetAttr, SetTime, Timestamp};
use std::sync::Arc;

/// The inode that an operation is about.
fn target(core: &Core, ino: InodeId, handle: Option<HandleId>) -> Result<Arc<Inode>> {
    match handle {
        Some(handle) => core.file(handle).map(|open: Arc<Open>| Arc::clone(&open.inode)),
        None => core.inode(ino),
    }
}

pub(crate) fn getattr(core: &Core, ino: InodeId, handle: Option<HandleId>) -> Result<Attr> {
    let inode = target(core, ino, handle)?;
    let state = inode.state.read();
    Ok(attr(inode.ino, &state))
}

pub(crate) fn setattr(
    core: &Core,
    caller: &Caller,
    ino: InodeId,
    handle: Option<HandleId>,
    wanted: &SetAttr,
) -> Result<Attr> {
    let inode = target(core, ino, handle)?;
    room::checkpoint_if_urgent(core)?;
    room::retry_with_room(core, || set(core, caller, &inode, wanted))
}

fn set(core: &Core, caller: &Caller, inode: &Inode, wanted: &SetAttr) -> Result<Attr> {
    let mut state = inode.state.write();
    let now = core.now();
    if !state.is_live() {
        // One that is open is changed in memory, where alone it is.
        if state.mode == 0 || wanted.size.is_some() {
            return Err(Errno::ESTALE.into());
        }
        let (version, changes) = (state.version, others(&state, wanted, now));
        state.apply(version, changes, &mut Vec::new());
        return Ok(attr(inode.ino, &state));
    }
    let mut changes = match wanted.size {
        Some(size) => data::resize(core, caller, &mut (inode, &mut state), size)?,
        None => Vec::new(),
    };
    changes.extend(others(&state, wanted, now));
    if !changes.is_empty() {
        changes.push(Change::Changed(now));
    }
    let writes = vec![Write { ino: inode.ino, state: &mut state, changes }];
    core.record(core.worker(caller), writes)?;
    Ok(attr(inode.ino, &state))
}

fn others(state: &State, wanted: &SetAttr, now: Timestamp) -> Vec<Change> {
    let mut changes = Vec::new();
    if wanted.kill_set_id {
        changes.extend(without_set_id(state, false));
    }
    changes.extend(wanted.mode.map(Change::Mode));
    if wanted.uid.is_some() || wanted.gid.is_some() {
        changes.push(Change::Owner(wanted.uid.unwrap_or(state.uid), wanted.gid.unwrap_or(state.gid)));
        // Also by the superuser; a mode that comes with it is meant as it is.
        changes.extend(without_set_id(state, wanted.mode.is_some()));
    }
    let time = |time: SetTime| match time {
        SetTime::Now => now,
        SetTime::At(time) => time,
    };
    changes.extend(wanted.atime.map(time).map(Change::Accessed));
    // A new size is a change of the contents, even if it is the old one.
    let modified = wanted.mtime.map(time).or(wanted.size.map(|_| now));
    changes.extend(modified.map(Change::Modified));
    changes
}
