//! Mini-batch k-means: each figure moves the nearest centre towards itself, the less
//! the more that centre has seen. There is a centre for each place that is far from
//! all others, until there are too many; then the two that are closest become one for
//! a place that is farther away.

use super::features::{FIGURES, Figures, Known, known_distance, life_ns};
use braid_contract::SplitMix;

/// A centre remembers about so many figures.
const MEMORY: f32 = 16.0;
/// How far the first figure of a kind has to be from all centres to become one of its
/// own, squared.
const APART: f32 = 0.08;
/// The same for later ones, which the centres follow.
const STRAYED: f32 = 0.3;
/// How far a file may be from a centre by what is known first, squared, to belong to
/// it: most of its path is the same.
const LIKE: f32 = 0.3;

/// The centres of clusters.
#[derive(Clone, Debug)]
pub(super) struct Clusters {
    most: usize,
    centres: Vec<Centre>,
    random: SplitMix,
}

/// Figures that a kind of files tells.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told {
    pub(super) figures: Figures,
    /// They are its first.
    pub(super) is_first: bool,
}

#[derive(Clone, Copy, Debug)]
struct Centre {
    at: Figures,
    seen: f32,
}

fn distance(one: &Figures, other: &Figures) -> f32 {
    (0..FIGURES).map(|at| (one[at] - other[at]).powi(2)).sum()
}

/// The place of the least figure, and that figure.
fn least(figures: impl Iterator<Item = f32>) -> Option<(usize, f32)> {
    figures.enumerate().min_by(|(_, one), (_, other)| one.total_cmp(other))
}

impl Clusters {
    pub(super) fn new(most: usize, seed: u64) -> Self {
        Self { most: most.max(1), centres: Vec::new(), random: SplitMix::new(seed) }
    }

    /// The nearest centre; `None` if there is none.
    pub(super) fn nearest(&self, figures: &Figures) -> Option<usize> {
        least(self.centres.iter().map(|centre| distance(&centre.at, figures))).map(|(at, _)| at)
    }

    /// The centre that is nearest by what is known first; `None` if none is near.
    pub(super) fn like(&self, known: &Known) -> Option<usize> {
        let found = least(self.centres.iter().map(|centre| known_distance(&centre.at, known)));
        found.filter(|(_, apart)| *apart < LIKE).map(|(at, _)| at)
    }

    /// How long the files of each are expected to live, in nanoseconds.
    pub(super) fn lives_ns(&self) -> impl Iterator<Item = u64> + '_ {
        self.centres.iter().map(|centre| life_ns(&centre.at))
    }

    /// Learns a batch, in an order that is by chance: it must not matter more than it
    /// has to.
    pub(super) fn learn(&mut self, batch: &mut Vec<Told>) {
        for at in (1..batch.len()).rev() {
            batch.swap(at, self.random.below(at as u64 + 1) as usize);
        }
        for Told { figures, is_first } in batch.drain(..) {
            let nearest = least(self.centres.iter().map(|centre| distance(&centre.at, &figures)));
            let (at, room) = match nearest {
                Some((at, apart)) if apart <= if is_first { APART } else { STRAYED } => (at, None),
                Some((at, apart)) => (at, self.room_for(apart)),
                None => (0, self.room_for(f32::INFINITY)),
            };
            match room {
                None => self.centres[at].takes(&figures, 1.0),
                Some(at) if at < self.centres.len() => self.centres[at] = Centre { at: figures, seen: 1.0 },
                Some(_) => self.centres.push(Centre { at: figures, seen: 1.0 }),
            }
        }
    }

    /// The place for one more centre, which is so far from all others, if there may be
    /// one: there are fewer than may be, or that of a centre that became one with
    /// another. The others keep their places, which are the numbers of streams.
    fn room_for(&mut self, apart: f32) -> Option<usize> {
        let count = self.centres.len();
        if count < self.most {
            return Some(count);
        }
        let gap = |(one, other): (usize, usize)| distance(&self.centres[one].at, &self.centres[other].at);
        let pairs = (0..count).flat_map(|one| (one + 1..count).map(move |other| (one, other)));
        let closest = pairs.min_by(|one, other| gap(*one).total_cmp(&gap(*other)));
        let (into, from) = closest.filter(|pair| gap(*pair) * 2.0 < apart)?;
        let gone = self.centres[from];
        self.centres[into].takes(&gone.at, gone.seen);
        Some(from)
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

    fn told(figures: Figures) -> Told {
        Told { figures, is_first: true }
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
        let mut clusters = Clusters::new(8, 1);
        for _ in 0..20 {
            let mut batch: Vec<Told> = (0..30).map(|at| told(around(at % 3, &mut random))).collect();
            clusters.learn(&mut batch);
        }
        assert_eq!(clusters.lives_ns().count(), 3);
        let of: Vec<_> = (0..3).map(|place| clusters.nearest(&around(place, &mut random))).collect();
        assert!(of[0] != of[1] && of[1] != of[2] && of[0] != of[2], "{of:?}");
        assert!(
            (0..3).all(|place| (0..20).all(|_| clusters.nearest(&around(place, &mut random)) == of[place]))
        );
    }

    #[test]
    fn there_are_never_more_than_may_be_and_what_is_far_apart_stays_apart() {
        let mut random = SplitMix::new(4);
        let mut clusters = Clusters::new(2, 1);
        let mut far = [0.0; FIGURES];
        far[0] = 4.0;
        for _ in 0..10 {
            let mut batch: Vec<Told> = (1..30).map(|at| told(around(1 + at % 5, &mut random))).collect();
            batch.push(told(far));
            clusters.learn(&mut batch);
            assert!(clusters.lives_ns().count() <= 2);
        }
        let near = around(1, &mut random);
        assert_ne!(clusters.nearest(&far), clusters.nearest(&near));
        assert_eq!(Clusters::new(2, 1).nearest(&far), None);
    }
}
