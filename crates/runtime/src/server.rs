//! The runtime's socket: applications begin sessions there. A thread attends to each.

use crate::found::{Before, FoundSession};
use crate::gate::Gate;
use crate::handover::GivenSession;
use crate::hello::{HelloReply, send};
use crate::layout::SESSION_BYTES_MAX;
use crate::pool::{Pool, Settings};
use crate::recount::Recount;
use crate::session::{Attendant, End, Kept, Live, Mounted, Proposal};
use braid_contract::{Caller, Errno, Error, InodeId, RuntimeStatus, SessionStatus};
use braid_sys::{SocketFile, peer_groups};
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};
use rustix::net::Shutdown;
use rustix::net::sockopt::socket_peercred;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Sessions at a time: a worker that sleeps waits for one word of each.
const SESSIONS_MAX: usize = braid_sys::FUTEX_WORDS_MAX - 8;
/// The mounts that this process sees.
const MOUNTS: &str = "/proc/self/mountinfo";
/// Sessions of a user at a time.
const SESSIONS_PER_USER_MAX: usize = 48;
/// Bytes of memory of a user's sessions together, at most.
const USER_BYTES_MAX: usize = 4 * SESSION_BYTES_MAX;
/// Pause after a connection could not be accepted for lack of descriptors: there is no event
/// when some are free again.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A runtime: a socket, the sessions that began there, and workers for them.
pub struct Runtime {
    file: SocketFile,
    listener: Arc<UnixListener>,
    acceptor: Mutex<Option<JoinHandle<()>>>,
    shared: Arc<Common>,
}

/// The part that uses the file system. Threads of sessions hold it only while they talk.
struct Common {
    mounted: Mounted,
    pool: Pool,
    sessions: Arc<Mutex<Sessions>>,
    gate: Arc<Gate>,
    /// Can be read when sessions are left to another process.
    leaving: Arc<OwnedFd>,
    kept: Option<Kept>,
}

/// Time for new workers to notice that they are to wait.
const NOTICED_WITHIN: Duration = Duration::from_secs(10);

#[derive(Default)]
struct Sessions {
    present: HashMap<u64, Present>,
    next: u64,
    ended: bool,
}

/// A connection, and its session, if that has begun.
struct Present {
    socket: UnixStream,
    caller: Caller,
    /// Bytes of memory of its session, from before they are there.
    bytes: usize,
    live: Option<Arc<Live>>,
}

