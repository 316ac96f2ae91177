//! The messages of the process that serves a mount to its guard. There are no answers: a message
//! arrives even if the process is killed right after.

use super::kept::Origin;
use braid_runtime::SessionState;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A message.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Told {
    /// This process serves the mount. Another one would need this text, and so many
    /// descriptors, which come behind it: the device, the control socket if there is one.
    Serving { pid: u32, program: String, text: Box<Value>, descriptors: usize },
    /// The present stack, as it would have to be mounted.
    Stack { launch: Box<Value> },
    /// More memory of records, the descriptor of which comes behind it.
    Memory,
    /// An inode without a name, the descriptor of which comes behind it.
    Keep { ino: u64 },
    /// It is not needed any more.
    Release { ino: u64 },
    /// Sessions begin at a socket, the descriptor of which comes behind it.
    SessionsBegin,
    /// A session is there, of which so many descriptors come behind it: its memory, its
    /// socket, and the memory of its records.
    Session { state: Box<SessionState>, descriptors: usize },
    /// More memory of a session's records, the descriptor of which comes behind it.
    SessionMemory { session: u64 },
    /// A session is over.
    SessionEnded { session: u64 },
    /// The state of a module, as it was at a time; so many bytes of it come behind.
    State { origin: Origin, version: u32, len: u64, at_ns: u64 },
    /// The modules at these places have had the same states until this time.
    SameStates { places: Vec<u32>, at_ns: u64 },
    /// The state of the module at a place can't be kept; `None`: there are other modules.
    NoState { place: Option<u32> },
    /// If the process crashes from now on, no other can go on.
    Alone { why: String },
    /// The mount has ended.
    Ended,
}
