//! Ctrl-C for a command that waits for work that continues without it: the
//! command notices the first one, so that it can say so; the second one ends
//! it, even if a daemon does not answer.

use signal_hook::consts::SIGINT;
use signal_hook::flag::{register, register_conditional_shutdown};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// Exit status of a command that `SIGINT` ended, as in shells.
const STATUS: i32 = 130;

/// Starts to notice Ctrl-C.
pub(crate) fn watch() {
    flag();
}

/// Whether Ctrl-C was pressed since.
pub(crate) fn came() -> bool {
    flag().load(Ordering::Relaxed)
}

fn flag() -> &'static AtomicBool {
    static CAME: OnceLock<Arc<AtomicBool>> = OnceLock::new();
    CAME.get_or_init(|| {
        let came = Arc::new(AtomicBool::new(false));
        // In this order, so that the first one does not end the command.
        // Without a handler, it ends the command silently.
        if register_conditional_shutdown(SIGINT, STATUS, Arc::clone(&came)).is_ok() {
            let _ = register(SIGINT, Arc::clone(&came));
        }
        came
    })
}
