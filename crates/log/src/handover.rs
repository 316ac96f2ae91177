//! Hands a file system in use from one process to the next (`LabStor` §3.3, live upgrade): the
//! part of its state that is not on the device, in a form that another version of the program
//! recognises. Inodes and names are on the device, which the next process reads as after a close;
//! here are open files, what the kernel knows, and inodes that are gone but not forgotten. After a
//! crash there is less: see [`after_crash`](crate::after_crash).

use crate::actor::Actor;
use crate::codec::{Put, Take};
use crate::core::{Core, Open};
use crate::inode::Inode;
use crate::load::Loaded;
use crate::record::{Change, Part, put_part, take_parts};
use braid_contract::{Errno, Error, OpenFlags, Result};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The version of the packed form.
const VERSION: u8 = 2;

/// The flags of an open file or directory, as bits.
const READ: u8 = 1;
const WRITE: u8 = 2;
const DIRECT: u8 = 4;
const SYNC: u8 = 8;
const DIRECTORY: u8 = 16;

/// The state in memory of a file system in use, for the process that goes on with it.
#[derive(Clone, Default)]
pub struct LiveLog {
    uuid: [u8; 16],
    last_record: u64,
    next_ino: u64,
    next_handle: u64,
    inodes: Vec<LiveInode>,
    handles: Vec<LiveHandle>,
}

/// An inode of which there is more to know than the device has.
#[derive(Clone, Default)]
struct LiveInode {
    ino: u64,
    lookups: u64,
    may_be_known: bool,
    /// Of one that is gone: the changes that make it so.
    gone: Option<Vec<Change>>,
}

/// An open file or directory.
#[derive(Clone)]
struct LiveHandle {
    handle: u64,
    ino: u64,
    bits: u8,
    actor: Arc<Actor>,
}

impl std::fmt::Debug for LiveLog {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (inodes, handles) = (self.inodes.len(), self.handles.len());
        write!(to, "LiveLog {{ {inodes} inodes, {handles} handles, record {} }}", self.last_record)
    }
}

impl LiveLog {
    /// Gathers the state of a file system that no operation uses any more, and whose records are
    /// all on the device.
    pub(crate) fn of(core: &Core) -> Self {
        let mut handles: Vec<LiveHandle> =
            core.handles.iter_numbered().map(|(handle, open)| LiveHandle::of(handle, &open)).collect();
        handles.sort_unstable_by_key(|handle| handle.handle);
        let live = |inode: Arc<Inode>| LiveInode::of(&inode);
        Self {
            uuid: core.anchor.lock().superblock.uuid,
            last_record: core.journal.last_record(),
            next_ino: core.next_ino.load(Ordering::Relaxed),
            next_handle: core.next_handle.load(Ordering::Relaxed),
            inodes: core.table.iter().filter_map(live).collect(),
            handles,
        }
    }

    /// The packed form.
    #[must_use]
    pub fn pack(&self) -> Vec<u8> {
        let mut to = vec![VERSION];
        to.extend_from_slice(&self.uuid);
        for number in [self.last_record, self.next_ino, self.next_handle, self.inodes.len() as u64] {
            to.put_number(number);
        }
        self.inodes.iter().for_each(|inode| inode.put(&mut to));
        to.put_number(self.handles.len() as u64);
        for LiveHandle { handle, ino, bits, actor } in &self.handles {
            to.put_number(*handle);
            to.put_number(*ino);
            to.put_u8(*bits);
            actor.put(&mut to);
        }
        to
    }

    /// The state that was [packed](Self::pack).
    ///
    /// # Errors
    /// `EINVAL` if it is of another version, or makes no sense.
    pub fn unpack(bytes: &[u8]) -> Result<Self> {
        let mut take = Take::new(bytes);
        let version = take.u8();
        if version != Some(VERSION) {
            let version = version.map_or_else(|| "no version".to_owned(), |version| version.to_string());
            let text = format!("a log's state is handed over in form {version}, and {VERSION} is understood");
            return Err(Error::new(Errno::EINVAL, text));
        }
        let unpacked = Self::take(&mut take).filter(|_| take.is_empty());
        unpacked.ok_or_else(|| Error::new(Errno::EINVAL, "the state of a log that is handed over is damaged"))
    }

