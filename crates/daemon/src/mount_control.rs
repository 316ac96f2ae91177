//! The part of the control socket that all mounts have, whatever is at the bottom of the stack.

use crate::config::Config;
use crate::fuse_session::FuseSession;
use crate::guard::CrashProtection;
use crate::kv::{self, Buckets};
use crate::modify::Stack;
use crate::modules::Modules;
use crate::running::Running;
use crate::succession::Succession;
use crate::trace;
use crate::upgrade::{Launch, Successor};
use crate::validate::MountPoint;
use braid_contract::{Caller, FileSystem, RuntimeStatus};
use braid_ipc::protocol::{ErrorReply, Hello, KvAnswer, KvRequest, Reply, Status, TraceRequest, Upgrading};
use braid_modules::trace::{Trace, Traced};
use braid_runtime::{Gate, Runtime};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant};

/// How long an upgrade waits for operations under way, before it is given up.
const DRAINED_WITHIN: Duration = Duration::from_secs(2);

/// How a file system is to be mounted.
#[derive(Clone, Copy)]
pub(crate) struct MountSetup<'a> {
    pub(crate) config: &'a Config,
    pub(crate) launch: &'a Launch,
    pub(crate) point: &'a MountPoint,
}

/// The state of a mount for its control socket.
pub(crate) struct MountControl {
    pub(crate) running: Running,
    pub(crate) succession: Succession,
    /// `None` where nothing is mounted.
    pub(crate) session: Option<FuseSession>,
    pub(crate) mountpoint: PathBuf,
    /// Held while the stack changes, so that changes of the stack file keep their order.
    changing: Mutex<()>,
    /// Held during a sync of everything: every user may request one, and one at
    /// a time is enough.
    syncing: Mutex<()>,
    /// Held while operations are recorded.
    recording: RwLock<()>,
    /// The runtime that serves sessions, while it does.
    runtime: OnceLock<Weak<Runtime>>,
    /// Directories as keys and values, where something is mounted.
    buckets: OnceLock<Arc<Buckets>>,
}

impl MountControl {
    pub(crate) fn new(
        setup: MountSetup<'_>,
        session: Option<FuseSession>,
        protection: CrashProtection,
    ) -> Self {
        Self {
            running: Running::of(setup.config),
            succession: Succession::new(setup.launch, protection),
            session,
            mountpoint: setup.point.path.clone(),
            changing: Mutex::default(),
            syncing: Mutex::default(),
            recording: RwLock::default(),
            runtime: OnceLock::new(),
            buckets: OnceLock::new(),
        }
    }

    /// The facts about the process, without the last upgrade.
    pub(crate) fn identity(&self) -> Hello {
        Hello {
            version: env!("CARGO_PKG_VERSION").into(),
            pid: std::process::id(),
            mountpoint: self.mountpoint.to_string_lossy().into_owned(),
            serving: self.session.as_ref().is_none_or(|session| !session.unmounter.is_over()),
            upgrade: None,
        }
    }

    /// The facts about the process; waits for the outcome of an upgrade.
    pub(crate) fn hello(&self) -> Hello {
        let upgrade = self.succession.outcome();
        Hello { upgrade, ..self.identity() }
    }

    /// Adds the facts about the mount to its status.
    pub(crate) fn tell(&self, status: &mut Status) {
        if let Some(session) = &self.session {
            (status.cache, status.transport) = (session.cache.to_owned(), session.transport().to_owned());
        }
        status.outlives_crash = self.succession.guard().is_some_and(|guard| guard.link.outlives());
        status.restarts.clone_from(&self.succession.protection().restarts);
        status.runtime = self.runtime().map(|runtime| runtime.status());
    }

