//! Ctrl-C for a command that waits for something that goes on without it: the
//! first one is told, so that the command can say so; the second one ends it,
//! whoever does not answer.

use signal_hook::consts::SIGINT;
use signal_hook::flag::{register, register_conditional_shutdown};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// Exit status of a command that `SIGINT` ended, as shells have it.
const STATUS: i32 = 130;

/// From now on, Ctrl-C is told.
pub(crate) fn watch() {
    flag();
}

/// Whether Ctrl-C came since it is told.
pub(crate) fn came() -> bool {
    flag().load(Ordering::Relaxed)
}

fn flag() -> &'static AtomicBool {
    static CAME: OnceLock<Arc<AtomicBool>> = OnceLock::new();
    CAME.get_or_init(|| {
        let came = Arc::new(AtomicBool::new(false));
        // In this order, so that the first one does not end the command. Where
        // they can't be registered, it does, without a word.
        if register_conditional_shutdown(SIGINT, STATUS, Arc::clone(&came)).is_ok() {
            let _ = register(SIGINT, Arc::clone(&came));
        }
        came
    })
}
