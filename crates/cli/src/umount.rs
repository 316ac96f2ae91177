//! `braid umount`: unmounts and waits until the daemon has released the tiers.

use crate::args::UmountArgs;
use crate::failure::{Failure, Result};
use crate::{locate, served, table};
use braid_contract::Shown;
use braid_ipc::daemons::Daemon;
use braid_ipc::holders::{self, Holder};
use braid_ipc::mounts::Mount;
use braid_ipc::protocol::{Reply, Request};
use braid_ipc::{Client, ClientError, connection, socket};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, PidfdFlags, geteuid, pidfd_open};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};

/// Time after which the user sees the reason for waiting.
const PATIENCE: Timespec = Timespec { tv_sec: 5, tv_nsec: 0 };

pub(crate) fn run(args: &UmountArgs) -> Result<()> {
    let mount = match locate::mounted_at(&args.mountpoint) {
        Ok(mount) => mount,
        Err(failure) => {
            return served::find(&args.mountpoint).map_or(Err(failure), |daemon| again(args, &daemon));
        }
    };
    if args.lazy && !args.force {
        detach(&mount, true)?;
        let users = holders::list(mount.dev);
        return if users.is_empty() {
            Ok(())
        } else {
            let point = mount.point.shown();
            table::print(&format!(
                "{point} is detached; it ends when its last user does:{}\n",
                holders::lines(&users)
            ))
        };
    }
    let watch = Watch::start(&mount);
    // A reachable daemon may be slow to answer, but is not dead.
    let stale = watch.is_none() && mount.is_dead();
    if stale {
        remove_socket(&mount);
    }
    detach(&mount, args.force || stale)?;
    if args.force && watch.is_some() {
        abort(mount.dev)?;
    }
    match watch {
        Some(watch) if !args.wait && served::is_served(mount.dev, watch.pid) => {
            table::print(&served::notice(&mount.point, mount.dev, watch.pid))
        }
        Some(watch) => watch.finish(),
        None => Ok(()),
    }
}

/// Removes Braid file systems at `point` whose daemons are gone, and which
/// can't be used any more.
pub(crate) fn clear_dead(point: &Path) -> Result<()> {
    while let Ok(mount) = locate::mounted_at(point)
        && locate::daemon(&mount).is_err()
        && mount.is_dead()
    {
        remove_socket(&mount);
        detach(&mount, true)?;
    }
    Ok(())
}

/// Handles a volume that is not mounted where it was: shows its users, ends it,
/// or waits for its end.
fn again(args: &UmountArgs, daemon: &Daemon) -> Result<()> {
    let mount = daemon.mount();
    let watch = Watch::start(&mount);
    if args.force {
        abort(mount.dev)?;
    } else if !args.wait && daemon.hello.serving {
        return table::print(&served::notice(&mount.point, mount.dev, daemon.hello.pid));
    }
    watch.map_or(Ok(()), Watch::finish)
}

/// Makes the kernel end the connection to a daemon, even if its file system is
/// in use.
fn abort(dev: u64) -> Result<()> {
    connection::abort(dev).map_err(|error| Failure::new(format!("it can't be ended: {error}")))
}

fn detach(mount: &Mount, lazy: bool) -> Result<()> {
    let point = &mount.point;
    let flags = if lazy { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    match unmount(point, flags | UnmountFlags::NOFOLLOW) {
        Ok(()) => Ok(()),
        Err(Errno::PERM) if !geteuid().is_root() => detach_by_helper(mount, lazy),
        Err(Errno::BUSY) => Err(busy(mount)),
        Err(error) => Err(failed(point, &io::Error::from(error).to_string())),
    }
}

/// Users without privilege need the helper that is installed for them.
fn detach_by_helper(mount: &Mount, lazy: bool) -> Result<()> {
    let point = &mount.point;
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
    Err(if said.contains("busy") { busy(mount) } else { failed(point, said.trim()) })
}

fn failed(point: &Path, what: &str) -> Failure {
    Failure::new(format!("{} can't be unmounted: {what}", point.shown()))
}

fn busy(mount: &Mount) -> Failure {
    let point = mount.point.shown();
    let mut users = holders::list(mount.dev);
    users.retain(|user| *user != Holder::Mount(mount.point.clone()));
    Failure::new(format!(
        "{point} is busy: it is used{}\n  \
         help: end the programs that use it; or detach it, and they are served on: braid umount --lazy {point}",
        holders::lines(&users)
    ))
}

/// Removes the socket that a killed daemon left behind. The mount must be there
/// still: without it, its device number may be that of another by now.
fn remove_socket(mount: &Mount) {
    for path in socket::candidates(mount.dev, mount.owner().unwrap_or(0)) {
        let _ = std::fs::remove_file(path);
    }
}

/// Waits for the end of a daemon.
struct Watch {
    client: Client,
    pid: u32,
    /// Becomes readable when the process has ended; `None` if it is not visible
    /// from here.
    process: Option<OwnedFd>,
}

impl Watch {
    /// `None` if the daemon does not answer: then there is nothing to wait for.
    fn start(mount: &Mount) -> Option<Self> {
        let mut client = locate::daemon(mount).ok()?;
        let pid = client.peer_pid().and_then(Pid::from_raw);
        let process = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        // The answer proves that the opened process is the daemon.
        let Reply::Hello(hello) = client.request(&Request::Hello).ok()? else { return None };
        client.send(&Request::Wait).ok()?;
        Some(Self { client, pid: hello.pid, process })
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

/// Waits for input, with a message if it takes long.
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
