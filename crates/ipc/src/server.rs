//! The server: a listening socket, and a thread for each connection.
//!
//! Every user may connect, so no client may stop the daemon or keep others out:
//! lines are limited in length, silent connections are closed, and each user
//! has a limited number of connections.

use crate::handler::{Handler, VolumeHandler};
use crate::protocol::{
    Done, Ended, ErrorReply, KvAnswer, KvOperation, KvRequest, PROTOCOL, REQUEST_BYTES_MAX, Reply, ReplyLine,
    Request, RequestLine,
};
use braid_contract::Caller;
use braid_contract::key_value::VALUE_MAX;
use braid_sys::SocketFile;
use rustix::net::Shutdown;
use rustix::net::sockopt::socket_peercred;
use rustix::process::geteuid;
use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Most connections of one user at a time.
const CONNECTIONS_PER_USER_MAX: usize = 16;
/// Most connections at a time.
const CONNECTIONS_MAX: usize = 128;
/// Connections that wait to be accepted, at most.
const BACKLOG: i32 = 128;
/// Time limit for a client to send a request or to take an answer.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for clients to take their answers before another process goes on.
const FINISHED_WITHIN: Duration = Duration::from_secs(1);
/// Pause after accepting a connection failed for lack of descriptors: there is
/// no event when some are free again.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A control socket that is being served.
pub struct Server {
    file: SocketFile,
    listener: Arc<UnixListener>,
    acceptor: Option<JoinHandle<()>>,
    shared: Arc<Shared>,
    /// It is that of another process, which goes on if this one gives up.
    is_taken: bool,
}

impl Server {
    /// Creates the socket at `path`, replacing one of a dead daemon, and starts
    /// to answer.
    ///
    /// # Errors
    /// If the socket can't be created.
    pub fn start(path: &Path, open_to_all: bool, handler: Arc<dyn Handler>) -> io::Result<Self> {
        let (file, listener) = SocketFile::listen(path, open_to_all)?;
        Self::serve(file, listener, handler, false)
    }

    /// Answers at the socket at `path`, which `listener` is, of an earlier process.
    ///
    /// # Errors
    /// If there is no socket at the path, or no thread can be begun.
    pub fn resume(path: &Path, listener: UnixListener, handler: Arc<dyn Handler>) -> io::Result<Self> {
        Self::serve(SocketFile::of(path)?, listener, handler, true)
    }

    fn serve(
        file: SocketFile,
        listener: UnixListener,
        handler: Arc<dyn Handler>,
        is_taken: bool,
    ) -> io::Result<Self> {
        // A client that connects is to learn that it is this process.
        rustix::net::listen(&listener, BACKLOG)?;
        let listener = Arc::new(listener);
        let (state, given) = (Mutex::default(), AtomicBool::new(false));
        let (ended, left) = (Condvar::new(), Condvar::new());
        let shared = Arc::new(Shared { handler, state, ended, left, given });
        let acceptor = {
            let (listener, shared) = (listener.clone(), shared.clone());
            thread::Builder::new().name("control".into()).spawn(move || accept(&listener, &shared))?
        };
        Ok(Self { file, listener, acceptor: Some(acceptor), shared, is_taken })
    }

    /// The socket, for a process that goes on after a crash of this one.
    ///
    /// # Errors
    /// If there are no descriptors left.
    pub fn socket(&self) -> io::Result<(PathBuf, UnixListener)> {
        Ok((self.file.path().to_owned(), self.listener.try_clone()?))
    }

    /// Stops answering, removes the socket, and reports the daemon's end to
    /// waiting clients. When this returns, the handler is not in use any more.
    pub fn finish(mut self, ended: Ended) {
        self.stop(ended);
    }

    /// Stops answering, and hands the socket over to another process: clients that
    /// connect meanwhile wait for that. When this returns, the handler is not in use
    /// any more.
    ///
    /// # Errors
    /// If there are no descriptors left; the socket is not answered any more then.
    pub fn give(mut self) -> io::Result<(PathBuf, UnixListener)> {
        let listener = self.listener.try_clone()?;
        self.leave("another process goes on");
        Ok((self.file.path().to_owned(), listener))
    }

