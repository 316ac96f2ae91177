//! The runtime's socket: applications begin sessions there. A thread attends to each.

use crate::handover::GivenSession;
use crate::hello::{Answer, send};
use crate::pool::{Pool, Settings};
use crate::session::{End, Live, Mounted, attend, welcome};
use braid_contract::{Caller, Errno, Error, RuntimeStatus, SessionStatus};
use braid_sys::peer_groups;
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{Mode, chmod};
use rustix::net::Shutdown;
use rustix::net::sockopt::socket_peercred;
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Sessions at a time: a worker that sleeps waits for so many words.
const SESSIONS_MAX: usize = braid_sys::FUTEX_WORDS_MAX - 8;
/// Sessions of a user at a time.
const SESSIONS_PER_USER_MAX: usize = 48;
/// Pause after a connection could not be accepted for lack of descriptors: there is no event
/// when some are free again.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A runtime: a socket, the sessions that began there, and workers for them.
pub struct Runtime {
    path: PathBuf,
    listener: Arc<UnixListener>,
    acceptor: Mutex<Option<JoinHandle<()>>>,
    shared: Arc<Common>,
}

struct Common {
    mounted: Mounted,
    pool: Pool,
    sessions: Mutex<Sessions>,
    /// Can be read when sessions are left to another process.
    leaving: OwnedFd,
}

#[derive(Default)]
struct Sessions {
    present: HashMap<u64, Present>,
    finished: Vec<JoinHandle<()>>,
    next: u64,
    ended: bool,
}

/// A connection, and its session, if that has begun.
struct Present {
    socket: UnixStream,
    caller: Caller,
    live: Option<Arc<Live>>,
    thread: Option<JoinHandle<()>>,
}

impl Runtime {
    /// Listens at `path`, which is replaced, for all users or only this one; goes on with
    /// sessions of another process.
    ///
    /// # Errors
    /// If there can be no socket or no thread.
    pub fn start(
        (path, open_to_all): (&Path, bool),
        settings: Settings,
        mounted: Mounted,
        given: Vec<GivenSession>,
    ) -> io::Result<Self> {
        let (pool, leaving) = (Pool::start(settings)?, eventfd(0, EventfdFlags::CLOEXEC)?);
        let shared = Arc::new(Common { mounted, pool, sessions: Mutex::default(), leaving });
        for one in given {
            let number = one.state.number;
            if let Err(error) = go_on(&shared, one) {
                tracing::warn!(%error, session = number, "a session could not go on, and ends");
            }
        }
        let _ = std::fs::remove_file(path);
        let listener = Arc::new(UnixListener::bind(path)?);
        chmod(path, Mode::from_raw_mode(if open_to_all { 0o666 } else { 0o600 }))?;
        let acceptor = {
            let (listener, shared) = (Arc::clone(&listener), Arc::clone(&shared));
            thread::Builder::new().name("sessions".into()).spawn(move || accept(&listener, &shared))?
        };
        Ok(Self { path: path.to_owned(), listener, acceptor: Mutex::new(Some(acceptor)), shared })
    }

    /// The runtime in figures.
    #[must_use]
    pub fn status(&self) -> RuntimeStatus {
        let mut status = self.shared.pool.status();
        let sessions = self.shared.sessions.lock();
        let begun = sessions.present.iter().filter(|(_, one)| one.live.is_some());
        let of = |(session, one): (&u64, &Present)| SessionStatus {
            session: *session,
            pid: one.caller.pid,
            uid: one.caller.uid,
        };
        status.sessions = begun.map(of).collect();
        status.sessions.sort_by_key(|one| one.session);
        status
    }

    /// Carries no more requests out, until [`resume`](Self::resume). Answers whether none is
    /// under way within this time; if not, they are carried out as before.
    #[must_use]
    pub fn pause(&self, patience: Duration) -> bool {
        self.shared.pool.pause(patience)
    }

    /// Goes on after a pause.
    pub fn resume(&self) {
        self.shared.pool.resume();
    }

    /// Ends all sessions. When it returns, nothing of the file system is in use here.
    pub fn stop(&self) {
        self.stop_listening();
        self.shared.pool.stop();
        let threads = self.end(|session| {
            let _ = session.socket.shutdown(std::net::Shutdown::Both);
        });
        threads.into_iter().for_each(|thread| drop(thread.join()));
        self.shared.sessions.lock().present.clear();
    }

    /// All sessions, for another process. Requests have to be [paused](Self::pause); when it
    /// returns, nothing of the file system is in use here, and applications wait.
    #[must_use]
    pub fn give(&self) -> Vec<GivenSession> {
        self.stop_listening();
        let threads = self.end(|session| {
            if session.live.is_none() {
                let _ = session.socket.shutdown(std::net::Shutdown::Both);
            }
        });
        if let Err(error) = rustix::io::write(&self.shared.leaving, &1_u64.to_ne_bytes()) {
            // It is never full.
            tracing::error!(%error, "sessions can't be left");
        }
        threads.into_iter().for_each(|thread| drop(thread.join()));
        self.shared.pool.stop();
        let left: Vec<Present> = self.shared.sessions.lock().present.drain().map(|(_, one)| one).collect();
        let given = |one: Present| {
            let live = one.live?;
            let given = live.give(&one.socket);
            given.inspect_err(|error| tracing::warn!(%error, "a session ends, since it can't be given")).ok()
        };
        left.into_iter().filter_map(given).collect()
    }

