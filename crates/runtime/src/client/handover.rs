//! The application's side of a session from one process to the next: its memory, its socket, and
//! which of its slots have a request. The runtime notices nothing. No thread of the process before
//! waits for an answer any more. After a crash, the memory has which requests were submitted.

use super::Session;
use super::link::Link;
use super::queue::Queue;
use crate::hello::{HelloReply, HelloRequest, receive, send};
use crate::layout::Geometry;
use crate::polling::Polling;
use braid_contract::HandleId;
use braid_sys::{SharedWords, pass_descriptors};
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

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
    #[serde(default)]
    keeps: bool,
    /// Of each queue, the slots with a request whose answer no thread waits for, the oldest first.
    /// After a crash, the memory says so.
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
        let Link { memory, geometry, for_others, poll, socket, keeps, .. } = &self.link;
        let state = LinkState {
            geometry: *geometry,
            for_others: *for_others,
            poll_ns: poll.as_nanos() as u64,
            keeps: *keeps,
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
        let memory = SharedWords::open(memory)?;
        let (geometry, posted) = (state.geometry, &state.posted);
        let fits = |slots: &Vec<usize>| slots.iter().all(|slot| *slot < geometry.depth);
        state.fits(&memory, posted.len() == geometry.queues && posted.iter().all(fits))?;
        let queues = posted.iter().cloned().enumerate();
        let queues = queues.map(|(index, posted)| Queue::resumed(index, geometry, posted, &memory)).collect();
        Ok(Arc::new(Self { link: state.link(memory, socket), queues }))
    }

    /// Why no process could go on with the session after a crash of this one; `None` if one could.
    #[must_use]
    pub fn ends_with_process(&self) -> Option<&'static str> {
        (!self.link.keeps).then_some("the runtime is of an earlier version, which can't go on with a session")
    }

    /// Goes on with the session of a process that crashed, of which `given` was taken at any time
    /// before. Requests that it had submitted are carried out first; files other than those that are
    /// `open` are closed, since no answer about them arrived.
    ///
    /// # Errors
    /// If the state does not fit the memory, that can't be mapped, or the runtime has gone.
    pub fn go_on_after_crash(given: GivenLink, open: &[HandleId]) -> io::Result<Arc<Self>> {
        let GivenLink { state, memory, socket } = given;
        let memory = SharedWords::open(memory)?;
        state.fits(&memory, true)?;
        let queues =
            (0..state.geometry.queues).map(|index| Queue::after_crash(index, state.geometry, &memory));
        let queues = queues.collect::<Vec<_>>();
        let link = state.link(memory, socket);
        // The process may have ended before it woke anyone.
        link.ring();
        let settled = queues.iter().try_for_each(|queue| queue.settle(&link));
        settled.map_err(|failure| io::Error::other(failure.why))?;
        keep(&link.socket, open)?;
        Ok(Arc::new(Self { link, queues }))
    }
}

/// Has the runtime close all files but these.
fn keep(socket: &UnixStream, open: &[HandleId]) -> io::Result<()> {
    let memory = SharedWords::create("braid-handles", open.len().max(1))?;
    memory.words().iter().zip(open).for_each(|(word, handle)| word.store(handle.0, Ordering::Relaxed));
    // Of a process that crashed while it did the same, the answer may still come, or half of it.
    let token = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_nanos() as u64);
    send(socket, &HelloRequest::Keep { count: open.len(), token })?;
    pass_descriptors(socket, &[memory.as_fd()])?;
    loop {
        match receive(socket, None) {
            Ok(Some(HelloReply::Kept { token: other })) if other == token => return Ok(()),
            Ok(Some(HelloReply::Kept { .. })) => {}
            Ok(Some(_)) => return Err(io::ErrorKind::InvalidData.into()),
            Ok(None) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {}
            Err(error) => return Err(error),
        }
    }
}

impl LinkState {
    /// Refuses memory of another size, or a state that is not `sound`.
    fn fits(&self, memory: &SharedWords, sound: bool) -> io::Result<()> {
        if self.geometry.is_allowed() && memory.words().len() >= self.geometry.words() && sound {
            return Ok(());
        }
        Err(io::Error::new(io::ErrorKind::InvalidData, "a session's state does not fit its memory"))
    }

    fn link(&self, memory: SharedWords, socket: OwnedFd) -> Link {
        let Self { geometry, for_others, keeps, .. } = *self;
        let (poll, polling) = (Duration::from_nanos(self.poll_ns), Polling::default());
        Link { memory, geometry, for_others, poll, polling, socket: UnixStream::from(socket), keeps }
    }
}
