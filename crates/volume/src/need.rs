//! Who needs room waits for what was removed: its space comes back when the
//! removal is durable, and some file systems take longer than that.

use crate::Volume;
use crate::reap::Reaper;
use crate::sync::{Condvar, Mutex};
use braid_contract::Result;

/// How long a file that lost its last name is waited for: the kernel tells of
/// its last close in its own time, and it may be open for good.
const CLOSE_NS: u64 = 500_000_000;

/// What is on its way to give space back.
#[derive(Debug, Default)]
pub(crate) struct Freed {
    state: Mutex<State>,
    closed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Something was removed, cut or punched, and nobody waited for it since.
    recently: bool,
    /// Opens that ended so far.
    closes: u64,
}

impl Freed {
    /// Something was removed, cut or punched.
    pub(crate) fn note(&self) {
        self.state.lock().recently = true;
    }

    /// An open file was closed.
    pub(crate) fn note_close(&self) {
        self.state.lock().closes += 1;
        self.closed.notify_all();
    }
}

/// An operation that there may be no room for.
pub(crate) struct Need<'a> {
    volume: &'a Volume,
    /// Batches of removals that had been carried out before it was tried.
    batches: u64,
}

impl<'a> Need<'a> {
    pub(crate) fn new(volume: &'a Volume) -> Self {
        Self { volume, batches: volume.reaper.batches() }
    }

    /// There was no room: waits for what was removed. Answers whether it is
    /// worth trying again.
    pub(crate) fn wait(&mut self) -> bool {
        let reaper: &Reaper = &self.volume.reaper;
        reaper.reap_now(self.volume);
        let batches = reaper.batches();
        if std::mem::replace(&mut self.batches, batches) != batches {
            return true;
        }
        if !std::mem::take(&mut self.volume.freed.state.lock().recently) {
            return false;
        }
        self.wait_for_closes();
        reaper.reap_now(self.volume);
        self.batches = reaper.batches();
        // What keeps freed space until its next commit does that now.
        if let Err(error) = self.volume.sync_all_tiers() {
            tracing::debug!(%error, "syncing tiers to have their free space back");
        }
        self.volume.tiers.measure_again();
        true
    }

    /// Waits until no open file lacks a name, or for so long.
    fn wait_for_closes(&self) {
        let (freed, environment) = (&self.volume.freed, &self.volume.environment);
        let until_ns = environment.monotonic_ns() + CLOSE_NS;
        while environment.threads() {
            let closes = freed.state.lock().closes;
            let left_ns = until_ns.saturating_sub(environment.monotonic_ns());
            if left_ns == 0 || !self.volume.handles.files().iter().any(|open| open.file.is_nameless()) {
                return;
            }
            let state = freed.state.lock();
            if state.closes == closes {
                drop(freed.closed.wait_for(state, left_ns));
            }
        }
    }
}

impl Volume {
    /// Carries out what may need room, and again when what was removed has
    /// given its space back.
    pub(crate) fn with_room<T>(&self, mut operation: impl FnMut() -> Result<T>) -> Result<T> {
        let mut need = Need::new(self);
        loop {
            match operation() {
                Err(error) if error.is_full() && need.wait() => {}
                result => return result,
            }
        }
    }
}
