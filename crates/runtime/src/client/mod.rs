//! The side of an application: a session, as a file system.

mod calls;
mod handover;
mod link;
mod queue;
mod rooted;
mod values;

use crate::hello::{HelloReply, HelloRequest, VERSION, receive, send};
use crate::layout::Geometry;
use crate::polling::Polling;
use braid_contract::{Class, Errno, Error, InodeId, Result, Shown};
use braid_sys::{SharedWords, pass_descriptors, receive_descriptors};
pub use handover::{GivenLink, LinkState};
use link::Link;
use queue::Queue;
pub use rooted::GroupsOf;
use rustix::fs::{Mode, OFlags};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Attempts to begin a session after a runtime hung up.
const TRIES: usize = 3;

/// The options of a session.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Its queues and their sizes.
    pub geometry: Geometry,
    /// The class of its requests.
    pub class: Class,
    /// The requests of each queue are carried out one after another, in their order.
    pub ordered: bool,
    /// Each request acts for the caller that it names, not for this process: only for root
    /// and the user who serves the mount.
    pub for_others: bool,
    /// How long a thread polls for an answer before it sleeps.
    pub poll: Duration,
}

impl Default for Options {
    fn default() -> Self {
        let (geometry, class) = (Geometry::default(), Class::default());
        Self { geometry, class, ordered: false, for_others: false, poll: Duration::from_micros(50) }
    }
}

/// A session with a runtime. Each thread uses a queue of its own, as far as there are enough.
///
/// Requests act in the name of the process that began the session, with the groups that it
/// had then, unless it acts for others.
pub struct Session {
    link: Link,
    queues: Vec<Queue>,
}

impl Session {
    /// Begins a session with the runtime at `socket`, which sees the files below the directory
    /// `dir` of its mount; returns the inode of that, too.
    ///
    /// # Errors
    /// If the directory can't be opened, no runtime listens, or it refuses.
    pub fn begin(socket: &Path, dir: &Path, options: Options) -> Result<(Arc<Self>, InodeId)> {
        let about = |what: &str, error: io::Error| {
            Error::new(Errno(error.raw_os_error().unwrap_or(Errno::EIO.0)), format!("{what}: {error}"))
        };
        let directory = open_directory(dir).map_err(|error| about(&dir.shown().to_string(), error))?;
        let mut tries = 0..TRIES;
        let (stream, Begun { memory, ino, keeps }) = loop {
            let stream = UnixStream::connect(socket).map_err(|error| about("no runtime answers", error))?;
            match ask(&stream, &directory, options) {
                Ok(begun) => break (stream, begun?),
                // If the runtime crashed, it is served by another process at the same socket.
                Err(error) if tries.next().is_some() && is_hung_up(&error) => {}
                Err(error) => return Err(about("the runtime does not answer", error)),
            }
        };
        let geometry = options.geometry;
        if memory.words().len() < geometry.words() {
            return Err(Error::new(Errno::EIO, "the runtime gives too little memory"));
        }
        let queues = (0..geometry.queues).map(|index| Queue::new(index, geometry)).collect();
        let (poll, polling) = (options.poll, Polling::default());
        let for_others = options.for_others;
        let link = Link { memory, geometry, for_others, poll, polling, socket: stream, keeps };
        Ok((Arc::new(Self { link, queues }), ino))
    }

    /// Whether the runtime has gone: no request will be answered any more.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.link.is_over()
    }

    /// The queue of this thread.
    fn queue(&self) -> &Queue {
        thread_local!(static NUMBER: usize = NEXT.fetch_add(1, Ordering::Relaxed));
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        &self.queues[NUMBER.with(|number| *number) % self.queues.len()]
    }
}

/// Whether the other side has gone.
fn is_hung_up(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
}

/// A session that a runtime has begun.
struct Begun {
    memory: SharedWords,
    /// The inode of the directory that it was shown.
    ino: InodeId,
    keeps: bool,
}

/// Asks for a session that sees a directory.
fn ask(stream: &UnixStream, directory: &OwnedFd, options: Options) -> io::Result<Result<Begun>> {
    let Options { geometry, class, ordered, for_others, .. } = options;
    let asked = send(stream, &HelloRequest::Begin { version: VERSION, geometry, class, ordered, for_others })
        .and_then(|()| send(stream, &HelloRequest::Show {}))
        .and_then(|()| pass_descriptors(stream, &[directory.as_fd()]));
    let answer = || receive(stream, None)?.ok_or(io::Error::from(io::ErrorKind::UnexpectedEof));
    // A runtime that refuses hangs up, perhaps before all was sent.
    let is_over = match asked {
        Ok(()) => false,
        Err(error) if is_hung_up(&error) => true,
        Err(error) => return Err(error),
    };
    let keeps = match answer()? {
        HelloReply::Refused { errno, why } => return Ok(Err(HelloReply::error(errno, why))),
        HelloReply::Begun { keeps, .. } if !is_over => keeps,
        HelloReply::Begun { .. } => return Err(io::ErrorKind::BrokenPipe.into()),
        HelloReply::Shown { .. } | HelloReply::Kept { .. } => return Err(io::ErrorKind::InvalidData.into()),
    };
    let memory = receive_descriptors(stream, 1)?.pop();
    let memory = SharedWords::open(memory.ok_or(io::ErrorKind::InvalidData)?)?;
    match answer()? {
        HelloReply::Shown { ino } => Ok(Ok(Begun { memory, ino: InodeId(ino), keeps })),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// A directory, of which the process needs no right but to get there.
fn open_directory(dir: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(dir, flags, Mode::empty())?)
}
