//! Signals that ask the daemon to end: they unmount, and the end follows from
//! that, as it does for `umount(8)`. And one that asks it to read its stack
//! file anew.
//!
//! A file system that is busy is detached: nobody comes to it any more, and who
//! uses it is served for a while. Then, or at a second signal, the session is
//! ended, and they get errors.

use braid_contract::Shown;
use braid_fuse::Unmounter;
use braid_ipc::{connection, holders};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};
use std::fs::File;
use std::io;
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How long those who use a file system are served after it was to end. Less
/// than what a service manager leaves a service.
const GRACE: Duration = Duration::from_secs(30);

/// Waits for signals until it is dropped.
pub(crate) struct Watch {
    handle: Handle,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Unmounts at SIGINT and SIGTERM, and calls `reload` at each SIGHUP:
    /// closing a terminal does not end a mount.
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

/// Takes the mount away, and sees to the end of the session.
fn end(session: &Unmounter) {
    // To write back by, what applications wrote, before anybody is cut off.
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
    // It is not waited for: it ends with the session, or with the process.
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
    tracing::warn!("ending the session; who uses the file system gets errors");
    if let Err(error) = connection::abort(session.device()) {
        tracing::error!(%error, "the session can't be ended; it ends with its last user");
    }
}

/// Logs who uses the file system still.
fn tell_users(session: &Unmounter) {
    let users = holders::lines(&holders::list(session.device()));
    tracing::warn!("not mounted at {} any more, and served for{users}", session.mountpoint().shown());
}
