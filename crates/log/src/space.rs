//! Which blocks are in use. The blocks of the device are divided among workers, which
//! give out their own first and then those of others. Nothing of this is on the device:
//! it follows from the blocks of files, logs and image.

use crate::extents::Run;
use crate::layout::GROUP_BLOCKS;
use crate::sync::{Mutex, MutexGuard};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// Blocks from which on a file gets whole groups first.
const LARGE: u64 = GROUP_BLOCKS / 4;

/// The blocks of a device.
#[derive(Debug)]
pub(crate) struct Space {
    regions: Vec<Mutex<Region>>,
    /// Groups of a region, but for the last, which may have less.
    per_region: u64,
    groups: u64,
    free_groups: AtomicI64,
    free_blocks: AtomicI64,
    /// Groups that only the log may take.
    reserve: AtomicI64,
    stolen: AtomicU64,
}

/// The groups of a worker.
#[derive(Debug, Default)]
struct Region {
    first: u64,
    /// For each group, its blocks: a bit is set for one that is in use.
    words: Vec<u64>,
    /// Groups of which some blocks are in use, not all.
    partial: BTreeSet<usize>,
    free_groups: usize,
    /// Where the search for a free group goes on.
    cursor: usize,
}

impl Region {
    fn change(&mut self, at: usize, word: u64) {
        let before = std::mem::replace(&mut self.words[at], word);
        self.free_groups = self.free_groups + usize::from(word == 0) - usize::from(before == 0);
        if word == 0 || word == u64::MAX {
            self.partial.remove(&at);
        } else {
            self.partial.insert(at);
        }
    }

    /// A group that is wholly free.
    fn find_group(&mut self) -> Option<usize> {
        if self.free_groups == 0 {
            return None;
        }
        let count = self.words.len();
        let found = (0..count).map(|step| (self.cursor + step) % count).find(|at| self.words[*at] == 0)?;
        self.cursor = found;
        Some(found)
    }

    /// Up to `most` free blocks in a row in this group: the first, and how many.
    fn first_row(&self, at: usize, most: u64) -> (u64, u64) {
        let word = self.words[at];
        let first = u64::from(word.trailing_ones());
        let len = u64::from((word >> first).trailing_zeros()).min(GROUP_BLOCKS - first).min(most);
        (first, len)
    }

    fn take_row(&mut self, at: usize, first: u64, len: u64) -> Run {
        self.change(at, self.words[at] | mask(first, len));
        Run { start: (self.first + at as u64) * GROUP_BLOCKS + first, len }
    }
}

/// The bits of some blocks of a group.
fn mask(first: u64, len: u64) -> u64 {
    let ones = if len >= GROUP_BLOCKS { u64::MAX } else { (1 << len) - 1 };
    ones << first
}

impl Space {
    /// All blocks of a device, free, divided among workers. An incomplete group at the
    /// end is left out.
    pub(crate) fn new(blocks: u64, workers: usize) -> Self {
        let groups = blocks / GROUP_BLOCKS;
        let per_region = groups.div_ceil(workers as u64).max(1);
        let region = |worker: u64| {
            let first = (worker * per_region).min(groups);
            let count = per_region.min(groups - first) as usize;
            Mutex::new(Region { first, words: vec![0; count], free_groups: count, ..Region::default() })
        };
        Self {
            regions: (0..workers as u64).map(region).collect(),
            per_region,
            groups,
            free_groups: AtomicI64::new(groups.cast_signed()),
            free_blocks: AtomicI64::new((groups * GROUP_BLOCKS).cast_signed()),
            reserve: AtomicI64::new(0),
            stolen: AtomicU64::new(0),
        }
    }

    /// Blocks in all.
    pub(crate) fn blocks(&self) -> u64 {
        self.groups * GROUP_BLOCKS
    }

    pub(crate) fn free_blocks(&self) -> u64 {
        self.free_blocks.load(Ordering::Relaxed).max(0).cast_unsigned()
    }

    pub(crate) fn free_groups(&self) -> i64 {
        self.free_groups.load(Ordering::Relaxed)
    }

    /// Blocks that workers took of others.
    pub(crate) fn stolen(&self) -> u64 {
        self.stolen.load(Ordering::Relaxed)
    }

    /// Free blocks of each worker.
    pub(crate) fn by_worker(&self) -> Vec<u64> {
        let free = |words: &[u64]| words.iter().map(|word| u64::from(word.count_zeros())).sum();
        self.regions.iter().map(|region| free(&region.lock().words)).collect()
    }

