//! Carrying out sequences on two sides and shrinking those that differ.

use crate::generate::{prelude, sequence};
use crate::outcome::Outcome;
use crate::shrink::shrink;
use crate::tree::{Tree, difference};
use crate::{Op, Side, Subject};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use rustix::io::Errno;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// How sequences are generated and compared.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Decides everything that is random.
    pub seed: u64,
    /// Operations in a sequence, at most.
    pub case_len: usize,
    /// The whole trees are compared after this many operations, and at the end.
    pub compare_every: usize,
    /// Files are made without set-id bits, and their owner may do everything
    /// with them: so a user meets no rule that the model does not know.
    pub plain_modes: bool,
}

/// Where two sides differ.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Difference {
    /// Which operation of the sequence, from 0.
    pub index: usize,
    /// The compared item.
    pub what: String,
    /// The answers of the two sides.
    pub sides: (String, String),
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "operation {}, {}", self.index, self.what)?;
        writeln!(f, "  first side:  {}", self.sides.0.trim_end().replace('\n', "\n    "))?;
        write!(f, "  second side: {}", self.sides.1.trim_end().replace('\n', "\n    "))
    }
}

/// A sequence on which the sides differ, shrunk.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The seed of the run.
    pub seed: u64,
    /// Which sequence of the run, from 0.
    pub case: u64,
    /// The sequence.
    pub ops: Vec<Op>,
    /// Where they differ.
    pub difference: Difference,
    /// Whether the sequence alone shows a difference again, so that it could
    /// be shrunk.
    pub reproduced: bool,
}

/// How many operations are printed of a sequence that could not be shrunk.
const SHOWN: usize = 12;

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shrunk =
            if self.reproduced { "shrunk to" } else { "which alone shows no difference again, the last of" };
        writeln!(f, "seed {}, case {}, {shrunk} {} operations:", self.seed, self.case, self.ops.len())?;
        // Of a sequence that could not be shrunk, only the operations right
        // before.
        let end = self.ops.len().min(self.difference.index + 1);
        let start = if self.reproduced { 0 } else { end.saturating_sub(SHOWN) };
        for (index, op) in self.ops[..end].iter().enumerate().skip(start) {
            writeln!(f, "  {index:3} {op:?}")?;
        }
        self.difference.fmt(f)
    }
}

/// The totals of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// Operations carried out on each side, without those of shrinking.
    pub ops: u64,
    /// Sequences.
    pub cases: u64,
    /// Operations that succeeded.
    pub succeeded: u64,
}

/// Runs sequences on two sides.
pub struct Runner<'a> {
    sides: (&'a dyn Side, &'a dyn Side),
    settings: Settings,
    names: AtomicU64,
}

impl<'a> Runner<'a> {
    /// Compares `first` with `second`.
    #[must_use]
    pub fn new(first: &'a dyn Side, second: &'a dyn Side, settings: Settings) -> Self {
        Self { sides: (first, second), settings, names: AtomicU64::new(0) }
    }

    /// Runs sequences until `ops` operations were carried out.
    ///
    /// # Errors
    /// The first sequence on which the sides differ.
    pub fn run(&self, ops: u64) -> Result<Totals, Box<Failure>> {
        let mut totals = Totals::default();
        while totals.ops < ops {
            let (done, succeeded) = self.case(totals.cases)?;
            totals.ops += done;
            totals.succeeded += succeeded;
            totals.cases += 1;
        }
        Ok(totals)
    }

    /// The operations of sequence number `case`.
    pub(crate) fn generate(&self, case: u64) -> Vec<Op> {
        let mut seed = [0; 32];
        seed[..8].copy_from_slice(&self.settings.seed.to_le_bytes());
        seed[8..16].copy_from_slice(&case.to_le_bytes());
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
        let config = Config { failure_persistence: None, ..Config::default() };
        let mut runner = TestRunner::new_with_rng(config, rng);
        let tree = sequence(self.settings.case_len).new_tree(&mut runner);
        // None of the strategies filters, so none can run out of values.
        let ops = tree.expect("a value of a strategy without filters").current();
        let all = prelude().into_iter().chain(ops);
        if self.settings.plain_modes { all.map(Op::with_plain_mode).collect() } else { all.collect() }
    }

    fn case(&self, case: u64) -> Result<(u64, u64), Box<Failure>> {
        let ops = self.generate(case);
        match self.replay(&ops) {
            Ok(succeeded) => Ok((ops.len() as u64, succeeded)),
            Err(difference) => Err(Box::new(self.failure(case, ops, *difference))),
        }
    }