impl Runtime {
    /// Listens at `path`, which is replaced, for all users whom the mount lets in or only this
    /// one; goes on with sessions of another process.
    ///
    /// # Errors
    /// If there can be no socket or no thread.
    pub fn start(
        (path, open_to_all): (&Path, bool),
        settings: Settings,
        mounted: Mounted,
        before: Before,
    ) -> io::Result<Self> {
        let Before { given, found, listener, refuse, waits, keeper } = before;
        // The kernel lets no other user in there.
        let open_to_all = open_to_all && lets_others_in(&std::fs::read_to_string(MOUNTS)?, mounted.device);
        let (pool, leaving) = (Pool::start(settings)?, eventfd(0, EventfdFlags::CLOEXEC)?);
        let (sessions, gate, leaving) = (Arc::default(), Arc::default(), Arc::new(leaving));
        let kept = keeper.map(|keeper| Kept { keeper, names: Arc::default(), refuse });
        let shared = Arc::new(Common { mounted, pool, sessions, gate, leaving, kept });
        if waits {
            // There are no requests yet, and hardly a worker that could be late.
            let _ = shared.gate.pause(Instant::now());
            if !shared.pool.pause(NOTICED_WITHIN) {
                return Err(io::Error::other("the workers of the runtime do not start"));
            }
        }
        for one in given {
            let number = one.state.number;
            if let Err(error) = go_on(&shared, one) {
                tracing::warn!(%error, session = number, "a session could not go on, and ends");
                shared.has_ended(number);
            }
        }
        go_on_after_crash(&shared, found);
        let kept = listener.and_then(|socket| Some((SocketFile::of(path).ok()?, UnixListener::from(socket))));
        let (file, listener) = kept.map_or_else(|| SocketFile::listen(path, open_to_all), Ok)?;
        let listener = Arc::new(listener);
        if let Some(kept) = &shared.kept {
            kept.keeper.listens(listener.as_fd());
        }
        let acceptor = {
            let (listener, shared) = (Arc::clone(&listener), Arc::clone(&shared));
            thread::Builder::new().name("sessions".into()).spawn(move || accept(&listener, &shared))?
        };
        Ok(Self { file, listener, acceptor: Mutex::new(Some(acceptor)), shared })
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

    /// Carries no more requests out, until [`resume`](Self::resume). Returns whether none is
    /// under way within this time; if not, they are carried out as before.
    #[must_use]
    pub fn pause(&self, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        // The kernel's requests are answered as long as sessions may cause some.
        if !self.shared.gate.pause(until) {
            return false;
        }
        let quiet = !self.shared.pool.repeats()
            && self.shared.pool.pause(until.saturating_duration_since(Instant::now()));
        if !quiet {
            self.shared.gate.resume();
        }
        quiet
    }

    /// Goes on after a pause.
    pub fn resume(&self) {
        self.shared.pool.resume();
        self.shared.gate.resume();
    }

    /// Ends all sessions. When it returns, nothing of the file system is in use here.
    pub fn stop(&self) {
        self.stop_listening();
        self.end(|_| true);
        self.shared.gate.close();
        self.shared.pool.stop();
        let left = std::mem::take(&mut self.shared.sessions.lock().present);
        drop(left);
    }

    /// All sessions, for another process. Requests have to be [paused](Self::pause); when it
    /// returns, nothing of the file system is in use here, and applications wait.
    #[must_use]
    pub fn give(&self) -> Vec<GivenSession> {
        self.stop_listening();
        self.end(|session| session.live.is_none());
        self.shared.gate.close();
        if let Err(error) = rustix::io::write(&*self.shared.leaving, &1_u64.to_ne_bytes()) {
            // It is never full.
            tracing::error!(%error, "sessions can't be left");
        }
        self.shared.pool.stop();
        let shared = &self.shared;
        let left: Vec<(u64, Present)> = shared.sessions.lock().present.drain().collect();
        let given = |(number, one): (u64, Present)| {
            let live = one.live?;
            let given = live.give(&one.socket);
            let ends = |error: &io::Error| {
                tracing::warn!(%error, session = number, "a session ends, since it can't be given");
                // Others may have the socket, too.
                let _ = one.socket.shutdown(std::net::Shutdown::Both);
                shared.has_ended(number);
            };
            given.inspect_err(ends).ok()
        };
        left.into_iter().filter_map(given).collect()
    }

    fn stop_listening(&self) {
        if let Some(acceptor) = self.acceptor.lock().take() {
            self.file.remove();
            let _ = rustix::net::shutdown(&self.listener, Shutdown::Both);
            let _ = acceptor.join();
        }
    }

    /// Lets no session begin any more, and hangs up on those that `which` selects. Their threads
    /// return by themselves, unless applications keep them.
    fn end(&self, which: impl Fn(&Present) -> bool) {
        let mut sessions = self.shared.sessions.lock();
        sessions.ended = true;
        for session in sessions.present.values().filter(|session| which(session)) {
            let _ = session.socket.shutdown(std::net::Shutdown::Both);
        }
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Whether the kernel passes on requests of users other than the one who mounted.
fn lets_others_in(mounts: &str, device: u64) -> bool {
    let number = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    let mount = mounts.lines().find(|line| line.split(' ').nth(2) == Some(&number));
    let Some((_, kind)) = mount.and_then(|line| line.split_once(" - ")) else { return false };
    // The options are last, and the source before them has no space.
    let allows =
        kind.rsplit(' ').next().is_some_and(|options| options.split(',').any(|one| one == "allow_other"));
    allows || !kind.starts_with("fuse")
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
    let caller =
        Caller { uid, gid, groups: Some(peer_groups(&socket)?.into()), pid, tid: pid, of_stack: false };
    let mut sessions = shared.sessions.lock();
    let of_user = sessions.present.values().filter(|other| other.caller.uid == uid).count();
    if sessions.ended || sessions.present.len() >= SESSIONS_MAX || of_user >= SESSIONS_PER_USER_MAX {
        let error = Error::new(Errno::EAGAIN, "too many sessions; try again later");
        return send(&socket, &HelloReply::refused(&error));
    }
    let number = sessions.next;
    sessions.next += 1;
    let (attendant, who) = (shared.attendant(&socket)?, caller.clone());
    let weak = Arc::downgrade(shared);
    spawn(shared, number, attendant, move |attendant| {
        let begun = begin(&weak, number, who, attendant)?;
        if begun { attendant.attend(|| find(&weak, number)) } else { Ok(End::Over) }
    })?;
    sessions.present.insert(number, Present { socket, caller, bytes: 0, live: None });
    Ok(())
}

/// Lets a session begin: agrees on it with its application, takes it in, and gives it to the
/// application. Returns whether it has begun.
fn begin(shared: &Weak<Common>, number: u64, caller: Caller, attendant: &mut Attendant) -> io::Result<bool> {
    let Some(proposal) = attendant.negotiate(caller)? else { return Ok(false) };
    let gate = Arc::clone(&attendant.gate);
    let Some(_pass) = gate.enter() else { return Ok(false) };
    let shared = shared.upgrade().ok_or(Error::from(Errno::ENOTCONN));
    match shared.and_then(|shared| shared.begin(number, &proposal)) {
        Ok((live, ino)) => attendant.confirm(&live, ino).map(|()| true),
        Err(error) => {
            attendant.foreign.push(proposal.directory);
            attendant.refuse(&error).map(|()| false)
        }
    }
}

/// Goes on with a session of another process.
fn go_on(shared: &Arc<Common>, given: GivenSession) -> io::Result<()> {
    let number = given.state.number;
    let (live, socket) = Live::go_on(given, shared.mounted.clone(), shared.kept.clone())?;
    live.tell_keeper(&socket)?;
    attend_again(shared, number, live, socket)
}

/// Goes on with the sessions of a process that crashed. Their known inodes are counted before any
/// of them may remove one: its number must not become that of another file.
fn go_on_after_crash(shared: &Arc<Common>, found: Vec<FoundSession>) {
    let Some(kept) = &shared.kept else { return };
    let mut recount = Recount::default();
    let counted = |one: FoundSession| {
        let inodes = recount.of(&*shared.mounted.top, &one);
        (one, inodes)
    };
    let counted: Vec<_> = found.into_iter().map(counted).collect();
    let unanswered: usize = counted.iter().map(|(one, _)| unanswered(one)).sum();
    let mut again = Vec::new();
    for (one, inodes) in counted {
        let number = one.state.number;
        match restore_after_crash(shared, kept, one, inodes) {
            Ok(restored) => again.push((number, restored)),
            Err(error) => report_lost(shared, number, &error),
        }
    }
    if !again.is_empty() {
        tracing::warn!(sessions = again.len(), unanswered, "sessions go on after the crash");
    }
    for (number, (live, socket)) in again {
        if let Err(error) = attend_again(shared, number, live, socket) {
            report_lost(shared, number, &error);
        }
    }
}

/// How many requests the process that crashed did not answer.
fn unanswered(found: &FoundSession) -> usize {
    (0..found.state.geometry.queues).map(|queue| found.records.unanswered(queue).len()).sum()
}

/// Restores a session of a process that crashed.
fn restore_after_crash(
    shared: &Common,
    kept: &Kept,
    found: FoundSession,
    inodes: Vec<(InodeId, u64, u64)>,
) -> io::Result<(Live, UnixStream)> {
    let at_rest = found.records.is_at_rest();
    let restored = Live::go_on_after_crash(found, shared.mounted.clone(), inodes, kept.clone())?;
    // Its application would wait for the rest of a message.
    if at_rest { Ok(restored) } else { Err(io::ErrorKind::ConnectionAborted.into()) }
}

/// A session of a process that crashed is over.
fn report_lost(shared: &Common, number: u64, error: &io::Error) {
    tracing::warn!(%error, session = number, "a session can't go on after the crash, and ends");
    shared.has_ended(number);
}

/// Attends to a session that another process began.
fn attend_again(shared: &Arc<Common>, number: u64, live: Live, socket: UnixStream) -> io::Result<()> {
    let (caller, live) = (live.caller().clone(), Arc::new(live));
    let (attendant, weak) = (shared.attendant(&socket)?, Arc::downgrade(shared));
    shared.pool.add(&live.queues)?;
    let mut sessions = shared.sessions.lock();
    let spawned = spawn(shared, number, attendant, move |attendant| attendant.attend(|| find(&weak, number)));
    if let Err(error) = spawned {
        shared.pool.remove(number);
        return Err(error);
    }
    sessions.next = sessions.next.max(number + 1);
    let bytes = live.bytes();
    sessions.present.insert(number, Present { socket, caller, bytes, live: Some(live) });
    Ok(())
}

/// A present session, and the file system that it sees.
fn find(shared: &Weak<Common>, number: u64) -> Option<(Arc<Live>, Mounted)> {
    let shared = shared.upgrade()?;
    let live = shared.sessions.lock().present.get(&number)?.live.clone()?;
    Some((live, shared.mounted.clone()))
}

impl Common {
    /// Begins a session of this number, and has it served.
    fn begin(&self, number: u64, proposal: &Proposal) -> braid_contract::Result<(Arc<Live>, InodeId)> {
        self.claim(number, proposal.bytes())?;
        let (live, ino) = Live::begin(number, proposal, &self.mounted, self.kept.clone())?;
        self.take_in(number, &live)?;
        Ok((live, ino))
    }

    /// Counts memory for a session that is about to get it, unless its user has too much already.
    fn claim(&self, number: u64, bytes: usize) -> braid_contract::Result<()> {
        let mut sessions = self.sessions.lock();
        let gone = || Error::new(Errno::ENOTCONN, "the session has ended");
        let uid = sessions.present.get(&number).ok_or_else(gone)?.caller.uid;
        let of_user = sessions.present.values().filter(|one| one.caller.uid == uid);
        if of_user.map(|one| one.bytes).sum::<usize>() + bytes > USER_BYTES_MAX {
            return Err(Error::new(Errno::EAGAIN, "too much memory for sessions; try again later"));
        }
        sessions.present.entry(number).and_modify(|one| one.bytes = bytes);
        Ok(())
    }

    /// Has a session served.
    fn take_in(&self, number: u64, live: &Arc<Live>) -> braid_contract::Result<()> {
        self.sessions.lock().present.entry(number).and_modify(|one| one.live = Some(Arc::clone(live)));
        if let Err(error) = self.pool.add(&live.queues) {
            self.sessions.lock().present.entry(number).and_modify(|one| one.live = None);
            return Err(error.into());
        }
        let socket =
            self.sessions.lock().present.get(&number).map(|one| one.socket.try_clone()).transpose()?;
        socket.map_or(Ok(()), |socket| live.tell_keeper(&socket)).map_err(Error::from)
    }

    /// Tells the keeper that a session is over.
    fn has_ended(&self, number: u64) {
        self.kept.iter().for_each(|kept| kept.keeper.ended(number));
    }

    fn attendant(&self, socket: &UnixStream) -> io::Result<Attendant> {
        let (gate, leaving) = (Arc::clone(&self.gate), Arc::clone(&self.leaving));
        Ok(Attendant { socket: socket.try_clone()?, gate, leaving, foreign: Vec::new() })
    }
}

/// Has a thread attend to a session until it is over, or is left to another process.
fn spawn(
    shared: &Arc<Common>,
    number: u64,
    mut attendant: Attendant,
    work: impl FnOnce(&mut Attendant) -> io::Result<End> + Send + 'static,
) -> io::Result<()> {
    let (weak, sessions) = (Arc::downgrade(shared), Arc::clone(&shared.sessions));
    let body = move || {
        let ended = work(&mut attendant).unwrap_or_else(|error| {
            tracing::debug!(%error, session = number, "a session ended");
            End::Over
        });
        if ended == End::Over {
            end(&weak, number, &attendant);
        }
        // It counts until all descriptors that it brought are closed.
        drop(attendant);
        let mut sessions = sessions.lock();
        // The stop of the runtime deals with sessions that are left to it.
        if sessions.present.get(&number).is_some_and(|one| one.live.is_none()) {
            sessions.present.remove(&number);
        }
    };
    thread::Builder::new().name("session".into()).spawn(body).map(drop)
}

/// Ends a session, unless another process is about to do so.
fn end(shared: &Weak<Common>, number: u64, attendant: &Attendant) {
    if let Some(_pass) = attendant.gate.enter()
        && let Some(shared) = shared.upgrade()
    {
        shared.pool.remove(number);
        let live = shared.sessions.lock().present.get_mut(&number).and_then(|one| one.live.take());
        // Without the lock: its open files are closed.
        if let Some(live) = live {
            live.leave_workers();
        }
        shared.has_ended(number);
        // Its application learns that nothing more is answered.
        let _ = attendant.socket.shutdown(std::net::Shutdown::Both);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_not_use_the_mount_has_no_sessions() {
        let mounts = "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n\
            50 22 0:43 / /a rw,nosuid shared:9 - fuse.braid all rw,user_id=0,default_permissions,allow_other\n\
            51 22 0:44 / /b rw - fuse.braid allow_other rw,user_id=0,group_id=0,default_permissions\n";
        let lets = |minor| lets_others_in(mounts, rustix::fs::makedev(0, minor));
        assert!(lets(43) && !lets(44) && !lets(45));
        assert!(lets_others_in(mounts, rustix::fs::makedev(8, 1)));
    }
}
