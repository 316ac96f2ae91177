//! A tier on which operations do not end.

use super::bench::{BAD, Bench, PATIENCE, wait_until};
use super::sample::{RANGE, open_direct, read_direct};
use crate::trial::Case;
use braid_tests_support::error::{Context, Failure, Result, ensure, fail};
use rustix::io::Errno;
use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, channel};

/// The cases.
pub(super) const CASES: &[Case] = &[
    ("a tier hangs in reads, with more readers than the daemon has threads", || {
        hangs("hang-read", "read:hang")
    }),
    ("a tier hangs in everything", || hangs("hang-all", "all:hang")),
    ("a tier that hangs is replaced", replaced),
];

/// More than the daemon has threads to answer.
const READERS: usize = 48;

/// Readers of the tier hang, and all others work beside them.
fn hangs(name: &str, fault: &str) -> Result<()> {
    let mut bench = Bench::new(name)?;
    bench.arm(&[fault])?;
    let outcome = beside_readers(&mut bench, |bench| {
        in_time(bench, "other files, before it is known", |bench| bench.others_are_read())?;
        in_time(bench, "status", |bench| bench.status().map(drop))?;
        in_time(bench, "the state", |bench| bench.wait_for_state("hanging"))?;
        bench.expect_affected("hanging")?;
        in_time(bench, "other files", Bench::others_go_on)?;
        // Hanging operations were answered; new ones do not even start.
        in_time(bench, "its own files", |bench| bench.check(Some(BAD)))?;
        bench.expect_log("hang")
    })?;
    ensure(outcome.iter().all(|told| matches!(told, Ok(true) | Err(Errno::IO))), || format!("{outcome:?}"))?;
    bench.all_is_well()?;
    bench.finish()
}

/// The final answers of many parallel readers of the bad tier's ranges;
/// meanwhile, `work`. Then the faults are lifted.
fn beside_readers(
    bench: &mut Bench,
    work: impl FnOnce(&mut Bench) -> Result<()>,
) -> Result<Vec<std::result::Result<bool, Errno>>> {
    let targets: Vec<(PathBuf, usize)> = bench
        .samples
        .iter()
        .flat_map(|sample| sample.ranges_on(BAD).map(|range| (sample.path.clone(), range)))
        .collect();
    let expected: Vec<Vec<u8>> = targets
        .iter()
        .map(|(path, range)| {
            let sample = bench.samples.iter().find(|sample| sample.path == *path);
            sample.map_or_else(Vec::new, |sample| sample.expected(*range))
        })
        .collect();
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..READERS)
            .map(|reader| {
                let at = reader % targets.len();
                let ((path, range), expected) = (&targets[at], &expected[at]);
                scope.spawn(move || -> Result<std::result::Result<bool, Errno>> {
                    let file = open_direct(path)?;
                    let read = read_direct(&file, *range as u64 * RANGE, RANGE as usize);
                    Ok(read.map(|bytes| bytes == *expected))
                })
            })
            .collect();
        let worked = wait_until("operations hang", || {
            let drill = bench.lab.braid().args(["drill", BAD]).arg(&bench.mount.point).read()?;
            Ok(if drill.contains("hanging at present") { Ok(()) } else { Err(drill) })
        })
        .and_then(|()| work(bench));
        let lifted = bench.lift();
        let told: Vec<_> = readers
            .into_iter()
            .map(|reader| reader.join().unwrap_or_else(|_| Err(Failure("a reader panicked".into()))))
            .collect();
        worked?;
        lifted?;
        told.into_iter().collect()
    })
}

/// Does something that must not wait for the tier. If it does wait, the faults
/// are lifted, so that it ends.
fn in_time(bench: &mut Bench, what: &str, work: impl FnOnce(&mut Bench) -> Result<()>) -> Result<()> {
    let (done, waiting) = channel::<()>();
    let lift = bench.lab.braid().args(["drill", BAD, "--clear"]).arg(&bench.mount.point);
    std::thread::scope(|scope| {
        let watchdog = scope.spawn(move || {
            let late = waiting.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout);
            late.then(|| lift.quiet())
        });
        let worked = work(bench);
        drop(done);
        match watchdog.join() {
            Ok(None) => worked.context(what),
            _ => fail(format!("{what}: waited for the tier for {} s", PATIENCE.as_secs())),
        }
    })
}

/// A hanging tier is given up, and operations that wait for it get an error.
fn replaced() -> Result<()> {
    let mut bench = Bench::new("hang-replace")?;
    bench.arm(&["all:hang"])?;
    let outcome = beside_readers(&mut bench, |bench| {
        in_time(bench, "the state", |bench| bench.wait_for_state("hanging"))?;
        in_time(bench, "the replacement", |bench| bench.replace("replacement"))?;
        bench.expect_affected("lost")?;
        in_time(bench, "other files", Bench::others_go_on)
    })?;
    ensure(outcome.iter().all(|told| matches!(told, Ok(true) | Err(Errno::IO))), || format!("{outcome:?}"))?;
    bench.begin_lost_anew()?;
    bench.all_is_well()?;
    bench.stack_followed_to("replacement")?;
    bench.finish()
}
