//! The guard of a mount: the process that starts the one that serves it, keeps what that process
//! sends ([`guard`](crate::guard)), and starts the program again if the process crashes (LabStor
//! §3.3, crash recovery). `docs/restart.md` describes it from outside.
//!
//! It does not work with the volume itself, and does as little as possible: it only keeps open what
//! the mount needs to stay.

use crate::beside::tell_manager;
use crate::clock::now_ns;
use crate::guard::{GuardMessage, KeptBottom, KeptState, KeptStates, STATE_MAX};
use crate::peer::Peer;
use crate::upgrade::{CrashedMount, Launch, PackedMount, PackedState, Successor, adopt};
use braid_contract::Shown;
use braid_ipc::protocol::Restarts;
use braid_runtime::SessionState;
use rustix::process::{Pid, PidfdFlags, WaitOptions, WaitStatus, pidfd_open, wait, waitpid};
use sd_notify::NotifyState;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// How many processes in a row may end within [`SHORT_NS`] of having begun to serve.
const SHORT_MAX: u32 = 5;
/// After this many, requests that came again are refused: perhaps one of them crashes them all.
const REFUSE_AFTER: u32 = 3;
const SHORT_NS: u64 = 300_000_000;

/// The state that the process that serves the mount has sent.
#[derive(Debug, Default)]
struct Kept {
    serving: Option<ServingProcess>,
    launch: Option<Launch>,
    memory: Vec<OwnedFd>,
    nameless: BTreeMap<u64, OwnedFd>,
    bottom: KeptBottom,
    /// Applications' sessions by their numbers, each with its descriptors.
    sessions: BTreeMap<u64, (SessionState, Vec<OwnedFd>)>,
    /// The socket at which sessions begin.
    sessions_begin: Option<OwnedFd>,
    /// The states of modules.
    states: KeptStates,
    /// The process that will serve the mount goes on with these.
    hands_states_on: bool,
    /// The reason why no other process can go on.
    alone: Option<String>,
    /// The mount has ended.
    ended: bool,
}

/// The process that serves the mount, and what another one would need of it.
#[derive(Debug)]
struct ServingProcess {
    pid: u32,
    program: PathBuf,
    state: PackedState,
    descriptors: Vec<OwnedFd>,
    /// Since when.
    at_ns: u64,
}

/// Starts the daemon by this command line, and keeps its mount until it ends. Returns the
/// exit status of the last process.
///
/// # Errors
/// If it can't be started, or waited for.
pub fn run(words: &[OsString]) -> io::Result<i32> {
    braid_sys::raise_open_files();
    braid_sys::pass_on_no_files();
    adopt()?;
    let (ours, theirs) = UnixStream::pair()?;
    let child = Command::new(std::env::current_exe()?)
        .args(words)
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .env_remove("NOTIFY_SOCKET")
        .spawn()?;
    leave_stdout();
    Supervisor { kept: Kept::default(), crashes: 0, short: 0 }.attend(ours, child.id())
}

/// The command that waits for the daemon's answer must see its end.
fn leave_stdout() {
    if let Ok(null) = std::fs::File::options().write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdout(&null);
    }
}

struct Supervisor {
    kept: Kept,
    crashes: u64,
    /// Processes in a row that ended soon.
    short: u32,
}

impl Supervisor {
    /// Attends to the mount, which the process `pid` serves, until it ends.
    fn attend(mut self, socket: UnixStream, mut pid: u32) -> io::Result<i32> {
        let mut peer = Peer(socket);
        loop {
            while let Ok(message) = peer.hear() {
                // Half of a message is the process's end.
                if self.note(message, &mut peer).is_err() {
                    break;
                }
            }
            let crashed_at_ns = now_ns();
            pid = self.kept.serving.as_ref().map_or(pid, |serving| serving.pid);
            let status = await_end(pid)?;
            let how = describe(status);
            match self.may_go_on() {
                Ok(()) => {}
                Err(None) => return Ok(exit_status(status)),
                Err(Some(why)) => {
                    tracing::error!(
                        pid,
                        "the process that served the mount ended ({how}); the mount ends: {why}"
                    );
                    return Ok(exit_status(status).max(1));
                }
            }
            self.crashes += 1;
            tracing::error!(pid, "the process that served the mount ended ({how}); another one goes on");
            match self.start_again(&how, crashed_at_ns) {
                Ok(next) => peer = next,
                Err(why) => {
                    tracing::error!("no process can go on, the mount ends: {why}");
                    return Ok(1);
                }
            }
        }
    }

