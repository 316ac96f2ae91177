//! The client: one connection to one daemon.

use crate::protocol::{ErrorReply, KvAnswer, KvRequest, PROTOCOL, Reply, ReplyLine, Request, RequestLine};
use crate::socket;
use braid_contract::Shown;
use rustix::net::sockopt::socket_peercred;
use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Time limit for an answer that should be quick.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// Why there is no answer.
#[derive(Debug)]
pub enum ClientError {
    /// The daemon can't be reached, or went away.
    Io(io::Error),
    /// The daemon answered with an error.
    Refused(ErrorReply),
    /// The reply is not understood.
    Protocol(String),
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "the daemon can't be asked: {error}"),
            Self::Refused(error) => write!(f, "{error}"),
            Self::Protocol(what) => write!(f, "the daemon's answer is not understood: {what}"),
        }
    }
}

impl std::error::Error for ClientError {}

impl From<io::Error> for ClientError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// A connection to a daemon.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<UnixStream>,
}

/// Breaks a connection that another thread waits for.
#[derive(Debug)]
pub struct Breaker(UnixStream);

impl Breaker {
    /// Hangs up: a waiting request fails.
    pub fn hang_up(&self) {
        // A connection that has ended already is fine.
        let _ = self.0.shutdown(std::net::Shutdown::Both);
    }
}

impl Client {
    /// Connects to the daemon that serves the file system `dev` for the user
    /// `owner`.
    ///
    /// # Errors
    /// If none of the possible paths of its socket leads to it.
    pub fn find(dev: u64, owner: u32) -> io::Result<Self> {
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for path in socket::candidates(dev, owner) {
            match Self::connect(&path, owner) {
                Ok(client) => return Ok(client),
                // The error of an existing path says more.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Connects to the socket at `path` if it is `owner`'s.
    ///
    /// # Errors
    /// If no daemon listens there, or another user's.
    pub fn connect(path: &Path, owner: u32) -> io::Result<Self> {
        socket::check_directory(path.parent().unwrap_or(Path::new("/")), owner)?;
        let stream = UnixStream::connect(path)?;
        let peer = socket_peercred(&stream)?.uid.as_raw();
        if peer != owner && peer != 0 {
            let what = format!("{}: user {peer} answers in place of {owner}", path.shown());
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
        }
        stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// A handle for breaking the connection from another thread.
    ///
    /// # Errors
    /// If there is no descriptor left.
    pub fn breaker(&self) -> io::Result<Breaker> {
        self.stream.get_ref().try_clone().map(Breaker)
    }

    /// The daemon's process id in this process's pid namespace; `None` if it is
    /// not visible from here.
    #[must_use]
    pub fn peer_pid(&self) -> Option<i32> {
        let credentials = socket_peercred(self.stream.get_ref()).ok()?;
        Some(credentials.pid.as_raw_nonzero().get())
    }

    /// Sends a request and waits for the answer.
    ///
    /// # Errors
    /// [`ClientError::Refused`] if the daemon refuses, the others if it does
    /// not answer.
    pub fn request(&mut self, request: &Request) -> Result<Reply, ClientError> {
        // Emptying or removing a tier may read all indexes first, and a sync
        // takes as long as the slowest tier.
        let takes_long = matches!(
            request,
            Request::Wait
                | Request::Sync
                | Request::RemoveTier { .. }
                | Request::ReplaceTierBy { .. }
                | Request::StartJob(_)
        );
        let patience = (!takes_long).then_some(ANSWER_TIMEOUT);
        self.stream.get_ref().set_read_timeout(patience)?;
        self.send(request)?;
        self.receive()
    }

    /// Sends a request, and hands each answer to `visit` until the last. Waits
    /// without a limit: a daemon that ends hangs up. `visit` returns whether
    /// the reply matches the request.
    ///
    /// # Errors
    /// As [`request`](Self::request); [`ClientError::Protocol`] at a reply that
    /// does not match. The connection is then unusable.
    pub fn request_all(
        &mut self,
        request: &Request,
        visit: &mut dyn FnMut(Reply) -> bool,
    ) -> Result<(), ClientError> {
        self.stream.get_ref().set_read_timeout(None)?;
        self.send(request)?;
        loop {
            let reply = self.receive()?;
            if matches!(reply, Reply::Done(_)) {
                return Ok(());
            }
            if !visit(reply) {
                return Err(ClientError::Protocol("it is one to something else".into()));
            }
        }
    }

    /// Reads or changes keys and values: sends a request with a value, and returns
    /// the bytes that follow the reply.
    ///
    /// # Errors
    /// As [`request`](Self::request).
    pub fn kv(&mut self, request: &KvRequest, value: &[u8]) -> Result<(KvAnswer, Vec<u8>), ClientError> {
        self.stream.get_ref().set_read_timeout(Some(ANSWER_TIMEOUT))?;
        self.send(&Request::Kv(request.clone()))?;
        if let Err(error) = self.stream.get_mut().write_all(value)
            && error.kind() != io::ErrorKind::BrokenPipe
        {
            return Err(error.into());
        }
        let Reply::Kv(answer) = self.receive()? else {
            return Err(ClientError::Protocol("it is one to something else".into()));
        };
        let mut bytes = Vec::new();
        self.stream.by_ref().take(answer.bytes).read_to_end(&mut bytes)?;
        if (bytes.len() as u64) < answer.bytes {
            return Err(ClientError::Io(io::ErrorKind::UnexpectedEof.into()));
        }
        Ok((answer, bytes))
    }

    /// Sends a request; [`receive`](Self::receive) fetches the answer.
    ///
    /// # Errors
    /// If the daemon went away.
    pub fn send(&mut self, request: &Request) -> io::Result<()> {
        let line = RequestLine { protocol: PROTOCOL, request: request.clone() };
        let mut text = serde_json::to_vec(&line)?;
        text.push(b'\n');
        self.stream.get_mut().write_all(&text)
    }

    /// The next answer.
    ///
    /// # Errors
    /// As [`request`](Self::request).
    pub fn receive(&mut self) -> Result<Reply, ClientError> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(ClientError::Io(io::ErrorKind::UnexpectedEof.into()));
        }
        let version = serde_json::from_str::<VersionOnly>(&line).map(|line| line.protocol);
        if let Ok(version) = version
            && version != PROTOCOL
        {
            let what =
                format!("it speaks version {version} of the control protocol, this program {PROTOCOL}");
            return Err(ClientError::Protocol(what));
        }
        let line: ReplyLine =
            serde_json::from_str(&line).map_err(|error| ClientError::Protocol(error.to_string()))?;
        match line.reply {
            Reply::Error(error) => Err(ClientError::Refused(error)),
            reply => Ok(reply),
        }
    }
}

impl AsFd for Client {
    /// Readable when a reply has arrived, or the daemon has gone.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.get_ref().as_fd()
    }
}

/// The part that replies of all versions share.
#[derive(serde::Deserialize)]
struct VersionOnly {
    protocol: u32,
}
