//! How long an imbalance between tiers has to last before ranges move for it, and
//! by which bandwidths they are dealt then.
//!
//! A tier that slows down and recovers again and again would make ranges go back
//! and forth. So the first change of direction takes longer than the first move;
//! from the second on, ranges are dealt by what the tiers do on average in both
//! states, where they can stay in either. Only a state that lasts for long has
//! them dealt by itself.

use braid_contract::TierId;
use std::collections::BTreeMap;

/// The tier that has too much to do, and the one that could do more.
type Tiers = (TierId, TierId);

/// Bytes a second of each tier.
pub(super) type Bandwidths = BTreeMap<TierId, f64>;

/// How long an imbalance has to last at first, in nanoseconds.
const LASTING_NS: u64 = 2_000_000_000;
/// The same for the first change of direction.
const TURN_NS: u64 = 4_000_000_000;
/// The same for moves half way, from the second change of direction on.
const HALF_WAY_NS: u64 = 8_000_000_000;
/// The same for moves all the way, once tiers were seen to change back and forth;
/// and for as long again as such moves took.
const ALL_THE_WAY_NS: u64 = 45_000_000_000;
/// Moves that took longer than this count as long as this.
const TOOK_MAX_NS: u64 = 120_000_000_000;
/// It lasts although it was not seen for less than this: streams use tiers
/// unevenly.
const GAP_NS: u64 = 1_000_000_000;
/// Moves count for so long after the last of them.
const KNOWN_NS: u64 = 900_000_000_000;

/// The imbalance that was seen last.
#[derive(Debug, Default)]
pub(super) struct Imbalance {
    seen: Option<Seen>,
    moved: Option<Moved>,
}

/// By which bandwidths ranges in use are dealt.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Aim {
    /// Those of now.
    Now,
    /// The mean of those that the tiers have in turn.
    Mean(Bandwidths),
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    tiers: Tiers,
    since_ns: u64,
    last_ns: u64,
}

/// What ranges were moved for.
#[derive(Clone, Debug, Default)]
struct Moved {
    /// Whether a tier gave ranges in the last direction, or took them.
    gave: BTreeMap<TierId, bool>,
    /// What the tiers did then.
    bandwidths: Bandwidths,
    at_ns: u64,
    /// How long the moves took.
    took_ns: u64,
    /// Changes of direction before.
    turns: u32,
    /// What the tiers do on average, if ranges were dealt by that since.
    mean: Option<Bandwidths>,
}

impl Seen {
    /// Whether the same tiers have too much, or too little, for this one.
    fn goes_on(&self, (from, to): Tiers) -> bool {
        from != self.tiers.1 && to != self.tiers.0
    }
}

impl Moved {
    fn is_undone_by(&self, (from, to): Tiers) -> bool {
        self.gave.get(&to) == Some(&true) && self.gave.get(&from) == Some(&false)
    }
}

impl Imbalance {
    /// The tiers that it is between, if there is one.
    pub(super) fn tiers(&self) -> Option<Tiers> {
        self.seen.map(|seen| seen.tiers)
    }

    /// Notes what is seen now; answers how ranges are to be dealt if that lasts
    /// for long enough.
    pub(super) fn lasts(&mut self, found: Option<(Tiers, &Bandwidths)>, now_ns: u64) -> Option<Aim> {
        let lasting = self.seen.filter(|seen| match found {
            Some((tiers, _)) => seen.goes_on(tiers),
            None => now_ns.saturating_sub(seen.last_ns) < GAP_NS,
        });
        let Some((tiers, bandwidths)) = found else {
            self.seen = lasting;
            return None;
        };
        let since_ns = lasting.map_or(now_ns, |seen| seen.since_ns);
        self.seen = Some(Seen { tiers, since_ns, last_ns: now_ns });
        self.moved = self.moved.take().filter(|moved| now_ns.saturating_sub(moved.at_ns) < KNOWN_NS);
        if lasting.is_none()
            && let Some(moved) = self.moved.as_mut().filter(|moved| moved.mean.is_some())
        {
            // The tiers still change, and it still counts.
            moved.at_ns = now_ns;
        }
        self.aim(tiers, bandwidths, now_ns.saturating_sub(since_ns))
    }

