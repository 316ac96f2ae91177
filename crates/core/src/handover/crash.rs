//! The process that begins after a crash: open files are known, the rest is recovered as
//! at any mount after a crash.

use super::OpenState;
use super::take::{logged, open_again, open_dir_again};
use crate::core::Core;
use crate::live::{DirHandle, OpenFile};
use crate::recover::recover_beside;
use braid_contract::{Fd, HandleId, InodeId, OpenBefore, OpenFlags, Result, next_handle};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;

/// State that outlived a process that had a volume in use.
#[derive(Clone, Debug, Default)]
pub struct CrashState {
    /// Files and directories that were open.
    pub open: Vec<OpenBefore>,
    /// Inodes that have no name.
    pub nameless: Vec<(InodeId, Fd)>,
    /// How many processes have crashed.
    pub crashes: u64,
}

/// Recovers the volume, and goes on with its open files. Nothing uses it yet; home
/// finds inodes by number.
///
/// # Errors
/// Those of the tiers. A file that can't be opened is none: its handles answer `EBADF`.
pub fn go_on(core: &Core, state: CrashState) -> Result<()> {
    core.finds_inodes.store(true, Ordering::Relaxed);
    core.inodes.finds();
    let (mut nameless, mut in_use) = (HashMap::new(), HashSet::new());
    let open: HashSet<InodeId> = state.open.iter().map(|open| open.ino).collect();
    for (ino, fd) in state.nameless {
        // Where the process was killed before it removed the name, it still has one.
        let identity = core.home.identify(&*fd)?;
        if identity.attr.nlink > 0 && identity.attr.kind != braid_contract::FileKind::Directory {
            continue;
        }
        core.inodes.enter_found(&core.home, &identity, Fd::clone(&fd));
        core.inodes.keep_nameless(ino, Fd::clone(&fd));
        if open.contains(&ino) {
            in_use.insert(ino);
        }
        nameless.insert(ino, fd);
    }
    recover_beside(core, in_use.clone())?;
    let next = next_handle(&state.open, state.crashes);
    let files = state.open.iter().filter_map(|open| file_again(core, open, &nameless, &in_use)).collect();
    let dirs = state.open.iter().filter_map(|open| dir_again(core, open, &nameless)).collect();
    core.handles.take_over(next, files, dirs);
    Ok(())
}

fn file_again(
    core: &Core,
    open: &OpenBefore,
    nameless: &HashMap<InodeId, Fd>,
    in_use: &HashSet<InodeId>,
) -> Option<(HandleId, OpenFile)> {
    let OpenFlags { read, write, direct, sync } = open.flags?;
    let OpenBefore { handle, ino, passthrough, opener, .. } = *open;
    let state = OpenState { handle, ino, read, write, direct, sync, passthrough, opener, owed: None };
    let opened = open_again(core, &state, nameless, in_use).map(|file| (handle, file));
    logged(opened, ino)
}

fn dir_again(
    core: &Core,
    open: &OpenBefore,
    nameless: &HashMap<InodeId, Fd>,
) -> Option<(HandleId, DirHandle)> {
    if open.flags.is_some() {
        return None;
    }
    logged(open_dir_again(core, open.ino, nameless).map(|dir| (open.handle, dir)), open.ino)
}
