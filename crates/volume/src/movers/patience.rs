//! How long an imbalance between tiers has to last before ranges move for it, and
//! by which bandwidths they are dealt then.
//!
//! A tier that slows down and recovers again and again would make ranges go back
//! and forth. So the first change of direction takes longer than the first move;
//! from the second on, ranges are dealt by the tiers' average bandwidth in both
//! states, and can stay there in either. Only a state that lasts for long has them
//! dealt by itself, and the more often that was in vain, the longer it takes.

use braid_contract::TierId;
use std::collections::BTreeMap;

/// The tier that has too much to do, and the one that could do more.
type Tiers = (TierId, TierId);

/// Bytes a second of each tier, read and written.
pub(super) type Bandwidths = BTreeMap<TierId, [f64; 2]>;

/// How long an imbalance has to last at first, in nanoseconds.
const LASTING_NS: u64 = 2_000_000_000;
/// The same for the first change of direction.
const TURN_NS: u64 = 4_000_000_000;
/// The same for moves half way, from the second change of direction on.
const HALF_WAY_NS: u64 = 8_000_000_000;
/// The same for moves all the way then; twice as long after each change of
/// direction, up to a limit.
const ALL_THE_WAY_NS: u64 = 45_000_000_000;
const ALL_THE_WAY_MAX_NS: u64 = 16 * ALL_THE_WAY_NS;
/// Moves that took longer than this count as long as this.
const TOOK_MAX_NS: u64 = 120_000_000_000;
/// It lasts although it was not seen for less than this: streams use tiers
/// unevenly.
const GAP_NS: u64 = 1_000_000_000;
/// It is another one if there was no look for this long.
const LOOK_NS: u64 = 5_000_000_000;
/// Moves count for so long after the last of them, or after the last change.
const KNOWN_NS: u64 = 900_000_000_000;
/// A tier is in one of two states if it does as much as in them, or up to this
/// part less or more.
const STATE: f64 = 0.25;

/// The imbalance that was seen last.
#[derive(Debug, Default)]
pub(super) struct Imbalance {
    seen: Option<Seen>,
    /// The tiers of the last one that began.
    began: Option<Tiers>,
    moved: Option<Moved>,
}

/// By which bandwidths ranges in use are dealt.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Aim {
    /// Those of now.
    Now,
    /// The mean of those that the tiers have in turn, which are these.
    Mean([Bandwidths; 2]),
}

/// Whether a tier gives ranges, or takes them.
#[derive(Clone, Debug, Default)]
struct Roles(BTreeMap<TierId, bool>);

#[derive(Clone, Debug)]
struct Seen {
    tiers: Tiers,
    roles: Roles,
    since_ns: u64,
    last_ns: u64,
}

/// The reason for which ranges were moved.
#[derive(Clone, Debug, Default)]
struct Moved {
    /// Those in the last direction.
    roles: Roles,
    /// The tiers' bandwidths then.
    bandwidths: Bandwidths,
    at_ns: u64,
    /// How long the moves took.
    took_ns: u64,
    /// Changes of direction before.
    turns: u32,
    /// The tiers' states, if ranges were dealt by their mean since.
    states: Option<[Bandwidths; 2]>,
}

impl Roles {
    /// The first role that a tier has stays: it may pass on the ranges that it
    /// gets.
    fn add(&mut self, (from, to): Tiers) {
        self.0.entry(from).or_insert(true);
        self.0.entry(to).or_insert(false);
    }

    fn gives(&self, tier: TierId) -> bool {
        self.0.get(&tier) == Some(&true)
    }

    fn takes(&self, tier: TierId) -> bool {
        self.0.get(&tier) == Some(&false)
    }

    /// Whether ranges that go from the former to the latter go back.
    fn are_undone_by(&self, (from, to): Tiers) -> bool {
        self.gives(to) && self.takes(from)
    }
}

impl Imbalance {
    /// The tiers that it is between, if there is one.
    pub(super) fn tiers(&self) -> Option<Tiers> {
        self.seen.as_ref().map(|seen| seen.tiers)
    }

    /// Whether ranges were moved and moved back.
    pub(super) fn turns_round(&self) -> bool {
        self.moved.as_ref().is_some_and(|moved| moved.turns > 0)
    }

