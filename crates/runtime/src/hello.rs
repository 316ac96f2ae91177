//! The messages on the socket of a session: a line of JSON each way, and descriptors. The session
//! lasts as long as the connection.

use crate::layout::Geometry;
use braid_contract::{Class, Errno, Error};
use rustix::net::SendFlags;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::time::Instant;

/// Both sides have to know the same queues.
pub(crate) const VERSION: u32 = 2;

/// Longest line, in bytes.
const LINE_MAX: usize = 4096;

/// A request of the application.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum HelloRequest {
    /// A session.
    Begin {
        version: u32,
        geometry: Geometry,
        class: Class,
        /// The requests of each queue are carried out one after another.
        ordered: bool,
        /// Each request is of the caller that it names: for root and the user who serves the mount.
        /// A runtime that does not know this hangs up.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        for_others: bool,
    },
    /// Shows a directory, whose descriptor follows.
    Show {},
    /// Closes all files but these: the descriptor of memory with `count` handles follows. The answer
    /// has the same token.
    Keep { count: usize, token: u64 },
}

/// An answer of the runtime.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum HelloReply {
    /// A session of this number; the descriptor of its memory follows.
    Begun {
        session: u64,
        /// It knows [`HelloRequest::Keep`].
        #[serde(default)]
        keeps: bool,
    },
    /// The inode of the directory.
    Shown { ino: u64 },
    /// All files but those that were named are closed.
    Kept { token: u64 },
    /// A refusal.
    Refused { errno: i32, why: String },
}

impl HelloReply {
    pub(crate) fn refused(error: &Error) -> Self {
        Self::Refused { errno: error.errno().0, why: error.to_string() }
    }

    pub(crate) fn error(errno: i32, why: String) -> Error {
        Error::new(Errno(errno), why)
    }
}

/// Sends a line; without a signal to the program if the other side has hung up.
pub(crate) fn send(socket: &UnixStream, what: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(what)?;
    line.push(b'\n');
    let mut rest = &line[..];
    while !rest.is_empty() {
        let sent = rustix::io::retry_on_intr(|| rustix::net::send(socket, rest, SendFlags::NOSIGNAL))?;
        rest = &rest[sent..];
    }
    Ok(())
}

/// The next line; `None` at the end. The bytes after it are left, since a descriptor may come with
/// them. All of it has to come by `until`.
pub(crate) fn receive<T: DeserializeOwned>(
    mut socket: &UnixStream,
    until: Option<Instant>,
) -> io::Result<Option<T>> {
    let mut line = Vec::new();
    let mut byte = [0];
    loop {
        match socket.read(&mut byte) {
            Ok(0) if line.is_empty() => return Ok(None),
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) if byte[0] == b'\n' => break,
            Ok(_) if until.is_some_and(|until| Instant::now() > until) => {
                return Err(io::ErrorKind::TimedOut.into());
            }
            Ok(_) if line.len() < LINE_MAX => line.push(byte[0]),
            Ok(_) => return Err(io::Error::new(io::ErrorKind::InvalidData, "too long a line")),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Some(serde_json::from_slice(&line)?))
}
