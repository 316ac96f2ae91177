//! Extended attributes, and the provenance of files, which reads like one.

use crate::actor::Actor;
use crate::core::{Core, Write};
use crate::inode::State;
use crate::record::Change;
use crate::room;
use braid_contract::{Caller, Errno, Error, InodeId, Result, Timestamp, XattrMode};
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;

/// The attribute with the creator and the last writer of a file.
const PROVENANCE: &[u8] = b"braid.provenance";
/// Longest value in bytes, as in the kernel.
const VALUE_MAX: usize = 65536;
/// Longest name in bytes.
const NAME_MAX: usize = 255;
/// `E2BIG`, which is not in the table.
const E2BIG: Errno = Errno(7);

/// The name of an attribute that is kept as it is.
fn name_of(name: &OsStr) -> Result<&[u8]> {
    let name = name.as_bytes();
    let is_known = [&b"user."[..], b"trusted.", b"security."].iter().any(|space| name.starts_with(space));
    match name {
        _ if name.len() > NAME_MAX => Err(Errno::ERANGE.into()),
        _ if is_known => Ok(name),
        // ACLs are among them: the kernel learns that there are none.
        _ => Err(Errno::EOPNOTSUPP.into()),
    }
}

/// Whether there can be an attribute of this name.
pub(crate) fn is_name(name: &[u8]) -> bool {
    name_of(OsStr::from_bytes(name)).is_ok() && !name.contains(&0)
}

/// Refuses numbers that never were an inode's. A removed inode that is still open is in
/// memory alone.
fn live(state: &State) -> Result<()> {
    if state.mode != 0 { Ok(()) } else { Err(Errno::ESTALE.into()) }
}

/// Changes an inode, in memory alone if it is gone.
fn change(core: &Core, caller: &Caller, ino: u64, state: &mut State, changes: Vec<Change>) -> Result<()> {
    if state.is_gone {
        state.apply(state.version, changes, &mut Vec::new());
        return Ok(());
    }
    core.record(core.worker(caller), vec![Write { ino, state, changes }])
}

pub(crate) fn get(core: &Core, ino: InodeId, name: &OsStr) -> Result<Vec<u8>> {
    let inode = core.inode(ino)?;
    let state = inode.state.read();
    live(&state)?;
    if name.as_bytes() == PROVENANCE {
        return Ok(provenance(&state).into_bytes());
    }
    state.xattrs.get(name_of(name)?).cloned().ok_or_else(|| Errno::ENODATA.into())
}

pub(crate) fn list(core: &Core, ino: InodeId) -> Result<Vec<u8>> {
    let inode = core.inode(ino)?;
    let state = inode.state.read();
    live(&state)?;
    Ok(state.xattrs.keys().flat_map(|name| name.iter().copied().chain([0])).collect())
}

pub(crate) fn set(
    core: &Core,
    caller: &Caller,
    ino: InodeId,
    (name, value): (&OsStr, &[u8]),
    mode: XattrMode,
) -> Result<()> {
    let inode = core.inode(ino)?;
    let name = writable(name)?;
    if value.len() > VALUE_MAX {
        return Err(Error::new(E2BIG, "an extended attribute is too long"));
    }
    let fits = |state: &State| {
        live(state)?;
        match (mode, state.xattrs.contains_key(name)) {
            (XattrMode::Create, true) => Err(Error::from(Errno::EEXIST)),
            (XattrMode::Replace, false) => Err(Errno::ENODATA.into()),
            _ => Ok(()),
        }
    };
    // One that is refused needs no room.
    fits(&inode.state.read())?;
    room::ensure_room(core)?;
    let mut state = inode.state.write();
    fits(&state)?;
    let changes = vec![Change::SetXattr(name.to_vec(), value.to_vec()), Change::Changed(core.now())];
    change(core, caller, inode.ino, &mut state, changes)
}

fn writable(name: &OsStr) -> Result<&[u8]> {
    if name.as_bytes() == PROVENANCE {
        return Err(Error::new(Errno::EPERM, "the provenance of a file can't be changed"));
    }
    name_of(name)
}

pub(crate) fn remove(core: &Core, caller: &Caller, ino: InodeId, name: &OsStr) -> Result<()> {
    let inode = core.inode(ino)?;
    let name = writable(name)?;
    room::checkpoint_if_urgent(core)?;
    let mut state = inode.state.write();
    live(&state)?;
    if !state.xattrs.contains_key(name) {
        return Err(Errno::ENODATA.into());
    }
    let changes = vec![Change::DropXattr(name.to_vec()), Change::Changed(core.now())];
    change(core, caller, inode.ino, &mut state, changes)
}

/// The creator and the last writer of a file, with times: a line for each.
fn provenance(state: &State) -> String {
    let mut text = String::new();
    let mut tell = |what: &str, actor: &Actor, at: Timestamp| {
        let command = String::from_utf8_lossy(&actor.command);
        let (Actor { uid, gid, pid, .. }, Timestamp { secs, nanos }) = (actor, at);
        // Writing to a string does not fail.
        _ = writeln!(text, "{what} time={secs}.{nanos:09} uid={uid} gid={gid} pid={pid} command={command}");
    };
    tell("created", &state.created_by, state.btime);
    if let Some(actor) = &state.written_by {
        tell("written", actor, state.mtime);
    }
    text
}
