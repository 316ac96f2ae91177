//! Hands a volume in use from one process to the next (LabStor §3.3, live upgrade): its
//! state in memory, in a form that another version of the program reads.
//!
//! Files with a name are closed, and opened anew by the next process, which finds on the
//! tiers the state that a close leaves there. Unsynced data stays so: the kernel has it.
//! Everything that the next process can't find there is handed over: open handles,
//! inodes and files without a name, marks, and pending removals.

mod crash;
mod give;
mod inodes;
mod take;

pub use crash::{CrashState, go_on};
pub use give::give;
pub use take::take;

use crate::live::RemovalState;
use braid_contract::{AccessTimes, Fd, HandleId, InodeId, TierId};
use braid_index::IndexState;
use serde::{Deserialize, Serialize};

/// The state in memory of a volume in use.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct LiveState {
    next_handle: u64,
    files: Vec<OpenState>,
    dirs: Vec<(HandleId, InodeId)>,
    /// Public numbers that are not the native ones, by native number; and public ones
    /// that belong to no inode.
    numbers: Vec<(u64, InodeId)>,
    gone: Vec<InodeId>,
    /// As they were set last, by the mount or later.
    access_times: Option<AccessTimes>,
    removals: RemovalState,
    index: IndexState,
    /// How many ranges each tier has, if that is known for sure.
    counts: Option<Vec<(TierId, u64)>>,
    /// The inodes that have no name, in the order of their descriptors.
    nameless: Vec<InodeId>,
    /// Open files without a name that have a mark as files that are ahead of their home
    /// inode, which the next process takes away.
    marked: Vec<InodeId>,
    /// All known inodes, packed.
    #[serde(skip)]
    inodes: Vec<u8>,
    #[serde(skip)]
    descriptors: Vec<Fd>,
}

/// An open file.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct OpenState {
    handle: HandleId,
    ino: InodeId,
    read: bool,
    write: bool,
    direct: bool,
    sync: bool,
    passthrough: bool,
    /// User, group and thread of the opener.
    opener: [u32; 3],
    /// The error of an earlier sync that it has yet to report.
    owed: Option<i32>,
}

impl LiveState {
    /// The parts that are no text: the packed inodes, and the descriptors of inodes
    /// without a name.
    #[must_use]
    pub fn parts(&self) -> (&[u8], &[Fd]) {
        (&self.inodes, &self.descriptors)
    }

    /// The whole, made of its text and these parts.
    #[must_use]
    pub fn with_parts(self, inodes: Vec<u8>, descriptors: Vec<Fd>) -> Self {
        Self { inodes, descriptors, ..self }
    }
}
