//! A mount that no process serves at present, as far as this process goes on with it.

use crate::clock::now_ns;
use crate::config::StackNode;
use crate::guard::{CrashProtection, KeptBottom, KeptState};
use crate::refusal::{Place, Refusal};
use braid_contract::{Fd, InodeId, OpenBefore};
use braid_fuse::{Given, OpenKind, OpenRecord};
use braid_ipc::protocol::{Restarts, Upgrade};
use braid_log::LiveLog;
use braid_modules::State;
use braid_runtime::{FoundSession, GivenLink, GivenSession};
use braid_volume::LiveState;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

/// A mount that no process serves at present: everything that a process needs to go on with it.
#[derive(Debug)]
pub(crate) struct SuspendedMount {
    pub(crate) mount: MountState,
    pub(crate) suspension: Suspension,
}

/// The part of a suspended mount that is there whatever ended the process before.
#[derive(Debug)]
pub(crate) struct MountState {
    pub(crate) front: Given,
    /// The control socket.
    pub(crate) control: Option<(PathBuf, UnixListener)>,
    /// When requests were held up, or the process crashed, as time since the machine began.
    pub(crate) paused_at_ns: u64,
    pub(crate) protection: CrashProtection,
}

/// Why a mount is not served, and what the process before left of it.
#[derive(Debug)]
pub(crate) enum Suspension {
    /// The process gave it up for an upgrade.
    Upgrade { state: Box<ProcessState>, history: Upgrade },
    /// The process crashed.
    Crash(GuardedState),
}

/// The state in memory of a process that gives its mount up.
#[derive(Debug)]
pub(crate) struct ProcessState {
    pub(crate) bottom: BottomState,
    /// Of each module from the top down: its name, and its state.
    pub(crate) modules: Vec<(String, State)>,
    /// Applications' sessions.
    pub(crate) sessions: Vec<GivenSession>,
}

/// The state of the file system at the bottom of a stack.
#[derive(Debug)]
pub(crate) enum BottomState {
    Volume(Box<LiveState>),
    Log(LogState),
    View(ViewState),
}

/// The state of a log file system.
#[derive(Debug)]
pub(crate) struct LogState {
    pub(crate) live: LiveLog,
    /// Its device, open and locked.
    pub(crate) disk: OwnedFd,
}

/// The state of a view: its session with the mount below.
#[derive(Debug)]
pub(crate) struct ViewState {
    /// The place that it shows.
    pub(crate) of: PathBuf,
    /// The inode of that in the session.
    pub(crate) root: InodeId,
    pub(crate) link: GivenLink,
    /// The place, open.
    pub(crate) in_use: OwnedFd,
}

impl ProcessState {
    /// Refuses a stack with a file system of another kind at the bottom than the process had.
    pub(crate) fn refuse_bottom(&self) -> Refusal {
        let had = match self.bottom {
            BottomState::Volume(_) => "a volume",
            BottomState::Log(_) => "a log file system",
            BottomState::View(_) => "a view",
        };
        Place::flag("take-over")
            .refuse(format!("the process before served {had}"), "unmount, and mount with this program")
    }
}

/// The state that a guard kept for the case of a crash.
#[derive(Debug)]
pub(crate) struct GuardedState {
    /// The files that were open in the mount.
    pub(crate) open: Vec<OpenRecord>,
    /// The inodes without a name.
    pub(crate) nameless: Vec<(InodeId, Fd)>,
    pub(crate) bottom: KeptBottom,
    pub(crate) sessions: FoundSessions,
    /// The kept states of modules.
    pub(crate) modules: Vec<KeptState>,
}

impl GuardedState {
    /// The files and directories that were open, as they were opened at the bottom of this stack.
    pub(crate) fn open_below(&self, stack: &StackNode) -> Vec<OpenBefore> {
        let in_mount = self.open.iter().map(|record| OpenBefore {
            handle: record.handle,
            ino: record.ino,
            flags: (record.kind != OpenKind::Directory).then_some(record.flags),
            passthrough: matches!(record.kind, OpenKind::Passthrough(_)),
            opener: record.opener,
        });
        let in_sessions = self.sessions.sessions.iter().flat_map(FoundSession::open);
        let in_sessions = in_sessions.map(|file| OpenBefore {
            handle: file.handle,
            ino: file.ino,
            flags: file.flags,
            passthrough: false,
            opener: file.opener,
        });
        let below =
            |file: OpenBefore| OpenBefore { flags: file.flags.map(|flags| stack.flags_below(flags)), ..file };
        in_mount.chain(in_sessions).map(below).collect()
    }
}

/// The sessions of a process that crashed.
#[derive(Debug)]
pub(crate) struct FoundSessions {
    /// The socket at which they began.
    pub(crate) listener: Option<OwnedFd>,
    pub(crate) sessions: Vec<FoundSession>,
    /// Requests that the process did not answer are to be refused.
    pub(crate) refuse: bool,
}

impl SuspendedMount {
    /// The protection from crashes, with the time that requests waited after this one.
    pub(crate) fn protection(&self) -> CrashProtection {
        let CrashProtection { guard, restarts } = self.mount.protection.clone();
        let restarts = match self.suspension {
            Suspension::Upgrade { .. } => restarts,
            Suspension::Crash(_) => {
                restarts.map(|restarts| Restarts { paused_ns: self.mount.paused_for_ns(), ..restarts })
            }
        };
        CrashProtection { guard, restarts }
    }

    /// The mount is served again: an upgrade's history has how long it was not.
    pub(crate) fn note_end_of_pause(&mut self) {
        if let Suspension::Upgrade { history, .. } = &mut self.suspension {
            history.paused_ns = self.mount.paused_for_ns();
        }
    }
}

impl MountState {
    fn paused_for_ns(&self) -> u64 {
        now_ns().saturating_sub(self.paused_at_ns)
    }
}
