//! Mini-batch k-means: each figure moves the nearest centre towards itself, the less
//! the more that centre has seen.

use super::features::{FIGURES, Figures};
use braid_contract::SplitMix;

/// Batches in which a centre that gets nothing is kept.
const IDLE_MAX: u32 = 50;
/// A centre remembers about so many figures.
const MEMORY: f32 = 500.0;

/// The centres of clusters.
#[derive(Clone, Debug)]
pub(super) struct Clusters {
    most: usize,
    centres: Vec<Centre>,
    random: SplitMix,
}

#[derive(Clone, Copy, Debug)]
struct Centre {
    at: Figures,
    seen: f32,
    idle: u32,
}

fn distance(one: &Figures, other: &Figures) -> f32 {
    (0..FIGURES).map(|at| (one[at] - other[at]).powi(2)).sum()
}

impl Clusters {
    pub(super) fn new(most: usize, seed: u64) -> Self {
        Self { most: most.max(1), centres: Vec::new(), random: SplitMix::new(seed) }
    }

    /// The nearest centre; `None` if there is none.
    pub(super) fn nearest(&self, figures: &Figures) -> Option<usize> {
        let distances = self.centres.iter().map(|centre| distance(&centre.at, figures));
        let nearest = distances.enumerate().min_by(|(_, one), (_, other)| one.total_cmp(other));
        nearest.map(|(at, _)| at)
    }

    pub(super) fn len(&self) -> usize {
        self.centres.len()
    }

    /// Learns a batch. `apart` is how far a figure has to be from all centres to
    /// become one of its own, as long as there may be more.
    pub(super) fn learn(&mut self, batch: &[Figures], apart: f32) {
        // The order must not matter more than it has to.
        let mut order: Vec<usize> = (0..batch.len()).collect();
        for at in (1..order.len()).rev() {
            order.swap(at, self.random.below(at as u64 + 1) as usize);
        }
        for figures in order.iter().map(|at| &batch[*at]) {
            match self.nearest(figures) {
                Some(at) if distance(&self.centres[at].at, figures) <= apart || !self.has_room() => {
                    self.centres[at].takes(figures);
                }
                _ => self.centres.push(Centre { at: *figures, seen: 1.0, idle: 0 }),
            }
        }
        self.centres.iter_mut().for_each(|centre| centre.idle += 1);
    }

    /// Whether one more centre may be made: there are fewer than may be, or one got
    /// nothing for long, which goes. Others keep their places.
    fn has_room(&mut self) -> bool {
        if self.centres.len() < self.most {
            return true;
        }
        let last = self.centres.len() - 1;
        let is_idle = self.centres[last].idle > IDLE_MAX;
        if is_idle {
            self.centres.pop();
        }
        is_idle
    }
}

impl Centre {
    fn takes(&mut self, figures: &Figures) {
        self.seen = (self.seen + 1.0).min(MEMORY);
        self.idle = 0;
        for (at, figure) in self.at.iter_mut().zip(figures) {
            *at += (figure - *at) / self.seen;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Figures around one of three places.
    fn around(place: usize, random: &mut SplitMix) -> Figures {
        let mut figures = [0.0; FIGURES];
        figures[place] = 1.0;
        figures.iter_mut().for_each(|figure| *figure += random.below(100) as f32 / 1000.0);
        figures
    }

    #[test]
    fn what_is_alike_is_one_cluster() {
        let mut random = SplitMix::new(3);
        let mut clusters = Clusters::new(8, 1);
        for _ in 0..20 {
            let batch: Vec<Figures> = (0..30).map(|at| around(at % 3, &mut random)).collect();
            clusters.learn(&batch, 0.3);
        }
        assert_eq!(clusters.len(), 3);
        let of: Vec<_> = (0..3).map(|place| clusters.nearest(&around(place, &mut random))).collect();
        assert!(of[0] != of[1] && of[1] != of[2] && of[0] != of[2], "{of:?}");
        assert!(
            (0..3).all(|place| (0..20).all(|_| clusters.nearest(&around(place, &mut random)) == of[place]))
        );
    }

    #[test]
    fn there_are_never_more_than_may_be() {
        let mut random = SplitMix::new(4);
        let mut clusters = Clusters::new(2, 1);
        for _ in 0..10 {
            let batch: Vec<Figures> = (0..30).map(|at| around(at % 6, &mut random)).collect();
            clusters.learn(&batch, 0.01);
            assert!(clusters.len() <= 2);
        }
        assert_eq!(Clusters::new(2, 1).nearest(&[0.0; FIGURES]), None);
    }
}
