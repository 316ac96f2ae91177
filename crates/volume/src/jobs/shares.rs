//! The ranges of a file that have to move so that every tier has its share.

use crate::occupancy::{Stretch, each_range};
use braid_contract::{Result, TierId};
use braid_core::Core;
use braid_core::file::{PlacementRequest, choose, effective_placement, range_size_of};
use braid_core::live::File;
use braid_format::RangeSize;
use braid_placement::{Credits, Origin, TierView, WriteSpan, shares};
use braid_tiers::bit;

const TIERS: usize = TierId::LIMIT as usize;

/// Ranges that are dealt one by one; a longer file is scaled from these.
const DEALT_MAX: u64 = 4096;

/// Excess of a file that a tier may have before ranges move: a twentieth of the
/// file, and one range in any case.
const TOLERANCE: u64 = 20;

/// For each tier, the ranges that it has, its excess, and its lack.
pub(super) struct Shares {
    have: [u64; TIERS],
    over: [u64; TIERS],
    under: [u64; TIERS],
    /// Distance to the next range that moves, in ranges times `have`.
    turn: [u64; TIERS],
}

impl Shares {
    /// Compares the ranges on tiers with the wanted shares; no shares if they
    /// hardly differ.
    fn new(have: &[u64; TIERS], want: &[u64; TIERS]) -> Self {
        let none = [0; TIERS];
        let mut difference = Self { have: *have, over: none, under: none, turn: none };
        let tolerated = (have.iter().sum::<u64>() / TOLERANCE).max(1);
        if (0..TIERS).all(|at| have[at].abs_diff(want[at]) <= tolerated) {
            return difference;
        }
        for at in 0..TIERS {
            difference.over[at] = have[at].saturating_sub(want[at]);
            difference.under[at] = want[at].saturating_sub(have[at]);
        }
        difference
    }

    /// The destination of a range on `from`; `None` if it stays. To be called
    /// for every range in order: the moving ones are spread evenly.
    pub(super) fn take_from(&mut self, from: TierId) -> Option<TierId> {
        let at = usize::from(from.0);
        let turn = self.turn.get_mut(at)?;
        *turn += self.over[at];
        if *turn < self.have[at] || self.over[at] == 0 {
            return None;
        }
        *turn -= self.have[at];
        let (to, under) = self.under.iter_mut().enumerate().max_by_key(|(_, under)| **under)?;
        if *under == 0 {
            return None;
        }
        *under -= 1;
        Some(TierId(to as u8))
    }
}

/// The ranges of a file to move so that every tier has its share.
pub(super) fn shares_of(core: &Core, file: &File) -> Result<Shares> {
    let mut have = [0; TIERS];
    each_range(core, file, 0, &mut |Stretch { len, tier, .. }| {
        have[usize::from(tier.0)] += u64::from(len > 0);
        Ok(())
    })?;
    let ranges = range_size_of(core, file)?;
    let count: u64 = have.iter().sum();
    let dealt = count.min(DEALT_MAX);
    let views = core.tiers.views(0, 0);
    let chosen = effective_placement(core, file).decides_shares();
    let mut want = match chosen {
        true => {
            let most = most_within_room(core, &views, &have, ranges);
            as_chosen(core, file, ranges, dealt, &most.map(|most| in_proportion(most, dealt, count)))
        }
        // The other policies follow the current load.
        false => shares(Credits::new(file.inode.ino.0, ranges.get()), &views, dealt, ranges.get()),
    };
    if count > dealt {
        scale(&mut want, count, dealt);
    }
    if !chosen {
        keep_within_room(core, &views, &have, &mut want, ranges);
    }
    Ok(Shares::new(&have, &want))
}

/// The most ranges of a file that each tier can hold: those that it has, and
/// those that fit.
fn most_within_room(core: &Core, views: &[TierView], have: &[u64; TIERS], ranges: RangeSize) -> [u64; TIERS] {
    let mut most = *have;
    for view in views.iter().filter(|view| view.has_room) {
        let room = core.tiers.get(view.id).map_or(0, |tier| tier.room());
        most[usize::from(view.id.0)] += room / ranges.bytes();
    }
    most
}

