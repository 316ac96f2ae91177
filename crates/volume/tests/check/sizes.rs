//! Files whose range size is not the volume's: damage to the record of it.

use crate::bed::{Bed, Contents, TIERS, lookup, pattern, write};
use braid_contract::{Caller, Errno, FallocateMode, FileSystem, InodeId, OpenFlags, OpenRequest, WriteFlags};
use braid_placement::{Condition, RuleConfig};
use braid_volume::{CheckOptions, RangeSize, Volume, VolumeConfig, check_with};
use std::ffi::OsStr;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const KIB: usize = 1 << 10;
/// Range sizes by the first letter of the name; the volume's is 256 KiB.
const SIZES: [(&str, usize); 3] = [("short", 64 * KIB), ("usual", 256 * KIB), ("long", 512 * KIB)];

fn rule(when: &str, range: usize) -> RuleConfig {
    RuleConfig {
        when: Condition::parse(when).unwrap(),
        stream: None,
        tiers: Vec::new(),
        policy: None,
        pin: false,
        range_size: RangeSize::new(range as u32),
    }
}

fn mount(bed: &Bed) -> Arc<Volume> {
    let rules = vec![rule(r#"path.matches("s*")"#, 64 * KIB), rule(r#"path.matches("l*")"#, 512 * KIB)];
    Volume::open(VolumeConfig { range_size: Some(256 << 10), rules, ..bed.config() }).unwrap()
}

/// A file of each size, without holes, and their contents.
fn filled() -> (Bed, Contents) {
    let bed = Bed::empty();
    let volume = mount(&bed);
    for (name, range) in SIZES {
        let data = pattern(range as u64, 6 * range.min(256 * KIB) + 100);
        let pieces: Vec<_> =
            data.chunks(64 * KIB).enumerate().map(|(at, it)| ((at * 64 * KIB) as u64, it.to_vec())).collect();
        write(&volume, name, &pieces);
        assert_eq!(size_of(&volume, name), range);
    }
    volume.shutdown().unwrap();
    drop(volume);
    let before = bed.contents();
    assert_eq!((before.len(), bed.codes(false)), (3, Vec::new()));
    (bed, before)
}

/// The range size of a file.
fn size_of(volume: &Volume, name: &str) -> usize {
    let ino = lookup(volume, Path::new(name)).unwrap();
    volume.explain(ino).unwrap().range_size as usize
}

/// Changes bytes of a file's index.
fn patch(bed: &Bed, name: &str, at: u64, bytes: &[u8]) {
    let index = std::fs::File::options().write(true).open(bed.object("fast", name)).unwrap();
    index.write_all_at(bytes, at).unwrap();
}

#[test]
fn a_damaged_header_gets_the_size_that_the_data_agrees_with() {
    for (name, range) in SIZES {
        let (bed, before) = filled();
        let other = if name == "usual" { "short" } else { "usual" };
        let header = std::fs::read(bed.object("fast", other)).unwrap()[..256].to_vec();
        // A bit of the size itself; the whole header; that of another file.
        for damage in [(50, vec![0x81]), (0, vec![0; 256]), (0, header)] {
            patch(&bed, name, damage.0, &damage.1);
            assert_eq!(bed.contents()[Path::new(name)], None);
            assert_eq!(bed.codes(true), ["index-header"], "{name}");
            assert_eq!((bed.codes(false), bed.contents() == before), (Vec::new(), true), "{name}");
            let volume = mount(&bed);
            assert_eq!(size_of(&volume, name), range, "{name}");
            volume.shutdown().unwrap();
            drop(volume);
        }
    }
}

#[test]
fn a_size_that_nothing_tells_is_not_made_up() {
    let (bed, _) = filled();
    // A tier that owns nothing may contradict, if the owner has nothing.
    let object = |tier| std::fs::File::options().write(true).open(bed.object(tier, "short")).unwrap();
    object("slow").write_all_at(&pattern(1, 6 * 64 * KIB), 0).unwrap();
    object("far").set_len(0).unwrap();
    assert_eq!(bed.codes(false), Vec::<&str>::new());
    patch(&bed, "short", 0, &[0; 256]);
    for _ in 0..2 {
        let problems = bed.check(true);
        assert_eq!((problems.len(), problems[0].code, problems[0].repaired), (1, "index-header", false));
        assert!(problems[0].repair.contains("nothing tells how long its ranges are"), "{problems:?}");
    }
    // The others are as usual.
    let volume = mount(&bed);
    let read = |name: &str| crate::bed::read(&volume, Path::new(name));
    assert_eq!(read("short").unwrap_err().errno(), Errno::EUCLEAN);
    assert!(read("usual").is_ok() && read("long").is_ok());
    volume.shutdown().unwrap();
    drop(volume);
}

#[test]
fn a_lost_index_of_short_ranges_is_made_anew() {
    for (name, _) in SIZES {
        let (bed, before) = filled();
        std::fs::remove_file(bed.object("fast", name)).unwrap();
        assert_eq!(bed.codes(true), ["index-missing"], "{name}");
        assert_eq!((bed.codes(false), bed.contents() == before), (Vec::new(), true), "{name}");
    }
}

/// Moves the range of a file at `offset` to a tier, with a crash before the old
/// copy is punched. Answers the tier with that copy.
fn move_and_crash(bed: &Bed, name: &str, offset: u64, to: &str) -> PathBuf {
    let volume = mount(bed);
    let ino = lookup(&volume, Path::new(name)).unwrap();
    let runs = volume.explain(ino).unwrap().runs;
    let run = runs.iter().find(|run| (run.offset..run.offset + run.len).contains(&offset)).unwrap();
    let from = run.tier.clone().unwrap().name;
    let place = if from == "fast" { bed.path("fast").join(name) } else { bed.object(&from, name) };
    let before = std::fs::read(&place).unwrap();
    let len = size_of(&volume, name);
    volume.move_range(ino, offset, to, &mut || {}).unwrap();
    volume.shutdown().unwrap();
    let copy = std::fs::File::options().write(true).open(&place).unwrap();
    let end = before.len().min(offset as usize + len);
    copy.write_all_at(&before[offset as usize..end], offset).unwrap();
    place
}

/// The tier that has the beginning of a file.
fn first_tier(bed: &Bed, name: &str) -> String {
    let volume = mount(bed);
    let ino = lookup(&volume, Path::new(name)).unwrap();
    let tier = volume.explain(ino).unwrap().runs[0].tier.clone().unwrap().name;
    volume.shutdown().unwrap();
    tier
}

/// The report of a repair about an index whose header and words are zeros.
const WIPED: [&str; 5] =
    ["index-header", "size-damaged", "synced-size-damaged", "gaps-damaged", "owners-damaged"];

#[test]
fn what_a_crash_left_of_a_move_does_not_keep_a_header_from_being_made_anew() {
    for (name, range) in SIZES {
        for wiped in [256, 512] {
            let (bed, before) = filled();
            let to = TIERS.into_iter().find(|tier| *tier != first_tier(&bed, name)).unwrap();
            move_and_crash(&bed, name, 0, to);
            assert_eq!(bed.codes(false), Vec::<&str>::new());
            patch(&bed, name, 0, &vec![0; wiped]);
            let expected: &[&str] = if wiped == 256 { &WIPED[..1] } else { &WIPED };
            assert_eq!(bed.codes(true), expected, "{name}");
            assert_eq!((bed.codes(false), bed.contents() == before), (Vec::new(), true), "{name}");
            let volume = mount(&bed);
            assert_eq!(size_of(&volume, name), range, "{name}");
            volume.shutdown().unwrap();
        }
    }
}

#[test]
fn a_header_is_made_anew_while_a_tier_is_absent() {
    for (name, _) in SIZES {
        for absent in &TIERS[1..] {
            let (bed, before) = filled();
            patch(&bed, name, 0, &[0; 256]);
            let mut config = bed.config();
            config.tiers.iter_mut().find(|tier| tier.name == *absent).unwrap().store = None;
            let options = CheckOptions { repair: true, ..CheckOptions::default() };
            let report = check_with(config, &options, &mut |_| true).unwrap();
            let told: Vec<_> = report.problems.iter().map(|it| (it.code, it.repaired)).collect();
            assert_eq!(told, [("tier-absent", false), ("index-header", true)], "{name}, {absent}");
            assert_eq!((bed.codes(false), bed.contents() == before), (Vec::new(), true), "{name}");
        }
    }
}

#[test]
fn what_a_crash_left_of_a_move_is_never_shown() {
    let (bed, _) = filled();
    let volume = mount(&bed);
    let ino = lookup(&volume, Path::new("short")).unwrap();
    (0..7).for_each(|at| volume.move_range(ino, at * 64 * KIB as u64, "slow", &mut || {}).unwrap());
    volume.shutdown().unwrap();
    drop(volume);
    // By the volume's size, all of it could be on the tier that has all of it.
    let stale = move_and_crash(&bed, "short", 2 * 64 * KIB as u64, "far");
    let new = pattern(99, 64 * KIB);
    let far = std::fs::File::options().write(true).open(bed.object("far", "short")).unwrap();
    far.write_all_at(&new, 2 * 64 * KIB as u64).unwrap();
    assert!(std::fs::read(stale).unwrap()[2 * 64 * KIB..][..64 * KIB] != new);
    let before = bed.contents();
    patch(&bed, "short", 0, &[0; 512]);
    assert_eq!(bed.codes(true), WIPED);
    assert!(bed.contents() == before);
}

#[test]
fn entries_that_a_repair_clears_do_not_keep_their_tier() {
    let (bed, before) = filled();
    let volume = mount(&bed);
    let ino = lookup(&volume, Path::new("short")).unwrap();
    (0..7).for_each(|at| volume.move_range(ino, at * 64 * KIB as u64, "slow", &mut || {}).unwrap());
    volume.shutdown().unwrap();
    drop(volume);
    // All of it is on one tier: by the volume's size it reads the same.
    patch(&bed, "short", 0, &[0; 256]);
    let problems = bed.check(true);
    let codes: Vec<_> = problems.iter().map(|problem| (problem.code, problem.repaired)).collect();
    assert_eq!(codes, [("index-header", true), ("entries-beyond-size", true)]);
    assert!(bed.contents() == before);
    let volume = mount(&bed);
    for (name, _) in SIZES {
        volume.unlink(&Caller::root(), InodeId::ROOT, OsStr::new(name)).unwrap();
    }
    volume.remove_tier("slow").unwrap();
    volume.shutdown().unwrap();
}

#[test]
fn what_a_crash_left_of_a_move_is_not_taken_for_a_short_range() {
    let bed = Bed::empty();
    let mount = || Volume::open(VolumeConfig { range_size: Some(256 << 10), ..bed.config() }).unwrap();
    let volume = mount();
    write(&volume, "f", &[(0, pattern(1, 256 * KIB)), (256 << 10, pattern(2, 256 * KIB))]);
    let ino = lookup(&volume, Path::new("f")).unwrap();
    for offset in [0, 256 << 10] {
        volume.move_range(ino, offset, "slow", &mut || {}).unwrap();
    }
    volume.shutdown().unwrap();
    drop(volume);
    let stale = std::fs::read(bed.object("slow", "f")).unwrap()[..64 * KIB].to_vec();
    let volume = mount();
    let ino = lookup(&volume, Path::new("f")).unwrap();
    volume.move_range(ino, 0, "far", &mut || {}).unwrap();
    let caller = Caller::root();
    let flags = OpenFlags { read: true, write: true, ..OpenFlags::default() };
    let request = OpenRequest { flags, ..OpenRequest::default() };
    let handle = volume.open(&caller, ino, request).unwrap().handle;
    volume.fallocate(&caller, handle, 0, 64 << 10, FallocateMode::PunchHole).unwrap();
    volume.write(&caller, handle, 64 << 10, &pattern(3, 64 * KIB), WriteFlags::default()).unwrap();
    volume.fsync(&caller, handle, false).unwrap();
    volume.release(handle).unwrap();
    volume.shutdown().unwrap();
    drop(volume);
    // A crash while the old copy was being punched.
    let slow = std::fs::File::options().write(true).open(bed.object("slow", "f")).unwrap();
    slow.write_all_at(&stale, 0).unwrap();
    assert_eq!(bed.codes(false), Vec::<&str>::new());
    std::fs::remove_file(bed.object("fast", "f")).unwrap();
    assert_eq!(bed.codes(true), ["index-missing", "entry-doubtful"]);
    let volume = mount();
    let ino = lookup(&volume, Path::new("f")).unwrap();
    let handle = volume.open(&caller, ino, request).unwrap().handle;
    let mut found = vec![0; 64 * KIB];
    let read = volume.read(&caller, handle, 0, &mut found, false);
    assert!(read.is_err() || found.iter().all(|byte| *byte == 0), "stale bytes are shown");
    assert_eq!(volume.read(&caller, handle, 256 << 10, &mut found, false).unwrap(), 64 * KIB);
    assert!(found == pattern(2, 256 * KIB)[..64 * KIB]);
    volume.release(handle).unwrap();
    volume.shutdown().unwrap();
}

#[test]
fn damaged_entries_are_told_of_by_the_bytes_of_the_file_s_own_ranges() {
    let (bed, before) = filled();
    patch(&bed, "long", 4096 + 8, &[0x77; 8]);
    let problems = bed.check(false);
    assert_eq!((problems.len(), problems[0].code), (1, "entry-damaged"));
    assert_eq!(problems[0].bytes, Some(512 << 10..1 << 20));
    assert_eq!(bed.codes(true), ["entry-damaged"]);
    assert!(bed.contents() == before);
}