    /// Carries out one sequence; answers how many operations succeeded.
    ///
    /// # Errors
    /// Where the sides differ.
    pub fn replay(&self, ops: &[Op]) -> Result<u64, Box<Difference>> {
        let number = self.names.fetch_add(1, Ordering::Relaxed);
        let case = format!("case-{}-{number}", std::process::id());
        let run = self
            .with_subjects(&case, |first, second| run_case(first, second, ops, self.settings.compare_every));
        for (side, name) in [(self.sides.0, "first"), (self.sides.1, "second")] {
            if let Err(error) = side.end(&case) {
                let what = format!("removing the tree of the {name} side");
                let sides = (error.to_string(), "removed".to_owned());
                return run.and(Err(Box::new(Difference { index: ops.len(), what, sides })));
            }
        }
        run
    }

    /// Calls `work` with a subject of each side, which are gone afterwards.
    fn with_subjects<T>(
        &self,
        case: &str,
        work: impl FnOnce(&mut dyn Subject, &mut dyn Subject) -> Result<T, Box<Difference>>,
    ) -> Result<T, Box<Difference>> {
        match (self.sides.0.begin(case), self.sides.1.begin(case)) {
            (Ok(mut first), Ok(mut second)) => work(first.as_mut(), second.as_mut()),
            (first, second) => {
                let text =
                    |made: std::io::Result<_>| made.map_or_else(|e| e.to_string(), |_| "made".to_owned());
                let sides = (text(first), text(second));
                Err(Box::new(Difference { index: 0, what: "making the trees".to_owned(), sides }))
            }
        }
    }

    /// Shrinks a sequence that failed; as it is, if it does not fail again.
    pub(crate) fn failure(&self, case: u64, ops: Vec<Op>, difference: Difference) -> Failure {
        let shrunk = shrink(&ops, &mut |ops| self.replay(ops).err().map(|difference| *difference));
        let reproduced = shrunk.is_some();
        let (ops, difference) = shrunk.unwrap_or((ops, difference));
        Failure { seed: self.settings.seed, case, ops, difference, reproduced }
    }

    pub(crate) fn sides(&self) -> (&'a dyn Side, &'a dyn Side) {
        self.sides
    }

    pub(crate) fn settings(&self) -> Settings {
        self.settings
    }
}

/// Carries out a sequence on both subjects, operation by operation, and
/// compares each result, and the trees after every `compare_every` operations
/// and at the end. Answers how many operations succeeded.
///
/// # Errors
/// Where they differ.
pub fn run_case(
    first: &mut dyn Subject,
    second: &mut dyn Subject,
    ops: &[Op],
    compare_every: usize,
) -> Result<u64, Box<Difference>> {
    let mut succeeded = 0;
    for (index, op) in ops.iter().enumerate() {
        if step(first, second, index, op)? {
            succeeded += 1;
        }
        if (index + 1) % compare_every.max(1) == 0 {
            compare_trees(first, second, index)?;
        }
    }
    compare_trees(first, second, ops.len())?;
    Ok(succeeded)
}

/// Carries out one operation on both subjects; answers whether it succeeded.
pub(crate) fn step(
    first: &mut dyn Subject,
    second: &mut dyn Subject,
    index: usize,
    op: &Op,
) -> Result<bool, Box<Difference>> {
    let outcomes: (Outcome, Outcome) = (first.apply(op), second.apply(op));
    let broken = |outcome: &Outcome| match outcome {
        Ok(crate::Answer::Inconsistent(_)) => true,
        Ok(crate::Answer::Stat(stat)) => stat.wrong.is_some(),
        _ => false,
    };
    if outcomes.0 == outcomes.1 && !broken(&outcomes.0) {
        return Ok(outcomes.0.is_ok());
    }
    let sides = (format!("{:?}", outcomes.0), format!("{:?}", outcomes.1));
    Err(Box::new(Difference { index, what: format!("result of {op:?}"), sides }))
}

fn compare_trees(
    first: &mut dyn Subject,
    second: &mut dyn Subject,
    index: usize,
) -> Result<(), Box<Difference>> {
    let trees: (Result<Tree, Errno>, Result<Tree, Errno>) = (first.snapshot(), second.snapshot());
    let what = "comparing the whole trees".to_owned();
    let sides = match &trees {
        (Ok(left), Ok(right)) => match difference(left, right) {
            None => return Ok(()),
            Some(sides) => sides,
        },
        (left, right) => {
            let text = |tree: &Result<Tree, Errno>| match tree {
                Ok(tree) => format!("{} names", tree.nodes.len()),
                Err(error) => format!("reading the tree failed: {error}"),
            };
            (text(left), text(right))
        }
    };
    Err(Box::new(Difference { index, what, sides }))
}