/// The ranges, of so many, that rules and policy would give each tier for a new
/// file.
fn as_chosen(core: &Core, file: &File, ranges: RangeSize, count: u64, most: &[u64; TIERS]) -> [u64; TIERS] {
    let request = PlacementRequest::new(file, Origin::default(), WriteSpan::at_rest(file.size_now()));
    let mut credits = Credits::new(file.inode.ino.0, ranges.get());
    let views = core.tiers.views(0, 0);
    let mut want = [0; TIERS];
    for _ in 0..count {
        let full = (0..TIERS).filter(|at| want[*at] >= most[*at]);
        let full = full.fold(0, |full, at| full | bit(TierId(at as u8)));
        let Ok(choice) = choose(core, &request, &credits, full) else { break };
        choice.add_to(&mut credits, &views, ranges.bytes());
        want[usize::from(choice.tier.id.0)] += 1;
    }
    want
}

/// Caps shares at the room of the tiers: the excess goes to the others.
fn keep_within_room(
    core: &Core,
    views: &[TierView],
    have: &[u64; TIERS],
    want: &mut [u64; TIERS],
    ranges: RangeSize,
) {
    let is_full = |view: &&TierView| {
        view.has_room && core.tiers.get(view.id).is_ok_and(|tier| tier.room() < ranges.bytes())
    };
    let mut rest = 0;
    for view in views.iter().filter(is_full) {
        let at = usize::from(view.id.0);
        rest += want[at].saturating_sub(have[at]);
        want[at] = want[at].min(have[at]);
    }
    let others: Vec<&TierView> = views.iter().filter(|view| view.has_room && !is_full(view)).collect();
    let sum: f64 = others.iter().map(|view| view.weight).sum();
    let all = rest;
    for (at, view) in others.iter().enumerate() {
        let part = match at + 1 == others.len() {
            true => rest,
            false => ((all as f64 * view.weight / sum) as u64).min(rest),
        };
        want[usize::from(view.id.0)] += part;
        rest -= part;
    }
}

/// `part * whole / of`; 0 if `of` is 0.
fn in_proportion(part: u64, whole: u64, of: u64) -> u64 {
    (u128::from(part) * u128::from(whole) / u128::from(of.max(1))) as u64
}

/// Scales shares of `dealt` to shares of `count`.
fn scale(want: &mut [u64; TIERS], count: u64, dealt: u64) {
    let mut sum = 0;
    for share in want.iter_mut() {
        *share = in_proportion(*share, count, dealt);
        sum += *share;
    }
    if let Some(largest) = want.iter_mut().max() {
        *largest += count - sum;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tiers(ranges: &[u64]) -> [u64; TIERS] {
        std::array::from_fn(|at| ranges.get(at).copied().unwrap_or(0))
    }

    #[test]
    fn what_is_over_goes_where_it_lacks() {
        let mut shares = Shares::new(&tiers(&[40, 0, 0]), &tiers(&[20, 15, 5]));
        let mut got = [0; 3];
        for _ in 0..40 {
            match shares.take_from(TierId(0)) {
                Some(to) => got[usize::from(to.0)] += 1,
                None => got[0] += 1,
            }
        }
        assert_eq!(got, [20, 15, 5]);
        let mut shares = Shares::new(&tiers(&[40, 0]), &tiers(&[30, 10]));
        let gone: Vec<bool> = (0..40).map(|_| shares.take_from(TierId(0)).is_some()).collect();
        assert!(gone.chunks(4).all(|four| four.iter().filter(|gone| **gone).count() == 1), "{gone:?}");
        assert_eq!(shares.take_from(TierId(1)), None);
    }

    #[test]
    fn small_differences_are_left() {
        let mut shares = Shares::new(&tiers(&[3, 1]), &tiers(&[2, 2]));
        assert_eq!(shares.take_from(TierId(0)), None);
        let mut shares = Shares::new(&tiers(&[55, 45]), &tiers(&[50, 50]));
        assert_eq!(shares.take_from(TierId(0)), None);
        let mut shares = Shares::new(&tiers(&[56, 44]), &tiers(&[50, 50]));
        let gone = (0..56).filter_map(|_| shares.take_from(TierId(0)));
        assert_eq!(gone.collect::<Vec<_>>(), [TierId(1); 6]);
    }

    #[test]
    fn long_files_keep_the_proportion() {
        let mut want = tiers(&[3, 1]);
        scale(&mut want, 10_001, 4);
        assert_eq!((want[0], want[1]), (7501, 2500));
    }
}