    /// Notes the present imbalance; answers how ranges are to be dealt if it
    /// lasts for long enough.
    pub(super) fn lasts(&mut self, found: Option<(Tiers, &Bandwidths)>, now_ns: u64) -> Option<Aim> {
        let lasting = self.seen.take().filter(|seen| {
            let ago_ns = now_ns.saturating_sub(seen.last_ns);
            match found {
                Some(((from, to), _)) => ago_ns < LOOK_NS && !seen.roles.takes(from) && !seen.roles.gives(to),
                None => ago_ns < GAP_NS,
            }
        });
        let Some((tiers, bandwidths)) = found else {
            self.seen = lasting;
            return None;
        };
        self.moved = self.moved.take().filter(|moved| now_ns.saturating_sub(moved.at_ns) < KNOWN_NS);
        if lasting.is_none() {
            self.begins(tiers, now_ns);
        }
        let roles = Roles::default();
        let mut seen = lasting.unwrap_or(Seen { tiers, roles, since_ns: now_ns, last_ns: now_ns });
        (seen.tiers, seen.last_ns) = (tiers, now_ns);
        seen.roles.add(tiers);
        let since_ns = seen.since_ns;
        self.seen = Some(seen);
        self.aim(tiers, bandwidths, now_ns.saturating_sub(since_ns))
    }

    /// Another imbalance than before begins. If that is the other way round, the
    /// tiers go on changing back and forth.
    fn begins(&mut self, (from, to): Tiers, now_ns: u64) {
        let before = self.began.replace((from, to));
        if before.is_some_and(|before| before.0 == to || before.1 == from)
            && let Some(moved) = self.moved.as_mut().filter(|moved| moved.turns > 0)
        {
            moved.at_ns = now_ns;
        }
    }

    /// The mover was at work for so long, which is no gap in the observations.
    pub(super) fn looked_away(&mut self, ns: u64) {
        if let Some(seen) = &mut self.seen {
            seen.last_ns += ns;
        }
    }

    /// How ranges are to be dealt for an imbalance that has lasted for so long.
    fn aim(&self, tiers: Tiers, now: &Bandwidths, lasted_ns: u64) -> Option<Aim> {
        if lasted_ns < LASTING_NS {
            return None;
        }
        let Some(moved) = &self.moved else { return Some(Aim::Now) };
        let undone = moved.roles.are_undone_by(tiers);
        let states = moved.states.as_ref().filter(|states| are_states(states, now));
        // Long moves are not undone soon.
        let lasts = |ns: u64| lasted_ns >= ns.max(moved.took_ns);
        if states.is_none() && (!undone || moved.turns == 0) {
            return (!undone || lasts(TURN_NS)).then_some(Aim::Now);
        }
        if lasts(moved.all_the_way_ns()) {
            return Some(Aim::Now);
        }
        let both = || [now.clone(), moved.bandwidths.clone()];
        lasts(HALF_WAY_NS).then(|| Aim::Mean(states.cloned().unwrap_or_else(both)))
    }

    /// Notes that ranges were moved from the former to the latter, since `began_ns`.
    pub(super) fn put_right(
        &mut self,
        tiers: Tiers,
        aim: Aim,
        bandwidths: Bandwidths,
        [began_ns, now_ns]: [u64; 2],
    ) {
        self.looked_away(now_ns.saturating_sub(began_ns));
        let moved = self.moved.get_or_insert_default();
        moved.at_ns = now_ns;
        match aim {
            Aim::Mean(states) => moved.states = Some(states),
            Aim::Now => {
                if moved.roles.are_undone_by(tiers) {
                    (moved.turns, moved.took_ns) = (moved.turns + 1, 0);
                    moved.roles = Roles::default();
                }
                moved.roles.add(tiers);
                moved.took_ns = (moved.took_ns + now_ns.saturating_sub(began_ns)).min(TOOK_MAX_NS);
                (moved.bandwidths, moved.states) = (bandwidths, None);
            }
        }
    }
}

impl Moved {
    /// How long a state has to last until ranges are dealt by it alone.
    fn all_the_way_ns(&self) -> u64 {
        let doubled = ALL_THE_WAY_NS << self.turns.saturating_sub(1).min(8);
        doubled.min(ALL_THE_WAY_MAX_NS) + self.took_ns
    }
}

impl Aim {
    /// The bandwidths by which ranges are dealt, where those of now are these.
    pub(super) fn bandwidths(&self, now: &Bandwidths) -> Bandwidths {
        let Self::Mean([one, other]) = self else { return now.clone() };
        let mean = |(id, now): (&TierId, &[f64; 2])| {
            let [one, other] = [one, other].map(|state| state.get(id).unwrap_or(now));
            (*id, [0, 1].map(|at| (one[at] + other[at]) / 2.0))
        };
        now.iter().map(mean).collect()
    }
}

