//! Moving ranges at a pace: a range of a file with an index, or all of a small
//! file, goes to the tier that a mover or a job names.

use crate::coord::Entered;
use crate::core::Core;
use crate::file::indexing::{NotSpread, spread_out};
use crate::file::move_whole::{move_at_once, moves_at_once};
use crate::file::presence::entry_at;
use crate::file::range_move::move_range_at;
use crate::file::ranges::range_size_of;
use crate::live::{File, Layout};
use braid_contract::{Errno, Result};
use braid_format::Reason;
use braid_tiers::rate::{MoveRate, Stopped};
use braid_tiers::{Account, Tier, act_for};

/// Moving a file of a few bytes counts as this many.
const BLOCK: u64 = 4096;

/// Moves the range at `offset` to a tier, if it is not there already, as fast as
/// `order` and the throttles of both tiers allow. Ranges that were never written
/// are nowhere, and stay so; a plain file is spread first. Answers the bytes
/// that were copied. The caller has the file in use.
///
/// # Errors
/// `EBUSY` if the kernel does I/O on the file by itself at present, or
/// something else moves or changes the range; `ECANCELED` if the pace was
/// stopped; those of both tiers.
pub fn relocate(
    core: &Core,
    file: &File,
    offset: u64,
    to: &Tier,
    order: (Reason, MoveRate<'_>),
) -> Result<u64> {
    relocate_watched(core, file, offset, to, order, &mut || {})
}

/// As [`relocate`]; `between` is called after each copy,
/// while nothing is held.
pub fn relocate_watched(
    core: &Core,
    file: &File,
    offset: u64,
    to: &Tier,
    (reason, rate): (Reason, MoveRate<'_>),
    between: &mut dyn FnMut(),
) -> Result<u64> {
    if let Some(bytes) = moves_at_once(core, file)? {
        let moved = relocate_at_once(core, file, to, (reason, rate), bytes);
        between();
        return moved;
    }
    match spread_to_move(core, file, to) {
        // Home has no room for an index, so the file moves as a whole.
        Err(error) if error.is_full() => {
            return relocate_at_once(core, file, to, (reason, rate), file.home_size()?);
        }
        spread => spread?,
    }
    let Some(entry) = entry_at(file, offset)?.filter(|entry| entry.tier != to.id) else {
        return Ok(0);
    };
    let (from, bytes) = (core.tiers.get(entry.tier)?, range_size_of(core, file)?.bytes());
    let _passage = rate.throttle(&[&from, to], bytes).map_err(|Stopped| Errno::ECANCELED)?;
    let _entered = enter_to_move(core, file)?;
    // No application waits for these reads and writes.
    let _for = act_for(Account::Mover);
    let moved = move_range_at(core, file, offset, to, reason, between)?;
    Ok(moved.map_or(0, |_| bytes))
}

/// Moves all of a file of so many bytes, which is on one tier, while it is
/// locked.
fn relocate_at_once(
    core: &Core,
    file: &File,
    to: &Tier,
    (reason, rate): (Reason, MoveRate<'_>),
    bytes: u64,
) -> Result<u64> {
    let from = match &*file.layout.read() {
        Layout::Plain => core.tiers.home().id,
        Layout::Spread(spread) => spread.index.whole_tier().ok_or(Errno::EBUSY)?,
    };
    if from == to.id {
        return Ok(0);
    }
    let from = core.tiers.get(from)?;
    let bytes = bytes.max(BLOCK);
    let _passage = rate.throttle(&[&from, to], bytes).map_err(|Stopped| Errno::ECANCELED)?;
    let _entered = enter_to_move(core, file)?;
    let _for = act_for(Account::Mover);
    match move_at_once(core, file, to, reason) {
        Ok(moved) => Ok(moved.unwrap_or(0)),
        Err(NotSpread::PassedThrough) => Err(Errno::EBUSY.into()),
        Err(NotSpread::Failed(error)) => Err(error),
    }
}

/// Spreads a plain file before any of it can leave home.
fn spread_to_move(core: &Core, file: &File, to: &Tier) -> Result<()> {
    let _entered = enter_to_move(core, file)?;
    if matches!(&*file.layout.read(), Layout::Plain) && !to.is_home() {
        let spread = spread_out(core, file, range_size_of(core, file)?);
        core.observer.inode_changed(&file.inode);
        spread.map_err(|not| match not {
            NotSpread::PassedThrough => Errno::EBUSY.into(),
            NotSpread::Failed(error) => error,
        })?;
    }
    Ok(())
}

/// Enters the barrier to move a file. `ESTALE` if the file was taken into use
/// before home was replaced.
pub(super) fn enter_to_move<'c>(core: &'c Core, file: &File) -> Result<Entered<'c>> {
    let pass = core.barrier.enter();
    let usable = file.inode.is_of(&core.home) && !file.opens.lock().dead;
    if usable { Ok(pass) } else { Err(Errno::ESTALE.into()) }
}
