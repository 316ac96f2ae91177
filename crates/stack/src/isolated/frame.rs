//! Frames on a socket: their kinds, and the time limits of the other side.

use braid_sdk::abi::Failure;
use bytemuck::Pod;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Longest frame, in bytes. The kernel's largest write is far below, a module's state may
/// not be.
pub(super) const FRAME_MAX: u64 = 16 << 20;

/// Most parts of a frame.
const PARTS_MAX: usize = 7;

/// Most bytes of text for people.
pub(super) const WORDS_MAX: usize = 1024;

/// The kind of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(super) enum Kind {
    /// An operation: numbers, groups, name, new name, data, room (of the buffer, and whether
    /// entries are wanted).
    Call = 1,
    /// A request for its capabilities, with those of the file system below, if they are known.
    Capabilities,
    /// An entry of a directory: numbers, name.
    Entry,
    /// Whether there was room for it.
    Room,
    /// It was done: the answer.
    Done,
    /// It failed: error number, text.
    Failed,
    /// Which module is it, and may its state be asked for in use? A library whose version is of no
    /// interest answers nothing.
    Describe,
    /// Are these settings right?
    Check,
    /// Make the module with these settings.
    Create,
    /// The module's state.
    Export,
    /// Take over a state: version, bytes.
    Import,
    /// The file system will not be used any more.
    End,
    /// Repair the leftovers of a crash: the crash.
    Repair,
}

const KINDS: [Kind; 13] = [
    Kind::Call,
    Kind::Capabilities,
    Kind::Entry,
    Kind::Room,
    Kind::Done,
    Kind::Failed,
    Kind::Describe,
    Kind::Check,
    Kind::Create,
    Kind::Export,
    Kind::Import,
    Kind::End,
    Kind::Repair,
];

/// A received frame.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) kind: Kind,
    pub(super) parts: Vec<Vec<u8>>,
}

impl Frame {
    /// A part of bytes; empty if it was not sent.
    pub(super) fn bytes(&self, at: usize) -> &[u8] {
        self.parts.get(at).map_or(&[], Vec::as_slice)
    }

    /// A part of numbers.
    pub(super) fn get<T: Pod>(&self, at: usize) -> io::Result<T> {
        bytemuck::try_pod_read_unaligned(self.bytes(at)).map_err(|_| invalid())
    }
}

/// Text of the other side for people and logs: at most `longest` bytes, without control characters.
pub(super) fn words(bytes: &[u8], longest: usize) -> String {
    let text = String::from_utf8_lossy(bytes.get(..longest).unwrap_or(bytes));
    text.replace(char::is_control, " ")
}

pub(super) fn invalid() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "not what the conversation asks for")
}

/// How long the other side may take for a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// By itself.
    pub(super) alone: Duration,
    /// Together with this side's work for it, before it asks for more.
    pub(super) in_all: Duration,
}

pub(super) fn answer(other: &mut Waiting<'_>, parts: &[&[u8]]) -> io::Result<()> {
    match fits(parts) {
        Ok(()) => send(other, Kind::Done, parts),
        Err(failure) => fail(other, &failure),
    }
}

/// Whether a frame may have these parts.
pub(super) fn fits(parts: &[&[u8]]) -> Result<(), Failure> {
    if parts.iter().map(|part| part.len() as u64).sum::<u64>() <= FRAME_MAX {
        return Ok(());
    }
    let why = format!(
        "to and from an untrusted module goes no more than {} MiB at once, and this is more than {0} MiB",
        FRAME_MAX >> 20
    );
    Err(Failure { errno: libc::E2BIG, why })
}

pub(super) fn fail(other: &mut Waiting<'_>, failure: &Failure) -> io::Result<()> {
    send(other, Kind::Failed, &[bytemuck::bytes_of(&failure.errno), failure.why.as_bytes()])
}

pub(super) fn failure(frame: &Frame) -> io::Result<Failure> {
    let errno = frame.get::<i32>(0)?;
    let errno = if (1..4096).contains(&errno) { errno } else { libc::EIO };
    Ok(Failure { errno, why: words(frame.bytes(1), WORDS_MAX) })
}

/// The other side during a request.
pub(super) struct Waiting<'a> {
    socket: &'a UnixStream,
    patience: Option<Patience>,
    /// How long it may still take; this side's work meanwhile does not count.
    left: Option<Duration>,
    begun: Instant,
}

impl<'a> Waiting<'a> {
    pub(super) fn new(socket: &'a UnixStream, patience: Option<Patience>) -> Self {
        let left = patience.map(|patience| patience.alone);
        Self { socket, patience, left, begun: Instant::now() }
    }

    /// Whether it may still make requests: otherwise, it could go on for ever.
    pub(super) fn may_ask(&self) -> io::Result<()> {
        match self.patience {
            Some(Patience { in_all, .. }) if self.begun.elapsed() > in_all => {
                let why = format!("it asked for more after {} seconds", in_all.as_secs());
                Err(io::Error::new(io::ErrorKind::TimedOut, why))
            }
            _ => Ok(()),
        }
    }

    /// Does this until it is done, or the time is up.
    fn until_done<T>(&mut self, mut act: impl FnMut(&mut &UnixStream) -> io::Result<T>) -> io::Result<T> {
        loop {
            let begun = Instant::now();
            let done = act(&mut { self.socket });
            if let (Some(left), Some(Patience { alone, .. })) = (&mut self.left, self.patience) {
                let late = || {
                    let why = format!("it took more than {} seconds", alone.as_secs());
                    io::Error::new(io::ErrorKind::TimedOut, why)
                };
                *left = left.checked_sub(begun.elapsed()).ok_or_else(late)?;
            }
            match done {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return done,
            }
        }
    }
}

impl Read for Waiting<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.until_done(|socket| socket.read(buffer))
    }
}

impl Write for Waiting<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.until_done(|socket| socket.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub(super) fn send(other: &mut Waiting<'_>, kind: Kind, parts: &[&[u8]]) -> io::Result<()> {
    let mut bytes = Vec::with_capacity(64 + parts.iter().map(|part| 8 + part.len()).sum::<usize>());
    bytes.extend_from_slice(&(kind as u32).to_le_bytes());
    bytes.extend_from_slice(&u32::try_from(parts.len()).unwrap_or(u32::MAX).to_le_bytes());
    for part in parts {
        bytes.extend_from_slice(&(part.len() as u64).to_le_bytes());
        bytes.extend_from_slice(part);
    }
    other.write_all(&bytes)
}

pub(super) fn receive(other: &mut Waiting<'_>) -> io::Result<Frame> {
    let mut head = [0; 8];
    other.read_exact(&mut head)?;
    let [kind, count] = bytemuck::cast::<[u8; 8], [u32; 2]>(head).map(u32::from_le);
    let kind = KINDS.into_iter().find(|known| *known as u32 == kind).ok_or_else(invalid)?;
    if count as usize > PARTS_MAX {
        return Err(invalid());
    }
    let mut room = FRAME_MAX;
    let part = |_| {
        let mut len = [0; 8];
        other.read_exact(&mut len)?;
        let len = u64::from_le_bytes(len);
        room = room.checked_sub(len).ok_or_else(invalid)?;
        let mut bytes = Vec::new();
        (&mut *other).take(len).read_to_end(&mut bytes)?;
        if bytes.len() as u64 == len { Ok(bytes) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    };
    Ok(Frame { kind, parts: (0..count).map(part).collect::<io::Result<_>>()? })
}
