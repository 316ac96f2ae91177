//! The messages of the process that serves a mount to its guard. There are no answers: a message
//! arrives even if the process is killed right after.

use super::kept::Origin;
use braid_runtime::SessionState;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A message.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum GuardMessage {
    /// This process serves the mount. Another one would need this state, and the descriptors that
    /// follow it: the device, the control socket if there is one.
    Serving {
        pid: u32,
        program: String,
        #[serde(rename = "text")]
        state: Box<Value>,
        descriptors: usize,
    },
    /// The present stack, as it would have to be mounted.
    Stack { launch: Box<Value> },
    /// More memory of records, whose descriptor follows.
    Memory,
    /// An inode without a name, whose descriptor follows.
    Keep { ino: u64 },
    /// It is not needed any more.
    Release { ino: u64 },
    /// Another process would need this state of the file system at the bottom, and the descriptors
    /// that follow, in place of earlier ones.
    Bottom { state: Box<Value>, descriptors: usize },
    /// Sessions begin at a socket, whose descriptor follows.
    SessionsBegin,
    /// A session is there, whose descriptors follow: its memory, its socket, and the memory of its
    /// records.
    Session { state: Box<SessionState>, descriptors: usize },
    /// More memory of a session's records, whose descriptor follows.
    SessionMemory { session: u64 },
    /// A session is over.
    SessionEnded { session: u64 },
    /// The state of a module, as it was at a time; its `len` bytes follow.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_versions_find_the_state_by_the_name_that_they_know() {
        let serving = GuardMessage::Serving {
            pid: 1,
            program: "/braid".into(),
            state: Box::new(Value::from(7)),
            descriptors: 2,
        };
        assert_eq!(serde_json::to_value(&serving).unwrap()["serving"]["text"], 7);
    }
}
