//! Serving a mount in this process.

use crate::failure::{Failure, Result};
use braid_daemon::config::Config;
use braid_daemon::serve::{self, Outcome, ServeError, Start};
use braid_daemon::upgrade::{Launch, attend};

/// Serves a mount until it ends; if another process takes it over, waits for that where
/// this one is waited for.
pub(crate) fn serve(
    config: &Config,
    launch: &Launch,
    start: Start<'_>,
    ready: impl FnOnce(&[String]),
) -> Result<()> {
    let outcome = serve::run(config, launch, start, ready).map_err(|error| match error {
        ServeError::Refused(refusal) => refusal.into(),
        ServeError::Failed(what) => Failure::new(what),
    })?;
    let Outcome::GivenTo(child) = outcome else { return Ok(()) };
    if launch.detached || std::env::var_os("NOTIFY_SOCKET").is_some() {
        return Ok(());
    }
    match attend(&child) {
        Ok(0) => Ok(()),
        Ok(status) => {
            Err(Failure::new(format!("the process that took the mount over ended with exit status {status}")))
        }
        Err(error) => Err(Failure::new(format!("process {} serves the mount: {error}", child.id()))),
    }
}
