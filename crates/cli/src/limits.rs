//! Limits of the process that affect a mount.

use crate::failure::{Failure, Result};
use braid_daemon::config::{Config, THREADS_DEFAULT};
use rustix::process::{Resource, getrlimit};

/// Descriptors of a daemon besides those of its threads and of files: tiers,
/// sockets, files that it looks at.
const OWN: u64 = 64;
/// Open files below which a limit is worth a warning.
const FILES: u64 = 4096;

/// Warns if few files can be open, and refuses too few.
pub(crate) fn warn(config: &Config) -> Result<()> {
    let Some(limit) = getrlimit(Resource::Nofile).maximum else { return Ok(()) };
    let threads = config.mount.threads.as_ref().map_or(THREADS_DEFAULT, |threads| threads.value);
    let own = OWN + threads as u64;
    let tiers = config.stack.volume().map_or(0, |volume| volume.tiers.len() as u64);
    let advice = "raise the limit: ulimit -Hn, LimitNOFILE= of a service, or /etc/security/limits.conf";
    if limit <= own {
        return Err(Failure::new(format!(
            "the daemon may have {limit} files open, and needs {own} for itself\n  help: {advice}"
        )));
    }
    let files = limit - own;
    if files < FILES {
        // A file needs one descriptor on each of its tiers.
        eprintln!(
            "braid: warning: the daemon may have {limit} files open, so applications about {} to {files}; \
             beyond, they get EMFILE\n  help: {advice}",
            (files / tiers.max(1)).max(1)
        );
    }
    Ok(())
}
