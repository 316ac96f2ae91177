//! How long an imbalance between tiers has to last before ranges move for it. A
//! tier that slows down and recovers again and again would make ranges go back
//! and forth: each change of direction doubles the time, up to a limit, and it
//! takes at least as long as the moves before took.

use braid_contract::TierId;

/// The tier that has too much to do, and the one that could do more.
type Tiers = (TierId, TierId);

/// How long an imbalance has to last at first, in nanoseconds.
const LASTING_NS: u64 = 2_000_000_000;
/// The longest time, where moves take no longer.
const LASTING_MAX_NS: u64 = 32_000_000_000;
/// It lasts although it was not seen for less than this: streams use tiers
/// unevenly.
const GAP_NS: u64 = 1_000_000_000;
/// A direction of moves counts for so long after the last of them.
const KNOWN_NS: u64 = 900_000_000_000;

/// The imbalance that was seen last.
#[derive(Debug, Default)]
pub(super) struct Imbalance {
    seen: Option<Seen>,
    moved: Option<Moved>,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    tiers: Tiers,
    since_ns: u64,
    last_ns: u64,
}

/// What ranges were moved for last.
#[derive(Clone, Copy, Debug)]
struct Moved {
    tiers: Tiers,
    at_ns: u64,
    /// How long that had to last.
    lasting_ns: u64,
    /// How long the moves took.
    took_ns: u64,
}

impl Imbalance {
    /// The tiers that it is between, if there is one.
    pub(super) fn tiers(&self) -> Option<Tiers> {
        self.seen.map(|seen| seen.tiers)
    }

    /// Notes what is seen now; answers whether that lasts for long enough.
    pub(super) fn lasts(&mut self, found: Option<Tiers>, now_ns: u64) -> bool {
        let lasting = self.seen.filter(|seen| match found {
            Some(tiers) => tiers == seen.tiers,
            None => now_ns.saturating_sub(seen.last_ns) < GAP_NS,
        });
        let since_ns = lasting.map_or(now_ns, |seen| seen.since_ns);
        self.seen = match found {
            Some(tiers) => Some(Seen { tiers, since_ns, last_ns: now_ns }),
            None => lasting,
        };
        found.is_some_and(|tiers| now_ns.saturating_sub(since_ns) >= self.patience(tiers, now_ns))
    }

    /// Notes that ranges were moved from the former to the latter, since `began_ns`.
    pub(super) fn put_right(&mut self, tiers: Tiers, began_ns: u64, now_ns: u64) {
        let before = self.moved.filter(|moved| moved.tiers == tiers);
        let lasting_ns = before.map_or_else(|| self.patience(tiers, now_ns), |moved| moved.lasting_ns);
        let took_ns = before.map_or(0, |moved| moved.took_ns) + now_ns.saturating_sub(began_ns);
        self.moved = Some(Moved { tiers, at_ns: now_ns, lasting_ns, took_ns });
    }

    /// How long an imbalance between these has to last.
    fn patience(&self, (from, to): Tiers, now_ns: u64) -> u64 {
        let known = self.moved.filter(|moved| now_ns.saturating_sub(moved.at_ns) < KNOWN_NS);
        match known {
            Some(moved) if moved.tiers == (to, from) => {
                (2 * moved.lasting_ns).min(LASTING_MAX_NS).max(moved.took_ns)
            }
            _ => LASTING_NS,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const THERE: Tiers = (TierId(0), TierId(1));
    const BACK: Tiers = (TierId(1), TierId(0));

    #[test]
    fn each_change_of_direction_takes_twice_as_long() {
        let mut imbalance = Imbalance::default();
        let mut waited = Vec::new();
        for (turn, tiers) in [THERE, BACK, THERE, BACK, BACK, THERE, BACK].into_iter().enumerate() {
            let begins = turn as u64 * 100;
            let second = (0..100).find(|second| imbalance.lasts(Some(tiers), (begins + second) * SECOND));
            waited.push(second.unwrap());
            // Several rounds in one direction are one change.
            for round in 0..3 {
                let began = (begins + 40 + round) * SECOND;
                imbalance.put_right(tiers, began, began + SECOND / 2);
            }
            assert!(!imbalance.lasts(None, (begins + 90) * SECOND));
        }
        assert_eq!(waited, [2, 4, 8, 16, 2, 32, 32]);
        // After a long time it is as if nothing had been moved.
        let later = 3000 * SECOND;
        assert!(!imbalance.lasts(Some(THERE), later) && imbalance.lasts(Some(THERE), later + 2 * SECOND));
    }

    #[test]
    fn moves_that_take_long_are_not_undone_soon() {
        let mut imbalance = Imbalance::default();
        for round in 0..30 {
            imbalance.put_right(THERE, 2 * round * SECOND, (2 * round + 2) * SECOND);
        }
        assert!(!imbalance.lasts(Some(BACK), 60 * SECOND));
        assert!(!imbalance.lasts(Some(BACK), 119 * SECOND));
        assert!(imbalance.lasts(Some(BACK), 120 * SECOND));
    }

    #[test]
    fn what_ends_in_between_does_not_last() {
        let mut imbalance = Imbalance::default();
        for tenth in 0..20 {
            let found = (tenth % 3 != 0).then_some(THERE);
            assert!(!imbalance.lasts(found, tenth * SECOND / 10), "{tenth}");
        }
        assert!(imbalance.lasts(Some(THERE), 22 * SECOND / 10), "but for a moment");
        let mut imbalance = Imbalance::default();
        for second in 0..20 {
            let found = (second % 2 == 0).then_some(THERE);
            assert!(!imbalance.lasts(found, second * SECOND), "{second}");
        }
        assert_eq!(imbalance.tiers(), None);
    }
}
