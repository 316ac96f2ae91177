//! Makes a workload that fails shorter.

use super::Subject;
use super::explore::{Explorer, Failure, Limits};
use super::op::Op;
use super::workload::{Start, Workload};
use std::time::{Duration, Instant};

/// Time limit: the result so far is then good enough.
const TIME_MAX: Duration = Duration::from_secs(60);

/// The shortest workload found that fails too, and how it does.
pub(super) fn shrink(subject: &dyn Subject, limits: Limits, failure: Failure, seed: u64) -> Failure {
    // Leaving steps out changes the sample: a larger one makes up for it.
    let again = if failure.replay.second.is_some() { 4 } else { limits.crash_again };
    let limits =
        Limits { states: limits.states * 2, recover_again: 4, use_again: 4, crash_again: again, ..limits };
    let mut shrinker = Shrinker {
        explorer: Explorer::new(subject, limits),
        best: failure,
        seed,
        until: Instant::now() + TIME_MAX,
    };
    while shrinker.drop_ops() | shrinker.simplify_setup() {}
    shrinker.best
}

struct Shrinker<'a> {
    explorer: Explorer<'a>,
    best: Failure,
    seed: u64,
    until: Instant,
}

impl Shrinker<'_> {
    /// Takes a candidate's place if it fails too.
    fn accept(&mut self, candidate: &Workload) -> bool {
        if Instant::now() > self.until {
            return false;
        }
        match self.explorer.explore(candidate, self.seed) {
            Ok(_) => false,
            Err(failure) => {
                self.best = *failure;
                true
            }
        }
    }

    /// Leaves operations out: many at once, then fewer. Answers whether any
    /// could be.
    fn drop_ops(&mut self) -> bool {
        let before = self.best.replay.workload.ops.len();
        let mut chunk = before.div_ceil(2);
        while chunk > 0 {
            let mut at = 0;
            while at < self.best.replay.workload.ops.len() {
                let ops = &self.best.replay.workload.ops;
                let kept = ops[..at].iter().chain(ops.iter().skip(at + chunk));
                let candidate =
                    Workload { ops: kept.copied().collect::<Vec<Op>>(), ..self.best.replay.workload.clone() };
                if !self.accept(&candidate) {
                    at += chunk;
                }
            }
            chunk /= 2;
        }
        self.best.replay.workload.ops.len() < before
    }

    /// Tries less to begin with, and kinder disks. Answers whether any do.
    fn simplify_setup(&mut self) -> bool {
        let now = self.best.replay.workload.clone();
        let mut candidates: Vec<Workload> = [Start::Empty, Start::Plain, Start::Spread]
            .into_iter()
            .take_while(|start| *start != now.start)
            .map(|start| Workload { start, ..now.clone() })
            .collect();
        let setup = &now.setup;
        let with = |change: &dyn Fn(&mut super::Setup)| {
            let mut setup = setup.clone();
            change(&mut setup);
            Workload { setup, ..now.clone() }
        };
        candidates.push(with(&|setup| setup.disks = 2));
        candidates.push(with(&|setup| setup.zoned = false));
        candidates.push(with(&|setup| setup.small = false));
        candidates.push(with(&|setup| setup.tight = false));
        candidates.push(with(&|setup| setup.tear = false));
        candidates.push(with(&|setup| setup.journal_order = true));
        candidates.push(with(&|setup| setup.fsync_names = true));
        candidates.retain(|candidate| *candidate != now);
        candidates.iter().any(|candidate| self.accept(candidate))
    }
}
