//! The end of an upgrade.

use super::heir::Heir;
use super::state::Inheritance;
use super::wire::SETTLED_WITHIN;
use braid_ipc::protocol::Upgrade;
use std::sync::{Arc, OnceLock};

/// Notes in `last` the outcome of an upgrade, once nothing of it keeps the mount busy. The mount is
/// served meanwhile.
pub(crate) fn settle(heir: Option<Heir>, inheritance: Inheritance, last: Arc<OnceLock<Option<Upgrade>>>) {
    let Inheritance { front, history, nameless, .. } = inheritance;
    // A crash is no upgrade.
    let history = nameless.is_none().then_some(history);
    let note = {
        let (history, last) = (history.clone(), Arc::clone(&last));
        move || {
            front.settle(SETTLED_WITHIN);
            heir.into_iter().for_each(Heir::await_end);
            let _ = last.set(history);
        }
    };
    if let Err(error) = std::thread::Builder::new().name("settle".into()).spawn(note) {
        tracing::warn!(%error, "the mount may be busy for a moment");
        let _ = last.set(history);
    }
}
