//! Space that removals, cuts and closes are about to give back.

use parking_lot::{Condvar, Mutex};

/// Removals and closes that are about to free space.
#[derive(Debug, Default)]
pub struct Freed {
    pub(crate) state: Mutex<FreedState>,
    pub(crate) closed: Condvar,
}

#[derive(Debug, Default)]
pub(crate) struct FreedState {
    /// Something was removed, cut or punched, and no operation has waited for
    /// it since.
    pub(crate) recently: bool,
    /// Opens that ended so far.
    pub(crate) closes: u64,
}

impl Freed {
    /// Something was removed, cut or punched.
    pub(crate) fn note(&self) {
        self.state.lock().recently = true;
    }

    /// An inode without a name was forgotten: its space is free.
    pub fn note_forgotten(&self) {
        self.note();
        self.note_close();
    }

    /// An open file was closed.
    pub(crate) fn note_close(&self) {
        self.state.lock().closes += 1;
        self.closed.notify_all();
    }
}