    /// Begins a change of the stack that was asked for, after others have ended.
    ///
    /// # Errors
    /// If another process is to go on with the mount, without the change.
    pub(crate) fn change(&self) -> Result<MutexGuard<'_, ()>, ErrorReply> {
        let changing = self.changing();
        if self.succession.has_request() {
            let message = "another process is about to go on with the mount; nothing is changed: ask again";
            return Err(ErrorReply::new(message));
        }
        Ok(changing)
    }

    /// Begins a change of the stack, after others have ended.
    pub(crate) fn changing(&self) -> MutexGuard<'_, ()> {
        // It guards no state of its own.
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same, unless another change is under way.
    pub(crate) fn try_changing(&self) -> Option<MutexGuard<'_, ()>> {
        self.changing.try_lock().ok()
    }

    pub(crate) fn stack<'a>(&'a self, modules: &'a Modules) -> Stack<'a> {
        Stack { modules, running: &self.running }
    }

    /// Notes the directories as keys and values, when the mount begins.
    pub(crate) fn set_buckets(&self, buckets: &Arc<Buckets>) {
        // It is noted once.
        let _ = self.buckets.set(Arc::clone(buckets));
    }

    pub(crate) fn buckets(&self) -> Option<&Arc<Buckets>> {
        self.buckets.get()
    }

    /// Notes the runtime that serves sessions, when the mount begins.
    pub(crate) fn set_runtime(&self, runtime: &Arc<Runtime>) {
        // Likewise.
        let _ = self.runtime.set(Arc::downgrade(runtime));
    }

    /// The runtime that serves sessions, while it does.
    pub(crate) fn runtime(&self) -> Option<Arc<Runtime>> {
        self.runtime.get().and_then(Weak::upgrade)
    }

    /// The workers, queues and sessions of applications.
    ///
    /// # Errors
    /// If applications can't have sessions.
    pub(crate) fn runtime_status(&self) -> Result<RuntimeStatus, ErrorReply> {
        let off = "applications can't have sessions here\n  help: mount with --runtime, or with \
                   'runtime: true' below 'mount:'";
        self.runtime().map(|runtime| runtime.status()).ok_or_else(|| ErrorReply::new(off))
    }

    /// Makes everything durable.
    ///
    /// # Errors
    /// If part of it failed, and the rest is durable; or another process was to go on with the
    /// mount meanwhile.
    pub(crate) fn sync(&self, fs: &dyn FileSystem) -> Result<(), ErrorReply> {
        // It guards no state of its own.
        let _syncing = self.syncing.lock().unwrap_or_else(PoisonError::into_inner);
        let holder = self.session.as_ref().map(|session| &session.holder);
        let turns = holder.map_or(0, |holder| holder.turns());
        let written = self.session.as_ref().map_or(Ok(()), FuseSession::write_back_all);
        fs.sync().and(written)?;
        match holder {
            Some(holder) if holder.was_held_up_since(turns) => {
                Err(ErrorReply::new("meanwhile, another process was to take the mount over: ask again"))
            }
            _ => Ok(()),
        }
    }

    /// Has another program go on with the mount, if that `may` be; `prepare` comes before requests
    /// are held up.
    ///
    /// # Errors
    /// The reason why it does not. Nothing is changed then.
    pub(crate) fn upgrade(
        &self,
        program: &str,
        may: impl FnOnce() -> Result<(), ErrorReply>,
        prepare: impl FnOnce() -> Result<(), ErrorReply>,
    ) -> Result<Upgrading, ErrorReply> {
        let session = self.session.as_ref().filter(|session| !session.unmounter.is_over());
        let session = session.ok_or_else(|| ErrorReply::new("nothing is mounted"))?;
        if !session.unmounter.is_mounted() {
            let message = "it is not mounted there any more, or another mount covers it";
            return Err(ErrorReply::new(message));
        }
        may()?;
        let launch = self.succession.launch(&self.running, &self.mountpoint);
        let successor = Successor::start(Path::new(program), &launch).map_err(ErrorReply::new)?;
        if let Err(error) = prepare() {
            successor.give_up();
            return Err(error);
        }
        self.depart(session, successor, launch)
    }

    /// Has the session give the mount to a process that waits for it.
    fn depart(
        &self,
        session: &FuseSession,
        successor: Successor,
        launch: Launch,
    ) -> Result<Upgrading, ErrorReply> {
        let upgrading = Upgrading { pid: successor.pid(), version: successor.version.clone() };
        self.succession.request(successor, launch);
        // First the sources whose requests may cause requests of the kernel.
        let (runtime, gate) = (self.runtime(), self.buckets().map(|buckets| buckets.gate()));
        let quiet = runtime.as_ref().is_none_or(|runtime| runtime.pause(DRAINED_WITHIN));
        let closed = quiet && gate.is_none_or(|gate| gate.pause(Instant::now() + DRAINED_WITHIN));
        if closed && session.holder.hold_up(DRAINED_WITHIN) {
            return Ok(upgrading);
        }
        gate.into_iter().filter(|_| closed).for_each(Gate::resume);
        runtime.iter().filter(|_| quiet).for_each(|runtime| runtime.resume());
        self.succession.withdraw();
        let message = "operations under way do not end, perhaps since a tier hangs: braid status tells";
        Err(ErrorReply::new(format!("nothing is changed: {message}")))
    }

    /// Carries out a request about keys and values.
    ///
    /// # Errors
    /// If nothing is mounted, the caller has no right to it, or it fails.
    pub(crate) fn kv(
        &self,
        caller: &Caller,
        request: &KvRequest,
        value: &[u8],
    ) -> Result<(KvAnswer, Vec<u8>), ErrorReply> {
        let buckets = self.buckets().ok_or_else(|| ErrorReply::new("nothing is mounted"))?;
        kv::answer(buckets, caller, request, value)
    }

    /// Records operations, until the recording is ended or the client is gone.
    ///
    /// # Errors
    /// If recording is impossible, or the client is gone.
    pub(crate) fn record_trace(
        &self,
        trace: &Trace,
        traced: Traced,
        request: &TraceRequest,
        tell: &mut dyn FnMut(Reply) -> io::Result<()>,
    ) -> Result<(), ErrorReply> {
        // It guards no state of its own.
        let _recording = self.recording.read().unwrap_or_else(PoisonError::into_inner);
        trace::record(trace, traced, request, tell)
    }

    /// Waits until an ended recording is sent completely, as long as its client reads.
    pub(crate) fn await_recording(&self) {
        drop(self.recording.write().unwrap_or_else(PoisonError::into_inner));
    }
}
