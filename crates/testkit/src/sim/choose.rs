//! Choosers: they decide, at each freedom of the persistence model, how much
//! survives the loss of power. `Frozen::after_power_loss` calls them.

use braid_contract::SplitMix;

/// Answers which of several possible outcomes took place.
pub trait Chooser {
    /// A number below `alternatives`, which is at least 2: 0 is the oldest
    /// outcome, with the least persisted, the last one that with everything.
    fn choose(&mut self, alternatives: usize) -> usize;
}

/// Nothing survives that was not synced.
#[derive(Clone, Copy, Debug)]
pub struct AllLost;

impl Chooser for AllLost {
    fn choose(&mut self, _alternatives: usize) -> usize {
        0
    }
}

/// Everything survives, as if all had been written back just before.
#[derive(Clone, Copy, Debug)]
pub struct AllKept;

impl Chooser for AllKept {
    fn choose(&mut self, alternatives: usize) -> usize {
        alternatives - 1
    }
}

/// Random outcomes from a seed. Besides evenly spread ones, a seed may stand
/// for "nearly everything kept" or "nearly everything lost": with many pending
/// effects an even spread would never leave just one of them out.
#[derive(Clone, Debug)]
pub struct Seeded {
    random: SplitMix,
    /// Of 16 answers, how many are not drawn evenly.
    extreme: u64,
    newest: bool,
}

impl Seeded {
    /// The chooser of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut random = SplitMix::new(seed);
        let extreme = match random.below(4) {
            0 => 0,
            1 => 8,
            2 => 13,
            _ => 15,
        };
        let newest = random.below(2) == 0;
        Self { random, extreme, newest }
    }
}

impl Chooser for Seeded {
    fn choose(&mut self, alternatives: usize) -> usize {
        let extreme = self.random.below(16) < self.extreme;
        match (extreme, self.newest) {
            (true, true) => alternatives - 1,
            (true, false) => 0,
            (false, _) => self.random.below(alternatives as u64) as usize,
        }
    }
}

/// The answers after the end of a list.
#[derive(Clone, Debug, Default)]
enum Rest {
    #[default]
    Lost,
    Kept,
    Sampled(Seeded),
}

/// Answers from a list, then by a rule, and keeps the questions. Where all is
/// lost after the list, it is an odometer over all outcomes.
///
/// ```
/// # use braid_testkit::sim::{Chooser, Scripted};
/// let mut script = Scripted::new();
/// let mut seen = Vec::new();
/// loop {
///     seen.push((script.choose(2), script.choose(3)));
///     if !script.advance() {
///         break;
///     }
/// }
/// assert_eq!(seen, [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Scripted {
    script: Vec<usize>,
    rest: Rest,
    answers: Vec<usize>,
    asked: Vec<usize>,
}

impl Scripted {
    /// Begins with the first outcome: all lost.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts with these answers, to repeat an outcome; everything after them
    /// is lost.
    #[must_use]
    pub fn starting_with(script: Vec<usize>) -> Self {
        Self { script, ..Self::default() }
    }

    /// Loses nothing.
    #[must_use]
    pub fn keeping() -> Self {
        Self { rest: Rest::Kept, ..Self::default() }
    }

    /// Loses effects that a seed chooses, like [`Seeded`].
    #[must_use]
    pub fn sampling(seed: u64) -> Self {
        Self { rest: Rest::Sampled(Seeded::new(seed)), ..Self::default() }
    }

    /// Answers as this one did before question number `at`, then `answer`, then
    /// by the same rule.
    pub(crate) fn but_for(&self, at: usize, answer: usize) -> Self {
        let script = self.answers[..at].iter().copied().chain([answer]).collect();
        Self { script, rest: self.rest.clone(), ..Self::default() }
    }

    /// How many alternatives each question had so far.
    #[must_use]
    pub fn asked(&self) -> &[usize] {
        &self.asked
    }

    /// The answers given so far; [`starting_with`](Self::starting_with) repeats
    /// them.
    #[must_use]
    pub fn answers(&self) -> &[usize] {
        &self.answers
    }

    /// Advances to the next outcome: the last question that has a further
    /// alternative gets it, and later ones start again. `false` after the last
    /// outcome.
    pub fn advance(&mut self) -> bool {
        let next = (0..self.asked.len()).rev().find(|at| self.answers[*at] + 1 < self.asked[*at]);
        if let Some(at) = next {
            self.script.clear();
            self.script.extend_from_slice(&self.answers[..at]);
            self.script.push(self.answers[at] + 1);
        }
        self.answers.clear();
        self.asked.clear();
        next.is_some()
    }
}

impl Chooser for Scripted {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_odometer_follows_questions_that_depend_on_answers() {
        let mut script = Scripted::new();
        let mut seen = Vec::new();
        loop {
            let mut answers = vec![script.choose(2)];
            if answers[0] == 1 {
                answers.push(script.choose(2));
            }
            seen.push(answers);
            if !script.advance() {
                break;
            }
        }
        assert_eq!(seen, [vec![0], vec![1, 0], vec![1, 1]]);
    }

    #[test]
    fn answers_repeat_an_outcome() {
        let mut seeded = Seeded::new(7);
        let wanted: Vec<usize> = (2..20).map(|n| seeded.choose(n)).collect();
        let mut script = Scripted::starting_with(wanted.clone());
        let again: Vec<usize> = (2..20).map(|n| script.choose(n)).collect();
        assert_eq!(again, wanted);
        assert_eq!(script.answers(), wanted);
    }

    #[test]
    fn seeds_reach_the_first_the_last_and_the_middle() {
        let mut seen = [0; 3];
        for seed in 0..100 {
            let mut seeded = Seeded::new(seed);
            for _ in 0..10 {
                seen[seeded.choose(3)] += 1;
            }
        }
        assert!(seen.iter().all(|count| *count > 100), "{seen:?}");
    }
}