    /// How ranges are to be dealt for an imbalance that has lasted for so long.
    fn aim(&self, tiers: Tiers, bandwidths: &Bandwidths, lasted_ns: u64) -> Option<Aim> {
        if lasted_ns < LASTING_NS {
            return None;
        }
        let Some(moved) = &self.moved else { return Some(Aim::Now) };
        let undone = moved.is_undone_by(tiers);
        // What took long is not undone soon.
        let lasts = |ns: u64| lasted_ns >= ns.max(moved.took_ns);
        if moved.mean.is_none() && (!undone || moved.turns == 0) {
            return (!undone || lasts(TURN_NS)).then_some(Aim::Now);
        }
        if lasts(ALL_THE_WAY_NS + moved.took_ns) {
            return Some(Aim::Now);
        }
        let mean = || moved.mean.clone().unwrap_or_else(|| mean(bandwidths, &moved.bandwidths));
        lasts(HALF_WAY_NS).then(|| Aim::Mean(mean()))
    }

    /// Notes that ranges were moved from the former to the latter, since `began_ns`.
    pub(super) fn put_right(
        &mut self,
        tiers: Tiers,
        aim: Aim,
        bandwidths: Bandwidths,
        [began_ns, now_ns]: [u64; 2],
    ) {
        let moved = self.moved.get_or_insert_default();
        moved.at_ns = now_ns;
        match aim {
            Aim::Mean(mean) => moved.mean = Some(mean),
            Aim::Now => {
                if moved.is_undone_by(tiers) {
                    moved.turns += 1;
                    moved.took_ns = 0;
                    moved.gave.clear();
                }
                moved.gave.extend([(tiers.0, true), (tiers.1, false)]);
                moved.took_ns = (moved.took_ns + now_ns.saturating_sub(began_ns)).min(TOOK_MAX_NS);
                (moved.bandwidths, moved.mean) = (bandwidths, None);
            }
        }
    }
}

