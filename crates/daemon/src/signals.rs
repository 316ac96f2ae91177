//! Signals that end the daemon: they unmount, and the daemon then ends as after
//! `umount(8)`. And one that makes it reload its stack file.
//!
//! A busy file system is detached: it gets no new users, and the present ones
//! are served for a while. Then, or at a second signal, the session ends, and
//! they get errors.

use braid_contract::Shown;
use braid_fuse::Unmounter;
use braid_ipc::{connection, holders};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};
use std::fs::File;
use std::io;
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Time for which the users of a file system are served after it was to end.
/// Shorter than a service manager's limit.
const GRACE: Duration = Duration::from_secs(30);

/// Waits for signals until it is dropped.
pub(crate) struct Watch {
    handle: Handle,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Unmounts at SIGINT and SIGTERM, and calls `reload` at each SIGHUP:
    /// closing a terminal must not end a mount.
    pub(crate) fn start(session: Unmounter, reload: impl Fn() + Send + 'static) -> io::Result<Self> {
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
        let handle = signals.handle();
        let thread = thread::Builder::new().name("signals".into()).spawn(move || {
            let mut asked = false;
            for signal in signals.forever() {
                if signal == SIGHUP {
                    reload();
                    continue;
                }
                tracing::info!(signal, "asked to end");
                if asked {
                    abort(&session);
                } else {
                    asked = true;
                    end(&session);
                }
            }
        })?;
        Ok(Self { handle, thread: Some(thread) })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.handle.close();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Removes the mount, and then ends the session.
fn end(session: &Unmounter) {
    // For writeback of applications' data, before any of them is cut off.
    let mut root = None;
    if let Err(error) = session.unmount() {
        tracing::info!(%error, "detaching it");
        root = File::open(session.mountpoint()).ok();
        if let Err(error) = session.detach() {
            tracing::error!(%error, "can't be detached either");
        }
    }
    if session.is_over() {
        return;
    }
    let session = session.clone();
    // Not waited for: it ends with the session, or with the process.
    let spawned = thread::Builder::new().name("end".into()).spawn(move || {
        tell_users(&session);
        if let Some(root) = root {
            let _ = rustix::fs::syncfs(&root);
        }
        if !session.wait(GRACE) {
            abort(&session);
        }
    });
    if let Err(error) = spawned {
        tracing::error!(%error, "there is no thread to wait by; a second signal ends the session");
    }
}

fn abort(session: &Unmounter) {
    tracing::warn!("ending the session; programs that use the file system get errors");
    if let Err(error) = connection::abort(session.device()) {
        tracing::error!(%error, "the session can't be ended; it ends with its last user");
    }
}

/// Logs the processes that still use the file system.
fn tell_users(session: &Unmounter) {
    let users = holders::lines(&holders::list(session.device()));
    tracing::warn!("not mounted at {} any more, and served for{users}", session.mountpoint().shown());
}
