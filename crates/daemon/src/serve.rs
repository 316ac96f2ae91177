//! How a process comes to serve a mount, and why it stops: it mounts what a stack file describes,
//! or takes the mount over from another process.

use crate::bottom_opener::BottomOpener;
use crate::config::{BottomNode, Config};
use crate::life;
pub use crate::life::{Outcome, Start};
use crate::nice;
use crate::refusal::Refusal;
pub use crate::serve_error::ServeError;
use crate::upgrade::Launch;
use crate::volume_stack::VolumeOpener;
use crate::{validate, wire};
use std::io;
use std::path::Path;

/// Creates the volume that `config` describes, without mounting it; returns its
/// id.
///
/// # Errors
/// If it can't be created, or exists already.
pub fn create(config: &Config) -> Result<String, Refusal> {
    let volume = config.stack.need_volume()?;
    validate::create(volume)?;
    Ok(wire::create(volume)?.to_string())
}

/// Mounts the file system that `config` describes, or takes it over, and serves it until it
/// is unmounted or given away. `ready` is called once it can be used, with messages about
/// it.
///
/// # Errors
/// If it can't be mounted, or does not end cleanly.
pub fn run(
    config: &Config,
    launch: &Launch,
    start: Start<'_>,
    ready: impl FnOnce(&[String]),
) -> Result<Outcome, ServeError> {
    nice::apply(&config.mount)?;
    match config.stack.bottom() {
        BottomNode::Volume(_) => life::serve(&VolumeOpener, (config, launch), start, ready),
        BottomNode::Log(_) | BottomNode::View(_) => {
            life::serve(&BottomOpener, (config, launch), start, ready)
        }
    }
}

/// Changes the generic options of the mount at `point`.
///
/// # Errors
/// Those of the system call.
pub fn remount(point: &Path, options: &[String]) -> io::Result<()> {
    braid_fuse::remount(point, options)
}