/// The mean of both, for the tiers of the former.
fn mean(now: &Bandwidths, then: &Bandwidths) -> Bandwidths {
    now.iter().map(|(id, now)| (*id, (now + then.get(id).unwrap_or(now)) / 2.0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const THERE: Tiers = (TierId(0), TierId(1));
    const BACK: Tiers = (TierId(1), TierId(0));

    fn bandwidths(tiers: Tiers) -> Bandwidths {
        // The one that has too much has become slow.
        [(tiers.0, 100.0), (tiers.1, 300.0)].into()
    }

    /// Lets the imbalance last from the second `begins` on until it moves
    /// something, or for so long; answers after how many seconds, and the aim.
    fn wait(imbalance: &mut Imbalance, tiers: Tiers, begins: u64, seconds: u64) -> Option<(u64, Aim)> {
        (0..seconds).find_map(|second| {
            let aim = imbalance.lasts(Some((tiers, &bandwidths(tiers))), (begins + second) * SECOND)?;
            Some((second, aim))
        })
    }

    fn put_right(imbalance: &mut Imbalance, tiers: Tiers, aim: &Aim, second: u64) {
        // Several rounds in one direction are one change.
        for round in 0..3 {
            let began = (second + round) * SECOND;
            imbalance.put_right(tiers, aim.clone(), bandwidths(tiers), [began, began + SECOND / 2]);
        }
    }

    #[test]
    fn a_tier_that_changes_again_and_again_has_ranges_dealt_by_the_mean() {
        let mut imbalance = Imbalance::default();
        let mut turn = |tiers: Tiers, begins: u64, seconds: u64| {
            let found = wait(&mut imbalance, tiers, begins, seconds);
            if let Some((second, aim)) = &found {
                put_right(&mut imbalance, tiers, aim, begins + second);
            }
            found
        };
        let mean = Aim::Mean([(TierId(0), 200.0), (TierId(1), 200.0)].into());
        assert_eq!(turn(THERE, 0, 30), Some((2, Aim::Now)));
        assert_eq!(turn(BACK, 100, 30), Some((4, Aim::Now)));
        assert_eq!(turn(THERE, 200, 30), Some((8, mean.clone())));
        // There they stay in either state, also after many changes.
        for phase in 0..100 {
            let tiers = if phase % 2 == 0 { BACK } else { THERE };
            let aim = wait(&mut imbalance, tiers, 300 + 30 * phase, 30);
            assert_eq!(aim, Some((8, mean.clone())), "{phase}");
        }
        // A state that lasts has its own, and the next change half of it. That
        // holds also where nothing has to be moved half way.
        for (begins, tiers, waited) in [(4000, BACK, 47), (4200, THERE, 48)] {
            let lasting = (begins..).find(|second| {
                imbalance.lasts(Some((tiers, &bandwidths(tiers))), second * SECOND) == Some(Aim::Now)
            });
            // Moves back had taken one and a half seconds, once and twice.
            assert_eq!(lasting, Some(begins + waited));
            put_right(&mut imbalance, tiers, &Aim::Now, begins + waited);
            let other = if tiers == BACK { THERE } else { BACK };
            let found = wait(&mut imbalance, other, begins + 100, 30);
            assert_eq!(found, Some((8, mean.clone())));
            assert_eq!(imbalance.lasts(None, (begins + 150) * SECOND), None);
        }
        // After a long time it is as if nothing had been moved.
        assert_eq!(wait(&mut imbalance, BACK, 9000, 30), Some((2, Aim::Now)));
    }

    #[test]
    fn a_third_tier_that_gives_or_takes_too_changes_nothing() {
        let (also_there, also_back) = ((TierId(0), TierId(2)), (TierId(2), TierId(0)));
        let mut imbalance = Imbalance::default();
        for (begins, tiers, also, waited) in
            [(0, THERE, also_there, 2), (100, BACK, also_back, 4), (200, THERE, also_there, 8)]
        {
            let (second, aim) = wait(&mut imbalance, tiers, begins, 30).unwrap();
            assert_eq!(second, waited);
            put_right(&mut imbalance, tiers, &aim, begins + second);
            // The imbalance goes on, and need not last anew.
            let (second, aim) = wait(&mut imbalance, also, begins + waited + 1, 30).unwrap();
            assert_eq!(second, 0);
            put_right(&mut imbalance, also, &aim, begins + waited + 1);
        }
        // What passes ranges on does not undo anything.
        let mut imbalance = Imbalance::default();
        for (begins, tiers) in [(0, BACK), (100, also_back), (200, (TierId(2), TierId(1)))] {
            assert_eq!(wait(&mut imbalance, tiers, begins, 30), Some((2, Aim::Now)));
            put_right(&mut imbalance, tiers, &Aim::Now, begins + 2);
            assert_eq!(imbalance.lasts(None, (begins + 90) * SECOND), None);
        }
    }

    #[test]
    fn moves_that_take_long_are_not_undone_soon() {
        let mut imbalance = Imbalance::default();
        for round in 0..30 {
            let times = [2 * round * SECOND, (2 * round + 2) * SECOND];
            imbalance.put_right(THERE, Aim::Now, bandwidths(THERE), times);
        }
        assert_eq!(wait(&mut imbalance, BACK, 60, 90), Some((60, Aim::Now)));
    }

    #[test]
    fn what_ends_in_between_does_not_last() {
        let bandwidths = bandwidths(THERE);
        let lasts = |imbalance: &mut Imbalance, found: bool, now_ns| {
            imbalance.lasts(found.then_some((THERE, &bandwidths)), now_ns).is_some()
        };
        let mut imbalance = Imbalance::default();
        for tenth in 0..20 {
            assert!(!lasts(&mut imbalance, tenth % 3 != 0, tenth * SECOND / 10), "{tenth}");
        }
        assert!(lasts(&mut imbalance, true, 22 * SECOND / 10), "but for a moment");
        let mut imbalance = Imbalance::default();
        for second in 0..20 {
            assert!(!lasts(&mut imbalance, second % 2 == 0, second * SECOND), "{second}");
        }
        assert_eq!(imbalance.tiers(), None);
    }
}
