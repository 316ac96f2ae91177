//! The server: listening sockets, and a thread for each connection, up to a limit.

use crate::budget::Budget;
use crate::client::Shared;
use crate::connection::{PATIENCE, Socket, serve};
use braid_contract::{Caller, KeyValue};
use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::net::Shutdown;
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// Bytes of requests and answers that are long, of all connections together.
const LONG_BYTES_MAX: usize = 256 << 20;
/// Pause after a connection could not be accepted for lack of descriptors: there is no
/// event when some are free again.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Whose rights a client of a UNIX socket has; an error refuses it.
pub type Identify = Box<dyn Fn(&UnixStream) -> io::Result<Caller> + Send + Sync>;

/// Where clients come in.
pub enum Door {
    /// A UNIX socket, whose clients the kernel identifies.
    Unix(UnixListener),
    /// A TCP port, whose clients all have the same rights.
    Tcp(TcpListener, Caller),
}

impl std::fmt::Debug for Door {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if matches!(self, Self::Unix(_)) { "Unix" } else { "Tcp" })
    }
}

/// How clients are served.
pub struct Settings {
    /// The password, which clients have to send first.
    pub password: Option<Vec<u8>>,
    /// Most connections at a time.
    pub connections: usize,
    /// Identifies the clients of UNIX sockets.
    pub identify: Identify,
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings").field("connections", &self.connections).finish_non_exhaustive()
    }
}

/// The part of all connections that users whom the kernel identifies may have, each, other than
/// root and the user who serves: no user keeps all others out.
fn most_of_user(connections: usize) -> usize {
    (connections * 3 / 8).max(1)
}

/// The answer to a client that is one too many.
const TOO_MANY: &[u8] = b"-ERR max number of clients reached\r\n";

/// Keys and values that are served by the Redis protocol, until this is dropped.
#[derive(Debug)]
pub struct Server {
    common: Arc<Common>,
    doors: Vec<(Arc<Door>, JoinHandle<()>)>,
}

struct Common {
    shared: Arc<Shared>,
    settings: Settings,
    budget: Arc<Budget>,
    connections: Mutex<Connections>,
    is_over: AtomicBool,
}

impl std::fmt::Debug for Common {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Common").field("settings", &self.settings).finish_non_exhaustive()
    }
}

#[derive(Default)]
struct Connections {
    open: HashMap<u64, Connection>,
    ended: Vec<JoinHandle<()>>,
    last: u64,
}

struct Connection {
    stream: Stream,
    /// The user, if connections of this one are counted.
    user: Option<u32>,
    thread: Option<JoinHandle<()>>,
}

enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Stream {
    fn try_clone(&self) -> io::Result<Self> {
        Ok(match self {
            Self::Unix(stream) => Self::Unix(stream.try_clone()?),
            Self::Tcp(stream) => Self::Tcp(stream.try_clone()?),
        })
    }

    fn hang_up(&self) {
        // One that has ended already is fine.
        let _ = rustix::net::shutdown(self, Shutdown::Both);
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(stream) => stream.as_fd(),
            Self::Tcp(stream) => stream.as_fd(),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.read(buf),
            Self::Tcp(stream) => stream.read(buf),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.write(buf),
            Self::Tcp(stream) => stream.write(buf),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Socket for Stream {
    fn set_patience(&self, patience: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Unix(stream) => stream.set_read_timeout(patience),
            Self::Tcp(stream) => stream.set_read_timeout(patience),
        }
    }
}

impl Server {
    /// Serves keys and values at these addresses.
    ///
    /// # Errors
    /// If there are no threads left.
    pub fn start(values: Arc<dyn KeyValue>, doors: Vec<Door>, settings: Settings) -> io::Result<Self> {
        let common = Arc::new(Common {
            shared: Arc::new(Shared::new(values, settings.password.clone())),
            settings,
            budget: Budget::new(LONG_BYTES_MAX),
            connections: Mutex::default(),
            is_over: AtomicBool::new(false),
        });
        let mut server = Self { common, doors: Vec::new() };
        for door in doors {
            let door = Arc::new(door);
            let (at, common) = (Arc::clone(&door), Arc::clone(&server.common));
            let thread = Builder::new().name("kv-accept".into()).spawn(move || common.accept_all(&at))?;
            server.doors.push((door, thread));
        }
        Ok(server)
    }
}

impl Drop for Server {
    /// Hangs up. When it returns, nothing uses the keys and values any more.
    fn drop(&mut self) {
        self.common.is_over.store(true, Ordering::Release);
        for (door, thread) in self.doors.drain(..) {
            let ended = match &*door {
                Door::Unix(listener) => rustix::net::shutdown(listener, Shutdown::Both),
                Door::Tcp(listener, _) => rustix::net::shutdown(listener, Shutdown::Both),
            };
            if let Err(error) = ended {
                tracing::warn!(%error, "a listening socket could not be ended");
            }
            let _ = thread.join();
        }
        let threads: Vec<JoinHandle<()>> = {
            let mut connections = self.common.connections.lock();
            let ended = std::mem::take(&mut connections.ended);
            let open = connections.open.values_mut().filter_map(|connection| {
                connection.stream.hang_up();
                connection.thread.take()
            });
            open.chain(ended).collect()
        };
        for thread in threads {
            let _ = thread.join();
        }
    }
}

/// Whether this process, or the system, has no descriptors left.
fn is_out_of_descriptors(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}

impl Common {
    fn accept_all(self: &Arc<Self>, door: &Door) {
        while !self.is_over.load(Ordering::Acquire) {
            let accepted = match door {
                Door::Unix(listener) => listener.accept().map(|(stream, _)| (Stream::Unix(stream), None)),
                Door::Tcp(listener, caller) => {
                    listener.accept().map(|(stream, _)| (Stream::Tcp(stream), Some(caller.clone())))
                }
            };
            match accepted.and_then(|(stream, caller)| self.admit(stream, caller)) {
                Ok(()) => {}
                Err(_) if self.is_over.load(Ordering::Acquire) => return,
                Err(error) => {
                    tracing::debug!(%error, "a client of keys and values could not be served");
                    if is_out_of_descriptors(&error) {
                        std::thread::sleep(ACCEPT_PAUSE);
                    }
                }
            }
        }
    }

    fn admit(self: &Arc<Self>, mut stream: Stream, caller: Option<Caller>) -> io::Result<()> {
        let caller = match (&stream, caller) {
            (_, Some(caller)) => caller,
            (Stream::Unix(stream), None) => (self.settings.identify)(stream)?,
            (Stream::Tcp(_), None) => return Err(io::ErrorKind::PermissionDenied.into()),
        };
        match &stream {
            Stream::Tcp(tcp) => {
                tcp.set_nodelay(true)?;
                tcp.set_write_timeout(Some(PATIENCE))?;
            }
            Stream::Unix(unix) => unix.set_write_timeout(Some(PATIENCE))?,
        }
        let mut connections = self.connections.lock();
        for ended in std::mem::take(&mut connections.ended) {
            // It is about to return.
            let _ = ended.join();
        }
        let is_own = [0, rustix::process::geteuid().as_raw()].contains(&caller.uid);
        let user = (matches!(stream, Stream::Unix(_)) && !is_own).then_some(caller.uid);
        let of_user = connections.open.values().filter(|one| user.is_some() && one.user == user).count();
        let most = self.settings.connections;
        if connections.open.len() >= most || of_user >= most_of_user(most) {
            drop(connections);
            return stream.write_all(TOO_MANY);
        }
        connections.last += 1;
        let (number, kept) = (connections.last, stream.try_clone()?);
        connections.open.insert(number, Connection { stream: kept, user, thread: None });
        let common = Arc::clone(self);
        // Workers of the log are chosen by threads.
        let caller = Caller { tid: number as u32, ..caller };
        let thread = Builder::new().name("kv".into()).spawn(move || common.serve(stream, caller, number));
        match thread {
            Ok(thread) => {
                // Without it, the connection has ended already.
                match connections.open.get_mut(&number) {
                    Some(connection) => connection.thread = Some(thread),
                    None => connections.ended.push(thread),
                }
                Ok(())
            }
            Err(error) => {
                connections.open.remove(&number);
                Err(error)
            }
        }
    }

    fn serve(&self, mut stream: Stream, caller: Caller, number: u64) {
        let is_known = self.settings.password.is_none();
        if let Err(error) = serve(&mut stream, &self.shared, (caller, number, is_known), &self.budget) {
            tracing::debug!(%error, number, "a connection to keys and values ended");
        }
        stream.hang_up();
        let mut connections = self.connections.lock();
        if let Some(thread) = connections.open.remove(&number).and_then(|one| one.thread) {
            connections.ended.push(thread);
        }
    }
}
