//! Every kind of damage that the test kit knows.

use crate::bed::{Bed, Contents};
use braid_testkit::damage::{Applied, Error, Finding, Kind, Target};
use braid_volume::Problem;

/// The findings of the check for a kind of damage.
struct Expected {
    kind: &'static str,
    /// The code that the check reports; empty if it reports nothing.
    code: &'static str,
    after: After,
}

/// The outcome of a repair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum After {
    /// All files have their contents, and the check finds nothing more.
    Whole,
    /// The check finds nothing more; the damage was none, or can't be seen.
    Clean,
    /// The damage is still there.
    Left,
    /// The volume can't be opened.
    Refused,
}

use After::{Clean, Left, Refused, Whole};

const fn expect(kind: &'static str, code: &'static str, after: After) -> Expected {
    Expected { kind, code, after }
}

const ALL: &[Expected] = &[
    expect("index-missing", "index-missing", Whole),
    expect("index-header-bit", "index-header", Whole),
    expect("index-header-zeroed", "index-header", Whole),
    expect("index-header-newer", "index-newer", Left),
    expect("index-header-of-another", "index-header", Whole),
    expect("index-header-other-inode", "index-header", Whole),
    expect("index-header-other-volume", "index-header", Whole),
    expect("index-header-impossible-range-size", "index-header", Whole),
    expect("index-cut-in-header", "index-cut", Whole),
    expect("index-empty", "index-cut", Whole),
    expect("index-cut-in-entries", "counts-wrong", Clean),
    expect("index-in-wrong-shard", "index-misplaced", Whole),
    expect("index-is-a-symlink", "index-unusable", Left),
    expect("index-orphan", "index-orphan", Whole),
    expect("index-orphan-damaged", "index-orphan-damaged", Left),
    expect("index-foreign-file", "foreign-file", Left),
    expect("entry-bit", "entry-damaged", Whole),
    expect("entry-of-another-range", "entry-damaged", Whole),
    expect("entry-of-another-file", "entry-damaged", Whole),
    expect("entry-of-unknown-tier", "entry-unknown-tier", Left),
    expect("entry-of-impossible-tier", "entry-damaged", Whole),
    expect("entry-of-unknown-reason", "entry-damaged", Whole),
    expect("entry-zeroed", "counts-wrong", Clean),
    expect("entries-beyond-the-size", "entries-beyond-size", Whole),
    expect("entries-beyond-the-size-damaged", "entries-beyond-size", Whole),
    expect("size-damaged", "size-damaged", Whole),
    expect("size-too-large", "size-differs", Clean),
    expect("size-too-small", "object-too-long", Left),
    expect("synced-size-damaged", "synced-size-damaged", Whole),
    expect("gaps-damaged", "gaps-damaged", Whole),
    expect("growth-damaged", "growth-damaged", Whole),
    expect("owners-damaged", "owners-damaged", Whole),
    expect("owners-of-unknown-tier", "owners-damaged", Whole),
    expect("durable-damaged", "durable-damaged", Whole),
    expect("durable-cleared", "", Clean),
    expect("object-missing", "object-missing", Left),
    expect("object-never-durable", "object-never-synced", Clean),
    expect("object-too-long", "object-too-long", Whole),
    expect("object-cut", "", Clean),
    expect("object-is-a-directory", "object-missing", Left),
    expect("object-in-wrong-shard", "object-misplaced", Whole),
    expect("object-orphan", "object-orphan", Whole),
    expect("object-unowned", "object-unowned", Clean),
    expect("data-foreign-file", "foreign-file", Left),
    expect("leftovers", "", Clean),
    expect("id-damaged", "id-damaged", Whole),
    expect("id-cut", "id-damaged", Whole),
    expect("id-removed", "id-lost", Whole),
    expect("id-of-another-inode", "id-lost", Whole),
    expect("id-copied", "id-copied", Clean),
    expect("id-shared", "id-shared", Left),
    expect("id-of-another-file", "id-shared", Whole),
    expect("id-without-data", "index-missing", Left),
    expect("id-emptied", "emptying", Clean),
    expect("home-size-behind", "size-differs", Clean),
    expect("home-size-ahead", "size-differs", Clean),
    expect("mark-stale", "not-clean", Whole),
    expect("mark-without-file", "not-clean", Whole),
    expect("mark-of-removed", "object-orphan", Whole),
    expect("mark-foreign-file", "foreign-file", Left),
    expect("label-missing", "label-damaged", Whole),
    expect("label-damaged", "label-damaged", Whole),
    expect("label-of-another-volume", "", Refused),
    expect("label-of-home-damaged", "label-damaged", Whole),
    expect("label-of-home-missing", "label-damaged", Whole),
    expect("table-missing", "table-damaged", Whole),
    expect("table-damaged", "table-damaged", Whole),
    expect("temporary-table", "temporary", Whole),
    expect("temporary-label", "temporary", Whole),
    expect("counts-wrong", "counts-wrong", Whole),
    expect("counts-damaged", "counts-wrong", Whole),
    expect("ballast-missing", "", Clean),
    expect("intent-damaged", "intent-unknown", Left),
    expect("open-to-all", "mode", Whole),
    expect("object-open-to-all", "mode", Whole),
    expect("index-of-another-owner", "owner", Whole),
];