    /// Stops answering, and leaves the socket as it is.
    fn leave(&mut self, why: &str) {
        self.shared.given.store(true, Ordering::Release);
        // It waits for someone.
        let woken = UnixStream::connect(self.file.path());
        if let Some(acceptor) = self.acceptor.take().filter(|_| woken.is_ok()) {
            let _ = acceptor.join();
        }
        drop(woken);
        let ended = Ended { error: Some(why.into()) };
        let threads = self.shared.end(ended, Requests::Finish);
        self.shared.await_clients(Instant::now() + FINISHED_WITHIN);
        // A client that does not take its answer would hold up the mount.
        self.shared.hang_up();
        for thread in threads {
            let _ = thread.join();
        }
    }

    fn stop(&mut self, ended: Ended) {
        let Some(acceptor) = self.acceptor.take() else { return };
        self.file.remove();
        let _ = rustix::net::shutdown(&self.listener, Shutdown::Both);
        let _ = acceptor.join();
        let threads = self.shared.end(ended, Requests::HangUp);
        for thread in threads {
            let _ = thread.join();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let why = "the daemon gave up";
        match self.is_taken && self.acceptor.is_some() {
            true => self.leave(why),
            false => self.stop(Ended { error: Some(why.into()) }),
        }
    }
}

struct Shared {
    handler: Arc<dyn Handler>,
    state: Mutex<State>,
    ended: Condvar,
    /// A client has left.
    left: Condvar,
    /// Another process is about to accept connections.
    given: AtomicBool,
}

#[derive(Default)]
struct State {
    connections: HashMap<u64, Connection>,
    finished: Vec<JoinHandle<()>>,
    next: u64,
    ended: Option<Ended>,
}

/// The fate of requests that are under way at the end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Requests {
    /// Their clients get no answer.
    HangUp,
    /// They are finished, and answered.
    Finish,
}

struct Connection {
    uid: u32,
    stream: UnixStream,
    /// A request of it is under way.
    busy: bool,
    thread: Option<JoinHandle<()>>,
}

impl Shared {
    /// The state. A thread that panicked while holding it left it whole: each
    /// change is a single call.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a connection, unless there are too many.
    fn admit(&self, stream: &UnixStream) -> io::Result<Option<u64>> {
        let uid = socket_peercred(stream)?.uid.as_raw();
        let mut state = self.lock();
        let of_user = state.connections.values().filter(|other| other.uid == uid).count();
        if of_user >= CONNECTIONS_PER_USER_MAX || state.connections.len() >= CONNECTIONS_MAX {
            return Ok(None);
        }
        let number = state.next;
        state.next += 1;
        let connection = Connection { uid, stream: stream.try_clone()?, busy: false, thread: None };
        state.connections.insert(number, connection);
        Ok(Some(number))
    }

    /// Notes the thread of a connection, which may have ended already.
    fn attend(&self, number: u64, thread: JoinHandle<()>) {
        let mut state = self.lock();
        match state.connections.get_mut(&number) {
            Some(connection) => connection.thread = Some(thread),
            None => state.finished.push(thread),
        }
        // Their threads are about to return.
        for thread in std::mem::take(&mut state.finished) {
            let _ = thread.join();
        }
    }

    /// Refuses requests that not every user may make.
    fn permit(&self, number: u64, request: Request) -> Result<Request, ErrorReply> {
        if !request.is_for_owner() || self.is_owner(number) {
            return Ok(request);
        }
        let uid = self.lock().connections.get(&number).map(|connection| connection.uid);
        if request.is_for_modifiers() && uid.is_some_and(|uid| self.handler.may_modify(uid)) {
            return Ok(request);
        }
        let errno = Some(rustix::io::Errno::PERM.raw_os_error());
        Err(ErrorReply { errno, message: "only root and the user who mounted may ask for this".into() })
    }

    /// Whether root, or the user who mounted, makes the request.
    fn is_owner(&self, number: u64) -> bool {
        let uid = self.lock().connections.get(&number).map(|connection| connection.uid);
        uid == Some(0) || uid == Some(geteuid().as_raw())
    }

    /// Removes from a reply the data that only the owner may see: names that
    /// directory permissions may hide; other users' threads, which the kernel
    /// does not show either; and everything about other users' files, since the
    /// socket can't check their permissions.
    fn redact(&self, number: u64, mut reply: Reply) -> Reply {
        if self.is_owner(number) {
            return reply;
        }
        match &mut reply {
            Reply::Status(status) => {
                status.hottest.iter_mut().for_each(|file| file.path = None);
                status.tiers.iter_mut().for_each(|tier| tier.busiest_threads.clear());
                status.runtime.iter_mut().for_each(|runtime| runtime.sessions.clear());
            }
            Reply::Explanation(explanation) if !self.is_user(number, explanation.owner) => {
                let who = "root, the user who mounted and the file's owner";
                return refuse(format!("only {who} may ask where a file's data is"));
            }
            Reply::Explanation(explanation) => explanation.object = None,
            _ => {}
        }
        reply
    }

