//! One end of a conversation between two processes, with descriptors: a length, JSON, then
//! one byte for each group of descriptors. Used by `upgrade` and `guard`.

use braid_sys::{pass_descriptors, receive_descriptors};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, Read, Write};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// The longest message, in bytes: that of a million open files.
const MESSAGE_MAX: u64 = 1 << 30;

/// One end of the conversation.
#[derive(Debug)]
pub(crate) struct Peer(pub(crate) UnixStream);

impl Peer {
    pub(crate) fn say(&mut self, message: &impl Serialize) -> io::Result<()> {
        let text = serde_json::to_vec(message)?;
        let whole = [&(text.len() as u64).to_le_bytes()[..], &text].concat();
        self.0.write_all(&whole)
    }

    pub(crate) fn hear<T: DeserializeOwned>(&mut self) -> io::Result<T> {
        let mut len = [0; 8];
        self.0.read_exact(&mut len)?;
        let len = u64::from_le_bytes(len);
        if len > MESSAGE_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a message of {len} bytes")));
        }
        Ok(serde_json::from_slice(&self.hear_bytes(len)?)?)
    }

    pub(crate) fn say_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)
    }

    pub(crate) fn hear_bytes(&mut self, len: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        (&mut self.0).take(len).read_to_end(&mut bytes)?;
        if bytes.len() as u64 == len { Ok(bytes) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    pub(crate) fn pass(&mut self, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        pass_descriptors(&self.0, descriptors)
    }

    pub(crate) fn receive(&mut self, count: usize) -> io::Result<Vec<OwnedFd>> {
        receive_descriptors(&self.0, count)
    }
}
