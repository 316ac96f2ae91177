//! The process that goes on with a mount after this one: the request for it, its outcome, and the
//! guard that would start one after a crash.

use crate::clock::now_ns;
use crate::guard::{CrashProtection, Guarded};
use crate::running::Running;
use crate::upgrade::{Launch, Successor, departure};
use braid_ipc::protocol::Upgrade;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// The process that goes on with a mount.
pub(crate) struct Succession {
    /// How the mount was begun.
    launch: Launch,
    /// The outcome of the last upgrade, if there was one, once it is known.
    last: Arc<OnceLock<Option<Upgrade>>>,
    /// The process that waits for the mount.
    departure: Mutex<Option<departure::Request>>,
    /// There is one, or was: operations are held up.
    is_requested: AtomicBool,
    protection: CrashProtection,
}

impl Succession {
    pub(crate) fn new(launch: &Launch, protection: CrashProtection) -> Self {
        Self {
            launch: launch.clone(),
            last: Arc::default(),
            departure: Mutex::default(),
            is_requested: AtomicBool::new(false),
            protection,
        }
    }

    pub(crate) fn protection(&self) -> &CrashProtection {
        &self.protection
    }

    pub(crate) fn guard(&self) -> Option<&Guarded> {
        self.protection.guard.as_ref()
    }

    /// The present stack, as another process would mount it.
    pub(crate) fn launch(&self, running: &Running, point: &Path) -> Launch {
        self.launch.of(running, point)
    }

    /// Has the guard follow the stack, from now on.
    pub(crate) fn tell_stack(&self, running: &Running, point: &Path) {
        let Some(guard) = self.guard() else { return };
        let (link, launch, point) = (Arc::clone(&guard.link), self.launch.clone(), point.to_owned());
        running.follow(move |running| link.stack_is(&launch.of(running, &point)));
    }

    /// The place for the outcome of the last upgrade, if there was one: until it is set, clients
    /// that ask for it wait.
    pub(crate) fn last(&self) -> Arc<OnceLock<Option<Upgrade>>> {
        Arc::clone(&self.last)
    }

    /// The outcome of the last upgrade, if there was one; waits for it.
    pub(crate) fn outcome(&self) -> Option<Upgrade> {
        self.last.wait().clone()
    }

    /// Notes the process that waits for the mount, which is about to be held up.
    pub(crate) fn request(&self, successor: Successor, launch: Launch) {
        let before = self.outcome().map_or(0, |last| last.count);
        let request = departure::Request { successor, launch, paused_at_ns: now_ns(), before };
        *self.departure() = Some(request);
        self.is_requested.store(true, Ordering::Release);
    }

    /// Whether the mount is for another process from now on.
    pub(crate) fn has_request(&self) -> bool {
        self.is_requested.load(Ordering::Acquire)
    }

    /// Takes the request back: the mount stays with this process.
    pub(crate) fn withdraw(&self) {
        if let Some(request) = self.take_request() {
            request.successor.give_up();
        }
        self.is_requested.store(false, Ordering::Release);
    }

    /// The process that waits for the mount.
    pub(crate) fn take_request(&self) -> Option<departure::Request> {
        self.departure().take()
    }

    fn departure(&self) -> MutexGuard<'_, Option<departure::Request>> {
        // Each change is a single assignment.
        self.departure.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
