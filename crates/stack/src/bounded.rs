//! Time limits for work that may hang: calls of a module, and reading its file.

use braid_contract::{Errno, Error, Result};
use std::sync::mpsc;
use std::time::Duration;

/// How long a module may take to be read and made, and to take a state over.
const PATIENCE: Duration = Duration::from_secs(5);

/// Has another thread do this. If it is not done in time, the thread is left to itself.
pub(crate) fn bounded<T: Send + 'static>(what: &str, work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    within(PATIENCE, what, work)
}

fn within<T: Send + 'static>(
    patience: Duration,
    what: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T> {
    let (done, told) = mpsc::sync_channel(1);
    let thread = std::thread::Builder::new().name("module".into());
    // Without a receiver, it came too late.
    thread.spawn(move || drop(done.send(work()))).map_err(Error::from)?;
    told.recv_timeout(patience).map_err(|_| {
        Error::new(Errno::EAGAIN, format!("{what} takes more than {} seconds", patience.as_secs()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_come_back_is_left_to_itself() {
        assert_eq!(bounded("this", || 7).unwrap(), 7);
        let (_kept, never) = mpsc::channel::<()>();
        let error = within(Duration::from_millis(1), "that", move || never.recv()).unwrap_err();
        assert!(error.to_string().contains("that takes more than"), "{error}");
    }
}