    /// Whether this user makes the request.
    fn is_user(&self, number: u64, user: Option<u32>) -> bool {
        user.is_some() && self.lock().connections.get(&number).map(|connection| connection.uid) == user
    }

    fn forget(&self, number: u64) {
        let mut state = self.lock();
        if let Some(Connection { thread: Some(thread), .. }) = state.connections.remove(&number) {
            state.finished.push(thread);
        }
        self.left.notify_all();
    }

    /// Waits until no client is connected, or for this long.
    fn await_clients(&self, until: Instant) {
        let mut state = self.lock();
        while !state.connections.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            state = self.left.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Hangs up on all clients that are left.
    fn hang_up(&self) {
        for connection in self.lock().connections.values() {
            let _ = connection.stream.shutdown(std::net::Shutdown::Both);
        }
    }

    fn set_busy(&self, number: u64, busy: bool) {
        if let Some(connection) = self.lock().connections.get_mut(&number) {
            connection.busy = busy;
        }
    }

    /// Waits until the daemon has ended.
    fn wait(&self) -> Ended {
        let mut state = self.lock();
        loop {
            if let Some(ended) = &state.ended {
                return ended.clone();
            }
            state = self.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Publishes the end and closes connections with a request under way, if so
    /// asked. Others may finish: a client that asked to wait, perhaps just now, gets
    /// its answer.
    fn end(&self, ended: Ended, requests: Requests) -> Vec<JoinHandle<()>> {
        let mut state = self.lock();
        state.ended = Some(ended);
        self.ended.notify_all();
        let mut threads = std::mem::take(&mut state.finished);
        for connection in state.connections.values_mut() {
            let how = match requests {
                Requests::HangUp if connection.busy => std::net::Shutdown::Both,
                _ => std::net::Shutdown::Read,
            };
            let _ = connection.stream.shutdown(how);
            threads.extend(connection.thread.take());
        }
        threads
    }
}

fn refuse(message: String) -> Reply {
    Reply::Error(ErrorReply { errno: Some(rustix::io::Errno::PERM.raw_os_error()), message })
}

/// Accepts until the listening socket is shut down.
fn accept(listener: &UnixListener, shared: &Arc<Shared>) {
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                if let Err(error) = welcome(stream, shared) {
                    tracing::debug!(%error, "a control connection was dropped");
                }
                if shared.given.load(Ordering::Acquire) {
                    return;
                }
            }
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::INVAL.raw_os_error()) => return,
            Err(error) => {
                tracing::warn!(%error, "no control connection can be accepted");
                thread::sleep(ACCEPT_PAUSE);
            }
        }
    }
}

fn welcome(stream: UnixStream, shared: &Arc<Shared>) -> io::Result<()> {
    stream.set_read_timeout(Some(CLIENT_TIMEOUT))?;
    stream.set_write_timeout(Some(CLIENT_TIMEOUT))?;
    let Some(number) = shared.admit(&stream)? else {
        return answer(
            &stream,
            Reply::Error(ErrorReply::new("too many control connections; try again later")),
        );
    };
    let mine = shared.clone();
    let thread = thread::Builder::new().name("control client".into()).spawn(move || {
        if let Err(error) = converse(&stream, &mine, number) {
            tracing::debug!(%error, "a control connection ended");
        }
        mine.forget(number);
    });
    match thread {
        Ok(thread) => shared.attend(number, thread),
        Err(error) => {
            shared.forget(number);
            return Err(error);
        }
    }
    Ok(())
}

