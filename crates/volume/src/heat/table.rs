//! The table of heat: how much ranges are used, and since when they are on
//! their tier. It is in memory, within a budget: the coldest ranges, and of
//! those the least recently used, are forgotten first.

use braid_contract::{NativeHandle, TierId};
use braid_format::{DEGREE_MAX, FileHeat, FileKey, RangeHeat};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

/// Seconds that have to pass before a use counts again: a stream that reads a
/// range across the end of an epoch uses it once.
const COUNT_EVERY: u32 = 2;

/// Seconds without a use after which a range is one degree colder.
const DECAY: u32 = 30;

/// Memory that a file and a range count for, including their share of the map.
const FILE_BYTES: usize = 192;
const RANGE_BYTES: usize = 32;

/// The heat of a range as time goes on.
pub(crate) trait Decay {
    /// Degree of use: the number of recent epochs with a use, at most 3, less
    /// one for every [`DECAY`] seconds without a use.
    fn degree_at(&self, now: u32) -> u8;

    /// The same as a share, 0 to 1.
    fn heat_at(&self, now: u32) -> f64;
}

impl Decay for RangeHeat {
    fn degree_at(&self, now: u32) -> u8 {
        let colder = now.saturating_sub(self.last) / DECAY;
        u8::try_from(colder).map_or(0, |colder| self.degree.saturating_sub(colder))
    }

    fn heat_at(&self, now: u32) -> f64 {
        f64::from(self.degree_at(now)) / f64::from(DEGREE_MAX)
    }
}

/// Counts a use.
fn warm(heat: &mut RangeHeat, now: u32) {
    let degree = heat.degree_at(now);
    if degree == 0 || now >= heat.last.saturating_add(COUNT_EVERY) || now < heat.last {
        heat.degree = (degree + 1).min(DEGREE_MAX);
        heat.last = now;
    }
}

/// Colder ranges come first; of equally cold ones, the one used less lately.
fn rank(heat: &RangeHeat, now: u32) -> (u8, u32) {
    (heat.degree_at(now), heat.last)
}

/// Memory that a file counts for.
fn bytes_of(file: &FileHeat) -> usize {
    FILE_BYTES + file.ranges.len() * RANGE_BYTES
}

/// A range and its heat.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct HotRange {
    pub(crate) file: FileKey,
    pub(crate) range: u32,
    pub(crate) record: RangeHeat,
}

/// All of the table. Ordered, so that the same history saves the same bytes.
#[derive(Debug)]
pub(crate) struct Table {
    files: BTreeMap<FileKey, FileHeat>,
    /// Files in which movers found nothing to move, until they are used again.
    settled: BTreeSet<FileKey>,
    bytes: usize,
    budget: usize,
    changed: bool,
}

impl Table {
    pub(super) fn new(budget: usize) -> Self {
        Self { files: BTreeMap::new(), settled: BTreeSet::new(), bytes: 0, budget, changed: false }
    }

    /// Restores the saved table.
    pub(super) fn restore(&mut self, files: BTreeMap<FileKey, FileHeat>, now: u32) {
        self.bytes = files.values().map(bytes_of).sum();
        self.files = files;
        self.trim(now);
    }

    pub(super) fn files(&self) -> &BTreeMap<FileKey, FileHeat> {
        &self.files
    }

    /// Whether anything has changed since the last call.
    pub(super) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// Records a use of a range on `tier`; answers its heat now.
    pub(super) fn used(&mut self, file: FileKey, range: u32, tier: TierId, now: u32) -> RangeHeat {
        self.settled.remove(&file);
        let record = self.record_mut(file, range, RangeHeat { since: 0, last: now, tier, degree: 0 });
        warm(record, now);
        record.tier = tier;
        *record
    }

    /// Records that a range came to `tier`.
    pub(super) fn placed(&mut self, file: FileKey, range: u32, tier: TierId, now: u32) {
        let record = self.record_mut(file, range, RangeHeat { since: now, last: now, tier, degree: 0 });
        record.since = now;
        record.tier = tier;
    }

    fn record_mut(&mut self, file: FileKey, range: u32, new: RangeHeat) -> &mut RangeHeat {
        self.changed = true;
        let bytes = &mut self.bytes;
        let heat = self.files.entry(file).or_insert_with(|| {
            *bytes += FILE_BYTES;
            FileHeat::default()
        });
        heat.ranges.entry(range).or_insert_with(|| {
            *bytes += RANGE_BYTES;
            new
        })
    }

