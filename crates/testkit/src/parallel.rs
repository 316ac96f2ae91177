//! Several threads at once.
//!
//! Each thread has a tree of its own, in which it runs sequences like a single
//! one would, and all of them work on shared files in between: each writes its
//! own stripes of them, which share ranges but never bytes, and appends records
//! to a common log. Whatever the order, the outcome is determined: the stripes
//! by their last writer, the log as a set of records.

use crate::differential::{Difference, Failure, Runner, Totals, step};
use crate::op::{Access, Data, Name, Op, OpenSpec, Path, Target};
use crate::random::SplitMix;
use crate::{Side, Subject};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// Bytes of a stripe: no divisor of a range, so that most borders of ranges are
/// inside of one and most ranges belong to several threads.
const STRIPE: u64 = 24 * 1024;
const STRIPES: u64 = 128;
const RECORD: u64 = 64;
const SHARED_FILES: u8 = 2;
/// The slots of a [`Shared`]'s files; the log is the last one.
const LOG_SLOT: u8 = SHARED_FILES;

/// Runs rounds of one sequence on each of `threads` threads until `ops`
/// operations were carried out together.
///
/// # Errors
/// The first sequence on which the sides differ.
pub fn run_parallel(runner: &Runner<'_>, threads: usize, ops: u64) -> Result<Totals, Box<Failure>> {
    let mut totals = Totals::default();
    let mut round = 0;
    while totals.ops < ops {
        round_of(runner, threads as u64, round, &mut totals)?;
        round += 1;
    }
    Ok(totals)
}

