//! Moving ranges of one file for a mover, and handling those that don't move.

use super::reach::Reached;
use super::shared::Movers;
use braid_contract::{Errno, Error, Mover, Result};
use braid_core::file::{gather, moves_at_once, range_size_of, relocate};
use braid_format::{FileKey, Reason};
use braid_tiers::Tier;
use braid_tiers::rate::{IoClass, MoveRate, Pace};
use std::sync::Arc;

/// The task of a mover, and when it is to end.
pub(super) struct Errand<'a> {
    pub(super) mover: Mover,
    /// The pace of the mover's round.
    pub(super) pace: &'a Pace,
    /// The tiers that ranges may go to, in order of preference.
    pub(super) to: &'a [Arc<Tier>],
    /// Whether a range is to leave its current tier, the first argument, for
    /// one of those.
    pub(super) leaves: &'a (dyn Fn(&Tier, &Tier) -> bool + Sync),
    pub(super) stop: &'a (dyn Fn() -> bool + Sync),
}

/// The end of an errand for one file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ErrandEnd {
    /// All ranges moved, or are to stay; with the bytes moved.
    Done(u64),
    /// No target has room for more, or the round ends; with the bytes moved
    /// before.
    Ended(u64),
}

impl ErrandEnd {
    pub(super) fn bytes(self) -> u64 {
        match self {
            Self::Done(bytes) | Self::Ended(bytes) => bytes,
        }
    }
}

fn reason(mover: Mover) -> Reason {
    match mover {
        Mover::Promote => Reason::Promoted,
        Mover::Demote => Reason::Demoted,
        Mover::Balance => Reason::Rebalanced,
    }
}

impl Movers {
    /// Carries out an errand for some ranges of one file, and makes the file
    /// plain if it is wholly on home then.
    pub(super) fn move_ranges(
        &self,
        reached: &Reached<'_>,
        ranges: &[u32],
        errand: &Errand<'_>,
    ) -> ErrandEnd {
        let outcome = self.move_each(reached, ranges, errand);
        if outcome.bytes() > 0
            && let Err(error) = gather(&self.core, &reached.file)
        {
            tracing::debug!(ino = reached.key.ino, %error, "a file that is wholly on home stays spread");
        }
        outcome
    }

    fn move_each(&self, reached: &Reached<'_>, ranges: &[u32], errand: &Errand<'_>) -> ErrandEnd {
        let mut bytes = 0;
        for range in ranges {
            if (errand.stop)() {
                return ErrandEnd::Ended(bytes);
            }
            match self.move_range_for(reached, *range, errand) {
                Ok(moved) => bytes += moved,
                Err(error) => {
                    let ended = self.note_unmoved(reached.key, errand, &error);
                    return if ended { ErrandEnd::Ended(bytes) } else { ErrandEnd::Done(bytes) };
                }
            }
        }
        ErrandEnd::Done(bytes)
    }

    /// Moves one range, if the errand takes it from its current tier.
    fn move_range_for(&self, reached: &Reached<'_>, range: u32, errand: &Errand<'_>) -> Result<u64> {
        let Some(from) = self.tier_of_range(&reached.file, range)? else {
            self.heat.table().forget_range(reached.key, range);
            return Ok(0);
        };
        self.heat.table().seen_on(reached.key, range, from.id);
        let ranges = range_size_of(&self.core, &reached.file)?;
        // A small file moves only the bytes that it has.
        let bytes = moves_at_once(&self.core, &reached.file)?.unwrap_or(ranges.bytes());
        let Some(to) = self.target_for(&from, bytes, errand)? else { return Ok(0) };
        let offset = ranges.start_of(range.into());
        self.rounds.begins_work(errand.mover);
        let rate = MoveRate { throttles: &self.throttles, pace: errand.pace, class: IoClass::Mover };
        let moved = relocate(&self.core, &reached.file, offset, to, (reason(errand.mover), rate))?;
        if moved > 0 {
            self.count(errand.mover, from.id, to.id, moved);
        }
        Ok(moved)
    }

    /// The first tier that accepts so many bytes from `from`; `None` if they
    /// are to stay. `ENOSPC` if no tier has room, `EFBIG` if some have room for
    /// shorter ranges.
    fn target_for<'a>(&self, from: &Tier, bytes: u64, errand: &Errand<'a>) -> Result<Option<&'a Arc<Tier>>> {
        let wanted = |to: &&Arc<Tier>| to.id != from.id && (errand.leaves)(from, to);
        let mut targets = errand.to.iter().filter(wanted).peekable();
        if targets.peek().is_none() {
            return Ok(None);
        }
        let mut open = targets.filter(|to| self.closed(to).is_none()).peekable();
        if open.peek().is_none() {
            return Err(Errno::ENOSPC.into());
        }
        open.find(|to| to.room() >= bytes).map(Some).ok_or_else(|| Errno::EFBIG.into())
    }

    /// Handles a range that was not moved; answers whether the whole errand
    /// ends.
    pub(super) fn note_unmoved(&self, file: FileKey, errand: &Errand<'_>, error: &Error) -> bool {
        tracing::debug!(ino = file.ino, mover = errand.mover.name(), %error, "a range was not moved");
        match error.errno() {
            Errno::ECANCELED => return true,
            errno if errno.is_full() => return true,
            Errno::ENOENT | Errno::ESTALE => self.heat.table().forget(file),
            // The kernel does I/O on the file itself, its ranges are too long
            // for the available room, or a tier is in trouble.
            _ => self.leave_alone(file),
        }
        false
    }
}
