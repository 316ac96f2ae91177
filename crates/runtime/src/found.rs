//! Sessions that a runtime goes on with: those that another process handed over, and those of a
//! process that crashed (LabStor §3.3).

use crate::handover::{GivenSession, SessionState};
use crate::keeper::SessionKeeper;
use crate::ledger::Records;
use braid_contract::{HandleId, InodeId, OpenFlags};
use rustix::net::{Shutdown, shutdown};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// A session of a process that crashed.
#[derive(Debug)]
pub struct FoundSession {
    pub(crate) state: SessionState,
    pub(crate) memory: OwnedFd,
    pub(crate) socket: OwnedFd,
    pub(crate) records: Records,
}

/// An open file of a session.
#[derive(Clone, Copy, Debug)]
pub struct SessionFile {
    /// Its handle, which it keeps.
    pub handle: HandleId,
    /// The inode.
    pub ino: InodeId,
    /// How a file was opened; `None` for a directory.
    pub flags: Option<OpenFlags>,
    /// User, group and process of the session.
    pub opener: [u32; 3],
}

impl FoundSession {
    /// A session from the state that its [keeper](SessionKeeper) got when it began, and these
    /// descriptors: its memory, its socket, and the memory of its records.
    ///
    /// # Errors
    /// If some are missing, or not of the right size.
    pub fn new(state: SessionState, descriptors: Vec<OwnedFd>) -> io::Result<Self> {
        let mut descriptors = descriptors.into_iter();
        let (Some(memory), Some(socket)) = (descriptors.next(), descriptors.next()) else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        let records = Records::open(state.geometry, descriptors.collect());
        // Others have the socket, too: its application would wait for ever.
        let records = records.inspect_err(|_| _ = shutdown(&socket, Shutdown::Both))?;
        Ok(Self { state, memory, socket, records })
    }

    /// Its open files that its application knows of.
    #[must_use]
    pub fn open(&self) -> Vec<SessionFile> {
        let (uid, gid, pid) = self.state.caller();
        let open = self.records.handles().into_iter().map(|(handle, opened)| SessionFile {
            handle,
            ino: opened.ino,
            flags: (!opened.directory).then_some(opened.flags),
            opener: [uid, gid, pid],
        });
        open.collect()
    }

    /// The same once more.
    ///
    /// # Errors
    /// If there are no descriptors left.
    pub fn try_clone(&self) -> io::Result<Self> {
        let (memory, socket) = (self.memory.try_clone()?, self.socket.try_clone()?);
        Ok(Self { state: self.state.clone(), memory, socket, records: self.records.try_clone()? })
    }
}

/// Sessions that a runtime goes on with, and the keeper of its own.
#[derive(Default)]
pub struct Before {
    /// Sessions of a process that handed them over.
    pub given: Vec<GivenSession>,
    /// Those of one that crashed.
    pub found: Vec<FoundSession>,
    /// The socket at which they began, in place of another one.
    pub listener: Option<OwnedFd>,
    /// Requests that the crashed process did not answer are refused.
    pub refuse: bool,
    /// No request is carried out before the runtime is [resumed](crate::Runtime::resume).
    pub waits: bool,
    /// Keeps sessions for a process that goes on after a crash of this one.
    pub keeper: Option<Arc<dyn SessionKeeper>>,
}
