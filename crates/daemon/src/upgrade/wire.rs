//! Messages between the two processes, with descriptors: a length, JSON, then one byte
//! for each group of descriptors.

use super::launch::Launch;
use super::state::Text;
use braid_sys::{pass_descriptors, receive_descriptors};
use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// The version of this conversation, and of what is handed over. Fields may be added to
/// either without a new one, if the other side can do without them.
pub(super) const VERSION: u32 = 1;

/// How long the requests may take that were made to hold others up. Until they are
/// answered, the mount can't be unmounted.
pub(super) const SETTLED_WITHIN: Duration = Duration::from_secs(2);

/// The longest message, in bytes: that of a million open files.
const MESSAGE_MAX: u64 = 1 << 30;

/// What one process says to the other, in this order.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Message {
    /// The heir is there.
    Hello { version: u32, program: String },
    /// What it would have to mount.
    Offer(Box<Launch>),
    /// It could, as far as it can tell.
    Ready,
    /// What is handed over, with descriptors: the device, the control socket, and inodes
    /// without a name. The packed inodes come behind it, as so many bytes.
    Gift { text: Box<Text>, inodes: u64, descriptors: usize },
    /// The heir serves the mount.
    Serving,
    /// It does not, and has not changed anything.
    Failed { why: String },
}

/// One end of the conversation.
#[derive(Debug)]
pub(super) struct Peer(pub(super) UnixStream);

impl Peer {
    pub(super) fn say(&mut self, message: &Message) -> io::Result<()> {
        let text = serde_json::to_vec(message)?;
        self.0.write_all(&(text.len() as u64).to_le_bytes())?;
        self.0.write_all(&text)
    }

    pub(super) fn hear(&mut self) -> io::Result<Message> {
        let mut len = [0; 8];
        self.0.read_exact(&mut len)?;
        let len = u64::from_le_bytes(len);
        if len > MESSAGE_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a message of {len} bytes")));
        }
        Ok(serde_json::from_slice(&self.hear_bytes(len)?)?)
    }

    pub(super) fn say_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)
    }

    pub(super) fn hear_bytes(&mut self, len: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        (&mut self.0).take(len).read_to_end(&mut bytes)?;
        if bytes.len() as u64 == len { Ok(bytes) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    pub(super) fn pass(&mut self, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        pass_descriptors(&self.0, descriptors)
    }

    pub(super) fn receive(&mut self, count: usize) -> io::Result<Vec<OwnedFd>> {
        receive_descriptors(&self.0, count)
    }
}
