//! The runtime's socket: applications begin sessions there, and show the directories that
//! the kernel let them open. A thread waits for each session's end.

use crate::hello::{Answer, Ask, VERSION, receive, send};
use crate::layout::Geometry;
use crate::load::Load;
use crate::pool::{Pool, Settings};
use crate::queue::{Order, Queue, Shared};
use crate::view::View;
use braid_contract::{
    Caller, Class, Errno, Error, FileSystem, FrontCache, InodeId, Result, RuntimeStatus, Served,
    SessionStatus,
};
use braid_sdk::Below;
use braid_sys::{SharedWords, groups_of_peer, pass_descriptors, receive_descriptors};
use parking_lot::Mutex;
use rustix::fs::{AtFlags, Mode, StatVfsMountFlags, StatxFlags, chmod, fstatvfs, statx};
use rustix::net::Shutdown;
use rustix::net::sockopt::socket_peercred;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Sessions at a time: a worker that sleeps waits for so many words.
const SESSIONS_MAX: usize = braid_sys::FUTEX_WORDS_MAX - 8;
/// Sessions of a user at a time.
const SESSIONS_PER_USER_MAX: usize = 48;
/// Directories that a session may be shown.
const SHOWN_MAX: usize = 64;
/// Time limit for an application to say what it wants, and to take the answer.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause after a connection could not be accepted for lack of descriptors: there is no event
/// when some are free again.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What sessions are to see.
#[derive(Clone)]
pub struct Mounted {
    /// The top of the stack.
    pub top: Arc<dyn FileSystem>,
    /// The kernel's cache of the mount, which is kept up to date.
    pub kernel: Option<Arc<dyn FrontCache>>,
    /// The number of the mounted file system, as of `stat(2)`.
    pub device: u64,
}

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
}

#[derive(Default)]
struct Sessions {
    present: HashMap<u64, Session>,
    finished: Vec<JoinHandle<()>>,
    next: u64,
    ended: bool,
}

struct Session {
    socket: UnixStream,
    pid: u32,
    uid: u32,
    thread: Option<JoinHandle<()>>,
}

impl Runtime {
    /// Listens at `path`, which is replaced, for all users or only this one.
    ///
    /// # Errors
    /// If there can be no socket or no thread.
    pub fn start(path: &Path, open_to_all: bool, settings: Settings, mounted: Mounted) -> io::Result<Self> {
        let pool = Pool::start(settings)?;
        let _ = std::fs::remove_file(path);
        let listener = Arc::new(UnixListener::bind(path)?);
        chmod(path, Mode::from_raw_mode(if open_to_all { 0o666 } else { 0o600 }))?;
        let shared = Arc::new(Common { mounted, pool, sessions: Mutex::default() });
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
        let of = |(session, one): (&u64, &Session)| SessionStatus {
            session: *session,
            pid: one.pid,
            uid: one.uid,
        };
        status.sessions = sessions.present.iter().map(of).collect();
        status.sessions.sort_by_key(|one| one.session);
        status
    }
}

