//! The end of an upgrade.

use super::predecessor::Predecessor;
use super::suspended::{MountState, SuspendedMount, Suspension};
use super::wire::SETTLED_WITHIN;
use braid_ipc::protocol::Upgrade;
use std::sync::{Arc, OnceLock};

/// Notes in `last` the outcome of an upgrade, once nothing of it keeps the mount busy. The mount is
/// served meanwhile.
pub(crate) fn settle(
    predecessor: Option<Predecessor>,
    suspended: SuspendedMount,
    last: Arc<OnceLock<Option<Upgrade>>>,
) {
    let SuspendedMount { mount: MountState { front, .. }, suspension } = suspended;
    let history = match suspension {
        Suspension::Upgrade { history, .. } => Some(history),
        Suspension::Crash(_) => None,
    };
    let note = {
        let (history, last) = (history.clone(), Arc::clone(&last));
        move || {
            front.settle(SETTLED_WITHIN);
            predecessor.into_iter().for_each(Predecessor::await_end);
            let _ = last.set(history);
        }
    };
    if let Err(error) = std::thread::Builder::new().name("settle".into()).spawn(note) {
        tracing::warn!(%error, "the mount may be busy for a moment");
        let _ = last.set(history);
    }
}
