//! Errors of a tier's store: the tier stays, its operations fail.

use super::bench::{BAD, Bench};
use super::sample::{RANGE, expect_error};
use crate::trial::Case;
use braid_tests_support::error::{Context, Result, ensure};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use std::fs::OpenOptions;

/// The cases.
pub(super) const CASES: &[Case] = &[
    ("a tier answers EIO to reads", reads_fail),
    ("a tier answers EIO to writes", writes_fail),
    ("a tier answers EIO to syncs", syncs_fail),
    ("a tier answers EIO to everything", everything_fails),
    ("a tier answers EROFS to changes", read_only),
    ("a sync fails once: each descriptor is told once, and nothing is believed clean", sync_fails_once),
    ("a tier answers ENOSPC to every kind of operation", no_space),
    ("reads and writes are short", short_io),
    ("faults of the stack file are armed at the mount", faults_of_the_stack_file),
];

/// The tier's own check fails too, so that it stays in trouble.
fn reads_fail() -> Result<()> {
    let mut bench = Bench::new("read")?;
    bench.arm(&["read:EIO", "probe:EIO"])?;
    bench.check(Some(BAD))?;
    in_trouble(&mut bench)?;
    bench.check(Some(BAD))?;
    back(bench)
}

fn writes_fail() -> Result<()> {
    let mut bench = Bench::new("write")?;
    bench.arm(&["write:EIO", "probe:EIO"])?;
    for sample in &mut bench.samples {
        let on_bad: Vec<usize> = sample.ranges_on(BAD).collect();
        for range in on_bad {
            let what = format!("a write to range {range} of {}", sample.path.display());
            expect_error(sample.rewrite(range), Errno::IO, &what)?;
        }
    }
    // Its data can still be read.
    bench.check(None)?;
    in_trouble(&mut bench)?;
    bench.check(None)?;
    back(bench)
}

fn syncs_fail() -> Result<()> {
    let mut bench = Bench::new("sync")?;
    let rewrite_bad = |bench: &mut Bench| -> Result<()> {
        for sample in &mut bench.samples {
            for range in sample.ranges_on(BAD).collect::<Vec<_>>() {
                sample.rewrite(range).at(&sample.path)?;
            }
        }
        Ok(())
    };
    bench.arm(&["sync:EIO", "probe:EIO"])?;
    rewrite_bad(&mut bench)?;
    for sample in &bench.samples {
        if sample.is_on(BAD) {
            expect_error(sample.sync(), Errno::IO, &format!("fsync of {}", sample.path.display()))?;
        } else {
            sample.sync().at(&sample.path)?;
        }
    }
    in_trouble(&mut bench)?;
    bench.check(None)?;
    back(bench)
}

fn everything_fails() -> Result<()> {
    let mut bench = Bench::new("all")?;
    bench.arm(&["all:EIO"])?;
    bench.check(Some(BAD))?;
    for sample in &mut bench.samples {
        for range in sample.ranges_on(BAD).collect::<Vec<_>>() {
            expect_error(sample.rewrite(range), Errno::IO, "a write")?;
        }
    }
    in_trouble(&mut bench)?;
    bench.check(Some(BAD))?;
    // Files with ranges there can be truncated and removed.
    let cut = bench.samples.iter().position(|sample| sample.is_on(BAD)).unwrap_or(0);
    let cut = bench.samples.remove(cut);
    let file = OpenOptions::new().write(true).open(&cut.path).at(&cut.path)?;
    file.set_len(1).context("a truncation while the tier fails")?;
    drop(file);
    std::fs::remove_file(&cut.path).at(&cut.path)?;
    back(bench)
}

fn read_only() -> Result<()> {
    let mut bench = Bench::new("erofs")?;
    let refused = ["write", "create", "allocate", "punch", "truncate", "remove", "probe"];
    let refused = refused.map(|op| format!("{op}:EROFS"));
    bench.arm(&refused.each_ref().map(String::as_str))?;
    for sample in &mut bench.samples {
        for range in sample.ranges_on(BAD).collect::<Vec<_>>() {
            expect_error(sample.rewrite(range), Errno::IO, "a write")?;
        }
    }
    bench.wait_for_state("read-only")?;
    bench.expect_log("takes no new ranges tier=slow")?;
    bench.expect_affected("read-only")?;
    bench.others_go_on()?;
    bench.check(None)?;
    back(bench)
}

fn sync_fails_once() -> Result<()> {
    let mut bench = Bench::new("sync-once")?;
    let at = bench.samples.iter().rposition(|sample| sample.is_on(BAD)).unwrap_or(0);
    let range = bench.samples[at].ranges_on(BAD).next().unwrap_or(0);
    let open = || OpenOptions::new().write(true).open(&bench.samples[at].path);
    let (first, second) = (open().context("open")?, open().context("open")?);
    // The second rule fails nothing, and counts the syncs after the first.
    bench.arm(&["sync:EIO,once", "sync:short"])?;
    bench.samples[at].rewrite(range).context("a write")?;
    expect_error(first.sync_all(), Errno::IO, "the first descriptor's first fsync")?;
    let before = bench.hits("sync:short")?;
    expect_error(second.sync_all(), Errno::IO, "the second descriptor's first fsync")?;
    first.sync_all().context("the first descriptor's second fsync")?;
    second.sync_all().context("the second descriptor's second fsync")?;
    let again = bench.hits("sync:short")? - before;
    ensure(again > 0, || "the data was believed clean: the tier was not asked again".into())?;
    bench.samples[at].sync().context("fsync by a descriptor that was opened later")?;
    drop((first, second));
    bench.expect_log("takes no new ranges")?;
    back(bench)
}

