//! Operations that need room wait for removals: space comes back when the
//! removal is durable, and on some file systems later.

use crate::core::Core;
use crate::reap::reap_now;
use braid_contract::Result;
use std::time::Duration;

/// How long to wait for the close of a file that lost its last name: the kernel
/// reports its last close in its own time, and it may be open for good.
const CLOSE_NS: u64 = 500_000_000;

/// An operation for which there may be no room.
pub(crate) struct Need<'a> {
    core: &'a Core,
    /// Batches of removals that had been carried out before it was tried.
    batches: u64,
    /// How often it may be tried again.
    tries: u32,
    /// How often it may be tried again for a commit alone.
    commits: u32,
}

/// How often an operation is tried again at most: it may itself free space, and
/// not the space that it needs, each time.
const TRIES_MAX: u32 = 8;

/// How often home is committed for an operation at most.
const COMMITS_MAX: u32 = 3;

impl<'a> Need<'a> {
    pub(crate) fn new(core: &'a Core) -> Self {
        Self { core, batches: core.removals.batches(), tries: TRIES_MAX, commits: COMMITS_MAX }
    }

    /// Waits for removals after there was no room. Answers whether it is worth
    /// trying again.
    pub(crate) fn wait(&mut self) -> bool {
        if self.tries == 0 {
            return false;
        }
        self.tries -= 1;
        reap_now(self.core);
        let batches = self.core.removals.batches();
        if std::mem::replace(&mut self.batches, batches) != batches {
            return true;
        }
        if !std::mem::take(&mut self.core.freed.state.lock().recently) {
            return self.commit();
        }
        self.wait_for_closes();
        reap_now(self.core);
        self.batches = self.core.removals.batches();
        // File systems that keep freed space until their next commit do that
        // now.
        if let Err(error) = self.core.sync_all_tiers() {
            tracing::debug!(%error, "syncing tiers to have their free space back");
        }
        self.core.tiers.measure_again();
        true
    }

    /// Where home copies on write, has it write its data in memory, for which
    /// it reserves more than the data takes. Answers whether it did.
    fn commit(&mut self) -> bool {
        if self.commits == 0 || self.core.home.keeps_removals() {
            return false;
        }
        self.commits -= 1;
        if let Err(error) = self.core.home.root().sync_fs() {
            tracing::debug!(%error, "committing home to have its space back");
        }
        self.core.tiers.measure_again();
        true
    }

    /// Waits until no file in use lacks a name, and the kernel has forgotten
    /// all inodes that do, or for [`CLOSE_NS`].
    fn wait_for_closes(&self) {
        let (freed, environment) = (&self.core.freed, &self.core.environment);
        let until_ns = environment.monotonic_ns() + CLOSE_NS;
        while environment.threads() {
            let closes = freed.state.lock().closes;
            self.core.inodes.drop_forgotten();
            let nameless = self.core.inodes.has_nameless()
                || self.core.handles.files().iter().any(|open| open.file.is_nameless());
            let left_ns = until_ns.saturating_sub(environment.monotonic_ns());
            if left_ns == 0 || !nameless {
                return;
            }
            let mut state = freed.state.lock();
            if state.closes == closes {
                freed.closed.wait_for(&mut state, Duration::from_nanos(left_ns));
            }
        }
    }
}

/// Carries out an operation that may need room, again if removals have given
/// space back.
pub fn with_room<T>(core: &Core, mut operation: impl FnMut() -> Result<T>) -> Result<T> {
    let mut need = Need::new(core);
    loop {
        match operation() {
            Err(error) if error.is_full() && need.wait() => {}
            result => return result,
        }
    }
}