    fn note(&mut self, message: GuardMessage, peer: &mut Peer) -> io::Result<()> {
        let kept = &mut self.kept;
        match message {
            GuardMessage::Serving { pid, program, state, descriptors } => {
                let descriptors = peer.receive(descriptors)?;
                let state = serde_json::from_value(*state)?;
                if kept.serving.is_none() {
                    tell_manager(&[NotifyState::Ready]);
                }
                // Modules have newer states in a process that took over without a crash.
                if !std::mem::take(&mut kept.hands_states_on) {
                    kept.states.drop(None);
                }
                let (program, at_ns) = (PathBuf::from(program), now_ns());
                kept.serving = Some(ServingProcess { pid, program, state, descriptors, at_ns });
            }
            GuardMessage::Stack { launch } => kept.launch = Some(serde_json::from_value(*launch)?),
            GuardMessage::Memory => kept.memory.extend(peer.receive(1)?),
            GuardMessage::Keep { ino } => {
                if let Some(fd) = peer.receive(1)?.pop() {
                    kept.nameless.insert(ino, fd);
                }
            }
            GuardMessage::Release { ino } => drop(kept.nameless.remove(&ino)),
            GuardMessage::Bottom { state, descriptors } => {
                kept.bottom = KeptBottom { state: *state, descriptors: peer.receive(descriptors)? };
            }
            GuardMessage::SessionsBegin => kept.sessions_begin = peer.receive(1)?.pop(),
            GuardMessage::Session { state, descriptors } => {
                let descriptors = peer.receive(descriptors)?;
                kept.sessions.insert(state.number(), (*state, descriptors));
            }
            GuardMessage::SessionMemory { session } => {
                let memory = peer.receive(1)?;
                // A session that is about to begin sends all its memory then.
                if let Some((_, descriptors)) = kept.sessions.get_mut(&session) {
                    descriptors.extend(memory);
                }
            }
            GuardMessage::SessionEnded { session } => drop(kept.sessions.remove(&session)),
            GuardMessage::State { origin, version, len, at_ns } => {
                if len > STATE_MAX as u64 {
                    return Err(io::ErrorKind::InvalidData.into());
                }
                let bytes = peer.hear_bytes(len)?;
                kept.states.put(KeptState { origin, version, bytes, at_ns });
            }
            GuardMessage::SameStates { places, at_ns } => kept.states.are_still(&places, at_ns),
            GuardMessage::NoState { place } => kept.states.drop(place),
            GuardMessage::Alone { why } => kept.alone = Some(why),
            GuardMessage::Ended => kept.ended = true,
        }
        Ok(())
    }

    /// Whether another process can go on. If not, and the mount has not ended as it should: the
    /// reason.
    fn may_go_on(&mut self) -> Result<(), Option<String>> {
        let Some(serving) = self.kept.serving.as_ref().filter(|_| !self.kept.ended) else { return Err(None) };
        if let Some(why) = &self.kept.alone {
            return Err(Some(why.clone()));
        }
        let soon = now_ns().saturating_sub(serving.at_ns) < SHORT_NS;
        self.short = if soon { self.short + 1 } else { 0 };
        if self.short >= SHORT_MAX {
            return Err(Some(format!("{SHORT_MAX} processes in a row ended at once")));
        }
        Ok(())
    }

    /// Starts the program again, and hands the mount over to it.
    fn start_again(&mut self, how: &str, crashed_at_ns: u64) -> Result<Peer, String> {
        loop {
            match self.try_to_start(how, crashed_at_ns) {
                Ok(peer) => return Ok(peer),
                Err(why) => {
                    self.short += 1;
                    if self.short >= SHORT_MAX {
                        return Err(why);
                    }
                    tracing::error!("the mount is not served yet: {why}");
                }
            }
        }
    }

    fn try_to_start(&mut self, how: &str, crashed_at_ns: u64) -> Result<Peer, String> {
        let text = |error: io::Error| error.to_string();
        let Kept { serving: Some(serving), launch: Some(launch), .. } = &self.kept else {
            return Err("the process did not tell what another one needs".into());
        };
        let (ours, theirs) = UnixStream::pair().map_err(text)?;
        let mut guard = vec![OwnedFd::from(theirs)];
        for memory in &self.kept.memory {
            guard.push(memory.try_clone().map_err(text)?);
        }
        let nameless = self.kept.nameless.iter().map(|(ino, fd)| Ok((*ino, fd.try_clone()?)));
        let refuse = self.short >= REFUSE_AFTER;
        let crashed = CrashedMount {
            state: serving.state.clone(),
            descriptors: &serving.descriptors,
            guard,
            nameless: nameless.collect::<io::Result<_>>().map_err(text)?,
            bottom: &self.kept.bottom,
            restarts: Restarts { count: self.crashes, how: how.to_owned(), paused_ns: 0 },
            crashed_at_ns,
            refuse,
            sessions: self.kept.sessions.values(),
            sessions_begin: self.kept.sessions_begin.as_ref(),
            // Perhaps it is one of them that ends them all.
            kept: if refuse { Vec::new() } else { self.kept.states.all() },
        };
        let packed = PackedMount::after_crash(crashed).map_err(text)?;
        let successor = Successor::start(&serving.program, launch)?;
        let (child, peer) = successor.hand_over(&packed)?;
        drop((packed, peer));
        tracing::info!(pid = child.id(), program = %serving.program.shown(), "another process serves the mount");
        self.kept.hands_states_on = !refuse;
        Ok(Peer(ours))
    }
}

/// Waits until a process has ended, and reaps it and others.
fn await_end(pid: u32) -> io::Result<Option<WaitStatus>> {
    let process = Pid::from_raw(pid.cast_signed()).ok_or(io::ErrorKind::InvalidInput)?;
    let status = match rustix::io::retry_on_intr(|| waitpid(Some(process), WaitOptions::empty())) {
        Ok(ended) => ended.map(|(_, status)| status),
        // It is the child of one that has not ended yet.
        Err(rustix::io::Errno::CHILD) => {
            if let Ok(ended) = pidfd_open(process, PidfdFlags::empty()) {
                let mut fds = [rustix::event::PollFd::new(&ended, rustix::event::PollFlags::IN)];
                rustix::io::retry_on_intr(|| rustix::event::poll(&mut fds, None))?;
            }
            None
        }
        Err(error) => return Err(error.into()),
    };
    while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
    Ok(status)
}

fn describe(status: Option<WaitStatus>) -> String {
    let signal = status.and_then(WaitStatus::terminating_signal);
    match (signal, status.and_then(WaitStatus::exit_status)) {
        (Some(signal), _) => format!("signal {signal}"),
        (None, Some(code)) => format!("exit status {code}"),
        (None, None) => "no exit status".into(),
    }
}

fn exit_status(status: Option<WaitStatus>) -> i32 {
    status.and_then(WaitStatus::exit_status).unwrap_or(1)
}
