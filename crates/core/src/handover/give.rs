//! The process that ends: closes files, and describes the rest.

use super::inodes::pack;
use super::{LiveState, OpenState};
use crate::core::Core;
use crate::file::home_inode::{restore_cached_time, update_home_inode};
use crate::file::open::close_file;
use crate::live::{File, Layout, OpenFile};
use braid_contract::{Fd, HandleId, InodeId, TierId};
use braid_tiers::Counts;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Ends the use of the volume in this process; the answer is for the next one. No
/// operation is under way, and no background work; none may come after. Home finds inodes
/// by handle.
pub fn give(core: &Core) -> LiveState {
    let generation = core.home.generation();
    let mut state = LiveState {
        next_handle: core.handles.next(),
        dirs: core.handles.all_dirs().iter().map(|(handle, dir)| (*handle, dir.inode().ino)).collect(),
        numbers: generation.numbers().kept().collect(),
        gone: generation.numbers().gone().collect(),
        access_times: core.home.access_times(),
        ..LiveState::default()
    };
    let mut nameless: BTreeMap<InodeId, Fd> = core.inodes.nameless().into_iter().collect();
    for (handle, open) in core.handles.all_files() {
        state.files.push(state_of(handle, &open));
        if open.file.is_nameless() {
            nameless.entry(open.file.inode.ino).or_insert_with(|| Fd::clone(open.file.data()));
            bring_home(core, &open.file);
            if is_marked(&open.file) {
                state.marked.push(open.file.inode.ino);
            }
        } else if let Err(error) = close_file(core, handle) {
            tracing::warn!(inode = open.file.inode.ino.0, %error, "closing a file that is handed over");
        }
    }
    for known in core.inodes.all() {
        if let Some(handle) = known.inode.handle() {
            pack(&mut state.inodes, (known.inode.ino, known.lookups, known.inode.kind, handle));
        }
    }
    (state.nameless, state.descriptors) = nameless.into_iter().unzip();
    // Closes change both.
    state.removals = core.removals.hand_over();
    state.index = core.index.hand_over();
    state.counts = exact_counts(core);
    state
}

fn state_of(handle: HandleId, open: &Arc<OpenFile>) -> OpenState {
    let (flags, opener) = (open.flags, open.opener);
    OpenState {
        handle,
        ino: open.file.inode.ino,
        read: flags.read,
        write: flags.write,
        direct: flags.direct,
        sync: flags.sync,
        passthrough: open.passthrough,
        opener: [opener.uid, opener.gid, opener.thread],
        owed: open.owes_sync_error().map(|errno| errno.0),
    }
}

/// A file without a name stays open, so that its data stays; its home inode has the
/// state for the next process.
fn bring_home(core: &Core, file: &File) {
    if let Err(error) = restore_cached_time(core, file).and_then(|()| update_home_inode(file)) {
        tracing::warn!(inode = file.inode.ino.0, %error, "size and times of a file without a name");
    }
}

fn is_marked(file: &File) -> bool {
    matches!(&*file.layout.read(), Layout::Spread(spread) if *spread.marked.lock())
}

fn exact_counts(core: &Core) -> Option<Vec<(TierId, u64)>> {
    let exact = core.tiers.counts() == Counts::Exact;
    exact.then(|| core.tiers.iter().map(|tier| (tier.id, tier.ranges.get())).collect())
}
