//! Online k-means: each kind of files is of one centre, and moves it towards its own
//! figures with each report. A centre of one kind follows it. A kind that is far from
//! all centres gets one of its own, until there are too many; then the two that are
//! closest become one for a kind that is farther away.

use super::features::{FIGURES, Figures, Known, UNKNOWN, figures, known_distance, life_ns};

/// A centre of several kinds remembers about so many figures.
const MEMORY: f32 = 16.0;
/// How far a kind has to be from all centres to get one of its own, squared: as lives
/// that differ by a factor of four are.
const APART: f32 = 0.08;
/// How far a file may be from a centre by its first known figures, squared, to
/// belong to it: most of its path is the same.
const LIKE: f32 = 0.018;
/// How far it may be if all of its path and writer are the same.
const SAME: f32 = 0.003;
/// How near two centres have to be to become one, where there are more kinds than
/// centres, squared.
const NEAR: f32 = 0.04;
/// Files that ended of a kind whose life is known.
const ENDED: f32 = 4.0;
/// How many times as close another centre has to be for a kind to leave its own.
const CLOSER: f32 = 2.0;

/// The centres of clusters, by the numbers of streams.
#[derive(Clone, Debug)]
pub(super) struct Clusters {
    most: usize,
    centres: Vec<Centre>,
}

#[derive(Clone, Copy, Debug)]
struct Centre {
    at: Figures,
    seen: f32,
    /// Kinds that are of it. Without any, its place is free.
    kinds: u32,
    /// The life of its files is known.
    is_sure: bool,
}

/// Where a kind belongs now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Joined {
    /// Its centre.
    pub(super) centre: usize,
    /// A centre that is gone, and the one that its kinds are of instead.
    pub(super) merged: Option<(usize, usize)>,
}

fn distance(one: &Figures, other: &Figures) -> f32 {
    (0..FIGURES).map(|at| (one[at] - other[at]).powi(2)).sum()
}

impl Clusters {
    pub(super) fn new(most: usize) -> Self {
        Self { most: most.max(1), centres: Vec::new() }
    }

    /// The nearest centre; `None` if there is none.
    pub(super) fn nearest(&self, figures: &Figures) -> Option<usize> {
        self.least(|centre| distance(&centre.at, figures)).map(|(at, _)| at)
    }

    /// The nearest centre by the first known figures; `None` if none is near.
    pub(super) fn like(&self, known: &Known) -> Option<usize> {
        let found = self.least(|centre| known_distance(&centre.at, known));
        found.filter(|(_, apart)| *apart < LIKE).map(|(at, _)| at)
    }

    /// The place that a kind of which nothing else is known would get now; `None` if
    /// none is free, and none is of kinds like it.
    pub(super) fn place_for(&self, known: &Known) -> Option<usize> {
        let found = self.least(|centre| known_distance(&centre.at, known));
        match found {
            Some((at, apart)) if apart <= SAME => Some(at),
            _ => self.free_place(),
        }
    }

    /// A kind of which nothing else is known gets a [place](Self::place_for); answers
    /// that.
    pub(super) fn begins(&mut self, known: &Known) -> Option<usize> {
        let centre = self.place_for(known)?;
        match self.centres.get_mut(centre) {
            Some(joined) if joined.kinds > 0 => joined.kinds += 1,
            _ => self.put(centre, &figures(0.0, &UNKNOWN, known)),
        }
        Some(centre)
    }

    /// A kind is remembered that was of this centre; answers the one that it is of now.
    pub(super) fn restore(&mut self, centre: usize, figures: &Figures, ended: f32) -> Option<usize> {
        if centre >= self.most {
            return None;
        }
        let empty = Centre { at: *figures, seen: 0.0, kinds: 0, is_sure: false };
        self.centres.resize(self.centres.len().max(centre + 1), empty);
        let joined = &mut self.centres[centre];
        joined.takes(figures, 1.0);
        joined.kinds += 1;
        joined.is_sure = ended >= ENDED;
        Some(centre)
    }

    /// A kind is forgotten that was of this centre.
    pub(super) fn leaves(&mut self, centre: usize) {
        if let Some(left) = self.centres.get_mut(centre) {
            left.kinds = left.kinds.saturating_sub(1);
        }
    }

