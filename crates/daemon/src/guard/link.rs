//! The side of the process that serves a mount.

use super::kept::KeptBottom;
use super::wire::GuardMessage;
use crate::peer::Peer;
use braid_contract::{Fd, InodeId};
use braid_fuse::Ledger;
use braid_ipc::protocol::Restarts;
use braid_runtime::{SessionKeeper, SessionState};
use braid_volume::Keeper;
use serde::Serialize;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long the guard may take to listen. Otherwise the process goes on without it.
const HEARD_WITHIN: Duration = Duration::from_secs(10);

/// The way to the guard.
#[derive(Debug)]
pub(crate) struct Link {
    /// `None` once it is gone.
    peer: Mutex<Option<Peer>>,
    /// No other process can go on.
    alone: AtomicBool,
    /// The guard keeps something of the file system at the bottom.
    has_bottom: AtomicBool,
}

impl Link {
    /// To the guard at the other end of this socket.
    ///
    /// # Errors
    /// Those of the socket.
    pub(crate) fn new(socket: UnixStream) -> io::Result<Self> {
        socket.set_write_timeout(Some(HEARD_WITHIN))?;
        let (alone, has_bottom) = Default::default();
        Ok(Self { peer: Mutex::new(Some(Peer(socket))), alone, has_bottom })
    }

