//! Which of the states that a loss of power may leave are looked at: all when
//! they are few; else the outermost ones, those next to them, and a sample.

use crate::sim::{Chooser, Seeded};
use std::collections::HashSet;

/// What is answered after the end of a script.
#[derive(Clone, Debug)]
enum Rest {
    Lost,
    Kept,
    Sampled(Seeded),
}

/// Answers from a script, then by a rule, and keeps what was asked.
#[derive(Clone, Debug)]
pub(crate) struct Following {
    script: Vec<usize>,
    rest: Rest,
    asked: Vec<usize>,
    answers: Vec<usize>,
}

impl Following {
    fn new(script: Vec<usize>, rest: Rest) -> Self {
        Self { script, rest, asked: Vec::new(), answers: Vec::new() }
    }

    /// Repeats answers that were given before.
    pub(crate) fn repeating(answers: Vec<usize>) -> Self {
        Self::new(answers, Rest::Lost)
    }

    /// Loses everything that may be lost.
    pub(crate) fn losing() -> Self {
        Self::new(Vec::new(), Rest::Lost)
    }

    /// Loses nothing.
    pub(crate) fn keeping() -> Self {
        Self::new(Vec::new(), Rest::Kept)
    }

    /// Loses what a seed says.
    pub(crate) fn sampling(seed: u64) -> Self {
        Self::new(Vec::new(), Rest::Sampled(Seeded::new(seed)))
    }

    /// What was answered.
    pub(crate) fn answers(&self) -> &[usize] {
        &self.answers
    }

    /// Those that answer as this one did but for one question: first or last
    /// of its alternatives, or next to what was answered.
    fn neighbours(&self) -> Vec<Self> {
        let mut neighbours = Vec::new();
        for (at, (answer, asked)) in self.answers.iter().zip(&self.asked).enumerate() {
            let mut others = vec![0, asked - 1, answer.saturating_sub(1), (answer + 1).min(asked - 1)];
            others.sort_unstable();
            others.dedup();
            for other in others.into_iter().filter(|other| other != answer) {
                let mut script = self.answers[..at].to_vec();
                script.push(other);
                neighbours.push(Self::new(script, self.rest.clone()));
            }
        }
        neighbours
    }
}

impl Chooser for Following {
    fn choose(&mut self, alternatives: usize) -> usize {
        let scripted = self.script.get(self.answers.len()).copied();
        let answer = match (scripted, &mut self.rest) {
            (Some(answer), _) => answer.min(alternatives - 1),
            (None, Rest::Lost) => 0,
            (None, Rest::Kept) => alternatives - 1,
            (None, Rest::Sampled(seeded)) => seeded.choose(alternatives),
        };
        self.asked.push(alternatives);
        self.answers.push(answer);
        answer
    }
}

/// Outcomes that were visited.
pub(crate) type Visited = HashSet<Vec<usize>>;

/// Builds the state of a chooser and gives the chooser back. What was visited
/// before need not be looked at again.
pub(crate) type Visit<'a, E> = dyn FnMut(Following, &mut Visited) -> Result<Following, E> + 'a;

/// Hands choosers for about `limit` states to `visit`, each with another
/// outcome.
pub(crate) fn for_each_state<E>(limit: usize, seed: u64, visit: &mut Visit<'_, E>) -> Result<(), E> {
    let mut seen = Visited::new();
    let kept = visit(Following::keeping(), &mut seen)?;
    if kept.asked.is_empty() {
        return Ok(());
    }
    let mut outcomes: usize = 1;
    kept.asked.iter().for_each(|asked| outcomes = outcomes.saturating_mul(*asked));
    if outcomes <= limit {
        return for_all(limit, &mut seen, visit);
    }
    let lost = visit(Following::losing(), &mut seen)?;
    let mut neighbours = kept.neighbours();
    neighbours.extend(lost.neighbours());
    let mut random = Random::new(seed);
    // A part of the budget is for what lies further in.
    while seen.len() < limit * 3 / 4 && !neighbours.is_empty() {
        let at = random.below(neighbours.len() as u64) as usize;
        visit(neighbours.swap_remove(at), &mut seen)?;
    }
    for _ in 0..limit {
        if seen.len() >= limit {
            break;
        }
        visit(Following::sampling(random.next()), &mut seen)?;
    }
    Ok(())
}

/// All outcomes in turn, as an odometer goes through them.
fn for_all<E>(limit: usize, seen: &mut Visited, visit: &mut Visit<'_, E>) -> Result<(), E> {
    let mut script = Vec::new();
    // Questions may depend on answers, so that there are more than reckoned.
    for _ in 0..limit * 2 {
        let done = visit(Following::repeating(script), seen)?;
        let next = (0..done.asked.len()).rev().find(|at| done.answers[*at] + 1 < done.asked[*at]);
        let Some(at) = next else { break };
        script = done.answers[..at].to_vec();
        script.push(done.answers[at] + 1);
    }
    Ok(())
}

/// A small generator of numbers: `SplitMix64`.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The generator of one of several things that have one seed.
    pub(crate) fn of(seed: u64, which: u64) -> Self {
        let mut random = Self(seed ^ which.wrapping_mul(0xd1b5_4a32_d192_ed03));
        random.next();
        random
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(limit)) >> 64) as u64
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goes through states with these numbers of alternatives.
    fn visited(alternatives: &[usize], limit: usize) -> Vec<Vec<usize>> {
        let mut visited = Vec::new();
        for_each_state(limit, 1, &mut |mut chooser, seen| {
            alternatives.iter().for_each(|alternatives| {
                chooser.choose(*alternatives);
            });
            if seen.insert(chooser.answers().to_vec()) {
                visited.push(chooser.answers().to_vec());
            }
            Ok::<_, ()>(chooser)
        })
        .unwrap();
        visited
    }

    #[test]
    fn few_states_are_all_visited() {
        let mut states = visited(&[2, 3, 2], 12);
        states.sort();
        assert_eq!(states.len(), 12);
        assert_eq!(states[5], [0, 2, 1]);
        assert_eq!(visited(&[], 12), [vec![]]);
    }

    #[test]
    fn of_many_states_the_outermost_and_those_next_to_them_are_visited() {
        let states = visited(&[2; 20], 80);
        assert_eq!(states.len(), 80);
        let kept: Vec<usize> = states.iter().map(|state| state.iter().sum()).collect();
        assert_eq!(kept.iter().filter(|kept| **kept == 20).count(), 1);
        assert_eq!(kept.iter().filter(|kept| **kept == 19).count(), 20);
        assert_eq!(kept.iter().filter(|kept| **kept == 0).count(), 1);
        assert_eq!(kept.iter().filter(|kept| **kept == 1).count(), 20);
    }

    #[test]
    fn a_sample_is_the_same_each_time() {
        assert_eq!(visited(&[3; 50], 30), visited(&[3; 50], 30));
    }
}