    /// Sets how many groups only the log may take.
    pub(crate) fn set_reserve(&self, groups: i64) {
        self.reserve.store(groups, Ordering::Relaxed);
    }

    pub(crate) fn reserve(&self) -> i64 {
        self.reserve.load(Ordering::Relaxed)
    }

    fn region_of(&self, group: u64) -> Option<MutexGuard<'_, Region>> {
        let region = self.regions.get(usize::try_from(group / self.per_region).ok()?)?;
        (group < self.groups).then(|| region.lock())
    }

    fn count(&self, groups_before: usize, region: &Region, blocks: i64) {
        let groups = region.free_groups as i64 - groups_before as i64;
        if groups != 0 {
            self.free_groups.fetch_add(groups, Ordering::Relaxed);
        }
        self.free_blocks.fetch_add(blocks, Ordering::Relaxed);
    }

    /// Blocks for a file, in as few runs as there are; `None` if they are not there.
    pub(crate) fn allocate(&self, worker: usize, blocks: u64) -> Option<Vec<Run>> {
        let mut runs = Vec::new();
        let mut left = blocks;
        for step in 0..self.regions.len() {
            let index = (worker + step) % self.regions.len();
            let before = left;
            left -= self.take_from(index, left, &mut runs);
            if step > 0 {
                self.stolen.fetch_add(before - left, Ordering::Relaxed);
            }
            if left == 0 {
                return Some(runs);
            }
        }
        runs.into_iter().for_each(|run| self.free(run));
        None
    }

    /// Takes up to `wanted` blocks of a region; returns how many.
    fn take_from(&self, index: usize, wanted: u64, runs: &mut Vec<Run>) -> u64 {
        let mut region = self.regions[index].lock();
        let (groups, mut left) = (region.free_groups, wanted);
        if wanted >= LARGE {
            left -= self.take_groups(&mut region, left, groups, runs);
        }
        while left > 0
            && let Some(at) = region.partial.first().copied()
        {
            let (first, len) = region.first_row(at, left);
            push(runs, region.take_row(at, first, len));
            left -= len;
        }
        left -= self.take_groups(&mut region, left, groups, runs);
        self.count(groups, &region, -((wanted - left).cast_signed()));
        wanted - left
    }

    /// Takes blocks of groups that are wholly free, but not of the reserve.
    fn take_groups(&self, region: &mut Region, wanted: u64, before: usize, runs: &mut Vec<Run>) -> u64 {
        let mut left = wanted;
        // Other regions are counted beside: the reserve may be missed by as many groups
        // as there are workers, which it has room for.
        let spare = self.free_groups() - self.reserve();
        while left > 0 && ((before - region.free_groups) as i64) < spare {
            let Some(at) = region.find_group() else { break };
            let (first, len) = region.first_row(at, left);
            push(runs, region.take_row(at, first, len));
            left -= len;
        }
        wanted - left
    }

    /// A whole group, also of the reserve.
    pub(crate) fn take_group(&self, worker: usize) -> Option<u64> {
        for step in 0..self.regions.len() {
            let mut region = self.regions[(worker + step) % self.regions.len()].lock();
            let before = region.free_groups;
            if let Some(at) = region.find_group() {
                region.change(at, u64::MAX);
                self.count(before, &region, -(GROUP_BLOCKS.cast_signed()));
                return Some(region.first + at as u64);
            }
        }
        None
    }

    /// Marks blocks as in use; returns those of them that were already, or do not exist.
    pub(crate) fn mark(&self, run: Run) -> u64 {
        let mut wrong = 0;
        self.each_group(run, |region, at, bits, blocks| {
            let Some((region, at)) = region.zip(at) else {
                wrong += blocks;
                return 0;
            };
            let taken = u64::from((region.words[at] & bits).count_ones());
            wrong += taken;
            region.change(at, region.words[at] | bits);
            -((blocks - taken).cast_signed())
        });
        wrong
    }

    /// Gives blocks back.
    pub(crate) fn free(&self, run: Run) {
        self.each_group(run, |region, at, bits, _| {
            let Some((region, at)) = region.zip(at) else { return 0 };
            let taken = (region.words[at] & bits).count_ones();
            region.change(at, region.words[at] & !bits);
            taken.into()
        });
    }

    /// Those of these blocks that are free.
    pub(crate) fn free_within(&self, run: Run) -> Vec<Run> {
        let (mut found, mut at) = (Vec::new(), run.start);
        while at < run.end() {
            let (group, first) = (at / GROUP_BLOCKS, at % GROUP_BLOCKS);
            let len = (GROUP_BLOCKS - first).min(run.end() - at);
            if let Some(region) = self.region_of(group) {
                let mut free = !region.words[(group - region.first) as usize] & mask(first, len);
                while free != 0 {
                    let from = u64::from(free.trailing_zeros());
                    let count = u64::from((free >> from).trailing_ones());
                    push(&mut found, Run { start: group * GROUP_BLOCKS + from, len: count });
                    free &= !mask(from, count);
                }
            }
            at += len;
        }
        found
    }

    /// Hands each group's share of a run to `change`, which returns how many blocks
    /// became free.
    fn each_group(
        &self,
        run: Run,
        mut change: impl FnMut(Option<&mut Region>, Option<usize>, u64, u64) -> i64,
    ) {
        let mut at = run.start;
        while at < run.end() {
            let (group, first) = (at / GROUP_BLOCKS, at % GROUP_BLOCKS);
            let len = (GROUP_BLOCKS - first).min(run.end() - at);
            at += len;
            match self.region_of(group) {
                Some(mut region) => {
                    let before = region.free_groups;
                    let index = (group - region.first) as usize;
                    let freed = change(Some(&mut region), Some(index), mask(first, len), len);
                    self.count(before, &region, freed);
                }
                None => {
                    change(None, None, 0, len);
                }
            }
        }
    }
}

