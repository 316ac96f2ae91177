//! `braid umount`: unmounts and waits until the daemon has let go of the tiers.

use crate::args::UmountArgs;
use crate::failure::{Failure, Result};
use crate::locate;
use braid_contract::Shown;
use braid_ipc::mounts::Mount;
use braid_ipc::protocol::{Reply, Request};
use braid_ipc::{Client, ClientError, socket};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, PidfdFlags, geteuid, pidfd_open};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};

/// After this long, the user is told what is being waited for.
const PATIENCE: Timespec = Timespec { tv_sec: 5, tv_nsec: 0 };

pub(crate) fn run(args: &UmountArgs) -> Result<()> {
    let mount = locate::mounted_at(&args.mountpoint)?;
    let watch = if args.lazy { None } else { Watch::start(&mount) };
    // A daemon that can be reached may be slow to answer, but is not dead.
    let stale = !args.lazy && watch.is_none() && mount.is_dead();
    detach(&mount.point, args.lazy || stale)?;
    if stale {
        remove_socket(&mount);
    }
    match watch {
        Some(watch) => watch.finish(),
        None => Ok(()),
    }
}

/// Takes Braid file systems away from `point` whose daemons are gone: nothing
/// can be reached through them.
pub(crate) fn clear_dead(point: &Path) -> Result<()> {
    while let Ok(mount) = locate::mounted_at(point)
        && locate::daemon(&mount).is_err()
        && mount.is_dead()
    {
        detach(&mount.point, true)?;
        remove_socket(&mount);
    }
    Ok(())
}

fn detach(point: &Path, lazy: bool) -> Result<()> {
    let flags = if lazy { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    match unmount(point, flags | UnmountFlags::NOFOLLOW) {
        Ok(()) => Ok(()),
        Err(Errno::PERM) if !geteuid().is_root() => detach_by_helper(point, lazy),
        Err(Errno::BUSY) => Err(busy(point)),
        Err(error) => Err(failed(point, &io::Error::from(error).to_string())),
    }
}

/// For users there is no other way than the helper that is installed for them.
fn detach_by_helper(point: &Path, lazy: bool) -> Result<()> {
    let mut command = Command::new("fusermount3");
    command.arg("-u").args(lazy.then_some("-z")).arg("--").arg(point);
    let output = command.stdin(Stdio::null()).env("LC_ALL", "C").output().map_err(|error| {
        Failure::new(format!(
            "fusermount3 can't be started: {error}\n  help: install it (Debian package fuse3)"
        ))
    })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(if said.contains("busy") { busy(point) } else { failed(point, said.trim()) })
}

fn failed(point: &Path, what: &str) -> Failure {
    Failure::new(format!("{} can't be unmounted: {what}", point.shown()))
}

fn busy(point: &Path) -> Failure {
    let point = point.shown();
    Failure::new(format!(
        "{point} is busy: somebody has files open in it, or works in it\n  \
         help: see who with: fuser -vm {point}; or detach it with: braid umount --lazy {point}"
    ))
}

/// The socket that a daemon which was killed left behind.
fn remove_socket(mount: &Mount) {
    for path in socket::candidates(mount.dev, mount.owner().unwrap_or(0)) {
        let _ = std::fs::remove_file(path);
    }
}

/// Waits for the end of a daemon.
struct Watch {
    client: Client,
    /// Becomes readable when the process has ended; `None` where it can't be
    /// seen from here.
    process: Option<OwnedFd>,
}

impl Watch {
    /// `None` if the daemon can't be asked: then there is nothing to wait by.
    fn start(mount: &Mount) -> Option<Self> {
        let mut client = locate::daemon(mount).ok()?;
        let pid = client.peer_pid().and_then(Pid::from_raw);
        let process = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        // The answer shows that the process is still the one that was opened.
        client.request(&Request::Hello).ok()?;
        client.send(&Request::Wait).ok()?;
        Some(Self { client, process })
    }

    fn finish(mut self) -> Result<()> {
        wait_readable(self.client.as_fd(), "the daemon writes back what it holds in memory")?;
        let ended = self.client.receive();
        if let Some(process) = &self.process {
            wait_readable(process.as_fd(), "the daemon ends")?;
        }
        match ended {
            Ok(Reply::Ended(ended)) => match ended.error {
                None => Ok(()),
                Some(error) => Err(Failure::new(format!("unmounted, but not cleanly: {error}"))),
            },
            Ok(_) => Err(Failure::new("unmounted; the daemon's answer is not understood")),
            Err(ClientError::Io(_)) => {
                Err(Failure::new("unmounted, but the daemon ended without a word; see its log"))
            }
            Err(error) => Err(Failure::new(format!("unmounted, but {error}"))),
        }
    }
}

/// Waits until there is something to read, and says so if it takes long.
fn wait_readable(fd: impl AsFd, what: &str) -> Result<()> {
    let mut patience = Some(&PATIENCE);
    loop {
        match poll(&mut [PollFd::new(&fd, PollFlags::IN)], patience) {
            Ok(0) => {
                eprintln!("braid: unmounted; waiting while {what} …");
                patience = None;
            }
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(error) => {
                return Err(Failure::new(format!("unmounted, but can't wait: {}", io::Error::from(error))));
            }
        }
    }
}
