//! The process that serves the mount so far, as seen from the one that takes it over.

use super::launch::Launch;
use super::packed::PackedMount;
use super::suspended::SuspendedMount;
use super::wire::{Message, SETTLED_WITHIN, VERSION};
use crate::peer::Peer;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

/// The process that serves the mount so far, and waits for this one to take it over.
#[derive(Debug)]
pub struct Predecessor(Peer);

/// A mount that was handed over.
#[derive(Debug)]
pub struct ReceivedMount {
    pub(crate) predecessor: Predecessor,
    pub(crate) suspended: SuspendedMount,
}

impl Predecessor {
    /// Reports through the standard input, a socket, that this program has started; the answer has
    /// the mount's configuration.
    ///
    /// # Errors
    /// If there is no such process at the other end.
    pub fn come() -> io::Result<(Self, Launch)> {
        let stream = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned()?);
        let mut peer = Peer(stream);
        let program = env!("CARGO_PKG_VERSION").to_owned();
        peer.say(&Message::Hello { version: VERSION, program })?;
        match peer.hear()? {
            Message::Offer(launch) => Ok((Self(peer), *launch)),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// Accepts; the answer comes when the other process has ended its use of the volume.
    ///
    /// # Errors
    /// If it went on by itself.
    pub fn accept(mut self) -> io::Result<ReceivedMount> {
        self.0.say(&Message::Ready)?;
        let Message::Mount { state, inodes, descriptors } = self.0.hear()? else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        let inodes = self.0.hear_bytes(inodes)?;
        let descriptors = self.0.receive(descriptors)?;
        let suspended = PackedMount { state: *state, inodes, descriptors }.unpack()?;
        Ok(ReceivedMount { predecessor: self, suspended })
    }

    /// Refuses.
    pub fn refuse(mut self, why: &str) {
        // The other process may be gone.
        let _ = self.0.say(&Message::Failed { why: why.to_owned() });
    }

    /// Reports that the mount is served: the other process ends.
    ///
    /// # Errors
    /// If it has ended already.
    pub(crate) fn serves(&mut self) -> io::Result<()> {
        self.0.say(&Message::Serving)
    }

    /// Waits until the other process is done with the mount.
    pub(crate) fn await_end(mut self) {
        // It sends nothing else: this is its end, or too late.
        let _ = self.0.0.set_read_timeout(Some(2 * SETTLED_WITHIN));
        let _ = self.0.hear::<Message>();
    }
}