    /// Stores the handle by which a known file can be opened again.
    pub(super) fn set_handle(&mut self, file: FileKey, handle: Option<&NativeHandle>) {
        if let Some(heat) = self.files.get_mut(&file)
            && heat.handle.as_ref() != handle
        {
            heat.handle = handle.cloned();
        }
    }

    /// Notes the tier on which a range was found.
    pub(crate) fn seen_on(&mut self, file: FileKey, range: u32, tier: TierId) {
        let found = self.files.get_mut(&file).and_then(|heat| heat.ranges.get_mut(&range));
        if let Some(record) = found {
            record.tier = tier;
        }
    }

    /// Notes that nothing of the file can move until it is used again.
    pub(crate) fn set_stays(&mut self, file: FileKey) {
        if self.files.contains_key(&file) {
            self.settled.insert(file);
        }
    }

    pub(crate) fn file(&self, file: FileKey) -> Option<&FileHeat> {
        self.files.get(&file)
    }

    pub(crate) fn record(&self, file: FileKey, range: u32) -> Option<RangeHeat> {
        self.files.get(&file)?.ranges.get(&range).copied()
    }

    /// Forgets a file that is gone.
    pub(crate) fn forget(&mut self, file: FileKey) {
        if let Some(heat) = self.files.remove(&file) {
            self.settled.remove(&file);
            self.bytes -= bytes_of(&heat);
            self.changed = true;
        }
    }

    /// Forgets ranges that do not exist any more.
    pub(crate) fn forget_range(&mut self, file: FileKey, range: u32) {
        let Some(heat) = self.files.get_mut(&file) else { return };
        if heat.ranges.remove(&range).is_some() {
            self.bytes -= RANGE_BYTES;
            self.changed = true;
        }
        if heat.ranges.is_empty() {
            self.forget(file);
        }
    }

    /// Ranges on `tier` whose degree is below `degree`, the coldest first, at
    /// most `max` of them.
    pub(crate) fn coldest(&self, tier: TierId, degree: u8, max: usize, now: u32) -> Vec<HotRange> {
        let mut cold: Vec<HotRange> =
            spots(self.files.iter().filter(|(file, _)| !self.settled.contains(file)))
                .filter(|spot| spot.record.tier == tier && spot.record.degree_at(now) < degree)
                .collect();
        let order = |a: &HotRange, b: &HotRange| -> Ordering {
            let place = |spot: &HotRange| (rank(&spot.record, now), spot.file, spot.range);
            place(a).cmp(&place(b))
        };
        if cold.len() > max {
            cold.select_nth_unstable_by(max, order);
            cold.truncate(max);
        }
        cold.sort_unstable_by(order);
        cold
    }

    /// Ranges that were used or placed at or after a moment, in seconds since
    /// 1970.
    pub(crate) fn used_since(&self, since: u32) -> Vec<HotRange> {
        spots(self.files.iter().filter(|(file, _)| !self.settled.contains(file)))
            .filter(|spot| spot.record.last >= since)
            .collect()
    }

    /// The files with the hottest ranges, each as a whole, hottest first.
    pub(crate) fn hottest(&self, max: usize, now: u32) -> Vec<(FileKey, f64)> {
        let mut files: Vec<(FileKey, f64)> = self
            .files
            .iter()
            .map(|(key, heat)| (*key, heat.ranges.values().map(|range| range.heat_at(now)).sum()))
            .collect();
        files.retain(|(_, heat)| *heat > 0.0);
        files.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        files.truncate(max);
        files
    }

    /// Keeps to the budget, by forgetting an eighth at a time, so that this is
    /// rare.
    pub(super) fn trim(&mut self, now: u32) {
        while self.bytes > self.budget {
            let mut ranks: Vec<(u8, u32)> =
                spots(self.files.iter()).map(|spot| rank(&spot.record, now)).collect();
            let share = 1.0 - (self.budget / 8 * 7) as f64 / self.bytes as f64;
            let gone = ((ranks.len() as f64 * share) as usize).min(ranks.len().saturating_sub(1));
            let Some((_, last, _)) = (!ranks.is_empty()).then(|| ranks.select_nth_unstable(gone)) else {
                return;
            };
            let last = *last;
            // All ranges that are as cold as the last to be forgotten go.
            for heat in self.files.values_mut() {
                heat.ranges.retain(|_, record| rank(record, now) > last);
            }
            self.files.retain(|_, heat| !heat.ranges.is_empty());
            self.settled.retain(|file| self.files.contains_key(file));
            self.bytes = self.files.values().map(bytes_of).sum();
            self.changed = true;
        }
    }
}

