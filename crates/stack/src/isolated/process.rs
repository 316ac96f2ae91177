//! A process with an untrusted module, from Braid's side.

use super::frame::{Frame, Kind, Patience};
use super::host::Head;
use super::pipe::{Nothing, Pipe};
use super::pool::{Pool, Refusal};
use braid_sdk::abi::{Answer, Failure, Message, Target};
use braid_sys::pass_descriptors;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Operations that it is asked at a time.
const PIPES: usize = 8;

/// How long it may take for a request.
const PATIENCE: Patience = Patience { alone: Duration::from_secs(5), in_all: Duration::from_secs(30) };

/// How long an operation waits for others that are under way. They may wait for a tier.
const BUSY_WITHIN: Duration = Duration::from_secs(60);

/// The user for libraries of root that another user could have changed.
const NOBODY: u32 = 65534;

/// A running process.
#[derive(Debug)]
pub(super) struct Process {
    pidfd: OwnedFd,
    /// While it is open, the process lives.
    _life: UnixStream,
    pool: Pool,
}

/// How an exchange with the process went.
pub(super) enum Outcome<T> {
    /// It answered.
    Answered(Result<T, Failure>),
    /// It was not asked: too much is under way in it.
    Busy(Failure),
    /// It is gone, and no further answer is read.
    Gone(io::Error),
}

impl Process {
    /// Starts one with this library, which belongs to a user.
    ///
    /// # Errors
    /// If it can't be started.
    pub(super) fn start(library: &File, owner: u32) -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        let process = Self { pidfd: spawn(theirs)?, _life: ours.try_clone()?, pool: Pool::default() };
        let pairs = (0..PIPES).map(|_| UnixStream::pair()).collect::<io::Result<Vec<_>>>()?;
        let switches = rustix::process::geteuid().is_root();
        let uid = if owner == 0 { NOBODY } else { owner };
        let head: Head = [PIPES as u32, u32::from(switches), uid, std::process::id()];
        (&ours).write_all(bytemuck::bytes_of(&head))?;
        let theirs = pairs.iter().map(|(_, theirs)| theirs.as_fd());
        pass_descriptors(&ours, &std::iter::once(library.as_fd()).chain(theirs).collect::<Vec<_>>())?;
        for (ours, _) in pairs {
            process.pool.add(Pipe::impatient(ours, PATIENCE)?);
        }
        Ok(process)
    }

    pub(super) fn call(&self, message: Message<'_>, below: &dyn Target) -> Outcome<Answer> {
        self.with_pipe(|pipe| pipe.call(message, below))
    }

    pub(super) fn ask(&self, kind: Kind, parts: &[&[u8]], below: &dyn Target) -> Outcome<Frame> {
        self.with_pipe(|pipe| pipe.ask(kind, parts, below))
    }

    /// Makes a request that needs no file system.
    pub(super) fn ask_alone(&self, kind: Kind, parts: &[&[u8]]) -> Outcome<Frame> {
        self.ask(kind, parts, &Nothing)
    }

    fn with_pipe<T>(&self, exchange: impl FnOnce(&Pipe) -> io::Result<Result<T, Failure>>) -> Outcome<T> {
        match self.pool.with(BUSY_WITHIN, exchange) {
            Ok(Ok(answer)) => Outcome::Answered(answer),
            Ok(Err(error)) => {
                self.kill();
                Outcome::Gone(match error.kind() {
                    io::ErrorKind::TimedOut => error,
                    io::ErrorKind::InvalidData => io::Error::other("it said what makes no sense"),
                    _ => io::Error::other("it has ended"),
                })
            }
            Err(Refusal::Closed) => Outcome::Gone(io::ErrorKind::BrokenPipe.into()),
            Err(Refusal::Busy) => {
                let why = format!("none of the {PIPES} operations that are under way in a module ends");
                Outcome::Busy(Failure { errno: libc::EIO, why })
            }
        }
    }

    /// Whether it was ended.
    pub(super) fn is_gone(&self) -> bool {
        self.pool.is_closed()
    }

    /// Ends it: requests of others to it fail. Nothing waits for its end here, which may have to
    /// wait for an operation of this very volume.
    fn kill(&self) {
        self.pool.close();
        // It may have ended by itself.
        let _ = pidfd_send_signal(&self.pidfd, Signal::KILL);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Starts the program in a thread that lives as long as it does: the kernel would end it with
/// the thread.
fn spawn(stdin: UnixStream) -> io::Result<OwnedFd> {
    let (tell, told) = mpsc::sync_channel(1);
    let keep = move || match start(stdin) {
        Ok((mut child, pidfd)) => {
            // Without a receiver, it is not wanted any more, and ends with its socket.
            let _ = tell.send(Ok(pidfd));
            let _ = child.wait();
        }
        Err(error) => _ = tell.send(Err(error)),
    };
    thread::Builder::new().name("module-host".into()).spawn(keep)?;
    told.recv().unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into()))
}

fn start(stdin: UnixStream) -> io::Result<(Child, OwnedFd)> {
    braid_sys::pass_on_no_files();
    let child = Command::new("/proc/self/exe")
        .arg("module-host")
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::from(OwnedFd::from(stdin)))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let pidfd = pidfd_open(Pid::from_child(&child), PidfdFlags::empty())?;
    Ok((child, pidfd))
}
