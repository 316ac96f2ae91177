//! Files with ranges of several sizes in one volume: which size a file gets,
//! that it keeps it whatever the rules say later, and that every operation on a
//! file uses it.

use crate::common::{Bed, Open, caller, pattern};
use braid_contract::{FallocateMode, FileSystem, HandleId, InodeId, JobKind, SeekTarget};
use braid_placement::{Condition, RuleConfig};
use braid_testkit::SplitMix;
use braid_volume::{FileLayout, RangeSize, Volume, VolumeConfig, check};

const KIB: u64 = 1 << 10;
/// The size of files without a rule.
const USUAL: u64 = 256 * KIB;
/// The other sizes, by file name.
const SIZES: [(&str, u64); 3] = [("f.small", 64 * KIB), ("f", USUAL), ("f.big", 1024 * KIB)];

fn rule(when: &str, range: u64) -> RuleConfig {
    RuleConfig {
        when: Condition::parse(when).unwrap(),
        stream: None,
        tiers: Vec::new(),
        policy: None,
        pin: false,
        range_size: RangeSize::new(range as u32),
    }
}

fn rules() -> Vec<RuleConfig> {
    vec![rule(r#"path.matches("*.small")"#, 64 * KIB), rule(r#"path.matches("*.big")"#, 1024 * KIB)]
}

/// Rules with the sizes swapped.
fn other_rules() -> Vec<RuleConfig> {
    vec![rule(r#"path.matches("*.small")"#, 1024 * KIB), rule("true", 64 * KIB)]
}

fn config(bed: &Bed, rules: Vec<RuleConfig>) -> VolumeConfig {
    VolumeConfig { range_size: Some(USUAL as u32), rules, ..bed.config() }
}

fn open(bed: &Bed, rules: Vec<RuleConfig>) -> Open {
    Open { volume: Volume::open(config(bed, rules)).unwrap() }
}

/// Writes in pieces of the smallest range size, so that each range is placed by
/// itself.
fn write_pieces(open: &Open, handle: HandleId, offset: u64, data: &[u8]) {
    for (at, piece) in data.chunks(64 << 10).enumerate() {
        open.write(handle, offset + at as u64 * 64 * KIB, piece);
    }
}

/// Whether the file is spread, the size of its ranges and how many it has.
fn shape(open: &Open, ino: InodeId) -> (bool, u64, u64) {
    let explained = open.volume.explain(ino).unwrap();
    let spread = matches!(explained.layout, FileLayout::Spread { .. });
    (spread, explained.range_size.into(), explained.runs.iter().map(|run| run.ranges).sum())
}

fn assert_sound(bed: &Bed, rules: Vec<RuleConfig>) {
    let report = check(config(bed, rules), false, &mut |_| {}).unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
}

#[test]
fn a_file_stays_plain_up_to_a_range_of_its_own_and_keeps_the_size_that_it_gets() {
    let bed = Bed::new();
    let first = open(&bed, rules());
    for (name, range) in SIZES {
        let (ino, handle) = first.create(name);
        write_pieces(&first, handle, 0, &pattern(range, range as usize));
        assert_eq!(shape(&first, ino), (false, range, 1), "{name}");
        write_pieces(&first, handle, range, &pattern(range + 1, 5 * range as usize));
        assert_eq!(shape(&first, ino), (true, range, 6), "{name}");
        let tiers: Vec<u64> = first.volume.explain(ino).unwrap().runs.iter().map(|run| run.len).collect();
        assert!(tiers.len() > 1 && tiers.iter().all(|len| len % range == 0), "{name}: {tiers:?}");
        first.volume.release(handle).unwrap();
    }
    let (ino, handle) = first.create("plain.big");
    write_pieces(&first, handle, 0, &pattern(9, 640 << 10));
    assert!(!shape(&first, ino).0);
    first.volume.release(handle).unwrap();
    first.close();
    assert_sound(&bed, Vec::new());

    for rules in [Vec::new(), other_rules()] {
        let next = open(&bed, rules);
        for (name, range) in SIZES {
            let ino = next.lookup(name).unwrap();
            assert_eq!(shape(&next, ino), (true, range, 6), "{name}");
            let handle = next.open(ino);
            assert!(next.read(handle, 0, range as usize) == pattern(range, range as usize), "{name}");
            assert!(next.read(handle, range, 5 * range as usize) == pattern(range + 1, 5 * range as usize));
            write_pieces(&next, handle, 6 * range, &pattern(7, range as usize));
            assert_eq!(shape(&next, ino), (true, range, 7), "{name}");
            next.truncate(ino, 6 * range);
            next.volume.release(handle).unwrap();
        }
        next.close();
        assert_sound(&bed, Vec::new());
    }

    // A plain file takes the size that holds when it gets its index.
    let last = open(&bed, other_rules());
    let ino = last.lookup("plain.big").unwrap();
    let handle = last.open(ino);
    write_pieces(&last, handle, 640 * KIB, &pattern(10, 128 << 10));
    assert_eq!(shape(&last, ino), (true, 64 * KIB, 12));
    // So does an emptied file.
    let small = last.lookup("f.small").unwrap();
    last.truncate(small, 0);
    assert_eq!(shape(&last, small), (false, 1024 * KIB, 0));
    last.volume.release(handle).unwrap();
    last.close();
    assert_sound(&bed, rules());
}

#[test]
fn a_rule_on_the_size_counts_when_the_file_grows_over_it() {
    let bed = Bed::new();
    let open = open(&bed, vec![rule("size > 200KiB && size <= 300KiB", 64 * KIB)]);
    // Within one of the volume's ranges, and beyond one of the rule's.
    let (ino, handle) = open.create("grows");
    open.write(handle, 0, &pattern(1, 190 << 10));
    assert_eq!(shape(&open, ino), (false, USUAL, 1));
    open.write(handle, 190 * KIB, &pattern(2, 20 << 10));
    assert_eq!(shape(&open, ino), (true, 64 * KIB, 4));
    let (ino, handle) = open.create("at-once");
    write_pieces(&open, handle, 0, &pattern(3, 128 << 10));
    open.write(handle, 128 * KIB, &pattern(3, 400 << 10));
    assert_eq!(shape(&open, ino), (true, USUAL, 3));
}

/// A file and its expected contents.
struct Modelled {
    name: &'static str,
    handle: HandleId,
    ino: InodeId,
    bytes: Vec<u8>,
}

const LEN_MAX: u64 = 3 << 20;

/// One random operation on both sides.
fn step(open: &Open, file: &mut Modelled, dice: &mut SplitMix) {
    let offset = dice.below(LEN_MAX - (300 << 10));
    let len = [1, 4096, 64 << 10, 100_000, 300 << 10][dice.below(5) as usize];
    let end = offset + len;
    let grow = |bytes: &mut Vec<u8>, end: u64| bytes.resize(bytes.len().max(end as usize), 0);
    let span = offset as usize..end as usize;
    match dice.below(12) {
        0..=4 => {
            let data = pattern(dice.below(1 << 30), len as usize);
            open.write(file.handle, offset, &data);
            grow(&mut file.bytes, end);
            file.bytes[span].copy_from_slice(&data);
        }
        5 => {
            let size = [0, offset, offset, offset / 4096 * 4096][dice.below(4) as usize];
            open.truncate(file.ino, size);
            file.bytes.resize(size as usize, 0);
        }
        6..=7 => {
            open.volume.fallocate(&caller(), file.handle, offset, len, FallocateMode::PunchHole).unwrap();
            let end = span.end.min(file.bytes.len());
            file.bytes[span.start.min(end)..end].fill(0);
        }
        8 => {
            let mode = FallocateMode::ZeroRange { keep_size: false };
            open.volume.fallocate(&caller(), file.handle, offset, len, mode).unwrap();
            grow(&mut file.bytes, end);
            file.bytes[span].fill(0);
        }
        9 => {
            let mode = FallocateMode::Allocate { keep_size: false };
            open.volume.fallocate(&caller(), file.handle, offset, len, mode).unwrap();
            grow(&mut file.bytes, end);
        }
        10 => {
            let tier = ["fast", "slow"][dice.below(2) as usize];
            open.volume.move_range(file.ino, offset, tier, &mut || {}).unwrap();
        }
        _ => {
            // Everything outside holes is data, and nothing else is skipped.
            let next = open.volume.seek(&caller(), file.handle, offset, SeekTarget::Data);
            let skipped = next.map_or(file.bytes.len(), |at| at as usize);
            let from = span.start.min(skipped);
            assert!(file.bytes[from.min(file.bytes.len())..skipped].iter().all(|byte| *byte == 0));
        }
    }
}

fn assert_same(open: &Open, file: &Modelled, range: u64, spread: bool) {
    assert_eq!(open.size(file.ino), file.bytes.len() as u64, "{}", file.name);
    let read = open.read(file.handle, 0, LEN_MAX as usize + 1);
    let differs = read.iter().zip(&file.bytes).position(|(a, b)| a != b);
    assert_eq!((differs, read.len()), (None, file.bytes.len()), "{}", file.name);
    let (is_spread, size, _) = shape(open, file.ino);
    assert!(!is_spread || !spread || size == range, "{}: {size}", file.name);
}

#[test]
fn random_operations_on_files_of_all_sizes_agree_with_a_model() {
    for seed in 1..=4 {
        let bed = Bed::new();
        let mut open_now = open(&bed, rules());
        let mut files: Vec<Modelled> = SIZES
            .iter()
            .map(|(name, _)| {
                let (ino, handle) = open_now.create(name);
                Modelled { name, handle, ino, bytes: Vec::new() }
            })
            .collect();
        let mut dice = SplitMix::new(seed);
        for round in 0..6 {
            for _ in 0..40 {
                let at = dice.below(3) as usize;
                step(&open_now, &mut files[at], &mut dice);
            }
            for (file, (_, range)) in files.iter().zip(SIZES) {
                // From the second round on, other rules decided for some files.
                assert_same(&open_now, file, range, round == 0);
                open_now.volume.release(file.handle).unwrap();
            }
            let before: Vec<_> = files.iter().map(|file| shape(&open_now, file.ino)).collect();
            // A clean unmount, or none.
            if round % 2 == 0 {
                open_now.close()
            } else {
                open_now.kill()
            }
            open_now = open(&bed, if round % 2 == 0 { other_rules() } else { rules() });
            for (file, before) in files.iter_mut().zip(before) {
                file.ino = open_now.lookup(file.name).unwrap();
                file.handle = open_now.open(file.ino);
                let after = shape(&open_now, file.ino);
                assert!(!before.0 || before == after, "seed {seed}, {}: {before:?} {after:?}", file.name);
                assert_same(&open_now, file, 0, false);
            }
        }
        files.iter().for_each(|file| open_now.volume.release(file.handle).unwrap());
        open_now.close();
        assert_sound(&bed, Vec::new());
    }
}

/// Waits for a job to succeed.
fn run_job(open: &Open, what: JobKind) {
    let id = open.volume.start_job(what, None).unwrap().record.id;
    loop {
        let record = open.volume.job(id).unwrap().record;
        if record.state.is_final() {
            assert_eq!((record.errors, record.message), (0, None));
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

/// Bytes of a file on the tier of this name.
fn bytes_on(open: &Open, ino: InodeId, tier: &str) -> u64 {
    let runs = open.volume.explain(ino).unwrap().runs;
    let on = |run: &&braid_contract::PlacedRun| run.tier.as_ref().is_some_and(|on| on.name == tier);
    runs.iter().filter(on).map(|run| run.len).sum()
}

#[test]
fn jobs_move_files_by_their_own_ranges() {
    let bed = Bed::new();
    let open = open(&bed, rules());
    open.volume.start_jobs(None).unwrap();
    let len = (4 << 20) + 5000_u64;
    let mut files = Vec::new();
    for (name, range) in SIZES {
        let (ino, handle) = open.create(name);
        write_pieces(&open, handle, 0, &pattern(range, len as usize));
        files.push((ino, handle, range));
    }
    let (ino, handle) = open.create("plain.big");
    write_pieces(&open, handle, 0, &pattern(1024 * KIB, 900 << 10));
    let jobs = [
        JobKind::Move { path: String::new(), to: "slow".into() },
        JobKind::Evacuate { tier: "slow".into(), then_remove: false },
    ];
    for (job, all_on) in jobs.into_iter().zip(["slow", "fast"]) {
        run_job(&open, job);
        for (ino, handle, range) in &files {
            assert_eq!(bytes_on(&open, *ino, all_on), len, "{range} on {all_on}");
            // What is wholly on home is plain again.
            assert_eq!(shape(&open, *ino), (all_on == "slow", *range, len.div_ceil(*range)));
            assert!(open.read(*handle, 0, len as usize) == pattern(*range, len as usize));
        }
        // A file of one range needs no index, nor does one that is on home.
        assert_eq!(shape(&open, ino), (false, 1024 * KIB, 1));
        assert_eq!(bytes_on(&open, ino, all_on), 900 * KIB);
    }
    assert!(open.read(handle, 0, 900 << 10) == pattern(1024 * KIB, 900 << 10));
}

#[test]
fn every_tier_gets_its_share_of_a_file_whatever_its_ranges() {
    let bed = Bed::new();
    let first = open(&bed, vec![rule("true", 1024 * KIB)]);
    let (ino, handle) = first.create("f");
    first.volume.start_jobs(None).unwrap();
    write_pieces(&first, handle, 0, &pattern(1, 16 << 20));
    run_job(&first, JobKind::Move { path: "f".into(), to: "slow".into() });
    first.volume.release(handle).unwrap();
    run_job(&first, JobKind::Rebalance {});
    let on_slow = bytes_on(&first, ino, "slow");
    assert!((7 << 20..=9 << 20).contains(&on_slow), "{on_slow}");
    first.close();
    assert_sound(&bed, Vec::new());
}

#[test]
fn a_size_that_there_is_none_of_is_refused() {
    let bed = Bed::new();
    for size in [0, 1, 32 << 10, 3 << 16, 1 << 27, u32::MAX] {
        let config = VolumeConfig { range_size: Some(size), ..bed.config() };
        let error = Volume::open(config).map(drop).unwrap_err().to_string();
        assert!(error.contains(&format!("there can be no ranges of {size} bytes")), "{error}");
        assert!(!bed.path("home").join(".braid").exists());
    }
}