/// Damages a fresh volume; `None` if this kind can't be done to it.
fn damaged(kind: &Kind, seed: u64) -> Option<(Bed, Contents, Applied)> {
    let bed = Bed::filled();
    let before = bed.contents();
    for target in [Target::Path("big".into()), Target::Any, Target::Path("dir/few".into())] {
        match kind.apply(&bed.dirs(), &target, seed) {
            Ok(applied) => return Some((bed, before, applied)),
            Err(Error::Unsuited(_)) => {}
            Err(error) => panic!("{}: {error}", kind.name),
        }
    }
    None
}

fn tells(problems: &[Problem], expected: &Expected, kind: &Kind, applied: &Applied) {
    let what = format!("{}: {problems:#?}", expected.kind);
    let Some(told) = problems.iter().find(|problem| problem.code == expected.code) else {
        assert!(expected.code.is_empty() && problems.is_empty(), "{what}");
        return;
    };
    if let (Some(path), Some(known)) = (&applied.path, &told.path) {
        // Of two files with the same id, one is reported: the new one, whose
        // name begins like the other's, or the one that names the other.
        let same = known.display().to_string().starts_with(&path.display().to_string());
        assert!(same || told.what.contains(&path.display().to_string()), "{what}");
    }
    if let (Some(id), Some(known)) = (applied.id, told.id) {
        assert_eq!(known, id, "{what}");
    }
    let has_file = applied.path.is_some() && kind.finding == Finding::Reported;
    let of_file = problems.iter().any(|problem| problem.path.is_some() || problem.id.is_some());
    assert!(!has_file || of_file, "{what}");
    assert!(!told.what.is_empty() && !told.repair.is_empty());
}

fn one(expected: &Expected, seed: u64) -> bool {
    let kind = Kind::by_name(expected.kind).unwrap();
    let Some((bed, before, applied)) = damaged(kind, seed) else { return false };
    let state = bed.state();
    let found = bed.try_verbose_check();
    assert_eq!(bed.state(), state, "{}: a check changed something", kind.name);
    if expected.after == Refused {
        assert!(found.is_err() && bed.try_check(true).is_err(), "{}", kind.name);
        assert_eq!(bed.state(), state, "{}: a refused repair changed something", kind.name);
        return true;
    }
    tells(&found.unwrap().problems, expected, kind, &applied);
    let repaired = bed.check(true);
    let left =
        if expected.after == Clean { bed.check(false) } else { bed.try_verbose_check().unwrap().problems };
    let what = format!("{} with seed {seed}: {applied:?}\n{repaired:#?}\n{left:#?}", kind.name);
    match expected.after {
        Left => assert!(left.iter().any(|problem| problem.code == expected.code), "{what}"),
        _ => assert!(left.is_empty(), "{what}"),
    }
    let after = bed.contents();
    for (path, contents) in &before {
        if expected.after == Whole || applied.path.as_ref() != Some(path) {
            assert!(after.get(path) == Some(contents), "{}: {what}", path.display());
        }
    }
    true
}

#[test]
fn every_kind_of_damage_is_found_and_put_right_as_promised() {
    let mut done = 0;
    let only = std::env::var("BRAID_DAMAGE").ok();
    let mut failed = Vec::new();
    for expected in ALL.iter().filter(|expected| only.as_ref().is_none_or(|only| only == expected.kind)) {
        for seed in 0..2 {
            match std::panic::catch_unwind(|| one(expected, seed)) {
                Ok(could_be_done) => done += u32::from(could_be_done),
                Err(_) => failed.push((expected.kind, seed)),
            }
        }
    }
    assert!(failed.is_empty(), "{failed:?}");
    // A misspelt name must not pass for a kind that was tried.
    let wanted = if only.is_some() { 1 } else { 120 };
    assert!(done >= wanted, "{done} times");
}

#[test]
fn every_kind_of_damage_has_its_place_in_the_table() {
    let mut missing = Vec::new();
    for kind in Kind::all() {
        if !ALL.iter().any(|expected| expected.kind == kind.name) {
            missing.push(kind.name);
        }
    }
    assert!(missing.is_empty(), "{missing:?}");
}