/// Adds a run, which may go on from the last one.
fn push(runs: &mut Vec<Run>, run: Run) {
    match runs.last_mut() {
        Some(last) if last.end() == run.start => last.len += run.len,
        _ => runs.push(run),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_have_their_own_and_steal_when_they_have_none() {
        let space = Space::new(16 * GROUP_BLOCKS, 4);
        let own = space.allocate(1, 4 * GROUP_BLOCKS);
        assert_eq!(own, Some(vec![Run { start: 4 * GROUP_BLOCKS, len: 4 * GROUP_BLOCKS }]));
        assert_eq!((space.stolen(), space.free_groups()), (0, 12));
        let other = space.allocate(1, 10).unwrap_or_default();
        assert_eq!((other[0].start / GROUP_BLOCKS, space.stolen()), (8, 10));
        assert_eq!(space.by_worker().iter().sum::<u64>(), space.free_blocks());
        assert_eq!(space.allocate(0, 12 * GROUP_BLOCKS), None);
        assert_eq!(space.free_blocks(), 12 * GROUP_BLOCKS - 10, "what was not enough is given back");
        space.free(other[0]);
        assert_eq!(space.free_groups(), 12);
    }

    #[test]
    fn the_reserve_is_for_the_log() {
        let space = Space::new(8 * GROUP_BLOCKS, 2);
        space.set_reserve(3);
        assert!(space.allocate(0, 5 * GROUP_BLOCKS).is_some());
        assert_eq!(space.allocate(0, 1), None);
        assert_eq!(
            (0..4).map(|_| space.take_group(0).is_some()).collect::<Vec<_>>(),
            [true, true, true, false]
        );
    }

    #[test]
    fn holes_are_filled_and_double_use_is_noticed() {
        let space = Space::new(8 * GROUP_BLOCKS, 1);
        assert_eq!(space.mark(Run { start: 10, len: 100 }), 0);
        assert_eq!(space.mark(Run { start: 100, len: 20 }), 10);
        assert_eq!(space.mark(Run { start: 8 * GROUP_BLOCKS - 1, len: 5 }), 4, "beyond the end");
        space.free(Run { start: 20, len: 5 });
        let runs = space.allocate(0, 15).unwrap_or_default();
        assert_eq!(runs, [Run { start: 0, len: 10 }, Run { start: 20, len: 5 }]);
        assert_eq!(space.free_within(Run { start: 118, len: 4 }), [Run { start: 120, len: 2 }]);
        space.mark(Run { start: 200, len: 3 });
        let free = space.free_within(Run { start: 0, len: 600 });
        let rest = Run { start: 203, len: 8 * GROUP_BLOCKS - 1 - 203 };
        assert_eq!(free, [Run { start: 120, len: 80 }, rest]);
    }
}