    fn stop_listening(&self) {
        if let Some(acceptor) = self.acceptor.lock().take() {
            let _ = std::fs::remove_file(&self.path);
            let _ = rustix::net::shutdown(&self.listener, Shutdown::Both);
            let _ = acceptor.join();
        }
    }

    /// Lets no session begin any more, and does `leave` to each; answers their threads.
    fn end(&self, leave: impl Fn(&Present)) -> Vec<JoinHandle<()>> {
        let mut sessions = self.shared.sessions.lock();
        sessions.ended = true;
        let mut threads = std::mem::take(&mut sessions.finished);
        for session in sessions.present.values_mut() {
            leave(session);
            threads.extend(session.thread.take());
        }
        threads
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Accepts until the socket is shut down.
fn accept(listener: &UnixListener, shared: &Arc<Common>) {
    loop {
        match listener.accept() {
            Ok((socket, _)) => {
                if let Err(error) = admit(socket, shared) {
                    tracing::debug!(%error, "a session could not begin");
                }
            }
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::INVAL.raw_os_error()) => return,
            Err(error) => {
                tracing::warn!(%error, "no session can begin");
                thread::sleep(ACCEPT_PAUSE);
            }
        }
    }
}

/// Takes a connection in, unless there are too many.
fn admit(socket: UnixStream, shared: &Arc<Common>) -> io::Result<()> {
    let peer = socket_peercred(&socket)?;
    let (pid, uid, gid) =
        (peer.pid.as_raw_nonzero().get().cast_unsigned(), peer.uid.as_raw(), peer.gid.as_raw());
    let caller = Caller { uid, gid, groups: Some(peer_groups(&socket)?.into()), pid, tid: pid };
    let mut sessions = shared.sessions.lock();
    // Their threads are about to return.
    for thread in std::mem::take(&mut sessions.finished) {
        let _ = thread.join();
    }
    let of_user = sessions.present.values().filter(|other| other.caller.uid == uid).count();
    if sessions.ended || sessions.present.len() >= SESSIONS_MAX || of_user >= SESSIONS_PER_USER_MAX {
        let error = Error::new(Errno::EAGAIN, "too many sessions; try again later");
        return send(&socket, &Answer::refused(&error));
    }
    let number = sessions.next;
    sessions.next += 1;
    let its = (socket.try_clone()?, caller.clone());
    let thread = spawn(shared, number, move |shared| {
        let (socket, caller) = its;
        let register = |live: &Arc<Live>| {
            shared.pool.add(&live.queues)?;
            shared.sessions.lock().present.entry(number).and_modify(|one| one.live = Some(Arc::clone(live)));
            Ok(())
        };
        match welcome(&socket, &shared.mounted, (number, caller), register)? {
            Some(live) => attend(&socket, &shared.mounted, &live, &shared.leaving),
            None => Ok(End::Over),
        }
    })?;
    sessions.present.insert(number, Present { socket, caller, live: None, thread: Some(thread) });
    Ok(())
}

/// Goes on with a session of another process.
fn go_on(shared: &Arc<Common>, given: GivenSession) -> io::Result<()> {
    let number = given.state.number;
    let (live, socket) = Live::go_on(given, shared.mounted.clone())?;
    let (caller, live) = (live.caller().clone(), Arc::new(live));
    shared.pool.add(&live.queues)?;
    let its = (socket.try_clone()?, Arc::clone(&live));
    let mut sessions = shared.sessions.lock();
    let thread =
        spawn(shared, number, move |shared| attend(&its.0, &shared.mounted, &its.1, &shared.leaving))?;
    sessions.next = sessions.next.max(number + 1);
    sessions.present.insert(number, Present { socket, caller, live: Some(live), thread: Some(thread) });
    Ok(())
}

/// Has a thread attend to a session until it is over, or is left to another process.
fn spawn(
    shared: &Arc<Common>,
    number: u64,
    work: impl FnOnce(&Common) -> io::Result<End> + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let shared = Arc::clone(shared);
    thread::Builder::new().name("session".into()).spawn(move || {
        let ended = work(&shared).unwrap_or_else(|error| {
            tracing::debug!(%error, session = number, "a session ended");
            End::Over
        });
        if ended == End::Left {
            return;
        }
        shared.pool.remove(number);
        let session = shared.sessions.lock().present.remove(&number);
        if let Some(mut session) = session {
            // Its application learns that nothing more is answered.
            let _ = session.socket.shutdown(std::net::Shutdown::Both);
            shared.sessions.lock().finished.extend(session.thread.take());
        }
    })
}
