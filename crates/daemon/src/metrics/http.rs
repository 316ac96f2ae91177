//! A small HTTP server that answers `GET /metrics`, on a port or a UNIX socket.
//!
//! Clients are anybody on this machine, so nobody can hold it up: a request has
//! a longest length and a time to come in, an answer a time to be taken, and
//! there are few connections at once: one more takes the place of the oldest
//! that has not asked yet. Every answer ends its connection.

use super::address::Address;
use rustix::fs::{Mode, OFlags, chmod, open};
use rustix::net::Shutdown;
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Connections at a time.
const CONNECTIONS_MAX: usize = 32;
/// How long a request may take to come in, and an answer to be taken.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest request.
const REQUEST_BYTES_MAX: usize = 8 << 10;
/// Header lines that a request may have.
const HEADERS_MAX: usize = 64;
/// Pause after a connection could not be accepted for lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What makes the text of an answer.
pub(crate) type Source = Arc<dyn Fn() -> Result<String, String> + Send + Sync>;

/// A socket that listens and is not answered yet.
pub(crate) enum Listener {
    Tcp(TcpListener),
    Unix { listener: UnixListener, path: PathBuf, inode: u64 },
}

/// A connection of either kind.
enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Listener {
    /// Listens at `address`. A socket that a dead daemon left is replaced.
    pub(crate) fn bind(address: &Address) -> io::Result<Self> {
        let path = match address {
            Address::Tcp(address) => return Ok(Self::Tcp(TcpListener::bind(address)?)),
            Address::Unix(path) => path,
        };
        remove_dead(path)?;
        let listener = UnixListener::bind(path)?;
        // As the control socket: it tells no more than that.
        let mode = if rustix::process::geteuid().is_root() { 0o666 } else { 0o600 };
        let inode = set_mode_of_socket(path, Mode::from_raw_mode(mode))?;
        Ok(Self::Unix { listener, path: path.clone(), inode })
    }

    fn accept(&self) -> io::Result<Stream> {
        Ok(match self {
            Self::Tcp(listener) => Stream::Tcp(listener.accept()?.0),
            Self::Unix { listener, .. } => Stream::Unix(listener.accept()?.0),
        })
    }

    /// Wakes who accepts, for the last time.
    fn close(&self) {
        let _ = rustix::net::shutdown(self, Shutdown::Both);
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // Another daemon may have put its own socket there meanwhile.
        if let Self::Unix { path, inode, .. } = self
            && std::fs::symlink_metadata(&path).is_ok_and(|found| found.ino() == *inode)
        {
            let _ = std::fs::remove_file(path);
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(listener) => listener.as_fd(),
            Self::Unix { listener, .. } => listener.as_fd(),
        }
    }
}

/// Sets the mode of the socket at `path`, and of nothing that others may have
/// put there meanwhile; answers its inode number.
fn set_mode_of_socket(path: &Path, mode: Mode) -> io::Result<u64> {
    let found =
        std::fs::File::from(open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?);
    let meta = found.metadata()?;
    if !meta.file_type().is_socket() {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "somebody put something else there"));
    }
    chmod(format!("/proc/self/fd/{}", found.as_raw_fd()), mode)?;
    Ok(meta.ino())
}

/// Removes a socket that nobody listens at.
fn remove_dead(path: &Path) -> io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => match UnixStream::connect(path) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => std::fs::remove_file(path),
            _ => Err(io::Error::new(io::ErrorKind::AddrInUse, "somebody listens there")),
        },
        Ok(_) => Err(io::Error::new(io::ErrorKind::AlreadyExists, "it exists and is not a socket")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

impl Stream {
    /// How long the next read and write may take.
    fn limit(&self, time: Duration) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => {
                stream.set_read_timeout(Some(time)).and_then(|()| stream.set_write_timeout(Some(time)))
            }
            Self::Unix(stream) => {
                stream.set_read_timeout(Some(time)).and_then(|()| stream.set_write_timeout(Some(time)))
            }
        }
    }

    /// As [`limit`](Self::limit), up to `end`.
    fn limit_until(&self, end: Instant) -> io::Result<()> {
        match end.saturating_duration_since(Instant::now()) {
            Duration::ZERO => Err(io::ErrorKind::TimedOut.into()),
            left => self.limit(left),
        }
    }

    fn duplicate(&self) -> io::Result<Self> {
        Ok(match self {
            Self::Tcp(stream) => Self::Tcp(stream.try_clone()?),
            Self::Unix(stream) => Self::Unix(stream.try_clone()?),
        })
    }

    fn hang_up(&self) {
        let _ = match self {
            Self::Tcp(stream) => stream.shutdown(std::net::Shutdown::Both),
            Self::Unix(stream) => stream.shutdown(std::net::Shutdown::Both),
        };
    }
}

