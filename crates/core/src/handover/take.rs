//! The process that begins: opens the files that the earlier one had open.

use super::inodes::unpack;
use super::{LiveState, OpenState};
use crate::core::Core;
use crate::file::load::load_layout;
use crate::file::open::file_of;
use crate::live::{DirHandle, File, Inode, KnownInode, Layout, OpenFile};
use braid_contract::{Access, Context, Errno, Error, Fd, HandleId, InodeId, OpenFlags, Result, TierId};
use braid_home::{Node, Numbers, RootGeneration};
use braid_placement::Origin;
use braid_tiers::Counts;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Goes on where another process ended the use of the volume. Nothing uses it yet.
///
/// # Errors
/// Those of the home tier, `EINVAL` if the state is not understood. A file that can't be
/// opened is none: its handles answer `EBADF`.
pub fn take(core: &Core, state: LiveState) -> Result<()> {
    take_numbers(core, &state)?;
    take_inodes(core, &state)?;
    if let Some(Err(error)) = state.access_times.map(|times| core.home.set_access_times(times)) {
        tracing::warn!(%error, "access times are renewed as they were when the mount began");
    }
    let nameless: HashMap<InodeId, Fd> =
        state.nameless.iter().copied().zip(state.descriptors.iter().map(Fd::clone)).collect();
    for (ino, fd) in &nameless {
        core.inodes.keep_nameless(*ino, Fd::clone(fd));
    }
    let marked: HashSet<InodeId> = state.marked.iter().copied().collect();
    core.index.take_over(state.index);
    core.removals.take_over(core.environment.monotonic_ns(), state.removals);
    take_counts(core, state.counts.as_deref());
    let mut opens = state.files;
    // An error that a descriptor has yet to report is noted first: the others have reported it.
    opens.sort_by_key(|open| open.owed.is_none());
    let files = opens.iter().filter_map(|open| {
        let opened = open_again(core, open, &nameless, &marked).map(|file| (open.handle, file));
        logged(opened, open.ino)
    });
    let files: Vec<(HandleId, OpenFile)> = files.collect();
    let dirs = state.dirs.iter().filter_map(|(handle, ino)| {
        logged(open_dir_again(core, *ino, &nameless).map(|dir| (*handle, dir)), *ino)
    });
    let dirs = dirs.collect();
    core.handles.take_over(state.next_handle, files, dirs);
    Ok(())
}

pub(super) fn logged<T>(opened: Result<T>, ino: InodeId) -> Option<T> {
    opened
        .inspect_err(|error| tracing::error!(inode = ino.0, %error, "what was open can't be opened again"))
        .ok()
}

fn take_numbers(core: &Core, state: &LiveState) -> Result<()> {
    if state.numbers.is_empty() && state.gone.is_empty() {
        return Ok(());
    }
    let mut generation = RootGeneration::open(core.home.root(), core.home.turn())?;
    let root = generation.numbers().native(InodeId::ROOT);
    let gone = state.gone.iter().copied().collect();
    generation.set_numbers(Numbers::keeping(root, state.numbers.iter().copied(), gone));
    core.home.switch_root(generation);
    Ok(())
}

fn take_inodes(core: &Core, state: &LiveState) -> Result<()> {
    let turn = core.home.turn();
    let known = unpack(&state.inodes)?.into_iter().map(|(ino, lookups, kind, handle)| {
        KnownInode::of(Inode::known(ino, kind, Node::Handle(handle, turn)), lookups)
    });
    core.inodes.replace_all(known.collect());
    // The root is among them, unless this state is none.
    core.inodes.get(InodeId::ROOT).map(drop).context("the inodes that were handed over lack the root")
}

fn take_counts(core: &Core, counts: Option<&[(TierId, u64)]>) {
    let Some(counts) = counts else { return core.tiers.set_counts(Counts::Unknown) };
    for (id, ranges) in counts {
        if let Ok(tier) = core.tiers.get(*id) {
            tier.ranges.set(*ranges);
        }
    }
    core.tiers.set_counts(Counts::Exact);
}

pub(super) fn open_again(
    core: &Core,
    open: &OpenState,
    nameless: &HashMap<InodeId, Fd>,
    marked: &HashSet<InodeId>,
) -> Result<OpenFile> {
    let inode = core.inode(open.ino)?;
    let file = match nameless.get(&open.ino) {
        Some(fd) => nameless_file(core, &inode, fd, marked.contains(&open.ino))?,
        None => file_of(core, &inode)?,
    };
    if open.write && !file.can_write() {
        file.make_writable(core.inodes.open(&core.home, &inode, Access::Write)?);
    }
    file.opened(open.passthrough)?;
    let flags = OpenFlags { read: open.read, write: open.write, direct: open.direct, sync: open.sync };
    let [uid, gid, thread] = open.opener;
    let opener = Origin { uid, gid, thread, ..Origin::default() };
    let errors_before = file.sync_errors().1;
    if let Some(owed) = open.owed.filter(|_| errors_before.is_none()) {
        file.note_sync_error(&Error::new(Errno(owed), "a sync failed before the program was exchanged"));
    }
    let opened = OpenFile::new(file, flags, open.passthrough, opener);
    if open.owed.is_some() {
        opened.owe_sync_error();
    }
    Ok(opened)
}

/// The live state of a file without a name, which has data nevertheless.
fn nameless_file(core: &Core, inode: &Arc<Inode>, fd: &Fd, is_marked: bool) -> Result<Arc<File>> {
    let mut slot = inode.file.lock();
    if let Some(file) = slot.upgrade() {
        return Ok(file);
    }
    let (data, writes) = match fd.reopen(Access::ReadWrite) {
        Ok(data) => (data, true),
        Err(_) => (fd.reopen(Access::Read)?, false),
    };
    let identity = core.home.identify(&*data)?;
    let layout = load_layout(core, inode, &data, &identity)?;
    if let Layout::Spread(spread) = &layout {
        *spread.marked.lock() = is_marked;
    }
    let file = Arc::new(File::new(Arc::clone(inode), data, writes, layout));
    file.has_no_name();
    slot.set(&file);
    Ok(file)
}

pub(super) fn open_dir_again(
    core: &Core,
    ino: InodeId,
    nameless: &HashMap<InodeId, Fd>,
) -> Result<DirHandle> {
    let inode = core.inode(ino)?;
    let fd = match nameless.get(&ino) {
        Some(fd) => fd.reopen(Access::Directory)?,
        None => core.inodes.open(&core.home, &inode, Access::Directory)?,
    };
    Ok(DirHandle::new(inode, fd))
}