fn spots<'a>(files: impl Iterator<Item = (&'a FileKey, &'a FileHeat)>) -> impl Iterator<Item = HotRange> {
    files.flat_map(|(file, heat)| {
        heat.ranges.iter().map(|(range, record)| HotRange { file: *file, range: *range, record: *record })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: FileKey = FileKey { ino: 1, generation: 0 };
    const B: FileKey = FileKey { ino: 2, generation: 0 };

    #[test]
    fn use_warms_by_one_degree_at_a_time_and_time_cools() {
        let mut table = Table::new(1 << 20);
        let degrees: Vec<u8> =
            [100, 101, 102, 103, 104, 106, 108].map(|now| table.used(A, 0, TierId(1), now).degree).into();
        assert_eq!(degrees, [1, 1, 2, 2, 3, 3, 3]);
        let record = table.record(A, 0).unwrap();
        let later: Vec<u8> = [0, 29, 30, 60, 90, 100_000].map(|s| record.degree_at(108 + s)).into();
        assert_eq!(later, [3, 3, 2, 1, 0, 0]);
        // A clock that was set back does no harm.
        assert_eq!(record.degree_at(5), 3);
        assert_eq!(table.used(A, 0, TierId(1), 5).last, 5);
    }

    #[test]
    fn a_single_pass_leaves_ranges_less_frequent_and_a_second_does_not() {
        let mut table = Table::new(1 << 20);
        for pass in [0, 20] {
            for range in 0..10 {
                table.used(A, range, TierId(1), 1000 + pass + range / 4);
            }
            let degree = table.record(A, 3).unwrap().degree_at(1025);
            assert_eq!(degree, if pass == 0 { 1 } else { 2 });
        }
    }

    #[test]
    fn placing_tells_since_when_and_does_not_warm() {
        let mut table = Table::new(1 << 20);
        table.placed(A, 4, TierId(1), 50);
        assert_eq!(
            table.record(A, 4).unwrap(),
            RangeHeat { since: 50, last: 50, tier: TierId(1), degree: 0 }
        );
        table.used(A, 4, TierId(1), 60);
        table.placed(A, 4, TierId(0), 70);
        assert_eq!(
            table.record(A, 4).unwrap(),
            RangeHeat { since: 70, last: 60, tier: TierId(0), degree: 1 }
        );
    }

    #[test]
    fn the_coldest_come_in_the_order_of_their_last_use() {
        let mut table = Table::new(1 << 20);
        for (range, now) in [(0, 300), (1, 100), (2, 200), (3, 301)] {
            table.used(A, range, TierId(1), now);
        }
        table.used(B, 9, TierId(2), 1);
        table.used(A, 3, TierId(1), 303);
        let ranges = |max, degree| -> Vec<u32> {
            table.coldest(TierId(1), degree, max, 304).iter().map(|spot| spot.range).collect()
        };
        assert_eq!((ranges(9, 2), ranges(2, 2), ranges(9, 3)), (vec![1, 2, 0], vec![1, 2], vec![1, 2, 0, 3]));
        table.set_stays(A);
        assert_eq!(table.coldest(TierId(1), 3, 9, 304), []);
        table.used(A, 0, TierId(1), 304);
        table.seen_on(A, 0, TierId(2));
        assert_eq!(table.coldest(TierId(2), 3, 9, 304).len(), 2);
        let hottest: Vec<u64> = table.hottest(5, 304).iter().map(|(key, _)| key.ino).collect();
        assert_eq!(hottest, [1]);
    }

    #[test]
    fn the_budget_is_kept_and_the_hot_stay() {
        let mut table = Table::new(64 * (FILE_BYTES + RANGE_BYTES));
        let key = |ino| FileKey { ino, generation: 1 };
        for ino in 0..1000 {
            table.used(key(ino), 0, TierId(1), 1000 + ino as u32);
            table.used(key(5), 0, TierId(1), 1000 + ino as u32);
            table.trim(1000 + ino as u32);
            assert!(table.bytes <= table.budget);
        }
        assert!(table.record(key(5), 0).is_some() && table.record(key(999), 0).is_some());
        assert!(table.record(key(6), 0).is_none() && table.files.len() > 32);
        table.forget_range(key(5), 0);
        table.forget(key(999));
        assert_eq!(table.bytes, table.files.values().map(bytes_of).sum::<usize>());
    }
}
