//! Threads that work while their files are being damaged: the daemon is killed,
//! or a tier is destroyed.

use braid_tests_support::error::{Failure, Result};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};

/// The phase that workers have to expect.
#[derive(Default)]
pub(crate) struct Phase {
    failing: AtomicBool,
    over: AtomicBool,
}

impl Phase {
    /// The damage is under way, or done: failures are expected.
    pub(crate) fn is_failing(&self) -> bool {
        self.failing.load(Ordering::SeqCst)
    }

    /// It is time to end.
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }
}

/// Runs each worker in a thread of its own until they have reported `before`
/// successes in all, or have all ended; then calls `strike`, waits for `after`
/// more, and ends when all have noticed the end.
pub(crate) fn load<W: Send>(
    workers: &mut [W],
    work: impl Fn(&mut W, &Sender<()>, &Phase) -> Result<()> + Sync,
    (before, after): (usize, usize),
    strike: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let (phase, work) = (&Phase::default(), &work);
    std::thread::scope(|scope| {
        let (done, all_done) = channel();
        let threads: Vec<_> = workers
            .iter_mut()
            .map(|worker| {
                let done = done.clone();
                scope.spawn(move || work(worker, &done, phase))
            })
            .collect();
        drop(done);
        all_done.iter().take(before).for_each(drop);
        phase.failing.store(true, Ordering::SeqCst);
        let struck = strike();
        all_done.iter().take(after).for_each(drop);
        phase.over.store(true, Ordering::SeqCst);
        let worked: Vec<Result<()>> = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err(Failure("a worker panicked".into()))))
            .collect();
        struck?;
        worked.into_iter().collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_tests_support::error::fail;

    /// Three workers that count their work in each phase, and fail in the given
    /// one. The strike takes until they have noticed.
    fn run(fails_when: Option<bool>) -> (Result<()>, [u64; 2]) {
        let mut counts = [[0; 2]; 3];
        let (knows, all_know) = channel();
        let work = |count: &mut [u64; 2], done: &Sender<()>, phase: &Phase| {
            while !phase.is_over() {
                let failing = phase.is_failing();
                let _ = failing.then(|| knows.send(()));
                if fails_when == Some(failing) {
                    return fail("as wanted");
                }
                count[usize::from(failing)] += 1;
                let _ = done.send(());
            }
            Ok(())
        };
        let strike = || {
            let workers = if fails_when == Some(false) { 0 } else { 3 };
            all_know.iter().take(workers).for_each(drop);
            Ok(())
        };
        let result = load(&mut counts, work, (100, 100), strike);
        (result, [0, 1].map(|phase| counts.iter().map(|count| count[phase]).sum()))
    }

    #[test]
    fn there_is_work_before_and_after_the_strike() {
        let (result, [before, after]) = run(None);
        assert_eq!(result, Ok(()));
        assert!(before >= 100 && after > 0, "{before} {after}");
    }

    #[test]
    fn a_failure_of_a_worker_is_told_and_ends_the_wait() {
        assert_eq!(run(Some(false)), (fail("as wanted"), [0, 0]));
        assert_eq!(run(Some(true)).0, fail("as wanted"));
    }

    #[test]
    fn a_strike_that_fails_is_told_first() {
        let mut workers = [(), ()];
        let struck = load(&mut workers, |(), _, _| fail("worker"), (1, 0), || fail("strike"));
        assert_eq!(struck, fail("strike"));
    }
}