impl Runtime {
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
        if let Some(acceptor) = self.acceptor.lock().take() {
            let _ = std::fs::remove_file(&self.path);
            let _ = rustix::net::shutdown(&self.listener, Shutdown::Both);
            let _ = acceptor.join();
        }
        self.shared.pool.stop();
        let threads: Vec<JoinHandle<()>> = {
            let mut sessions = self.shared.sessions.lock();
            sessions.ended = true;
            let finished = std::mem::take(&mut sessions.finished);
            let hang_up = |session: &mut Session| {
                let _ = session.socket.shutdown(std::net::Shutdown::Both);
                session.thread.take()
            };
            finished.into_iter().chain(sessions.present.values_mut().filter_map(hang_up)).collect()
        };
        for thread in threads {
            let _ = thread.join();
        }
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
                if let Err(error) = welcome(socket, shared) {
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

fn welcome(socket: UnixStream, shared: &Arc<Common>) -> io::Result<()> {
    let peer = socket_peercred(&socket)?;
    let (pid, uid) = (peer.pid.as_raw_nonzero().get().cast_unsigned(), peer.uid.as_raw());
    let mut sessions = shared.sessions.lock();
    // Their threads are about to return.
    for thread in std::mem::take(&mut sessions.finished) {
        let _ = thread.join();
    }
    let of_user = sessions.present.values().filter(|other| other.uid == uid).count();
    if sessions.ended || sessions.present.len() >= SESSIONS_MAX || of_user >= SESSIONS_PER_USER_MAX {
        let error = Error::new(Errno::EAGAIN, "too many sessions; try again later");
        return send(&socket, &Answer::refused(&error));
    }
    let number = sessions.next;
    sessions.next += 1;
    let caller =
        Caller { uid, gid: peer.gid.as_raw(), groups: Some(groups_of_peer(&socket)?.into()), pid, tid: pid };
    let its = (socket.try_clone()?, Arc::clone(shared));
    let thread = thread::Builder::new().name("session".into()).spawn(move || {
        let (socket, shared) = its;
        if let Err(error) = converse(&socket, &shared, number, caller) {
            tracing::debug!(%error, session = number, "a session ended");
        }
        shared.pool.remove(number);
        // Who waits for the answer of a request learns it.
        let _ = socket.shutdown(std::net::Shutdown::Both);
        let mut sessions = shared.sessions.lock();
        let ended = sessions.present.remove(&number);
        sessions.finished.extend(ended.and_then(|session| session.thread));
    })?;
    sessions.present.insert(number, Session { socket, pid, uid, thread: Some(thread) });
    Ok(())
}

/// Serves a session until its application hangs up, or breaks the rules.
fn converse(socket: &UnixStream, shared: &Arc<Common>, number: u64, caller: Caller) -> io::Result<()> {
    socket.set_read_timeout(Some(HELLO_TIMEOUT))?;
    socket.set_write_timeout(Some(HELLO_TIMEOUT))?;
    let (geometry, class, order) = match receive(socket)? {
        Some(Ask::Begin { version: VERSION, geometry, class, ordered }) if geometry.is_allowed() => {
            (geometry, class, if ordered { Order::Kept } else { Order::Free })
        }
        Some(Ask::Begin { version, .. }) if version != VERSION => {
            let what = format!("version {version} of sessions is asked for, and this is version {VERSION}");
            return send(socket, &Answer::refused(&Error::new(Errno::EOPNOTSUPP, what)));
        }
        Some(_) => {
            let error = Error::new(Errno::EINVAL, "a session of these sizes can't be");
            return send(socket, &Answer::refused(&error));
        }
        None => return Ok(()),
    };
    // The first directory says whether the mount is read-only where it comes from.
    let mut begun: Option<Begun> = None;
    let mut shown = 0;
    loop {
        if begun.is_some() {
            // It is silent from now on, as long as it likes.
            socket.set_read_timeout(None)?;
        }
        let Some(Ask::Show {}) = receive(socket)? else { return Ok(()) };
        let directory = receive_descriptors(socket, 1)?.pop();
        shown += 1;
        let told = match directory {
            _ if shown > SHOWN_MAX => Err(Errno::EMFILE.into()),
            None => Err(Errno::EBADF.into()),
            Some(directory) => show(shared, &mut begun, directory),
        };
        let (ino, new) = match told {
            Ok(told) => told,
            Err(error) => {
                send(socket, &Answer::refused(&error))?;
                continue;
            }
        };
        if new && let Some(begun) = &begun {
            let how = (number, class, order);
            let memory = match begin(shared, begun, geometry, how, caller.clone()) {
                Ok(memory) => memory,
                Err(error) => return send(socket, &Answer::refused(&error.into())),
            };
            send(socket, &Answer::Begun { session: number })?;
            pass_descriptors(socket, &[memory.as_fd()])?;
        }
        send(socket, &Answer::Shown { ino: ino.0 })?;
    }
}

/// The view of a session that has been shown something.
struct Begun {
    view: Arc<Served<View>>,
    read_only: bool,
}

/// Shows a directory; answers its inode, and whether it was the first.
fn show(shared: &Common, begun: &mut Option<Begun>, directory: OwnedFd) -> Result<(InodeId, bool)> {
    let (ino, read_only) = look_at(shared, &directory)?;
    match begun {
        Some(begun) if begun.read_only != read_only => {
            Err(Error::new(Errno::EROFS, "it is mounted read-only in one place and writable in another"))
        }
        Some(begun) => Ok((begun.view.0.show(ino)?.ino, false)),
        None => {
            let Mounted { top, kernel, .. } = shared.mounted.clone();
            let view = Arc::new(Served(View::new(top, kernel, read_only)));
            let ino = view.0.show(ino)?.ino;
            *begun = Some(Begun { view, read_only });
            Ok((ino, true))
        }
    }
}

/// The inode of a directory of the mount, without a request to the file system; and whether
/// it is mounted read-only.
fn look_at(shared: &Common, directory: &OwnedFd) -> Result<(InodeId, bool)> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let found =
        statx(directory, c"", flags, StatxFlags::BASIC_STATS).map_err(|error| Errno(error.raw_os_error()))?;
    let device = rustix::fs::makedev(found.stx_dev_major, found.stx_dev_minor);
    if device != shared.mounted.device {
        return Err(Error::new(Errno::EXDEV, "the directory is on another file system"));
    }
    let mount = fstatvfs(directory).map_err(|error| Errno(error.raw_os_error()))?;
    Ok((InodeId(found.stx_ino), mount.f_flag.contains(StatVfsMountFlags::RDONLY)))
}

/// Makes the memory and the queues of a session, and has them served.
fn begin(
    shared: &Common,
    begun: &Begun,
    geometry: Geometry,
    (number, class, order): (u64, Class, Order),
    caller: Caller,
) -> io::Result<OwnedFd> {
    let memory = SharedWords::create("braid session", geometry.words())?;
    let given = memory.as_fd().try_clone_to_owned()?;
    let target = Below(Arc::clone(&begun.view) as Arc<dyn FileSystem>);
    let common = Arc::new(Shared::new(memory, geometry, caller, Box::new(target)));
    let queue = |index| Queue::new(Arc::clone(&common), index, order, Load::new((number, index), class));
    let queues: Vec<Arc<Queue>> = (0..geometry.queues).map(|index| Arc::new(queue(index))).collect();
    shared.pool.add(&queues)?;
    Ok(given)
}
