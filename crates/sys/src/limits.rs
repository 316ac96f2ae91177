//! Limits of the process.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the number of files that the process may have open to what it is
/// allowed at most, and answers it.
pub fn raise_open_files() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum.unwrap_or(u64::MAX),
        Err(_) => limit.current.unwrap_or(u64::MAX),
    }
}
