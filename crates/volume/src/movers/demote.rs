//! `CAP_Move` (PolyStore Algorithm 2), and Mux's eviction: a tier that is
//! filled to its high watermark gives ranges that are not frequently used,
//! coldest first, to slower tiers that are not saturated, until it is below its
//! low watermark.

use super::errand::Errand;
use super::order::used;
use super::reach::{Reached, key_of_found};
use super::shared::Movers;
use crate::heat::Decay;
use braid_contract::{Errno, Error, Fd, Mover, Result};
use braid_core::file::{index_of, range_size_of};
use braid_format::{FileKey, IdKind};
use braid_home::{Identity, Seen};
use braid_tiers::Tier;
use braid_tiers::rate::Pace;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Ranges chosen at a time.
const BATCH_MAX: usize = 256;

/// Pause between two searches of the whole namespace, if the first found too
/// little.
const SEARCH_EVERY_NS: u64 = 60_000_000_000;

/// When a round ends, and the pace it keeps to.
#[derive(Clone, Copy)]
struct Until<'a> {
    pace: &'a Pace,
    stopped: &'a (dyn Fn() -> bool + Sync),
}

impl Movers {
    /// Relieves the tiers that are too full, side by side.
    pub(crate) fn demote(&self, stopped: &(dyn Fn() -> bool + Sync)) {
        let Some(round) = self.rounds.round(Mover::Demote) else { return };
        let full: Vec<Arc<Tier>> = self.core.tiers.iter().filter(|tier| self.needs_relief(tier)).collect();
        let pace = &*round.pace;
        let until = Until { pace, stopped: &|| stopped() || pace.is_stopped() };
        let done = self.core.side_by_side(full, |tier| {
            self.relieve(&tier, until);
            Ok(())
        });
        if let Err(error) = done {
            tracing::warn!(%error, "demoting");
        }
    }

    /// Whether the tier reached its high watermark, and is not below the low
    /// one yet.
    pub(super) fn needs_relief(&self, tier: &Tier) -> bool {
        if !tier.is_healthy() || tier.is_absent() {
            return false;
        }
        let (used, config) = (used(tier), self.rounds.config());
        let throttle = self.throttles.of(tier.id);
        if used >= config.watermark_high {
            throttle.relieving.store(true, Ordering::Release);
        } else if used < config.watermark_low {
            throttle.relieving.store(false, Ordering::Release);
        }
        throttle.relieving.load(Ordering::Acquire)
    }

    /// The tiers that accept ranges from `from`, the fastest first.
    pub(super) fn relief_targets(&self, from: &Tier) -> Vec<Arc<Tier>> {
        let slower = self.tiers_by_speed().into_iter().skip_while(|tier| tier.id != from.id).skip(1);
        slower.filter(|tier| self.closed(tier).is_none()).collect()
    }

    fn relieve(&self, from: &Tier, until: Until<'_>) {
        let excess = used(from) - self.rounds.config().watermark_low;
        let goal = (excess * from.capacity() as f64).max(0.0) as u64 + 1;
        let moved = self.demote_known(from, goal, until);
        let throttle = self.throttles.of(from.id);
        let now_ns = self.core.environment.monotonic_ns();
        if moved == 0 && now_ns >= throttle.search_at_ns.load(Ordering::Acquire) {
            let found = self.demote_found(from, goal, until);
            if found < goal {
                throttle.search_at_ns.store(now_ns + SEARCH_EVERY_NS, Ordering::Release);
            }
        }
        from.measure_again();
    }

    /// Moves ranges with known heat that are cold; answers how many bytes.
    fn demote_known(&self, from: &Tier, goal: u64, until: Until<'_>) -> u64 {
        // With other range sizes this is too many or too few: the round ends
        // early, or the next one moves more.
        let wanted = usize::try_from(goal / self.core.range_size.bytes() + 1).unwrap_or(BATCH_MAX);
        self.heat.refresh();
        let now = self.heat.now();
        let cold = self.heat.table().coldest(from.id, self.heat.cold_below(), wanted.min(BATCH_MAX), now);
        let mut files: Vec<(FileKey, Vec<u32>)> = Vec::new();
        for spot in cold.iter().filter(|spot| !self.is_left_alone(spot.file)) {
            match files.iter_mut().find(|(file, _)| *file == spot.file) {
                Some((_, ranges)) => ranges.push(spot.range),
                None => files.push((spot.file, vec![spot.range])),
            }
        }
        let mut moved = 0;
        for (key, ranges) in files {
            if moved >= goal || (until.stopped)() {
                break;
            }
            moved += self.demote_file(key, self.reach(key), &ranges, (from, goal - moved), until);
        }
        moved
    }