    /// How long the files of each are expected to live, in nanoseconds.
    pub(super) fn lives_ns(&self) -> impl Iterator<Item = u64> + '_ {
        self.centres.iter().map(|centre| life_ns(&centre.at))
    }

    /// Learns the figures of a kind that is of this centre.
    pub(super) fn learn(&mut self, figures: &Figures, ended: f32, of: Option<usize>) -> Joined {
        let joined = self.join(figures, of);
        self.centres[joined.centre].is_sure = ended >= ENDED;
        joined
    }

    fn join(&mut self, figures: &Figures, of: Option<usize>) -> Joined {
        let stays = |centre| Joined { centre, merged: None };
        if let Some(alone) = of.filter(|of| self.centres[*of].kinds == 1) {
            self.centres[alone].at = *figures;
            return stays(alone);
        }
        let Some((nearest, apart)) = self.least(|centre| distance(&centre.at, figures)) else {
            self.put(0, figures);
            return stays(0);
        };
        let mut joined = stays(nearest);
        if apart > APART
            && let Some(found) = self.room_for(apart)
        {
            joined = found;
            self.put(joined.centre, figures);
        } else {
            if let Some(of) = of.filter(|of| distance(&self.centres[*of].at, figures) <= apart * CLOSER) {
                joined.centre = of;
            }
            let centre = &mut self.centres[joined.centre];
            centre.takes(figures, 1.0);
            centre.kinds += 1;
        }
        if let Some(of) = of {
            let now = joined.merged.filter(|(from, _)| *from == of).map_or(of, |(_, into)| into);
            self.leaves(now);
        }
        joined
    }

    fn put(&mut self, at: usize, figures: &Figures) {
        let centre = Centre { at: *figures, seen: 1.0, kinds: 1, is_sure: false };
        match self.centres.get_mut(at) {
            Some(place) => *place = centre,
            None => self.centres.push(centre),
        }
    }

    /// The centre with kinds of which a figure is least, and that.
    fn least(&self, figure: impl Fn(&Centre) -> f32) -> Option<(usize, f32)> {
        let taken = self.centres.iter().enumerate().filter(|(_, centre)| centre.kinds > 0);
        taken.map(|(at, centre)| (at, figure(centre))).min_by(|(_, one), (_, other)| one.total_cmp(other))
    }

    fn free_place(&self) -> Option<usize> {
        let count = self.centres.len();
        let left = self.centres.iter().position(|centre| centre.kinds == 0);
        left.or((count < self.most).then_some(count))
    }

    /// The place for one more centre, which is so far from all others, if there may be
    /// one: a free one, or that of a centre that became one with another. The others
    /// keep their places, which are the numbers of streams.
    fn room_for(&mut self, apart: f32) -> Option<Joined> {
        if let Some(centre) = self.free_place() {
            return Some(Joined { centre, merged: None });
        }
        let merged = self.merge(|centre| centre.kinds > 0, apart / CLOSER)?;
        Some(Joined { centre: merged.0, merged: Some(merged) })
    }

    /// Where there are more kinds than centres, those whose files live alike become
    /// one: it need not be known whose they are. Answers the one that is gone, and the
    /// other.
    pub(super) fn merge_near(&mut self) -> Option<(usize, usize)> {
        let kinds: u32 = self.centres.iter().map(|centre| centre.kinds).sum();
        let is_crowded = kinds as usize > self.most;
        is_crowded.then(|| self.merge(|centre| centre.kinds > 0 && centre.is_sure, NEAR)).flatten()
    }

    /// The two closest centres of some become one, if they are nearer than that. Answers
    /// the one that is gone, and the other.
    fn merge(&mut self, of: impl Fn(&Centre) -> bool, near: f32) -> Option<(usize, usize)> {
        let count = self.centres.len();
        let gap = |(one, other): (usize, usize)| distance(&self.centres[one].at, &self.centres[other].at);
        let is_one = |at: &usize| of(&self.centres[*at]);
        let pairs = (0..count)
            .filter(is_one)
            .flat_map(|one| (one + 1..count).filter(is_one).map(move |other| (one, other)));
        let closest = pairs.min_by(|one, other| gap(*one).total_cmp(&gap(*other)));
        let (into, from) = closest.filter(|pair| gap(*pair) < near)?;
        let gone = self.centres[from];
        self.centres[into].takes(&gone.at, gone.seen);
        self.centres[into].kinds += gone.kinds;
        self.centres[from].kinds = 0;
        Some((from, into))
    }
}

