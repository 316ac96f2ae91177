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

/// What a request may have: room for the longest value, and for a thousand keys.
const LIMITS: Limits = Limits { words: 1024, bytes: VALUE_MAX + (256 << 10) };
/// Bytes that are read at a time.
const AT_A_TIME: usize = 64 << 10;
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
    };
    let (mut bytes, mut share) = (Vec::new(), Share::of(budget));
    loop {
        let (taken, needed) = carry_out(socket, &mut client, &bytes)?;
        bytes.drain(..taken);
        flush(socket, &mut client)?;
        if client.is_over {
            return Ok(());
        }
        let needed = needed.saturating_sub(taken).max(bytes.len() + 1);
        if bytes.capacity() > 4 * FREE && needed < FREE {
            bytes.shrink_to(FREE);
        }
        if !share.fit(needed.max(bytes.len()) + AT_A_TIME) {
            client.answers.error("ERR too many long requests at once: try again");
            return flush(socket, &mut client);
        }
        let waits = bytes.is_empty() && client.is_known;
        socket.set_patience((!waits).then_some(PATIENCE))?;
        if receive(socket, &mut bytes, needed)? == 0 {
            return Ok(());
        }
    }
}

/// Reads what there is, up to what the present request needs and a little more.
fn receive(socket: &mut dyn Socket, bytes: &mut Vec<u8>, needed: usize) -> io::Result<usize> {
    let begin = bytes.len();
    // What a client claims is only taken as it comes.
    let most = (needed - begin).clamp(AT_A_TIME, 16 * AT_A_TIME);
    bytes.resize(begin + most, 0);
    let read = loop {
        match socket.read(&mut bytes[begin..]) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => break read,
        }
    };
    bytes.truncate(begin + read.as_ref().copied().unwrap_or(0));
    read
}

/// Carries out all whole requests; answers how many bytes those had, and how many there
/// will be with the next one, at least.
fn carry_out(socket: &mut dyn Socket, client: &mut Client, bytes: &[u8]) -> io::Result<(usize, usize)> {
    let mut at = 0;
    loop {
        match parse(&bytes[at..], LIMITS) {
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

/// Sends the answers. Whoever takes too long for that is hung up on.
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
