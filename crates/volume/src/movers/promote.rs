//! `BW_Move` (PolyStore Algorithm 2), and Mux's promotion on access: frequently
//! used ranges go to the fastest tier that is not saturated and has room.

use super::errand::{Errand, ErrandEnd};
use super::order::Closed;
use super::shared::Movers;
use crate::heat::HotRange;
use braid_contract::{Mover, Result, TierId};
use braid_format::FileKey;
use braid_tiers::Tier;
use braid_tiers::rate::Pace;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Longest round: after it, other ranges may be hot.
const ROUND_NS: u64 = 2_000_000_000;

/// Ranges that are to go to one tier, by file; the file with the hottest range
/// first, since a round may end before all have moved.
#[derive(Default)]
struct Promotions {
    files: Vec<(FileKey, Vec<u32>)>,
    place: HashMap<FileKey, usize>,
}

impl Promotions {
    /// Adds a range; those that are added first are hottest.
    fn add(&mut self, file: FileKey, range: u32) {
        let place = *self.place.entry(file).or_insert_with(|| {
            self.files.push((file, Vec::new()));
            self.files.len() - 1
        });
        self.files[place].1.push(range);
    }
}

impl Movers {
    /// Moves the ranges found frequently used since the last call.
    pub(crate) fn promote(&self, stopped: &(dyn Fn() -> bool + Sync)) {
        let Some(round) = self.rounds.round(Mover::Promote) else {
            // After a pause, other ranges will be hot.
            drop(self.heat.take_hot());
            return;
        };
        let lists = self.promotions();
        let pace = &*round.pace;
        let end_ns = self.core.environment.monotonic_ns() + ROUND_NS;
        let stop = || stopped() || pace.is_stopped() || self.core.environment.monotonic_ns() >= end_ns;
        let done = self.core.side_by_side(lists, |(to, list)| {
            self.promote_to(&to, &list, pace, &stop);
            Ok(())
        });
        if let Err(error) = done {
            tracing::warn!(%error, "promoting");
        }
    }

    /// The tiers to move ranges to, and the ranges.
    fn promotions(&self) -> Vec<(Arc<Tier>, Promotions)> {
        let hot = self.heat.take_hot();
        if hot.is_empty() {
            return Vec::new();
        }
        let tiers: Vec<(Arc<Tier>, Option<Closed>)> =
            self.tiers_by_speed().into_iter().map(|tier| (Arc::clone(&tier), self.closed(&tier))).collect();
        let mut targets: BTreeMap<TierId, Option<Arc<Tier>>> = BTreeMap::new();
        for (from, _) in &tiers {
            let better =
                |(to, closed): &&(Arc<Tier>, Option<Closed>)| closed.is_none() && self.is_faster(to, from);
            targets.insert(from.id, tiers.iter().find(better).map(|(to, _)| Arc::clone(to)));
        }
        let mut lists: BTreeMap<TierId, (Arc<Tier>, Promotions)> = BTreeMap::new();
        for HotRange { file, range, record } in hot {
            if let Some(Some(to)) = targets.get(&record.tier)
                && !self.is_left_alone(file)
            {
                let (_, list) = lists.entry(to.id).or_insert_with(|| (Arc::clone(to), Promotions::default()));
                list.add(file, range);
            }
        }
        lists.into_values().collect()
    }

    fn promote_to(&self, to: &Tier, list: &Promotions, pace: &Pace, stop: &(dyn Fn() -> bool + Sync)) {
        // Ranges that do not fit go to the next tier.
        let targets: Vec<_> = self.tiers_by_speed().into_iter().skip_while(|tier| tier.id != to.id).collect();
        let leaves = |from: &Tier, to: &Tier| self.is_faster(to, from);
        let errand = Errand { mover: Mover::Promote, pace, to: &targets, leaves: &leaves, stop };
        for (key, ranges) in &list.files {
            match self.promote_file(*key, ranges, &errand) {
                Ok(ErrandEnd::Done(_)) => {}
                Ok(ErrandEnd::Ended(_)) => return,
                Err(error) if self.note_unmoved(*key, &errand, &error) => return,
                Err(_) => {}
            }
        }
    }

    fn promote_file(&self, key: FileKey, ranges: &[u32], errand: &Errand<'_>) -> Result<ErrandEnd> {
        let reached = self.reach(key)?;
        if !self.may_move(Mover::Promote, &reached.file) {
            self.leave_alone(key);
            return Ok(ErrandEnd::Done(0));
        }
        let ranges = self.ranges_to_move(&reached.file, ranges)?;
        Ok(self.move_ranges(&reached, &ranges, errand))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_with_the_hottest_range_moves_first() {
        let file = |ino| FileKey { ino, generation: 0 };
        let mut promotions = Promotions::default();
        for (ino, range) in [(9, 4), (2, 0), (9, 1), (5, 7), (2, 3)] {
            promotions.add(file(ino), range);
        }
        assert_eq!(promotions.files, [(file(9), vec![4, 1]), (file(2), vec![0, 3]), (file(5), vec![7])]);
    }
}
