//! One connection: requests come in, are carried out in their order, and answered in it.

use crate::budget::{Budget, FREE, Share};
use crate::client::{Client, Shared};
use crate::commands::execute;
use crate::resp::{Answers, Limits, Parsed, parse};
use braid_contract::Caller;
use braid_contract::key_value::VALUE_MAX;
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The limits of a request: room for the longest value, and for a thousand keys.
const LIMITS: Limits = Limits { words: 1024, bytes: VALUE_MAX + (256 << 10) };
/// The limits of a client's request before the password.
const LIMITS_BEFORE: Limits = Limits { words: 16, bytes: 4 << 10 };
/// Bytes that are read at a time.
const AT_A_TIME: usize = FREE;
/// How long a client may take for the rest of a request that it began, for the password,
/// and to take answers.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A socket.
pub(crate) trait Socket: Read + Write {
    /// Waits at most so long for bytes.
    fn set_patience(&self, patience: Option<Duration>) -> io::Result<()>;
}

/// Serves a connection until either side ends it.
pub(crate) fn serve(
    socket: &mut dyn Socket,
    shared: &Arc<Shared>,
    (caller, number, is_known): (Caller, u64, bool),
    budget: &Arc<Budget>,
) -> io::Result<()> {
    let answers = Answers { bytes: Vec::new(), is_3: false };
    let mut client = Client {
        shared: Arc::clone(shared),
        caller,
        number,
        name: Vec::new(),
        is_known,
        is_over: false,
        answers,
        share: Share::of(budget),
        value: Share::of(budget),
    };
    let (mut input, mut share) = (Input::default(), Share::of(budget));
    // When the present request began, or the wait for the password.
    let (mut begun, mut waits_for_good) = (Instant::now(), false);
    loop {
        let (taken, needed) = carry_out(socket, &mut client, input.bytes())?;
        client.value.fit(0);
        flush(socket, &mut client)?;
        if client.is_over {
            return Ok(());
        }
        input.take(taken);
        let needed = needed.saturating_sub(taken).max(input.len + 1);
        input.shrink(needed);
        if !share.fit(needed.max(input.buf.len())) {
            client.answers.error("ERR too many long requests at once: try again");
            return flush(socket, &mut client);
        }
        let is_idle = input.len == 0 && client.is_known;
        if taken > 0 && !is_idle {
            begun = Instant::now();
        }
        if !is_idle {
            let left = PATIENCE.checked_sub(begun.elapsed()).filter(|left| !left.is_zero());
            socket.set_patience(Some(left.ok_or(io::ErrorKind::TimedOut)?))?;
        } else if !waits_for_good {
            socket.set_patience(None)?;
        }
        waits_for_good = is_idle;
        if input.receive(socket, needed)? == 0 {
            return Ok(());
        }
        if is_idle {
            begun = Instant::now();
        }
    }
}

/// Received bytes that are no whole request yet.
#[derive(Default)]
struct Input {
    buf: Vec<u8>,
    /// Bytes of it that were received.
    len: usize,
}

impl Input {
    fn bytes(&self) -> &[u8] {
        &self.buf[..self.len]
    }

    /// Forgets the first bytes.
    fn take(&mut self, count: usize) {
        self.buf.copy_within(count..self.len, 0);
        self.len -= count;
    }

    /// Gives memory back that a long request needed.
    fn shrink(&mut self, needed: usize) {
        if self.buf.len() > 4 * FREE && needed < FREE {
            self.buf.truncate(FREE);
            self.buf.shrink_to_fit();
        }
    }

    /// Receives the available bytes, up to the need of the present request and a
    /// little more.
    fn receive(&mut self, socket: &mut dyn Socket, needed: usize) -> io::Result<usize> {
        // Memory is only taken as data comes, not as a client claims.
        let most = (needed - self.len).clamp(AT_A_TIME, 16 * AT_A_TIME);
        if self.buf.len() < self.len + (needed - self.len).min(most) {
            self.buf.resize(self.len + most, 0);
        }
        loop {
            match socket.read(&mut self.buf[self.len..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => {
                    self.len += read.as_ref().copied().unwrap_or(0);
                    return read;
                }
            }
        }
    }
}

/// Carries out all whole requests; returns how many bytes those had, and how many there
/// will be with the next one, at least.
fn carry_out(socket: &mut dyn Socket, client: &mut Client, bytes: &[u8]) -> io::Result<(usize, usize)> {
    let mut at = 0;
    loop {
        let limits = if client.is_known { LIMITS } else { LIMITS_BEFORE };
        match parse(&bytes[at..], limits) {
            Parsed::Request(words, len) => {
                let words: Vec<&[u8]> = words.into_iter().map(|word| &bytes[at..][word]).collect();
                execute(client, &words);
                at += len;
            }
            Parsed::More(more) => return Ok((at, at + more)),
            Parsed::Wrong(why) => {
                client.answers.error(&format!("ERR Protocol error: {why}"));
                client.is_over = true;
            }
        }
        if client.is_over {
            return Ok((at, at));
        }
        if client.answers.bytes.len() >= FREE {
            flush(socket, client)?;
        }
    }
}

/// Sends the answers. A client that takes too long for that is disconnected.
fn flush(socket: &mut dyn Socket, client: &mut Client) -> io::Result<()> {
    let bytes = &mut client.answers.bytes;
    let (begun, mut done) = (Instant::now(), 0);
    while done < bytes.len() {
        if begun.elapsed() > PATIENCE {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match socket.write(&bytes[done..]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => done += written,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.clear();
    bytes.shrink_to(2 * FREE);
    client.share.fit(0);
    Ok(())
}
