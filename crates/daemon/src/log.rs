//! Logs: one line an event, to standard error or to a file.

use crate::refusal::{Place, Refusal};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Mutex;
use tracing_subscriber::EnvFilter;

/// The level without a flag.
pub const LEVEL_DEFAULT: &str = "info";

/// Opens a log for appending; only its owner may read it.
///
/// # Errors
/// If it can't be made or opened.
pub fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

/// Sends events from `level` on (or as a filter such as
/// `info,braid_volume=debug` says) to `file`, or to standard error.
///
/// # Errors
/// If `level` is not understood.
pub fn start(level: &str, file: Option<File>) -> Result<(), Refusal> {
    let filter = EnvFilter::try_new(level).map_err(|error| {
        let advice = "write error, warn, info, debug or trace, or a filter such as info,braid_volume=debug";
        Place::flag(format!("--log-level {level}")).refuse(format!("not understood: {error}"), advice)
    })?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).with_target(true);
    // An error means that a subscriber is there already, and that one stays.
    let _ = match file {
        Some(file) => builder.with_writer(Mutex::new(file)).try_init(),
        None => builder.with_writer(io::stderr).try_init(),
    };
    Ok(())
}
