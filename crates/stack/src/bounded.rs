//! Calls of a module that may not come back.

use braid_contract::{Errno, Error, Result};
use std::sync::mpsc;
use std::time::Duration;

/// How long a module may take to be made, and to take a state over.
const PATIENCE: Duration = Duration::from_secs(5);

/// Has another thread do this. If it is not done in time, that is left to itself.
pub(crate) fn bounded<T: Send + 'static>(
    what: &str,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let (done, told) = mpsc::sync_channel(1);
    let thread = std::thread::Builder::new().name("module".into());
    // Without a receiver, it came too late.
    thread.spawn(move || drop(done.send(work()))).map_err(Error::from)?;
    told.recv_timeout(PATIENCE).unwrap_or_else(|_| {
        Err(Error::new(Errno::EAGAIN, format!("{what} takes more than {} seconds", PATIENCE.as_secs())))
    })
}
