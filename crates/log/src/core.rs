//! The state that all operations work on: inodes, their log, and the room for
//! both.

use crate::actor::Actor;
use crate::inode::{Inode, State};
use crate::journal::Journal;
use crate::layout::{CHUNK_MAX, GROUP_BLOCKS, Superblock};
use crate::record::{Change, put_part};
use crate::settings::Settings;
use crate::sync::Mutex;
use crate::table::{Sharded, Table};
use braid_contract::{
    Attr, Caller, Entry, Environment, Errno, Error, FileKind, HandleId, InodeId, OpenFlags, Result, Timestamp,
};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// Nanoseconds for which the name of a process's command is believed.
const COMMAND_NS: u64 = 1_000_000_000;
/// Commands that are remembered for a worker.
const COMMANDS_MAX: usize = 256;

/// One of so many groups is left for images of files in pieces of single blocks.
const FRAGMENTATION: u64 = 64;

/// Groups for the log of one worker, and one behind an image.
pub(crate) const RECOVERY_GROUPS: i64 = 4;

/// Groups that an image of `bytes` needs, at most: records may leave a quarter of a
/// chunk empty.
pub(crate) fn groups_of_image(bytes: i64) -> i64 {
    bytes.max(0) * 4 / 3 / CHUNK_MAX as i64 + 2
}

/// Processes by their ids, and until when they are believed.
type Commands = HashMap<u32, (Arc<Actor>, u64)>;

/// A file system in use.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) journal: Journal,
    pub(crate) table: Table,
    pub(crate) handles: Sharded<Open>,
    pub(crate) settings: Settings,
    pub(crate) environment: Arc<dyn Environment>,
    /// Held by a checkpoint.
    pub(crate) anchor: Mutex<Anchor>,
    /// The number of the next segment at the last checkpoint, which each one raises.
    pub(crate) anchored_segment: AtomicU64,
    /// Groups that are free when the checkpoint ends that is under way.
    pub(crate) coming_back: AtomicI64,
    /// Held by an operation on more than one directory.
    pub(crate) renames: Mutex<()>,
    pub(crate) next_ino: AtomicU64,
    pub(crate) next_handle: AtomicU64,
    /// That of inodes that are made in this use.
    pub(crate) generation: u64,
    /// Bytes of an image of all inodes, at most.
    pub(crate) image_bytes: AtomicI64,
    /// Of each worker.
    commands: Vec<Mutex<Commands>>,
}

/// The state that the last checkpoint left.
#[derive(Debug)]
pub(crate) struct Anchor {
    pub(crate) superblock: Superblock,
    /// Groups of its image.
    pub(crate) image: Vec<u64>,
    /// Groups that the next checkpoint frees.
    pub(crate) stale: Vec<u64>,
}

/// An open file or directory.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) inode: Arc<Inode>,
    pub(crate) flags: OpenFlags,
    pub(crate) is_dir: bool,
    /// The process that opened it.
    pub(crate) actor: Arc<Actor>,
}

/// A record's changes of one inode, whose lock the caller holds.
pub(crate) struct Write<'a> {
    pub(crate) ino: u64,
    pub(crate) state: &'a mut State,
    pub(crate) changes: Vec<Change>,
}

/// The parts that a core begins with.
pub(crate) struct Start {
    pub(crate) journal: Journal,
    pub(crate) table: Table,
    pub(crate) settings: Settings,
    pub(crate) environment: Arc<dyn Environment>,
    pub(crate) anchor: Anchor,
    pub(crate) next_ino: u64,
}

impl Core {
    pub(crate) fn new(start: Start) -> Self {
        let Start { journal, table, settings, environment, anchor, next_ino } = start;
        let image_bytes = table.iter().map(|inode| inode.state.read().weight()).sum();
        let core = Self {
            commands: (0..journal.workers()).map(|_| Mutex::default()).collect(),
            anchored_segment: AtomicU64::new(journal.medium.next_segment.load(Ordering::Relaxed)),
            generation: anchor.superblock.generation,
            journal,
            table,
            handles: Sharded::default(),
            settings,
            environment,
            anchor: Mutex::new(anchor),
            coming_back: AtomicI64::new(0),
            renames: Mutex::new(()),
            next_ino: AtomicU64::new(next_ino),
            next_handle: AtomicU64::new(1),
            image_bytes: AtomicI64::new(image_bytes),
        };
        core.grow_image(0);
        core
    }