impl Read for Stream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(buf),
            Self::Unix(stream) => stream.read(buf),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(buf),
            Self::Unix(stream) => stream.write(buf),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A listener that is answered. Ends when it is dropped.
pub(crate) struct Server {
    listener: Arc<Listener>,
    clients: Arc<Clients>,
    acceptor: Option<JoinHandle<()>>,
}

/// Who is being answered.
struct Clients {
    source: Source,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// In the order in which they came.
    connections: BTreeMap<u64, Connection>,
    threads: Vec<JoinHandle<()>>,
    next: u64,
    ended: bool,
}

struct Connection {
    /// A second descriptor, to end it by.
    stream: Stream,
    /// It is being answered.
    asked: bool,
}

impl State {
    /// Makes room for one more connection.
    fn make_room(&mut self) {
        if self.connections.len() < CONNECTIONS_MAX {
            return;
        }
        let silent = self.connections.iter().find(|(_, connection)| !connection.asked);
        let oldest = silent.or_else(|| self.connections.iter().next()).map(|(number, _)| *number);
        if let Some(connection) = oldest.and_then(|number| self.connections.remove(&number)) {
            connection.stream.hang_up();
        }
    }
}

impl Server {
    /// Answers those who come to `listener` with what `source` makes.
    pub(crate) fn start(listener: Listener, source: Source) -> io::Result<Self> {
        let listener = Arc::new(listener);
        let clients = Arc::new(Clients { source, state: Mutex::default() });
        let (at, mine) = (Arc::clone(&listener), Arc::clone(&clients));
        let acceptor = thread::Builder::new().name("metrics".into()).spawn(move || accept(&at, &mine))?;
        Ok(Self { listener, clients, acceptor: Some(acceptor) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.listener.close();
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
        for thread in self.clients.end() {
            let _ = thread.join();
        }
    }
}

impl Clients {
    /// The state; each change of it is a single call, so a panic left it whole.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers one more.
    fn welcome(self: &Arc<Self>, mut stream: Stream) -> io::Result<()> {
        let mut state = self.lock();
        if state.ended {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        state.make_room();
        state.threads.retain(|thread| !thread.is_finished());
        let number = state.next;
        state.next += 1;
        state.connections.insert(number, Connection { stream: stream.duplicate()?, asked: false });
        let mine = Arc::clone(self);
        let spawned = thread::Builder::new().name("metrics client".into()).spawn(move || {
            if let Err(error) = mine.answer(&mut stream, number) {
                tracing::debug!(%error, "a reader of metrics went away");
            }
            mine.lock().connections.remove(&number);
        });
        match spawned {
            Ok(thread) => state.threads.push(thread),
            Err(error) => {
                state.connections.remove(&number);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Reads what one asks for, and answers it.
    fn answer(&self, stream: &mut Stream, number: u64) -> io::Result<()> {
        let request = read_request(stream, Instant::now() + PATIENCE)?;
        if let Some(connection) = self.lock().connections.get_mut(&number) {
            connection.asked = true;
        }
        answer(stream, &request, &self.source)
    }

    /// Hangs up on everybody.
    fn end(&self) -> Vec<JoinHandle<()>> {
        let mut state = self.lock();
        state.ended = true;
        state.connections.values().for_each(|connection| connection.stream.hang_up());
        std::mem::take(&mut state.threads)
    }
}

/// Accepts until the listening socket is closed.
fn accept(listener: &Listener, clients: &Arc<Clients>) {
    loop {
        match listener.accept() {
            Ok(stream) => {
                if let Err(error) = clients.welcome(stream) {
                    tracing::debug!(%error, "a reader of metrics was turned away");
                }
            }
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::INVAL.raw_os_error()) => return,
            Err(error) => {
                tracing::warn!(%error, "no reader of metrics can be accepted");
                thread::sleep(ACCEPT_PAUSE);
            }
        }
    }
}

fn answer(stream: &mut Stream, request: &Request, source: &Source) -> io::Result<()> {
    let (status, kind, text) = match request {
        Request::Metrics => match source() {
            Ok(text) => ("200 OK", OPEN_METRICS, text),
            Err(error) => ("500 Internal Server Error", PLAIN, format!("{error}\n")),
        },
        Request::OtherPath => ("404 Not Found", PLAIN, "the metrics are at /metrics\n".into()),
        Request::OtherMethod => ("405 Method Not Allowed", PLAIN, "only GET is answered\n".into()),
        Request::Unreadable => ("400 Bad Request", PLAIN, "this is no HTTP request\n".into()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        text.len()
    );
    let answer = head + &text;
    let (mut rest, end) = (answer.as_bytes(), Instant::now() + PATIENCE);
    while !rest.is_empty() {
        stream.limit_until(end)?;
        match stream.write(rest)? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            written => rest = &rest[written..],
        }
    }
    Ok(())
}

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PLAIN: &str = "text/plain; charset=utf-8";

/// What somebody wants.
#[derive(Debug, PartialEq, Eq)]
enum Request {
    Metrics,
    OtherPath,
    OtherMethod,
    Unreadable,
}

fn read_request(stream: &mut Stream, end: Instant) -> io::Result<Request> {
    let mut head = Vec::new();
    let mut piece = [0; 1024];
    loop {
        stream.limit_until(end)?;
        let got = match stream.read(&mut piece) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            got => got?,
        };
        if got == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        head.extend_from_slice(&piece[..got]);
        if let Some(request) = parse(&head) {
            return Ok(request);
        }
        if head.len() > REQUEST_BYTES_MAX {
            return Ok(Request::Unreadable);
        }
    }
}

/// What `head` asks for; `None` if there is more to come.
fn parse(head: &[u8]) -> Option<Request> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(head) {
        Ok(httparse::Status::Partial) => return None,
        Ok(httparse::Status::Complete(_)) => {}
        Err(_) => return Some(Request::Unreadable),
    }
    let path = request.path.unwrap_or_default();
    let path = path.split_once('?').map_or(path, |(path, _)| path);
    Some(match (request.method, path) {
        (Some("GET"), "/metrics") => Request::Metrics,
        (Some("GET"), _) => Request::OtherPath,
        _ => Request::OtherMethod,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(dir: &Path) -> (Server, PathBuf) {
        let path = dir.join("m.sock");
        let listener = Listener::bind(&Address::Unix(path.clone())).unwrap();
        (Server::start(listener, Arc::new(|| Ok("# EOF\n".into()))).unwrap(), path)
    }

    fn ask(path: &Path, request: &str) -> String {
        let mut stream = UnixStream::connect(path).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn requests_are_told_apart() {
        for (head, request) in [
            ("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", Some(Request::Metrics)),
            ("GET /metrics?x=1 HTTP/1.0\r\n\r\n", Some(Request::Metrics)),
            ("GET / HTTP/1.1\r\n\r\n", Some(Request::OtherPath)),
            ("POST /metrics HTTP/1.1\r\n\r\n", Some(Request::OtherMethod)),
            ("GET /metrics HTTP/1.1\r\nHost:", None),
            ("\0\0\0\0", Some(Request::Unreadable)),
            ("", None),
        ] {
            assert_eq!(parse(head.as_bytes()), request, "{head:?}");
        }
    }

    #[test]
    fn those_who_say_nothing_keep_nobody_out_and_the_end_waits_for_none() {
        let dir = tempfile::tempdir().unwrap();
        let (server, path) = server(dir.path());
        let silent: Vec<UnixStream> = (0..200).map(|_| UnixStream::connect(&path).unwrap()).collect();
        let answer = ask(&path, "GET /metrics HTTP/1.1\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\n# EOF\n"), "{answer}");
        assert!(ask(&path, "GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
        let endless = "a".repeat(REQUEST_BYTES_MAX + 2048);
        // What was not read of it makes the end an error.
        let mut stream = UnixStream::connect(&path).unwrap();
        stream.write_all(endless.as_bytes()).unwrap();
        let mut answer = [0; 13];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"HTTP/1.1 400 ");
        drop(stream);
        drop(server);
        assert!(!path.exists(), "the socket was left");
        for mut stream in silent {
            // They were hung up on: there is an end, or an error.
            assert_eq!(stream.read(&mut [0]).unwrap_or(0), 0);
        }
    }

    #[test]
    fn a_socket_of_the_dead_is_replaced_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m.sock");
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let held = Listener::bind(&Address::Unix(path.clone())).unwrap();
        let error = Listener::bind(&Address::Unix(path.clone())).err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        drop(held);
        std::fs::write(&path, "mine").unwrap();
        let error = Listener::bind(&Address::Unix(path.clone())).err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
    }
}