    fn take(take: &mut Take<'_>) -> Option<Self> {
        let uuid = take.take(16)?.try_into().ok()?;
        let (last_record, next_ino, next_handle) = (take.number()?, take.number()?, take.number()?);
        let (mut inodes, mut handles) = (Vec::new(), Vec::new());
        for _ in 0..take.number()? {
            inodes.push(LiveInode::take(take)?);
        }
        for _ in 0..take.number()? {
            let (handle, ino, bits) = (take.number()?, take.number()?, take.u8()?);
            handles.push(LiveHandle { handle, ino, bits, actor: Actor::take(take)? });
        }
        Some(Self { uuid, last_record, next_ino, next_handle, inodes, handles })
    }

    /// The inodes that are open: without a name, they stay.
    pub(crate) fn open(&self) -> HashSet<u64> {
        self.handles.iter().map(|handle| handle.ino).collect()
    }

    /// Refuses a file system that is not the one that was given, as it was then.
    ///
    /// # Errors
    /// `ESTALE`.
    pub(crate) fn is_of(&self, loaded: &Loaded) -> Result<()> {
        if self.uuid != loaded.superblock.uuid {
            return Err(Error::new(Errno::ESTALE, "another log file system is there now"));
        }
        if self.last_record != loaded.last_record {
            let text = format!(
                "the log file system ends with record {}, and was given away with {} as the last",
                loaded.last_record, self.last_record
            );
            return Err(Error::new(Errno::ESTALE, text));
        }
        Ok(())
    }

    /// Goes on from this state.
    ///
    /// # Errors
    /// `ESTALE` if it does not fit what is on the device.
    pub(crate) fn restore(self, core: &Core) -> Result<()> {
        core.next_ino.fetch_max(self.next_ino, Ordering::Relaxed);
        core.next_handle.fetch_max(self.next_handle, Ordering::Relaxed);
        for inode in self.inodes {
            inode.restore(core)?;
        }
        for LiveHandle { handle, ino, bits, actor } in self.handles {
            let inode = core.table.get(ino).ok_or_else(|| missing(ino))?;
            let has = |bit| bits & bit != 0;
            let flags =
                OpenFlags { read: has(READ), write: has(WRITE), direct: has(DIRECT), sync: has(SYNC) };
            core.open_again(handle, Open { inode, flags, is_dir: has(DIRECTORY), actor });
        }
        Ok(())
    }
}

fn missing(ino: u64) -> Error {
    Error::new(Errno::ESTALE, format!("inode {ino}, which is in use, is not there"))
}

impl LiveHandle {
    fn of(handle: u64, open: &Open) -> Self {
        let OpenFlags { read, write, direct, sync } = open.flags;
        let bits = [(read, READ), (write, WRITE), (direct, DIRECT), (sync, SYNC), (open.is_dir, DIRECTORY)];
        let bits = bits.iter().filter(|(is_set, _)| *is_set).map(|(_, bit)| bit).sum();
        Self { handle, ino: open.inode.ino, bits, actor: Arc::clone(&open.actor) }
    }
}

impl LiveInode {
    /// `None` if the device has all that is to know.
    fn of(inode: &Inode) -> Option<Self> {
        let state = inode.state.read();
        let lookups = inode.lookups.load(Ordering::Acquire);
        let may_be_known = inode.may_be_known.load(Ordering::Acquire);
        let gone = state.is_gone.then(|| state.describe_gone());
        (!inode.is_unused()).then_some(Self { ino: inode.ino, lookups, may_be_known, gone })
    }

    fn put(&self, to: &mut Vec<u8>) {
        to.put_number(self.ino);
        to.put_number(self.lookups);
        to.put_u8(self.may_be_known.into());
        let mut gone = Vec::new();
        self.gone.iter().for_each(|changes| put_part(&mut gone, self.ino, changes));
        to.put_bytes(&gone);
    }

    fn take(take: &mut Take<'_>) -> Option<Self> {
        let (ino, lookups, may_be_known) = (take.number()?, take.number()?, take.u8()? != 0);
        let gone: Option<Part> = take_parts(take.bytes()?)?.pop();
        Some(Self { ino, lookups, may_be_known, gone: gone.map(|(_, changes)| changes) })
    }

    fn restore(self, core: &Core) -> Result<()> {
        let Self { ino, lookups, may_be_known, gone } = self;
        if let Some(changes) = gone {
            let inode = Inode::new(ino);
            inode.state.write().apply(0, changes, &mut Vec::new());
            core.table.insert(ino, Arc::new(inode));
        }
        let inode = core.table.get(ino).ok_or_else(|| missing(ino))?;
        inode.lookups.store(lookups, Ordering::Release);
        inode.may_be_known.store(may_be_known, Ordering::Release);
        Ok(())
    }
}