    /// Moves ranges of one file off `from`, to the first tiers that accept
    /// them, at most about `goal` bytes; answers how many.
    fn demote_file(
        &self,
        key: FileKey,
        reached: Result<Reached<'_>>,
        ranges: &[u32],
        (from, goal): (&Tier, u64),
        until: Until<'_>,
    ) -> u64 {
        let targets = self.relief_targets(from);
        if targets.is_empty() {
            return 0;
        }
        let leaves = |tier: &Tier, _: &Tier| tier.id == from.id;
        let (pace, stop) = (until.pace, until.stopped);
        let errand = Errand { mover: Mover::Demote, pace, to: &targets, leaves: &leaves, stop };
        let moved = reached.and_then(|reached| {
            let mut ranges = self.ranges_to_move(&reached.file, ranges)?;
            if ranges.is_empty() || !self.may_move(Mover::Demote, &reached.file) {
                self.heat.table().set_stays(key);
                return Ok(0);
            }
            let size = range_size_of(&self.core, &reached.file)?;
            ranges.truncate(usize::try_from(size.count(goal)).unwrap_or(BATCH_MAX));
            Ok(self.move_ranges(&reached, &ranges, &errand).bytes())
        });
        moved.unwrap_or_else(|error| {
            self.note_unmoved(key, &errand, &error);
            0
        })
    }

    /// Searches the namespace for files so long unused that heat has forgotten
    /// them, and moves those; answers how many bytes.
    fn demote_found(&self, from: &Tier, goal: u64, until: Until<'_>) -> u64 {
        let mut moved = 0;
        let walked = self.core.home.walk_below(&[], &mut |seen| {
            if moved >= goal || (until.stopped)() || !self.needs_relief(from) {
                return Err(Errno::EINTR.into());
            }
            if let Seen::File(_, fd, identity) = seen {
                moved += self.demote_unknown(from, fd, identity, goal - moved, until);
            }
            Ok(())
        });
        match walked {
            Err(error) if error.errno() != Errno::EINTR => {
                tracing::warn!(tier = %from.name, %error, "searching for what could leave a full tier");
            }
            _ => {}
        }
        moved
    }

    fn demote_unknown(&self, from: &Tier, fd: &Fd, identity: &Identity, goal: u64, until: Until<'_>) -> u64 {
        let key = key_of_found(identity);
        let ranges = match self.cold_ranges(from, fd, identity, key) {
            Ok(ranges) if !ranges.is_empty() && !self.is_left_alone(key) => ranges,
            Ok(_) => return 0,
            Err(error) => return self.pass_over(key, &error),
        };
        let reached = self.reach_found(identity, Fd::clone(fd));
        self.demote_file(key, reached, &ranges, (from, goal), until)
    }

    fn pass_over(&self, key: FileKey, error: &Error) -> u64 {
        tracing::debug!(ino = key.ino, %error, "a file is passed over");
        0
    }

    /// The ranges of a file on the tier that are not frequently used.
    fn cold_ranges(&self, from: &Tier, fd: &Fd, identity: &Identity, key: FileKey) -> Result<Vec<u32>> {
        let now = self.heat.now();
        let attr = self.core.home.id_attr(&**fd, identity)?.filter(|attr| attr.kind != IdKind::Emptied);
        let is_cold = |range: u64| {
            let record = self.heat.table().record(key, range as u32);
            record.is_none_or(|record| record.degree_at(now) < self.heat.cold_below())
        };
        let Some(attr) = attr else {
            // The file moves as a whole, if at all.
            let there = from.is_home() && identity.size() > 0;
            return Ok(if there && is_cold(0) { vec![0] } else { Vec::new() });
        };
        if let Some(whole) = attr.kind.whole() {
            let there = if whole.tier == from.id { whole.range_size.count(identity.size()) } else { 0 };
            return Ok((0..there).filter(|range| is_cold(*range)).map(|range| range as u32).collect());
        }
        let mut ranges = Vec::new();
        index_of(&self.core, &**fd, identity, attr.id)?.for_each(0, |range, entry| {
            if entry.is_ok_and(|entry| entry.tier == from.id) && is_cold(range) {
                ranges.push(range as u32);
            }
            Ok(())
        })?;
        Ok(ranges)
    }
}
