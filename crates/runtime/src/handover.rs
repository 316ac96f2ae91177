//! A session from one process of the daemon to the next: its state, and with that, as
//! descriptors, its memory and its socket. Its application notices nothing but a pause.

use crate::layout::Geometry;
use crate::ledger::OpenFile;
use crate::open::Knowledge;
use braid_contract::{Caller, Class, HandleId, InodeId, OpenFlags};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;

/// A session that another process goes on with.
#[derive(Debug)]
pub struct GivenSession {
    /// The session's state for that process.
    pub state: SessionState,
    /// The session's memory.
    pub memory: OwnedFd,
    /// The connection to its application.
    pub socket: OwnedFd,
}

impl GivenSession {
    /// The same once more.
    ///
    /// # Errors
    /// If there are no descriptors left.
    pub fn try_clone(&self) -> io::Result<Self> {
        let (memory, socket) = (self.memory.try_clone()?, self.socket.try_clone()?);
        Ok(Self { state: self.state.clone(), memory, socket })
    }
}

/// The state of a session.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SessionState {
    pub(crate) number: u64,
    pub(crate) geometry: Geometry,
    pub(crate) class: Class,
    pub(crate) ordered: bool,
    #[serde(default)]
    for_others: bool,
    /// User, group, process.
    caller: (u32, u32, u32),
    groups: Vec<u32>,
    pub(crate) read_only: bool,
    /// Directories that were shown.
    pub(crate) shown: usize,
    /// For each queue, how many requests were taken.
    pub(crate) heads: Vec<u64>,
    /// Inodes, with the lookups of each.
    inodes: Vec<(u64, u64)>,
    /// Lookups of inodes that the file system does not count.
    #[serde(default)]
    uncounted: Vec<(u64, u64)>,
    handles: Vec<Handle>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Handle {
    handle: u64,
    ino: u64,
    read: bool,
    write: bool,
    #[serde(default)]
    direct: bool,
    #[serde(default)]
    sync: bool,
    directory: bool,
}

/// The fixed terms of a session.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    pub(crate) geometry: Geometry,
    pub(crate) class: Class,
    pub(crate) ordered: bool,
    /// Each request is of the caller that it names.
    pub(crate) for_others: bool,
    pub(crate) caller: Caller,
}

impl SessionState {
    /// The session's number.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn of(
        number: u64,
        terms: &Terms,
        (read_only, shown): (bool, usize),
        heads: Vec<u64>,
        known: &Knowledge,
    ) -> Self {
        let Terms { geometry, class, ordered, for_others, caller } = terms;
        let handles = known.handles.iter().map(|(handle, opened)| Handle {
            handle: handle.0,
            ino: opened.ino.0,
            read: opened.flags.read,
            write: opened.flags.write,
            direct: opened.flags.direct,
            sync: opened.flags.sync,
            directory: opened.directory,
        });
        let uncounted = known.inodes.iter().filter(|(_, _, uncounted)| *uncounted > 0);
        Self {
            number,
            geometry: *geometry,
            class: *class,
            ordered: *ordered,
            for_others: *for_others,
            caller: (caller.uid, caller.gid, caller.pid),
            groups: caller.groups.as_deref().unwrap_or_default().to_vec(),
            read_only,
            shown,
            heads,
            inodes: known.inodes.iter().map(|(ino, count, _)| (ino.0, *count)).collect(),
            uncounted: uncounted.map(|(ino, _, uncounted)| (ino.0, *uncounted)).collect(),
            handles: handles.collect(),
        }
    }

    /// User, group and process.
    pub(crate) fn caller(&self) -> (u32, u32, u32) {
        self.caller
    }

    pub(crate) fn terms(&self) -> Terms {
        let (uid, gid, pid) = self.caller;
        let caller =
            Caller { uid, gid, groups: Some(self.groups.clone().into()), pid, tid: pid, of_stack: false };
        let Self { geometry, class, ordered, for_others, .. } = *self;
        Terms { geometry, class, ordered, for_others, caller }
    }

    pub(crate) fn knowledge(&self) -> Knowledge {
        let opened = |handle: &Handle| {
            let Handle { handle, ino, read, write, direct, sync, directory } = *handle;
            let flags = OpenFlags { read, write, direct, sync };
            (HandleId(handle), OpenFile { ino: InodeId(ino), flags, directory })
        };
        let uncounted: HashMap<u64, u64> = self.uncounted.iter().copied().collect();
        let inode = |(ino, count): &(u64, u64)| {
            (InodeId(*ino), *count, uncounted.get(ino).copied().unwrap_or_default())
        };
        Knowledge {
            inodes: self.inodes.iter().map(inode).collect(),
            handles: self.handles.iter().map(opened).collect(),
        }
    }
}