fn round_of(runner: &Runner<'_>, threads: u64, round: u64, totals: &mut Totals) -> Result<(), Box<Failure>> {
    let shared = format!("shared-{}-{round}", std::process::id());
    let fail =
        |difference: Box<Difference>| Box::new(failure(runner, round * threads, Vec::new(), *difference));
    let sides = runner.sides();
    let mut checker = Shared::begin(sides, &shared, 0, threads).map_err(fail)?;
    let appended = AtomicU64::new(0);
    let results: Vec<_> = thread::scope(|scope| {
        let work = |thread| {
            let (shared, appended) = (&shared, &appended);
            scope.spawn(move || {
                let case = round * threads + thread;
                run_thread(runner, case, shared, thread, threads, appended)
            })
        };
        let handles: Vec<_> = (0..threads).map(work).collect();
        handles
            .into_iter()
            .map(|handle| handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    for result in results {
        let (ops, succeeded) = result?;
        totals.ops += ops;
        totals.succeeded += succeeded;
        totals.cases += 1;
    }
    checker.compare(appended.into_inner()).map_err(fail)?;
    drop(checker);
    for side in [sides.0, sides.1] {
        side.end(&shared)
            .map_err(|error| fail(unexpected("removing the shared files", &error.to_string())))?;
    }
    Ok(())
}

/// One thread's sequence, with an operation on the shared files after each few.
fn run_thread(
    runner: &Runner<'_>,
    case: u64,
    shared: &str,
    thread: u64,
    threads: u64,
    appended: &AtomicU64,
) -> Result<(u64, u64), Box<Failure>> {
    const EVERY: usize = 4;
    let ops = runner.generate(case);
    let sides = runner.sides();
    let name = format!("case-{}-t{case}", std::process::id());
    let run = || -> Result<(u64, u64), Box<Difference>> {
        let begun = |error: std::io::Error| unexpected("making a thread's tree", &error.to_string());
        let (mut first, mut second) =
            (sides.0.begin(&name).map_err(begun)?, sides.1.begin(&name).map_err(begun)?);
        let mut common = Shared::begin(sides, shared, thread, threads)?;
        let mut counts = (0, 0);
        for (chunk, part) in ops.chunks(EVERY).enumerate() {
            for (index, op) in part.iter().enumerate() {
                counts.1 += u64::from(step(first.as_mut(), second.as_mut(), chunk * EVERY + index, op)?);
            }
            common.work(chunk as u64 + case, appended)?;
            counts.0 += part.len() as u64 + 1;
            counts.1 += 1;
        }
        crate::run_case(first.as_mut(), second.as_mut(), &[], 1)?;
        Ok(counts)
    };
    let mut result = run();
    for side in [sides.0, sides.1] {
        if let Err(error) = side.end(&name) {
            result = result.and(Err(unexpected("removing a thread's tree", &error.to_string())));
        }
    }
    // Alone, the sequence may show a difference again, and shrink.
    result.map_err(|difference| Box::new(runner.failure(case, ops, *difference)))
}

fn failure(runner: &Runner<'_>, case: u64, ops: Vec<Op>, difference: Difference) -> Failure {
    Failure { seed: runner.settings().seed, case, ops, difference, reproduced: false }
}

fn unexpected(what: &str, found: &str) -> Box<Difference> {
    let sides = (found.to_owned(), "nothing of the kind".to_owned());
    Box::new(Difference { index: 0, what: what.to_owned(), sides })
}

/// One thread's view of the shared files, on both sides.
struct Shared {
    subjects: [Box<dyn Subject>; 2],
    thread: u64,
    threads: u64,
    appends: u64,
}

impl Shared {
    /// Opens the shared files; the first to do so makes them at their full
    /// size, so that no operation depends on other threads.
    fn begin(
        sides: (&dyn Side, &dyn Side),
        name: &str,
        thread: u64,
        threads: u64,
    ) -> Result<Self, Box<Difference>> {
        let begin = |side: &dyn Side| {
            side.join(name).map_err(|error| unexpected("making the shared files", &error.to_string()))
        };
        let subjects = [begin(sides.0)?, begin(sides.1)?];
        let mut shared = Self { subjects, thread, threads, appends: 0 };
        for slot in 0..=LOG_SLOT {
            let append = slot == LOG_SLOT;
            let flags = OpenSpec { create: true, append, ..OpenSpec::plain(Access::Both) };
            shared.both(&Op::Open { slot, path: Path(vec![Name::F(slot)]), flags, mode: 0o644 })?;
            if !append {
                shared.both(&Op::Truncate { target: Target::Slot(slot), len: STRIPE * STRIPES })?;
            }
        }
        Ok(shared)
    }

    fn both(&mut self, op: &Op) -> Result<bool, Box<Difference>> {
        let [first, second] = &mut self.subjects;
        step(first.as_mut(), second.as_mut(), 0, op).map_err(|mut difference| {
            difference.what = format!("shared files, thread {}: {}", self.thread, difference.what);
            difference
        })
    }

    /// Writes a piece of one of the thread's stripes and reads it back, or
    /// appends a record to the log.
    fn work(&mut self, turn: u64, appended: &AtomicU64) -> Result<(), Box<Difference>> {
        // A fixed mixing of the turn decides, so that a run can be repeated.
        let mixed = SplitMix::of(turn, self.thread).next_u64();
        let seed = (mixed >> 56) as u8;
        if mixed.is_multiple_of(4) {
            let data = Data { seed, len: RECORD as u32 };
            for subject in &mut self.subjects {
                let outcome = subject.apply(&Op::Pwrite { slot: LOG_SLOT, offset: 0, data });
                if outcome != Ok(crate::Answer::Count(RECORD)) {
                    return Err(unexpected("appending a record", &format!("{outcome:?}")));
                }
            }
            self.appends += 1;
            appended.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        }
        let slot = (mixed >> 8) as u8 % SHARED_FILES;
        let own = STRIPES / self.threads;
        let stripe = (mixed >> 16) % own * self.threads + self.thread;
        let start = (mixed >> 24) % STRIPE;
        let len = ((mixed >> 40) % (STRIPE - start) + 1) as u32;
        let offset = stripe * STRIPE + start;
        self.both(&Op::Pwrite { slot, offset, data: Data { seed, len } })?;
        self.both(&Op::Pread { slot, offset: stripe * STRIPE, len: STRIPE as u32 })?;
        Ok(())
    }

    /// Compares the files as a whole, and the log as a set of records.
    fn compare(&mut self, appended: u64) -> Result<(), Box<Difference>> {
        for slot in 0..SHARED_FILES {
            for stripe in 0..STRIPES {
                self.both(&Op::Pread { slot, offset: stripe * STRIPE, len: STRIPE as u32 })?;
            }
            self.both(&Op::Stat { target: Target::Slot(slot) })?;
        }
        let mut logs = Vec::new();
        for subject in &mut self.subjects {
            let len = (RECORD * (appended + 1)) as u32;
            let outcome = subject.apply(&Op::Pread { slot: LOG_SLOT, offset: 0, len });
            let Ok(crate::Answer::Bytes(bytes)) = &outcome else {
                return Err(unexpected("reading the log", &format!("{outcome:?}")));
            };
            if bytes.0.len() as u64 != RECORD * appended {
                let found = format!("{} bytes for {appended} records", bytes.0.len());
                return Err(unexpected("length of the log", &found));
            }
            let mut records: Vec<Vec<u8>> = bytes.0.chunks(RECORD as usize).map(<[u8]>::to_vec).collect();
            records.sort();
            logs.push(records);
        }
        if logs[0] != logs[1] {
            return Err(unexpected("records of the log", "not the same on both sides"));
        }
        Ok(())
    }
}