/// Whether the tiers are the same, and do about as much as in these states, or
/// something in between.
fn are_states([one, other]: &[Bandwidths; 2], now: &Bandwidths) -> bool {
    let is_within = |now: f64, one: f64, other: f64| {
        now >= (1.0 - STATE) * one.min(other) && now <= (1.0 + STATE) * one.max(other)
    };
    one.keys().eq(now.keys())
        && now.iter().all(|(id, now)| {
            let states = one.get(id).zip(other.get(id));
            states.is_some_and(|(one, other)| (0..2).all(|at| is_within(now[at], one[at], other[at])))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const THERE: Tiers = (TierId(0), TierId(1));
    const BACK: Tiers = (TierId(1), TierId(0));

    /// The first tier is slow, or it is not.
    fn state(slow: bool) -> Bandwidths {
        [(TierId(0), [if slow { 133.0 } else { 400.0 }, 200.0]), (TierId(1), [120.0, 60.0])].into()
    }

    /// Sees the imbalance from the second `begins` on, until it is to be moved for,
    /// or for so long; answers after how many seconds that is, and the aim.
    fn wait(imbalance: &mut Imbalance, tiers: Tiers, begins: u64, seconds: u64) -> Option<(u64, Aim)> {
        wait_in(imbalance, tiers, &state(tiers == THERE), begins, seconds)
    }

    fn wait_in(
        imbalance: &mut Imbalance,
        tiers: Tiers,
        now: &Bandwidths,
        begins: u64,
        seconds: u64,
    ) -> Option<(u64, Aim)> {
        (0..seconds).find_map(|second| {
            let aim = imbalance.lasts(Some((tiers, now)), (begins + second) * SECOND)?;
            Some((second, aim))
        })
    }

    fn put_right(imbalance: &mut Imbalance, tiers: Tiers, aim: &Aim, second: u64) {
        // Several rounds in one direction are one change.
        for round in 0..3 {
            let began = (second + round) * SECOND;
            imbalance.put_right(tiers, aim.clone(), state(tiers == THERE), [began, began + SECOND / 2]);
        }
    }

    /// Phases of so many seconds, in which ranges are moved as is due; how often
    /// that is all the way.
    fn phases(imbalance: &mut Imbalance, begins: u64, seconds: u64, count: u64) -> u32 {
        let mut all_the_way = 0;
        for phase in 0..count {
            let tiers = if phase % 2 == 0 { THERE } else { BACK };
            let (mut at, end) = (begins + phase * seconds, begins + (phase + 1) * seconds);
            while let Some((second, aim)) = wait(imbalance, tiers, at, end - at) {
                let is_mean = aim != Aim::Now;
                put_right(imbalance, tiers, &aim, at + second);
                // By the mean, nothing more is to be moved.
                at += second + 1;
                if !is_mean {
                    all_the_way += 1;
                    break;
                }
            }
        }
        all_the_way
    }

    /// Two changes, after which tiers are known to change back and forth.
    fn changing() -> Imbalance {
        let mut imbalance = Imbalance::default();
        for (begins, tiers, waited) in [(0, THERE, 2), (100, BACK, 4)] {
            assert_eq!(wait(&mut imbalance, tiers, begins, 30), Some((waited, Aim::Now)));
            put_right(&mut imbalance, tiers, &Aim::Now, begins + waited);
        }
        imbalance
    }

    fn mean() -> Aim {
        Aim::Mean([state(true), state(false)])
    }

    #[test]
    fn a_tier_that_changes_again_and_again_has_ranges_dealt_by_the_mean() {
        let mut imbalance = changing();
        assert_eq!(wait(&mut imbalance, THERE, 200, 30), Some((8, mean())));
        put_right(&mut imbalance, THERE, &mean(), 208);
        // There they stay in either state, also after many changes.
        for phase in 0..100 {
            let tiers = if phase % 2 == 0 { BACK } else { THERE };
            assert_eq!(wait(&mut imbalance, tiers, 300 + 30 * phase, 30), Some((8, mean())), "{phase}");
        }
        let dealt = mean().bandwidths(&state(true));
        assert_eq!(dealt[&TierId(0)], [(133.0 + 400.0) / 2.0, 200.0]);
        assert_eq!(dealt[&TierId(1)], [120.0, 60.0]);
        // A state that lasts has its own; the moves back had taken 1.5 seconds.
        let lasting = (4000..)
            .find(|second| imbalance.lasts(Some((BACK, &state(false))), second * SECOND) == Some(Aim::Now));
        assert_eq!(lasting, Some(4047));
        put_right(&mut imbalance, BACK, &Aim::Now, 4047);
        assert_eq!(wait(&mut imbalance, THERE, 4100, 30), Some((8, mean())));
        // After a long time it is as if nothing had been moved.
        assert_eq!(wait(&mut imbalance, BACK, 9000, 30), Some((2, Aim::Now)));
    }

    #[test]
    fn ranges_do_not_follow_changes_of_any_length_for_ever() {
        for (seconds, most) in [(10, 3), (30, 2), (60, 4), (120, 6), (300, 8)] {
            let all_the_way = phases(&mut Imbalance::default(), 0, seconds, 40);
            assert!((2..=most).contains(&all_the_way), "{seconds}: {all_the_way}");
        }
    }

    #[test]
    fn a_change_that_is_not_one_of_the_two_is_followed() {
        let mut imbalance = changing();
        put_right(&mut imbalance, THERE, &mean(), 208);
        assert_eq!(imbalance.lasts(None, 250 * SECOND), None);
        // A third tier came, one of the two became slower than it ever was, or
        // writes change as never before.
        let third = [(TierId(0), [133.0, 200.0]), (TierId(1), [120.0; 2]), (TierId(2), [50.0; 2])].into();
        let slower = [(TierId(0), [400.0, 200.0]), (TierId(1), [12.0, 60.0])].into();
        let written = [(TierId(0), [400.0, 20.0]), (TierId(1), [120.0, 60.0])].into();
        for (begins, now) in [(300, third), (310, slower), (320, written)] {
            assert_eq!(wait_in(&mut imbalance, BACK, &now, begins, 30), Some((2, Aim::Now)));
            assert_eq!(imbalance.lasts(None, (begins + 9) * SECOND), None);
        }
    }

    #[test]
    fn bursts_of_work_in_a_state_that_stays_are_no_changes() {
        let mut imbalance = changing();
        put_right(&mut imbalance, THERE, &mean(), 208);
        let all_the_way = (0..100).find(|burst| {
            let found = wait(&mut imbalance, THERE, 300 + 30 * burst, 20);
            let stays = found.is_some_and(|(_, aim)| aim == Aim::Now);
            assert_eq!(imbalance.lasts(None, (325 + 30 * burst) * SECOND), None);
            stays
        });
        assert!(all_the_way.is_some_and(|burst| burst <= 31), "{all_the_way:?}");
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
        // Ranges that are passed on undo nothing; the way back does, whatever
        // came in between.
        let mut imbalance = Imbalance::default();
        for (begins, tiers) in [(0, BACK), (100, also_back), (200, (TierId(2), TierId(1)))] {
            assert_eq!(wait(&mut imbalance, tiers, begins, 30), Some((2, Aim::Now)));
            put_right(&mut imbalance, tiers, &Aim::Now, begins + 2);
            assert_eq!(imbalance.lasts(None, (begins + 90) * SECOND), None);
        }
        assert_eq!(wait(&mut imbalance, THERE, 300, 30), Some((5, Aim::Now)), "the moves took 4.5 s");
        let passed_on = [THERE, (TierId(2), TierId(1)), also_back];
        let mut imbalance = changing();
        for (second, tiers) in passed_on.into_iter().enumerate() {
            imbalance.lasts(Some((tiers, &state(true))), (300 + second as u64) * SECOND);
        }
        assert_eq!(imbalance.lasts(Some((BACK, &state(false))), 303 * SECOND), None, "it began now");
    }

    #[test]
    fn moves_that_take_long_are_not_undone_soon() {
        let mut imbalance = Imbalance::default();
        for round in 0..30 {
            let times = [2 * round * SECOND, (2 * round + 2) * SECOND];
            imbalance.put_right(THERE, Aim::Now, state(true), times);
        }
        assert_eq!(wait(&mut imbalance, BACK, 60, 90), Some((60, Aim::Now)));
    }

    #[test]
    fn what_ends_in_between_does_not_last() {
        let now = state(true);
        let lasts = |imbalance: &mut Imbalance, found: bool, now_ns| {
            imbalance.lasts(found.then_some((THERE, &now)), now_ns).is_some()
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
        // The mover did not look for long.
        assert!(!lasts(&mut imbalance, true, 30 * SECOND) && !lasts(&mut imbalance, true, 60 * SECOND));
        // It was at work, which takes a while.
        imbalance.looked_away(2 * SECOND);
        assert!(!lasts(&mut imbalance, false, 62 * SECOND + 1) && lasts(&mut imbalance, true, 63 * SECOND));
        // But it sees that nothing is wrong any more.
        (0..30).for_each(|tenth| {
            imbalance.lasts(None, 63 * SECOND + tenth * SECOND / 10);
            imbalance.looked_away(0);
        });
        assert_eq!(imbalance.tiers(), None);
    }
}
