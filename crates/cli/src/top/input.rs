//! Events of `braid top`: keys, signals, fresh figures and the end of the
//! terminal, all awaited at once. (The drawing library can wait for keys too,
//! but never returns if the terminal is gone.)

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGWINCH};
use signal_hook::low_level::pipe;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A key that means something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Quit,
    Left,
    Right,
    Up,
    Down,
}

/// Why waiting ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Woken {
    /// A signal, or the end of the terminal.
    End,
    Keys(Vec<Key>),
    /// Fresh figures, or a new size of the terminal.
    Other,
}

/// Standard input, and the other events.
pub(super) struct Input {
    asked_to_end: Arc<AtomicBool>,
    /// Becomes readable by a signal, or by a [`Waker`].
    wakeups: UnixStream,
    waker: UnixStream,
}

/// Ends the waiting from another thread.
pub(super) struct Waker(UnixStream);

impl Waker {
    pub(super) fn wake(&self) {
        // If full, it wakes already; if the reader is gone, there is no need.
        let _ = (&self.0).write(&[0]);
    }
}

impl Input {
    /// Starts to notice signals.
    pub(super) fn open() -> io::Result<Self> {
        let (wakeups, waker) = UnixStream::pair()?;
        wakeups.set_nonblocking(true)?;
        waker.set_nonblocking(true)?;
        let asked_to_end = Arc::new(AtomicBool::new(false));
        for signal in [SIGTERM, SIGINT, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&asked_to_end))?;
        }
        for signal in [SIGTERM, SIGINT, SIGHUP, SIGWINCH] {
            pipe::register(signal, waker.try_clone()?)?;
        }
        Ok(Self { asked_to_end, wakeups, waker })
    }

    pub(super) fn waker(&self) -> io::Result<Waker> {
        self.waker.try_clone().map(Waker)
    }

    /// Waits for the next event.
    pub(super) fn wait(&mut self) -> io::Result<Woken> {
        let stdin = io::stdin();
        let mut fds = [PollFd::new(&stdin, PollFlags::IN), PollFd::new(&self.wakeups, PollFlags::IN)];
        match poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let [input, woken] = fds.map(|fd| fd.revents());
        if !woken.is_empty() {
            // All pending bytes, however many.
            while self.wakeups.read(&mut [0; 64]).is_ok_and(|read| read > 0) {}
        }
        if self.asked_to_end.load(Ordering::Acquire) {
            return Ok(Woken::End);
        }
        if input.is_empty() {
            return Ok(Woken::Other);
        }
        let mut bytes = [0; 256];
        Ok(match rustix::io::read(&stdin, &mut bytes) {
            // The other end of the terminal is closed, or another process has
            // it.
            Ok(0) | Err(Errno::IO | Errno::NXIO | Errno::BADF) => Woken::End,
            Ok(read) => Woken::Keys(keys(&bytes[..read])),
            Err(Errno::INTR | Errno::AGAIN) => Woken::Other,
            Err(error) => return Err(error.into()),
        })
    }

    /// Whether the terminal is gone.
    pub(super) fn is_gone(&self) -> bool {
        let stdin = io::stdin();
        let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
        let polled = poll(&mut fds, Some(&rustix::event::Timespec::default()));
        let gone = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
        self.asked_to_end.load(Ordering::Acquire) || polled.is_ok() && fds[0].revents().intersects(gone)
    }
}

/// The keys in the bytes from a terminal; others are ignored.
fn keys(bytes: &[u8]) -> Vec<Key> {
    let mut keys = Vec::new();
    let mut rest = bytes;
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        match (first, behind) {
            (b'q' | 3, _) => keys.push(Key::Quit),
            (27, []) => keys.push(Key::Quit),
            (27, [b'[' | b'O', ..]) => {
                let sequence = &behind[1..];
                let end = sequence.iter().position(|byte| (b'@'..=b'~').contains(byte));
                let Some(end) = end else { break };
                keys.extend(arrow(sequence[end]));
                rest = &sequence[end + 1..];
            }
            _ => {}
        }
    }
    keys
}

/// The arrow key of a sequence, by its last byte.
fn arrow(last: u8) -> Option<Key> {
    match last {
        b'A' => Some(Key::Up),
        b'B' => Some(Key::Down),
        b'C' => Some(Key::Right),
        b'D' => Some(Key::Left),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_in_what_a_terminal_sends() {
        for (bytes, found) in [
            (&b"q"[..], &[Key::Quit][..]),
            (b"\x03", &[Key::Quit]),
            (b"\x1b", &[Key::Quit]),
            (b"x\x1b[A\x1bOB", &[Key::Up, Key::Down]),
            (b"\x1b[1;5C\x1b[D\x1b[5~", &[Key::Right, Key::Left]),
            (b"\x1b[", &[]),
            (b"\xc3\xa4?", &[]),
        ] {
            assert_eq!(keys(bytes), found, "{bytes:?}");
        }
    }
}
