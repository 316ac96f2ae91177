//! The part of the control socket that all mounts have, whatever is at the bottom of the stack.

use crate::config::Config;
use crate::kv::{self, Buckets};
use crate::modify::Stack;
use crate::modules::Modules;
use crate::running::Running;
use crate::trace;
use braid_contract::{Caller, FileSystem, RuntimeStatus};
use braid_ipc::protocol::{ErrorReply, KvAnswer, KvRequest, Reply, TraceRequest};
use braid_modules::trace::{Trace, Traced};
use braid_runtime::Runtime;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, Weak};

/// The state of a mount for its control socket.
pub(crate) struct MountControl {
    pub(crate) running: Running,
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
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            running: Running::of(config),
            changing: Mutex::default(),
            syncing: Mutex::default(),
            recording: RwLock::default(),
            runtime: OnceLock::new(),
            buckets: OnceLock::new(),
        }
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
    /// If part of it failed; the rest is durable.
    pub(crate) fn sync(&self, fs: &dyn FileSystem) -> Result<(), ErrorReply> {
        // It guards no state of its own.
        let _syncing = self.syncing.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(fs.sync()?)
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