    fn peer(&self) -> MutexGuard<'_, Option<Peer>> {
        // Each change is a single assignment.
        self.peer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends the guard a message. Without a guard, a crash of this process ends the mount.
    pub(crate) fn tell(&self, message: &GuardMessage, descriptors: &[BorrowedFd<'_>]) {
        self.say(message, |guard| guard.pass(descriptors));
    }

    /// The same, followed by bytes.
    pub(crate) fn tell_with(&self, message: &GuardMessage, bytes: &[u8]) {
        self.say(message, |guard| guard.say_bytes(bytes));
    }

    fn say(&self, message: &GuardMessage, rest: impl FnOnce(&mut Peer) -> io::Result<()>) {
        let mut peer = self.peer();
        let Some(guard) = &mut *peer else { return };
        let said = guard.say(message).and_then(|()| rest(guard));
        if let Err(error) = said {
            tracing::error!(%error, "the guard of the mount is gone: a crash of this process ends it");
            *peer = None;
        }
    }

    /// Tells the guard how the present stack would be mounted.
    pub(crate) fn stack_is(&self, launch: &impl Serialize) {
        match serde_json::to_value(launch) {
            Ok(launch) => self.tell(&GuardMessage::Stack { launch: Box::new(launch) }, &[]),
            Err(error) => self.is_alone(format!("the stack can't be told: {error}")),
        }
    }

    /// Tells the guard that this process serves the mount, and passes the data that another one
    /// would need: this state, and descriptors of the device and of the control socket.
    pub(crate) fn serves(&self, state: &impl Serialize, descriptors: &[BorrowedFd<'_>]) {
        let program = std::env::current_exe().map(|program| program.to_string_lossy().into_owned());
        match (serde_json::to_value(state), program) {
            (Ok(state), Ok(program)) => {
                let (pid, state, count) = (std::process::id(), Box::new(state), descriptors.len());
                let message = GuardMessage::Serving { pid, program, state, descriptors: count };
                self.tell(&message, descriptors);
            }
            (Err(error), _) => self.is_alone(format!("the mount can't be described: {error}")),
            (_, Err(error)) => self.is_alone(format!("the program can't be found: {error}")),
        }
    }

    /// Has the guard keep this of the file system at the bottom, in place of what it has.
    pub(crate) fn keep_bottom(&self, bottom: &KeptBottom) {
        self.has_bottom.store(true, Ordering::Relaxed);
        let KeptBottom { state, descriptors } = bottom;
        let message = GuardMessage::Bottom { state: Box::new(state.clone()), descriptors: descriptors.len() };
        self.tell(&message, &descriptors.iter().map(AsFd::as_fd).collect::<Vec<_>>());
    }

    /// Has the guard close what it keeps of the file system at the bottom, if it does, and waits for
    /// that, half a minute at most.
    pub(crate) fn release_bottom(&self) {
        if !self.has_bottom.load(Ordering::Relaxed) {
            return;
        }
        let Ok((ours, theirs)) = UnixStream::pair() else { return };
        // The guard has the only other end, until it gets the next message.
        self.keep_bottom(&KeptBottom { descriptors: vec![theirs.into()], ..KeptBottom::default() });
        self.keep_bottom(&KeptBottom::default());
        let _ = ours.set_read_timeout(Some(HEARD_WITHIN));
        if let Err(error) = (&ours).read(&mut [0]) {
            tracing::warn!(%error, "the guard of the mount may have the device open still");
        }
    }

    /// Tells the guard that no other process can go on from now on.
    pub(crate) fn is_alone(&self, why: String) {
        tracing::warn!(why, "a crash of this process ends the mount");
        self.alone.store(true, Ordering::Relaxed);
        self.tell(&GuardMessage::Alone { why }, &[]);
    }

    /// Whether another process goes on after a crash of this one.
    pub(crate) fn outlives(&self) -> bool {
        !self.alone.load(Ordering::Relaxed) && self.peer().is_some()
    }

    /// The socket, for the process that goes on; `None` if the guard is gone.
    ///
    /// # Errors
    /// If there are no descriptors left.
    pub(crate) fn socket(&self) -> io::Result<Option<OwnedFd>> {
        self.peer().as_ref().map(|peer| peer.0.as_fd().try_clone_to_owned()).transpose()
    }
}

/// How a mount is protected from crashes of the process that serves it.
#[derive(Clone, Debug, Default)]
pub(crate) struct CrashProtection {
    /// The guard, which outlives this process, if there is one.
    pub(crate) guard: Option<Guarded>,
    /// The crashes until now.
    pub(crate) restarts: Option<Restarts>,
}

impl CrashProtection {
    /// How many processes have crashed.
    pub(crate) fn crashes(&self) -> u64 {
        self.restarts.as_ref().map_or(0, |restarts| restarts.count)
    }
}

/// The guard, and the records that it keeps.
#[derive(Clone, Debug)]
pub(crate) struct Guarded {
    pub(crate) link: Arc<Link>,
    pub(crate) ledger: Arc<Ledger>,
    /// It keeps the states of modules, too: one of an earlier version doesn't understand that.
    pub(crate) keeps_states: bool,
}

impl Guarded {
    /// The mount is about to begin.
    ///
    /// # Errors
    /// Those of the socket.
    pub(crate) fn begin(socket: UnixStream) -> io::Result<Self> {
        let link = Arc::new(Link::new(socket)?);
        let ledger = Arc::new(Ledger::new(keep_memory(&link)));
        Ok(Self { link, ledger, keeps_states: true })
    }

    /// Takes over the socket and the records of an earlier process.
    ///
    /// # Errors
    /// Those of the socket; if the memory can't be mapped.
    pub(crate) fn go_on(socket: OwnedFd, memory: Vec<OwnedFd>, keeps_states: bool) -> io::Result<Self> {
        let link = Arc::new(Link::new(socket.into())?);
        let ledger = Arc::new(Ledger::found(memory, keep_memory(&link))?);
        Ok(Self { link, ledger, keeps_states })
    }

    /// The socket and all memory, for the process that goes on; nothing if the guard is
    /// gone.
    ///
    /// # Errors
    /// If there are no descriptors left.
    pub(crate) fn descriptors(&self) -> io::Result<Vec<OwnedFd>> {
        let Some(socket) = self.link.socket()? else { return Ok(Vec::new()) };
        let mut all = vec![socket];
        all.extend(self.ledger.memory()?);
        Ok(all)
    }
}

fn keep_memory(link: &Arc<Link>) -> impl Fn(BorrowedFd<'_>) -> io::Result<()> + Send + Sync + 'static {
    let link = Arc::clone(link);
    move |memory| {
        link.tell(&GuardMessage::Memory, &[memory]);
        Ok(())
    }
}

impl Keeper for Link {
    fn keep(&self, ino: InodeId, fd: &Fd) {
        match fd.kernel_fd() {
            Some(fd) => self.tell(&GuardMessage::Keep { ino: ino.0 }, &[fd.as_fd()]),
            None => tracing::debug!(ino = ino.0, "an inode without a name has no descriptor"),
        }
    }

    fn release(&self, ino: InodeId) {
        self.tell(&GuardMessage::Release { ino: ino.0 }, &[]);
    }

    fn renumber(&self) {
        self.is_alone("home was replaced since the mount".into());
    }
}

impl SessionKeeper for Link {
    fn listens(&self, listener: BorrowedFd<'_>) {
        self.tell(&GuardMessage::SessionsBegin, &[listener]);
    }

    fn begun(&self, state: &SessionState, descriptors: &[BorrowedFd<'_>]) {
        let state = Box::new(state.clone());
        self.tell(&GuardMessage::Session { state, descriptors: descriptors.len() }, descriptors);
    }

    fn grown(&self, session: u64, memory: BorrowedFd<'_>) {
        self.tell(&GuardMessage::SessionMemory { session }, &[memory]);
    }

    fn ended(&self, session: u64) {
        self.tell(&GuardMessage::SessionEnded { session }, &[]);
    }
}
