//! A process with an untrusted module, from Braid's side.

use super::host::Head;
use super::pipe::{Frame, Kind, Nothing, Pipe};
use braid_sdk::abi::{Answer, Failure, Message, Target};
use braid_sys::pass_descriptors;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Operations that it is asked at a time.
const PIPES: usize = 8;

/// How long it may take before it asks for something or answers.
pub(super) const HANGS_AFTER: Duration = Duration::from_secs(5);

/// The user and the group of what belongs to root, but could be another's.
const NOBODY: (u32, u32) = (65534, 65534);

/// A running process.
#[derive(Debug)]
pub(super) struct Process {
    child: Mutex<Child>,
    /// While it is open, the process lives.
    _life: UnixStream,
    idle: Mutex<Vec<Pipe>>,
    returned: Condvar,
    is_dead: AtomicBool,
}

/// How an exchange with the process went.
pub(super) enum Outcome<T> {
    /// It answered.
    Answered(Result<T, Failure>),
    /// It is gone, and does nothing any more.
    Gone(io::Error),
}

impl Process {
    /// Starts one with this library, which belongs to a user.
    ///
    /// # Errors
    /// If it can't be started.
    pub(super) fn start(library: &File, owner: (u32, u32)) -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        braid_sys::pass_on_no_files();
        let child = Command::new("/proc/self/exe")
            .arg("module-host")
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let process = Self {
            child: Mutex::new(child),
            _life: ours.try_clone()?,
            idle: Mutex::default(),
            returned: Condvar::new(),
            is_dead: AtomicBool::new(false),
        };
        let pairs = (0..PIPES).map(|_| UnixStream::pair()).collect::<io::Result<Vec<_>>>()?;
        let switches = rustix::process::geteuid().is_root();
        let (uid, gid) = if owner.0 == 0 { NOBODY } else { owner };
        let head: Head = [PIPES as u32, u32::from(switches), uid, gid];
        (&ours).write_all(bytemuck::bytes_of(&head))?;
        let theirs = pairs.iter().map(|(_, theirs)| theirs.as_fd());
        pass_descriptors(&ours, &std::iter::once(library.as_fd()).chain(theirs).collect::<Vec<_>>())?;
        for (ours, _) in pairs {
            process.idle().push(Pipe::impatient(ours, HANGS_AFTER)?);
        }
        Ok(process)
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Pipe>> {
        // Each change is a single one.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn call(&self, message: Message<'_>, below: &dyn Target) -> Outcome<Answer> {
        self.with_pipe(|pipe| pipe.call(message, below))
    }

    pub(super) fn ask(&self, kind: Kind, parts: &[&[u8]], below: &dyn Target) -> Outcome<Frame> {
        self.with_pipe(|pipe| pipe.ask(kind, parts, below))
    }

    /// Asks what needs no file system.
    pub(super) fn ask_alone(&self, kind: Kind, parts: &[&[u8]]) -> Outcome<Frame> {
        self.ask(kind, parts, &Nothing)
    }

    fn with_pipe<T>(&self, exchange: impl FnOnce(&Pipe) -> io::Result<Result<T, Failure>>) -> Outcome<T> {
        let pipe = {
            let mut idle = self.idle();
            loop {
                if self.is_dead.load(Ordering::Acquire) {
                    return Outcome::Gone(io::ErrorKind::BrokenPipe.into());
                }
                match idle.pop() {
                    Some(pipe) => break pipe,
                    None => idle = self.returned.wait(idle).unwrap_or_else(PoisonError::into_inner),
                }
            }
        };
        match exchange(&pipe) {
            Ok(answer) => {
                self.idle().push(pipe);
                self.returned.notify_one();
                Outcome::Answered(answer)
            }
            Err(error) => {
                self.kill();
                Outcome::Gone(match error.kind() {
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                        io::Error::other(format!("it took more than {} seconds", HANGS_AFTER.as_secs()))
                    }
                    io::ErrorKind::InvalidData => io::Error::other("it said what makes no sense"),
                    _ => io::Error::other("it has ended"),
                })
            }
        }
    }

    /// Whether it was ended.
    pub(super) fn is_gone(&self) -> bool {
        self.is_dead.load(Ordering::Acquire)
    }

    /// Ends it: what others ask of it fails.
    fn kill(&self) {
        let idle = self.idle();
        self.is_dead.store(true, Ordering::Release);
        drop(idle);
        self.returned.notify_all();
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        // It may have ended by itself.
        let _ = child.kill();
        let _ = child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}