    /// The worker that a caller's operations go to.
    pub(crate) fn worker(&self, caller: &Caller) -> usize {
        caller.tid as usize % self.journal.workers()
    }

    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.environment.wall_ns())
    }

    /// Groups that an image of all inodes needs, at most.
    pub(crate) fn image_groups(&self) -> i64 {
        groups_of_image(self.image_bytes.load(Ordering::Relaxed))
    }

    /// Groups that are free but for the log, which may use them: for the next image, and for logs
    /// until there is one.
    fn floor(&self) -> i64 {
        let workers = self.journal.workers();
        least_groups(self.image_groups(), workers) + workers as i64 + 1
    }

    /// Notes that an image would be `bytes` longer.
    pub(crate) fn grow_image(&self, bytes: i64) {
        self.image_bytes.fetch_add(bytes, Ordering::Relaxed);
        let space = &self.journal.medium.space;
        // What files have becomes more pieces as it is overwritten: that lengthens this image and
        // the next.
        space.set_reserve(self.floor() + (space.blocks() / GROUP_BLOCKS / FRAGMENTATION).cast_signed());
    }

    /// Notes that an image is about to be `bytes` longer, if there is room for that.
    ///
    /// # Errors
    /// `ENOSPC` if there is none.
    fn reserve_image(&self, bytes: i64) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        self.grow_image(bytes);
        let free = self.journal.medium.space.free_groups() + self.coming_back.load(Ordering::Acquire);
        if free >= self.floor() {
            return Ok(());
        }
        self.grow_image(-bytes);
        Err(Errno::ENOSPC.into())
    }

    /// Writes one record of changes of some inodes, and then applies it to them.
    ///
    /// # Errors
    /// `ENOSPC` if there would be no room for an image, those of [`Journal::append`]; nothing is
    /// changed then.
    pub(crate) fn record(&self, worker: usize, writes: Vec<Write<'_>>) -> Result<()> {
        let mut bytes = Vec::with_capacity(256);
        for write in writes.iter().filter(|write| !write.changes.is_empty()) {
            put_part(&mut bytes, write.ino, &write.changes);
        }
        if bytes.is_empty() {
            return Ok(());
        }
        let growth = writes.iter().map(|write| write.state.growth(&write.changes)).sum::<i64>().max(0);
        self.reserve_image(growth)?;
        let record = self.journal.append(worker, &bytes).inspect_err(|_| self.grow_image(-growth))?;
        let (mut freed, mut grown) = (Vec::new(), -growth);
        for Write { state, changes, .. } in writes {
            let before = state.weight();
            state.apply(record, changes, &mut freed);
            grown += state.weight() - before;
        }
        self.journal.freed(worker, record, &freed);
        self.grow_image(grown);
        Ok(())
    }

    /// The inode of this number.
    ///
    /// # Errors
    /// `ESTALE` if there is none.
    pub(crate) fn inode(&self, ino: InodeId) -> Result<Arc<Inode>> {
        self.table.get(ino.0).ok_or_else(|| Errno::ESTALE.into())
    }

    /// The inode that a name leads to.
    ///
    /// # Errors
    /// `EUCLEAN` if there is none.
    pub(crate) fn named(&self, ino: u64) -> Result<Arc<Inode>> {
        let damaged =
            || Error::new(Errno::EUCLEAN, format!("a name leads to inode {ino}, which is not there"));
        self.table.get(ino).ok_or_else(damaged)
    }

    /// A new inode, which can be found only by its number yet.
    pub(crate) fn new_inode(&self) -> Arc<Inode> {
        let ino = self.next_ino.fetch_add(1, Ordering::Relaxed);
        Arc::new(Inode::new(ino))
    }

    /// Drops an inode that is gone and that is not known any more.
    pub(crate) fn drop_unused(&self, inode: &Inode, state: &State) {
        if state.is_gone && inode.is_unused() {
            self.table.remove(inode.ino);
        }
    }

    /// The open file of a handle.
    ///
    /// # Errors
    /// `EBADF` if there is none.
    pub(crate) fn file(&self, handle: HandleId) -> Result<Arc<Open>> {
        self.handles.get(handle.0).filter(|open| !open.is_dir).ok_or_else(|| Errno::EBADF.into())
    }

    /// The open directory of a handle.
    ///
    /// # Errors
    /// `EBADF` if there is none.
    pub(crate) fn dir(&self, handle: HandleId) -> Result<Arc<Open>> {
        self.handles.get(handle.0).filter(|open| open.is_dir).ok_or_else(|| Errno::EBADF.into())
    }

    /// Opens an inode, whose lock the caller holds.
    pub(crate) fn open(
        &self,
        caller: &Caller,
        inode: &Arc<Inode>,
        flags: OpenFlags,
        is_dir: bool,
    ) -> HandleId {
        inode.opens.fetch_add(1, Ordering::AcqRel);
        let handle = self.next_handle.fetch_add(1, Ordering::Relaxed);
        let open = Open { inode: Arc::clone(inode), flags, is_dir, actor: self.actor(caller) };
        self.handles.insert(handle, Arc::new(open));
        HandleId(handle)
    }

    /// Opens what an earlier process had open by this handle.
    pub(crate) fn open_again(&self, handle: u64, open: Open) {
        open.inode.opens.fetch_add(1, Ordering::AcqRel);
        self.handles.insert(handle, Arc::new(open));
    }

    /// The process behind an operation.
    pub(crate) fn actor(&self, caller: &Caller) -> Arc<Actor> {
        let Caller { uid, gid, pid, .. } = *caller;
        let mut known = self.commands[self.worker(caller)].lock();
        let now = self.environment.monotonic_ns();
        if let Some((actor, until)) = known.get(&pid)
            && *until > now
            && (actor.uid, actor.gid) == (uid, gid)
        {
            return Arc::clone(actor);
        }
        let command = if pid > 0 && self.settings.commands { braid_sys::task_names(pid) } else { None };
        let command = command.map_or_else(Vec::new, |(name, _)| name.into_bytes());
        let actor = Arc::new(Actor::new(uid, gid, pid, command));
        if known.len() >= COMMANDS_MAX {
            known.clear();
        }
        known.insert(pid, (Arc::clone(&actor), now + COMMAND_NS));
        actor
    }

    /// An inode as the result of a lookup: one lookup more.
    pub(crate) fn entry(&self, inode: &Inode, state: &State) -> Entry {
        inode.lookups.fetch_add(1, Ordering::AcqRel);
        Entry { attr: attr(inode.ino, state), generation: state.generation }
    }
}

/// Groups that have to be free when a checkpoint begins: for a segment that each worker
/// goes on in, and for the image; or, if the power is lost after that, for the log of one
/// worker and the image.
pub(crate) fn least_groups(image: i64, workers: usize) -> i64 {
    image + workers as i64 + RECOVERY_GROUPS
}

/// The attributes of an inode.
pub(crate) fn attr(ino: u64, state: &State) -> Attr {
    let units = match state.extents() {
        Some(extents) => extents.blocks() * 8,
        // Data in the log takes no blocks, but programs take a file without any for a
        // hole.
        None => u64::from(state.size > 0 && state.kind() == FileKind::Regular),
    };
    Attr {
        ino: InodeId(ino),
        size: state.size,
        blocks: units,
        atime: state.atime,
        mtime: state.mtime,
        ctime: state.ctime,
        btime: Some(state.btime),
        kind: state.kind(),
        mode: (state.mode & 0o7777) as u16,
        nlink: state.nlink,
        uid: state.uid,
        gid: state.gid,
        rdev: state.rdev,
        block_size: 4096,
    }
}
