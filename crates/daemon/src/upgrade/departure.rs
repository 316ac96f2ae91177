//! A mount that this process does not serve any more, and the process that waits for it.

use super::giver::Giver;
use super::launch::Launch;
use super::state::{FoundSessions, Inheritance};
use super::wire::SETTLED_WITHIN;
use crate::clock::now_ns;
use crate::guard::Guarded;
use braid_fuse::Given;
use braid_ipc::protocol::{Restarts, Upgrade};
use braid_modules::State;
use braid_runtime::GivenSession;
use braid_volume::LiveState;
use std::io;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::Child;

/// The request: which process goes on.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) giver: Giver,
    /// How this process would mount the present stack.
    pub(crate) launch: Launch,
    /// When requests were held up.
    pub(crate) paused_at_ns: u64,
    /// How many upgrades there were before.
    pub(crate) before: u64,
}

/// A mount on its way.
#[derive(Debug)]
pub(crate) struct Departure {
    request: Option<(Giver, Launch)>,
    inheritance: Inheritance,
}

/// A mount that came back: no other process serves it.
#[derive(Debug)]
pub(crate) struct Return {
    pub(crate) inheritance: Inheritance,
    /// The present stack.
    pub(crate) launch: Option<Launch>,
}

impl Departure {
    pub(crate) fn new(
        request: Option<Request>,
        front: Given,
        (live, modules): (LiveState, Vec<(String, State)>),
        control: io::Result<(PathBuf, UnixListener)>,
        (guard, restarts): (Option<Guarded>, Option<Restarts>),
        sessions: Vec<GivenSession>,
    ) -> Self {
        let control = control.inspect_err(|error| tracing::error!(%error, "the control socket is made anew"));
        let from = env!("CARGO_PKG_VERSION").to_owned();
        let mut history = Upgrade { from, to: String::new(), paused_ns: 0, count: 0, error: None };
        let mut paused_at_ns = now_ns();
        let request = request.map(|request| {
            history.to.clone_from(&request.giver.version);
            history.count = request.before + 1;
            paused_at_ns = request.paused_at_ns;
            (request.giver, request.launch)
        });
        let control = control.ok();
        let inheritance = Inheritance {
            front,
            live,
            modules,
            control,
            paused_at_ns,
            history,
            guard,
            nameless: None,
            restarts,
            sessions,
            found: FoundSessions::default(),
            kept: Vec::new(),
        };
        Self { request, inheritance }
    }

    /// Hands the mount over to the process that waits for it.
    ///
    /// # Errors
    /// If that does not serve it: this one has to.
    pub(crate) fn leave(self) -> Result<Child, Box<Return>> {
        let Self { request, mut inheritance } = self;
        let (giver, launch) = request.unzip();
        let given = giver.ok_or_else(|| "no process waits for the mount".to_owned()).and_then(|giver| {
            let handover = inheritance.pack().map_err(|error| error.to_string())?;
            giver.hand_over(&handover)
        });
        match given {
            Ok((child, peer)) => {
                tracing::info!(pid = child.id(), "another process serves the mount");
                inheritance.front.settle(SETTLED_WITHIN);
                drop(peer);
                Ok(child)
            }
            Err(why) => {
                tracing::error!("the other process does not serve the mount, this one goes on: {why}");
                inheritance.history.count = inheritance.history.count.saturating_sub(1);
                inheritance.history.error = Some(why);
                Err(Box::new(Return { inheritance, launch }))
            }
        }
    }
}