/// Answers line by line until the client hangs up or breaks the rules.
fn converse(stream: &UnixStream, shared: &Shared, number: u64) -> io::Result<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = Vec::new();
        reader.by_ref().take(REQUEST_BYTES_MAX).read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return Ok(());
        }
        if line.last() != Some(&b'\n') {
            let message = format!("a request is one line of at most {REQUEST_BYTES_MAX} bytes");
            return answer(stream, Reply::Error(ErrorReply::new(message)));
        }
        let reply = match parse(&line).and_then(|request| shared.permit(number, request)) {
            Ok(Request::Wait) => return answer(stream, Reply::Ended(shared.wait())),
            Ok(Request::Kv(request)) => {
                let value = match value_of(&request, &mut reader)? {
                    Ok(value) => value,
                    // The following bytes can't be distinguished from requests.
                    Err(error) => return answer(stream, Reply::Error(error)),
                };
                shared.set_busy(number, true);
                let done = caller_of(stream)
                    .map_err(|error| ErrorReply::new(error.to_string()))
                    .and_then(|caller| shared.handler.kv(&caller, &request, &value));
                let (reply, bytes) = done.map_or_else(
                    |error| (Reply::Error(error), Vec::new()),
                    |(answer, bytes)| (Reply::Kv(KvAnswer { bytes: bytes.len() as u64, ..answer }), bytes),
                );
                answer(stream, reply)?;
                (&mut &*stream).write_all(&bytes)?;
                shared.set_busy(number, false);
                continue;
            }
            Ok(request) => {
                shared.set_busy(number, true);
                handle(&*shared.handler, &request, &mut |reply| answer(stream, reply))
            }
            Err(error) => Reply::Error(error),
        };
        answer(stream, shared.redact(number, reply))?;
        shared.set_busy(number, false);
    }
}

