//! The application's side of a session from one process to the next: its memory, its socket, and
//! which of its slots have a request. The runtime notices nothing. No thread of the process before
//! waits for an answer any more.

use super::Session;
use super::link::Link;
use super::queue::Queue;
use crate::layout::Geometry;
use crate::polling::Polling;
use braid_sys::SharedWords;
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

/// The side of an application of a session, which another process goes on with.
#[derive(Debug)]
pub struct GivenLink {
    /// Its state.
    pub state: LinkState,
    /// The session's memory.
    pub memory: OwnedFd,
    /// The connection to the runtime.
    pub socket: OwnedFd,
}

/// The state of the side of an application.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LinkState {
    geometry: Geometry,
    for_others: bool,
    poll_ns: u64,
    /// Of each queue, the slots with a request whose answer no thread waits for, the oldest first.
    posted: Vec<Vec<usize>>,
}

impl GivenLink {
    /// The same once more.
    ///
    /// # Errors
    /// If there are no descriptors left.
    pub fn try_clone(&self) -> io::Result<Self> {
        let (memory, socket) = (self.memory.try_clone()?, self.socket.try_clone()?);
        Ok(Self { state: self.state.clone(), memory, socket })
    }
}

impl Session {
    /// The session for the process that goes on with it; no thread of this one uses it any more.
    ///
    /// # Errors
    /// If there are no descriptors left.
    pub fn give(&self) -> io::Result<GivenLink> {
        let Link { memory, geometry, for_others, poll, socket, .. } = &self.link;
        let state = LinkState {
            geometry: *geometry,
            for_others: *for_others,
            poll_ns: poll.as_nanos() as u64,
            posted: self.queues.iter().map(Queue::busy).collect(),
        };
        let (memory, socket) = (memory.as_fd().try_clone_to_owned()?, socket.try_clone()?.into());
        Ok(GivenLink { state, memory, socket })
    }

    /// Goes on with the session of another process.
    ///
    /// # Errors
    /// If the state does not fit the memory, or that can't be mapped.
    pub fn go_on(given: GivenLink) -> io::Result<Arc<Self>> {
        let GivenLink { state, memory, socket } = given;
        let LinkState { geometry, for_others, poll_ns, posted } = state;
        let memory = SharedWords::open(memory)?;
        let fits = |slots: &Vec<usize>| slots.iter().all(|slot| *slot < geometry.depth);
        let is_sound = geometry.is_allowed()
            && memory.words().len() >= geometry.words()
            && posted.len() == geometry.queues
            && posted.iter().all(fits);
        if !is_sound {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "a session's state does not fit its memory",
            ));
        }
        let queues = posted.into_iter().enumerate();
        let queues = queues.map(|(index, posted)| Queue::resumed(index, geometry, posted, &memory)).collect();
        let (poll, polling) = (Duration::from_nanos(poll_ns), Polling::default());
        let link = Link { memory, geometry, for_others, poll, polling, socket: UnixStream::from(socket) };
        Ok(Arc::new(Self { link, queues }))
    }
}
