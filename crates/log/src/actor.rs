//! Provenance: the creator and the last writer of a file.

use crate::codec::{Put, Take};
use std::sync::Arc;

/// Bytes of a command's name that are kept, as many as the kernel keeps.
const COMMAND_BYTES_MAX: usize = 15;

/// The process behind an operation, as it was then.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Actor {
    /// Its user.
    pub(crate) uid: u32,
    /// Its group.
    pub(crate) gid: u32,
    /// Its id; 0 if it is not known.
    pub(crate) pid: u32,
    /// The name of its command, up to 15 bytes; empty if it is not known.
    pub(crate) command: Vec<u8>,
}

impl Actor {
    pub(crate) fn new(uid: u32, gid: u32, pid: u32, mut command: Vec<u8>) -> Self {
        command.truncate(COMMAND_BYTES_MAX);
        Self { uid, gid, pid, command }
    }

    pub(crate) fn put(&self, to: &mut Vec<u8>) {
        to.put_number(self.uid.into());
        to.put_number(self.gid.into());
        to.put_number(self.pid.into());
        to.put_bytes(&self.command);
    }

    pub(crate) fn take(take: &mut Take<'_>) -> Option<Arc<Self>> {
        let (uid, gid, pid) = (take.small()?, take.small()?, take.small()?);
        Some(Arc::new(Self::new(uid, gid, pid, take.bytes()?.to_vec())))
    }
}
