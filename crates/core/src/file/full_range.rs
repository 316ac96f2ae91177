//! Moves a range off a tier that does not take a write, while the write waits.

use crate::core::Core;
use crate::file::choose::{PlacementRequest, find_room};
use crate::file::demand::{Demand, Obstacle};
use crate::file::indexing::NotSpread;
use crate::file::move_whole::{move_at_once, moves_at_once};
use crate::file::presence::entry_at;
use crate::file::range_move::{MoveResult, NotMoved, move_range_at};
use crate::live::{File, Layout};
use crate::reap::reap_now;
use braid_contract::{Errno, Error, Result};
use braid_format::Reason;
use braid_placement::Origin;
use braid_tiers::{Tier, bit};
use std::sync::Arc;

/// Counts how often one range was moved within one call. A tier whose figures
/// promise room that writes then do not get must not send it around for ever.
#[derive(Debug, Default)]
pub(super) struct MoveLimit {
    at: Option<u64>,
    count: usize,
}

impl MoveLimit {
    /// Counts a move of the range at `at`; `ENOSPC` if all `tiers` were tried.
    pub(crate) fn count(&mut self, at: u64, tiers: usize) -> Result<()> {
        self.count = if self.at == Some(at) { self.count + 1 } else { 1 };
        self.at = Some(at);
        if self.count > tiers { Err(Errno::ENOSPC.into()) } else { Ok(()) }
    }
}

/// The tier of the range at `offset` has no room for more of it, takes no
/// writes, or can't meet the demand: the range goes to another one. Answers
/// whether it was moved; if not, something else has changed, and the write may
/// be tried again. `ENOSPC` if no tier has room.
pub(crate) fn move_off(core: &Core, file: &File, offset: u64, obstacle: Obstacle) -> Result<bool> {
    // One that is gone has no range any more.
    let Ok(from) = core.tiers.get(obstacle.tier) else { return Ok(false) };
    let demand = obstacle.demand;
    // The space of removed files may suffice.
    if demand == Demand::Room && !from.is_set_readonly() && reap_now(core) {
        return Ok(false);
    }
    let mut excluded = bit(from.id) | demand.unmet_by(core);
    loop {
        // Another write may have moved it, also while this one waited: where it is now
        // may be the only tier that can have it.
        if entry_at(file, offset)?.is_none_or(|entry| entry.tier != from.id) {
            return Ok(false);
        }
        let Some(to) = next_target(core, file, offset, excluded)? else { return Ok(false) };
        match move_to(core, file, offset, &to) {
            Ok(true) => {
                note_moved(offset, &from, &to, demand);
                return Ok(true);
            }
            Ok(false) | Err(NotMoved::Overtaken) => return Ok(false),
            // The mover is below on this very stack, and can't end first.
            Err(NotMoved::Busy) if !core.environment.threads() => return Err(Errno::ENOSPC.into()),
            // Unlike this write, a mover may be in no hurry; another write
            // moves the range where it is to be.
            Err(NotMoved::Busy) => end_move_at(file, offset),
            Err(NotMoved::Target(error) | NotMoved::NoIndex(error)) => {
                note_refused(&to, &error);
                excluded |= bit(to.id);
            }
            Err(NotMoved::Other(error)) => return Err(error),
        }
    }
}

/// Logs the move at the level of its reason: a full tier is news, one that
/// writes each byte once is not.
fn note_moved(offset: u64, from: &Tier, to: &Tier, demand: Demand) {
    let (from, to) = (&from.name, &to.name);
    match demand {
        Demand::Room => {
            tracing::info!(offset, %from, %to, "moved a range off a tier that took no more of it");
        }
        _ => tracing::debug!(offset, %from, %to, ?demand, "moved a range off a tier that can't do it"),
    }
}

/// If no tier takes the range, the application gets "no room": other causes are
/// logged here.
fn note_refused(to: &Tier, error: &Error) {
    if error.is_full() || error.errno() == Errno::EOPNOTSUPP {
        tracing::debug!(tier = %to.name, %error, "a tier did not take a range");
    } else {
        tracing::warn!(tier = %to.name, %error, "a tier did not take a range");
    }
}

/// Moves the range at `offset` to a tier that can have it, or all of the file
/// if it is small or an index can't be had; answers whether anything was moved.
fn move_to(core: &Core, file: &File, offset: u64, to: &Tier) -> MoveResult<bool> {
    if moves_at_once(core, file).map_err(NotMoved::Other)?.is_none() {
        match move_range_at(core, file, offset, to, Reason::Moved, &mut || {}) {
            Err(NotMoved::NoIndex(error)) => {
                tracing::debug!(%error, "a file moves as a whole, since home has no room for an index");
            }
            moved => return moved.map(|moved| moved.is_some()),
        }
    }
    match move_at_once(core, file, to, Reason::Moved) {
        Ok(moved) => Ok(moved.is_some()),
        Err(NotSpread::PassedThrough) => Err(NotMoved::Busy),
        Err(NotSpread::Failed(error)) => Err(NotMoved::Target(error)),
    }
}

/// The tier for a range that has to go elsewhere; `None` if the file is
/// plain by now.
fn next_target(core: &Core, file: &File, offset: u64, excluded: u64) -> Result<Option<Arc<Tier>>> {
    let layout = file.layout.read();
    let Layout::Spread(spread) = &*layout else { return Ok(None) };
    let (ranges, size) = (spread.range_size(), spread.size());
    let (start, bytes) = (ranges.start_of(ranges.range_of(offset)), ranges.bytes());
    let credits = spread.placing.lock();
    let span =
        braid_placement::WriteSpan { offset: start, len: bytes, size, size_after: size, new_bytes: bytes };
    let request = PlacementRequest::new(file, Origin::default(), span);
    Ok(Some(find_room(core, &request, &credits, excluded)?.tier))
}

/// Ends a move of the range that began elsewhere, or waits for that of another
/// write.
fn end_move_at(file: &File, offset: u64) {
    let (moving, range) = match &*file.layout.read() {
        Layout::Plain => return,
        Layout::Spread(spread) => (spread.moving.clone(), spread.range_size().range_of(offset)),
    };
    moving.end(range);
}
