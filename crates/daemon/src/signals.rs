//! Signals that ask the daemon to end: they unmount, and the end follows from
//! that, as it does for `umount(8)`. And one that asks it to read its stack
//! file anew.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};
use std::io;
use std::thread::{self, JoinHandle};

/// Waits for signals until it is dropped.
pub(crate) struct Watch {
    handle: Handle,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Calls `unmount` at each SIGINT and SIGTERM, and `reload` at each SIGHUP:
    /// closing a terminal does not end a mount.
    pub(crate) fn start(
        unmount: impl Fn() -> io::Result<()> + Send + 'static,
        reload: impl Fn() + Send + 'static,
    ) -> io::Result<Self> {
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
        let handle = signals.handle();
        let thread = thread::Builder::new().name("signals".into()).spawn(move || {
            for signal in signals.forever() {
                if signal == SIGHUP {
                    reload();
                    continue;
                }
                tracing::info!(signal, "asked to end; unmounting");
                if let Err(error) = unmount() {
                    tracing::error!(%error, "can't unmount; the file system stays (see who uses it: fuser -vm)");
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
