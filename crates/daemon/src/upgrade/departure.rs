//! A mount that this process does not serve any more, and the process that waits for it.

use super::launch::Launch;
use super::successor::Successor;
use super::suspended::{MountState, ProcessState, SuspendedMount, Suspension};
use super::wire::SETTLED_WITHIN;
use crate::clock::now_ns;
use crate::guard::CrashProtection;
use braid_fuse::Given;
use braid_ipc::protocol::Upgrade;
use std::io;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::Child;

/// The request: which process goes on.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) successor: Successor,
    /// How this process would mount the present stack.
    pub(crate) launch: Launch,
    /// When requests were held up.
    pub(crate) paused_at_ns: u64,
    /// How many upgrades there were before.
    pub(crate) before: u64,
}

/// A mount whose session and servers have ended in this process.
#[derive(Debug)]
pub(crate) struct StoppedMount {
    pub(crate) front: Given,
    pub(crate) control: io::Result<(PathBuf, UnixListener)>,
    pub(crate) protection: CrashProtection,
    pub(crate) state: ProcessState,
}

/// A mount on its way.
#[derive(Debug)]
pub(crate) struct Departure {
    request: Option<(Successor, Launch)>,
    mount: MountState,
    state: ProcessState,
    history: Upgrade,
}

/// A mount that came back: no other process serves it.
#[derive(Debug)]
pub(crate) struct Return {
    pub(crate) suspended: SuspendedMount,
    /// The present stack.
    pub(crate) launch: Option<Launch>,
}

impl Departure {
    pub(crate) fn new(request: Option<Request>, stopped: StoppedMount) -> Self {
        let StoppedMount { front, control, protection, state } = stopped;
        let control = control.inspect_err(|error| tracing::error!(%error, "the control socket is made anew"));
        let from = env!("CARGO_PKG_VERSION").to_owned();
        let mut history = Upgrade { from, ..Upgrade::default() };
        let mut paused_at_ns = now_ns();
        let request = request.map(|request| {
            history.to.clone_from(&request.successor.version);
            history.count = request.before + 1;
            paused_at_ns = request.paused_at_ns;
            (request.successor, request.launch)
        });
        let mount = MountState { front, control: control.ok(), paused_at_ns, protection };
        Self { request, mount, state, history }
    }

    /// Hands the mount over to the process that waits for it.
    ///
    /// # Errors
    /// If that does not serve it: this one has to.
    pub(crate) fn leave(self) -> Result<Child, Box<Return>> {
        let Self { request, mount, state, mut history } = self;
        let (successor, launch) = request.unzip();
        let successor = successor.ok_or_else(|| "no process waits for the mount".to_owned());
        let taken = successor.and_then(|successor| {
            let packed = mount.pack(&state, &history).map_err(|error| error.to_string())?;
            successor.hand_over(&packed)
        });
        match taken {
            Ok((child, peer)) => {
                tracing::info!(pid = child.id(), "another process serves the mount");
                mount.front.settle(SETTLED_WITHIN);
                drop(peer);
                Ok(child)
            }
            Err(why) => {
                tracing::error!("the other process does not serve the mount, this one goes on: {why}");
                history.count = history.count.saturating_sub(1);
                history.error = Some(why);
                let suspension = Suspension::Upgrade { state: Box::new(state), history };
                Err(Box::new(Return { suspended: SuspendedMount { mount, suspension }, launch }))
            }
        }
    }
}