/// The value that follows a request.
fn value_of(request: &KvRequest, reader: &mut impl Read) -> io::Result<Result<Vec<u8>, ErrorReply>> {
    let KvOperation::Put { bytes, .. } = request.operation else { return Ok(Ok(Vec::new())) };
    if bytes > VALUE_MAX as u64 {
        let message = format!("a value of {bytes} bytes; {VALUE_MAX} are the most");
        let errno = Some(rustix::io::Errno::FBIG.raw_os_error());
        return Ok(Err(ErrorReply { errno, message }));
    }
    let mut value = Vec::new();
    reader.take(bytes).read_to_end(&mut value)?;
    if (value.len() as u64) < bytes {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(Ok(value))
}

/// The process at the other end of a UNIX socket, as it was when it connected.
///
/// # Errors
/// Those of the socket.
pub fn caller_of(stream: &UnixStream) -> io::Result<Caller> {
    let peer = socket_peercred(stream)?;
    let pid = peer.pid.as_raw_nonzero().get().unsigned_abs();
    let groups = Some(braid_sys::peer_groups(stream)?.into());
    Ok(Caller { uid: peer.uid.as_raw(), gid: peer.gid.as_raw(), groups, pid, tid: pid, of_stack: false })
}

fn parse(line: &[u8]) -> Result<Request, ErrorReply> {
    let RequestLine { protocol, request } = serde_json::from_slice(line)
        .map_err(|error| ErrorReply::new(format!("the request is not understood: {error}")))?;
    if protocol != PROTOCOL {
        let message = format!("the request is of protocol version {protocol}; this daemon speaks {PROTOCOL}");
        return Err(ErrorReply::new(message));
    }
    Ok(request)
}

/// Carries out a request. Of several replies, all but the last go to `send`.
fn handle(handler: &dyn Handler, request: &Request, send: &mut dyn FnMut(Reply) -> io::Result<()>) -> Reply {
    let reply = match request {
        Request::Hello | Request::Wait => Ok(Reply::Hello(handler.hello())),
        Request::Status => handler.status().map(Reply::Status),
        Request::SetOptions { options } => handler.set_options(options).map(|()| Reply::Done(Done {})),
        Request::Sync => handler.sync().map(|()| Reply::Done(Done {})),
        Request::RecordTrace(request) => handler.record_trace(request, send).map(|()| Reply::Done(Done {})),
        Request::StopTrace { id } => handler.stop_trace(*id).map(|()| Reply::Done(Done {})),
        Request::Upgrade { program } => handler.upgrade(program).map(Reply::Upgrading),
        Request::Reload { dry_run } => handler.reload(*dry_run).map(Reply::Reloaded),
        Request::UpgradeModule { module, file } => {
            handler.upgrade_module(module, file.as_deref()).map(Reply::ModuleUpgraded)
        }
        Request::ModifyStack(request) => handler.modify_stack(request).map(Reply::StackModified),
        Request::DumpStack => handler.dump_stack().map(Reply::StackDump),
        Request::Runtime => handler.runtime().map(Reply::Runtime),
        Request::Kv(_) => Err(ErrorReply::new("the value is missing")),
        // Without a volume, there are none.
        Request::Jobs => Ok(Reply::Jobs(handler.volume().map(VolumeHandler::jobs).unwrap_or_default())),
        Request::LearnedStreams => {
            let streams = handler.volume().map(VolumeHandler::learned_streams);
            Ok(Reply::LearnedStreams(streams.unwrap_or_default()))
        }
        Request::Explain { .. }
        | Request::Affected
        | Request::Drill { .. }
        | Request::Fsck(_)
        | Request::SurveyImport { .. }
        | Request::StartJob(_)
        | Request::Job { .. }
        | Request::ChangeJob { .. }
        | Request::UndoEvacuation { .. }
        | Request::Pin(_) => handler.volume().and_then(|volume| handle_volume(volume, request, send)),
        Request::AddTier { .. }
        | Request::SetTier { .. }
        | Request::RemoveTier { .. }
        | Request::ReplaceHome { .. }
        | Request::ReplaceTierBy { .. }
        | Request::ReplaceTier { .. } => {
            handler.volume().and_then(|volume| handle_tiers(volume, request, send))
        }
    };
    reply.unwrap_or_else(Reply::Error)
}

/// Carries out a request about a volume, its jobs or pins.
fn handle_volume(
    volume: &dyn VolumeHandler,
    request: &Request,
    send: &mut dyn FnMut(Reply) -> io::Result<()>,
) -> Result<Reply, ErrorReply> {
    match request {
        Request::Explain { ino } => volume.explain(*ino).map(Reply::Explanation),
        Request::Affected => {
            volume.affected(&mut |file| send(Reply::Affected(file))).map(|()| Reply::Done(Done {}))
        }
        Request::Drill { tier, rules } => volume.drill(tier.as_deref(), rules.as_deref()).map(Reply::Drill),
        Request::Fsck(request) => {
            volume.fsck(request, send).and_then(|summary| last_of_several(send, Reply::FsckSummary(summary)))
        }
        Request::SurveyImport { tier } => volume.survey_import(tier).map(Reply::ImportSurvey),
        Request::StartJob(request) => volume.start_job(request).map(Reply::Job),
        Request::Job { id } => volume.job(*id, None).map(Reply::Job),
        Request::ChangeJob { id, change } => volume.job(*id, Some(*change)).map(Reply::Job),
        Request::UndoEvacuation { tier } => volume.undo_evacuation(tier).map(|()| Reply::Done(Done {})),
        Request::Pin(request) => volume.pin(request).map(Reply::Pinned),
        _ => Err(ErrorReply::new("the request is about something else")),
    }
}

/// Carries out a request that adds, changes, removes or replaces tiers.
fn handle_tiers(
    volume: &dyn VolumeHandler,
    request: &Request,
    send: &mut dyn FnMut(Reply) -> io::Result<()>,
) -> Result<Reply, ErrorReply> {
    match request {
        Request::AddTier { tier, dir, settings } => {
            volume.add_tier(tier, dir, settings).map(Reply::TierAdded)
        }
        Request::SetTier { tier, settings } => volume.set_tier(tier, settings).map(Reply::TierSet),
        Request::RemoveTier { tier, evacuate } => volume.remove_tier(tier, *evacuate).map(Reply::TierRemoved),
        Request::ReplaceHome { dir, bandwidth } => {
            let replaced = volume.replace_home(dir, *bandwidth, &mut |now| send(Reply::Job(now)));
            replaced.and_then(|replaced| last_of_several(send, Reply::HomeReplaced(replaced)))
        }
        Request::ReplaceTierBy { tier, by, dir, settings, bandwidth } => {
            volume.replace_tier_by(tier, by, dir, settings, *bandwidth).map(Reply::Replacing)
        }
        Request::ReplaceTier { tier, dir } => volume.replace_tier(tier, dir).map(Reply::Replaced),
        _ => Err(ErrorReply::new("the request is about something else")),
    }
}

/// The last of several replies.
fn last_of_several(send: &mut dyn FnMut(Reply) -> io::Result<()>, last: Reply) -> Result<Reply, ErrorReply> {
    send(last).map_err(|error| ErrorReply::new(error.to_string())).map(|()| Reply::Done(Done {}))
}

fn answer(mut stream: &UnixStream, reply: Reply) -> io::Result<()> {
    let mut line = serde_json::to_vec(&ReplyLine { protocol: PROTOCOL, reply })?;
    line.push(b'\n');
    stream.write_all(&line)
}