/// Each kind of operation in turn: it either succeeds for the application, on
/// another tier if need be, or answers `ENOSPC`; the tier is full and not
/// broken.
fn no_space() -> Result<()> {
    let mut bench = Bench::new("enospc")?;
    for op in ["write", "create", "allocate", "truncate", "punch", "sync", "remove", "stat", "usage"] {
        bench.arm(&[&format!("{op}:ENOSPC")])?;
        try_everything(&mut bench).context(format!("{op} answers ENOSPC"))?;
        let state = bench.bad_tier()?;
        ensure(state["state"] == "online" || state["state"] == "full", || format!("{op}: {state}"))?;
        bench.lift()?;
        bench.check(None).context(format!("{op} answered ENOSPC"))?;
    }
    bench.all_is_well()?;
    bench.finish()
}

/// Writes, grows, reserves, punches, truncates, syncs, creates and removes.
fn try_everything(bench: &mut Bench) -> Result<()> {
    let room = |result: std::io::Result<()>, what: &str| match result {
        Err(error) if Errno::from_io_error(&error) != Some(Errno::NOSPC) => Err(error).context(what),
        _ => Ok(()),
    };
    for sample in &mut bench.samples {
        for range in 0..sample.len() {
            room(sample.rewrite(range), "a write")?;
        }
        room(sample.sync(), "fsync")?;
    }
    let path = bench.mount.point.join("tried");
    let file = OpenOptions::new().write(true).create(true).truncate(true).open(&path).at(&path)?;
    let bytes = super::sample::content(5, 8 * RANGE as usize);
    room(std::os::unix::fs::FileExt::write_all_at(&file, &bytes, 0), "writing a new file")?;
    let reserve = |flags, offset, len| rustix::fs::fallocate(&file, flags, offset, len).map_err(Into::into);
    room(reserve(FallocateFlags::empty(), 8 * RANGE, 4 * RANGE), "fallocate")?;
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    room(reserve(punch, RANGE / 2, 3 * RANGE), "punching a hole")?;
    room(file.set_len(5 * RANGE / 2), "cutting")?;
    room(file.sync_all(), "fsync of the new file")?;
    drop(file);
    room(std::fs::remove_file(&path), "removing")
}

fn short_io() -> Result<()> {
    let mut bench = Bench::new("short")?;
    bench.arm(&["read:short", "write:short"])?;
    for sample in &mut bench.samples {
        for range in 0..sample.len() {
            sample.rewrite(range).at(&sample.path)?;
        }
        sample.sync().at(&sample.path)?;
    }
    bench.check(None)?;
    let (reads, writes) = (bench.hits("read:short")?, bench.hits("write:short")?);
    ensure(reads > 0 && writes > 0, || format!("{reads} short reads, {writes} short writes"))?;
    let state = bench.bad_tier()?;
    ensure(state["state"] == "online", || format!("the tier is {state}"))?;
    bench.lift()?;
    bench.all_is_well()?;
    bench.finish()
}

fn faults_of_the_stack_file() -> Result<()> {
    let mut bench = Bench::new("stack-file")?;
    let mount = bench.mount.clone();
    bench.lab.unmount(&mount)?;
    let text = std::fs::read_to_string(&mount.stack).at(&mount.stack)?;
    let dir = bench.tier_dir(BAD);
    let key = format!("{}, weight: 100", dir.display());
    ensure(text.contains(&key), || text.clone())?;
    let armed = text.replace(&key, &format!("{key}, faults: [ \"read:EIO\", \"probe:EIO\" ]"));
    std::fs::write(&mount.stack, &armed).at(&mount.stack)?;
    bench.lab.mount(&mount)?;
    bench.check(Some(BAD))?;
    in_trouble(&mut bench)?;
    let wrong = armed.replace("read:EIO", "reed:EIO");
    std::fs::write(&mount.stack, wrong).at(&mount.stack)?;
    let refused = bench.lab.braid().arg("mount").args([&mount.stack, &mount.point]).output()?;
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    let place = format!("tiers.{BAD}.faults: not a fault: `reed` is no operation");
    ensure(!refused.status.success() && said.contains(&place), || said.clone())?;
    std::fs::write(&mount.stack, text).at(&mount.stack)?;
    back(bench)
}

/// The tier is in trouble: log, status and all files without data on it.
fn in_trouble(bench: &mut Bench) -> Result<()> {
    bench.wait_for_state("failing")?;
    bench.expect_log("takes no new ranges tier=slow")?;
    bench.expect_log("faults are armed on the tier tier=\"slow\"")?;
    let tier = bench.bad_tier()?;
    let told = tier["trouble"]["error"].as_str().is_some_and(|error| error.contains("Input/output error"));
    ensure(told && tier["faults"].as_array().is_some_and(|faults| !faults.is_empty()), || tier.to_string())?;
    bench.expect_affected("failing")?;
    bench.others_go_on()
}

/// The faults end, and with them all trouble.
fn back(mut bench: Bench) -> Result<()> {
    bench.lift()?;
    bench.all_is_well()?;
    bench.expect_log("tier answers again")?;
    bench.expect_log("the drill is over")?;
    bench.finish()
}