impl Centre {
    fn takes(&mut self, figures: &Figures, weight: f32) {
        self.seen = (self.seen + weight).min(MEMORY);
        let share = (weight / self.seen).min(1.0);
        for (at, figure) in self.at.iter_mut().zip(figures) {
            *at += (figure - *at) * share;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_contract::SplitMix;

    /// Kinds, by number, and the centres that they are of.
    struct Kinds {
        clusters: Clusters,
        of: Vec<Option<usize>>,
    }

    impl Kinds {
        fn new(most: usize, kinds: usize) -> Self {
            Self { clusters: Clusters::new(most), of: vec![None; kinds] }
        }

        fn tell(&mut self, kind: usize, figures: &Figures) {
            self.tell_ended(kind, figures, 0.0);
        }

        fn tell_ended(&mut self, kind: usize, figures: &Figures, ended: f32) {
            let Joined { centre, merged } = self.clusters.learn(figures, ended, self.of[kind]);
            self.are_one(merged);
            self.of[kind] = Some(centre);
            self.check();
        }

        fn are_one(&mut self, merged: Option<(usize, usize)>) {
            if let Some((from, into)) = merged {
                self.of.iter_mut().filter(|of| **of == Some(from)).for_each(|of| *of = Some(into));
            }
        }

        fn check(&self) {
            for (at, centre) in self.clusters.centres.iter().enumerate() {
                assert_eq!(centre.kinds as usize, self.of.iter().filter(|of| **of == Some(at)).count());
            }
            assert!(self.clusters.centres.len() <= self.clusters.most);
        }
    }

    /// Figures around one of some places.
    fn around(place: usize, random: &mut SplitMix) -> Figures {
        let mut figures = [0.0; FIGURES];
        figures[place] = 1.0;
        figures.iter_mut().for_each(|figure| *figure += random.below(100) as f32 / 2000.0);
        figures
    }

    #[test]
    fn what_is_alike_is_one_cluster() {
        let mut random = SplitMix::new(3);
        let mut kinds = Kinds::new(8, 9);
        for number in 0..600 {
            kinds.tell(number % 9, &around(number % 3, &mut random));
        }
        assert_eq!(kinds.clusters.lives_ns().count(), 3);
        for number in 0..60 {
            let nearest = kinds.clusters.nearest(&around(number % 3, &mut random));
            assert_eq!(nearest, kinds.of[number % 9]);
        }
        assert!(kinds.of[0] != kinds.of[1] && kinds.of[1] != kinds.of[2] && kinds.of[0] != kinds.of[2]);
    }

    #[test]
    fn a_centre_follows_its_only_kind_and_one_that_is_left_is_taken_again() {
        let mut random = SplitMix::new(5);
        let mut kinds = Kinds::new(8, 2);
        for place in [0, 5, 9, 2] {
            kinds.tell(0, &around(place, &mut random));
            assert_eq!(kinds.of[0], Some(0), "a stream keeps its number");
        }
        kinds.tell(1, &around(2, &mut random));
        assert_eq!(kinds.of[1], Some(0));
        kinds.tell(1, &around(7, &mut random));
        assert_eq!(kinds.of, [Some(0), Some(1)], "a kind that is far from its centre leaves it");
        kinds.clusters.leaves(0);
        kinds.of[0] = None;
        kinds.tell(0, &around(4, &mut random));
        assert_eq!(kinds.of[0], Some(0));
    }

    #[test]
    fn there_are_never_more_than_may_be_and_what_is_far_apart_stays_apart() {
        let mut random = SplitMix::new(4);
        let mut kinds = Kinds::new(2, 6);
        let mut far = [0.0; FIGURES];
        far[0] = 4.0;
        for number in 0..300 {
            let kind = number % 6;
            let figures = if kind == 5 { far } else { around(1 + kind, &mut random) };
            kinds.tell(kind, &figures);
        }
        assert!(kinds.of[..5].iter().all(|of| *of == kinds.of[0]) && kinds.of[5] != kinds.of[0]);
        assert_eq!(Clusters::new(2).nearest(&far), None);
    }

    #[test]
    fn centres_that_are_near_become_one_where_there_are_many_kinds() {
        let mut random = SplitMix::new(6);
        for (many, ended, left) in [(3, ENDED, 3), (5, 0.0, 3), (5, ENDED, 2)] {
            let mut kinds = Kinds::new(4, many);
            // One follows its kind to where another is.
            (0..3).for_each(|kind| kinds.tell_ended(kind, &around(kind, &mut random), ended));
            (3..many).for_each(|kind| kinds.tell_ended(kind, &around(2, &mut random), ended));
            kinds.tell_ended(1, &around(0, &mut random), ended);
            while let Some(merged) = kinds.clusters.merge_near() {
                kinds.are_one(Some(merged));
                kinds.check();
            }
            let centres: std::collections::BTreeSet<_> = kinds.of.iter().collect();
            assert_eq!(centres.len(), left, "{many} kinds, {ended} ended");
            assert_eq!(kinds.of[0] == kinds.of[1], left == 2);
        }
    }
}
