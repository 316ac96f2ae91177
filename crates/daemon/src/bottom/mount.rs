//! The life of a mounted stack without a volume.

use super::Bottom;
use super::control::Control;
use super::handle::Handle;
use crate::beside::{Beside, Bound, Front, MountHandler, mount_advice, start_control, tell_manager};
use crate::config::Config;
use crate::refusal::{Place, Refusal};
use crate::serve_error::ServeError;
use crate::validate::{self, MountPoint};
use crate::wire;
use braid_fuse::Session;
use braid_ipc::protocol::Ended;
use braid_runtime::Before;
use sd_notify::NotifyState;
use std::path::Path;
use std::sync::Arc;

/// Mounts the stack that `config` describes on the file system that `open` opens, and serves it until
/// it is unmounted. `ready` is called once it can be used, with messages about it.
///
/// # Errors
/// If it can't be mounted, or does not end cleanly.
pub(crate) fn serve(
    config: &Config,
    (mountpoint, nonempty): (&Path, bool),
    open: impl FnOnce() -> Result<Arc<dyn Bottom>, Refusal>,
    ready: impl FnOnce(&[String]),
) -> Result<(), ServeError> {
    let point = validate::mount(config, mountpoint, nonempty)?;
    let bound = Bound::of(&config.mount)?;
    braid_sys::set_up_allocator();
    wire::prepare_to_write_back(config);
    let handle = Handle::new(config, open()?)?;
    let begun = begin(config, &handle, &point, bound);
    let (session, beside) = begun.inspect_err(|_| {
        // It was never used; an error of closing it does not matter.
        let _ = handle.close();
    })?;
    ready(&handle.bottom.notices());
    tell_manager(&[NotifyState::Ready]);
    end(session, beside, handle)
}

/// Mounts, and starts the servers beside the session.
fn begin(
    config: &Config,
    handle: &Handle,
    point: &MountPoint,
    bound: Bound,
) -> Result<(Session, Beside<Control>), Refusal> {
    bound.look(&handle.owner())?;
    let place = Place::flag(format!("mount point {}", point.given.to_string_lossy()));
    let session = wire::mount(handle.file_system(), &point.path, config, None)
        .map_err(|error| place.refuse(format!("can't be mounted: {error}"), mount_advice(&error)))?;
    let control = Control::new(handle.clone(), config, &session);
    let front = Front {
        session: &session,
        mount: &config.mount,
        point: &point.path,
        top: handle.file_system(),
        owner: handle.owner(),
    };
    let beside = Beside::begin(front, control, bound, Before::default(), |control| {
        start_control(&point.path, control)
    });
    match beside {
        Ok(beside) => Ok((session, beside)),
        Err(error) => {
            let _ = session.unmounter().unmount();
            Err(place.refuse(format!("no socket: {error}"), "make room for it"))
        }
    }
}

/// Serves until it is unmounted, and closes the file system.
fn end(session: Session, beside: Beside<Control>, handle: Handle) -> Result<(), ServeError> {
    let served = session.run();
    let Beside { control, server, metrics, kv, signals, runtime, states: _ } = beside;
    tracing::info!("unmounted; closing the file system");
    runtime.iter().for_each(|runtime| runtime.stop());
    tell_manager(&[NotifyState::Stopping]);
    drop((metrics, kv));
    let closed = handle.close();
    control.mount().await_recording();
    drop(signals);
    let error = match (served, closed) {
        (Err(error), _) => Some(format!("the connection to the kernel failed: {error}")),
        (_, Err(error)) => Some(format!("the file system was not closed cleanly: {error}")),
        (Ok(_), Ok(())) => None,
    };
    // A program that waits for the end may use the device then.
    drop((control, runtime, handle));
    server.finish(Ended { error: error.clone() });
    error.map_or(Ok(()), |error| {
        tracing::error!("{error}");
        Err(ServeError::Failed(error))
    })
}
