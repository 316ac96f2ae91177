//! The damage done to a volume made by hand.

use super::*;
use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::MetadataExt;

/// Everything about the files below `dir` that damage may change.
fn state(dir: &Path) -> BTreeMap<PathBuf, String> {
    let mut seen = BTreeMap::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            let stat = fs::symlink_metadata(&path).unwrap();
            let mut value = [0; 64];
            let len = rustix::fs::lgetxattr(&path, "user.braid.id", &mut value[..]).unwrap_or(0);
            let bytes = if stat.is_file() { fs::read(&path).unwrap() } else { Vec::new() };
            // Not a CRC: bytes that end with their CRC all have the same.
            let mut hash = DefaultHasher::new();
            (bytes, &value[..len]).hash(&mut hash);
            let hash = hash.finish();
            seen.insert(path.clone(), format!("{:o} {} {hash:x}", stat.mode(), stat.uid()));
            if stat.is_dir() {
                dirs.push(path);
            }
        }
    }
    seen
}

/// A sample in a directory, its former contents, and the damage.
type Damaged = (tempfile::TempDir, BTreeMap<PathBuf, String>, Applied);

fn damaged(kind: &Kind, seed: u64) -> Damaged {
    let dir = tempfile::tempdir().unwrap();
    let sample = Sample::make(dir.path()).unwrap();
    let before = state(dir.path());
    // Each kind has a file in the sample that suits it.
    let mut refused = Vec::new();
    for target in [
        Target::Any,
        Target::Path("big".into()),
        Target::Path("dir/second".into()),
        Target::Path("sparse".into()),
    ] {
        match kind.apply(&sample.volume, &target, seed) {
            Ok(applied) => return (dir, before, applied),
            Err(error @ Error::Unsuited(_)) => refused.push(error.to_string()),
            Err(error) => panic!("{}: {error}", kind.name),
        }
    }
    panic!("{}: {refused:?}", kind.name)
}

#[test]
fn names_are_unique_and_found() {
    let names: HashSet<_> = Kind::all().map(|kind| kind.name).collect();
    assert_eq!(names.len(), Kind::all().count());
    assert!(names.len() >= 24);
    assert!(names.iter().all(|name| Kind::by_name(name).is_some_and(|kind| kind.name == *name)));
    assert!(Kind::by_name("no such damage").is_none());
}

#[test]
fn every_kind_changes_what_it_says() {
    for kind in Kind::all() {
        for seed in 0..4 {
            let (dir, before, applied) = damaged(kind, seed);
            assert_ne!(state(dir.path()), before, "{} with seed {seed}", kind.name);
            assert!(applied.place.starts_with(dir.path()), "{}: {applied:?}", kind.name);
        }
    }
}

#[test]
fn the_same_seed_does_the_same() {
    for kind in Kind::all() {
        let relative = |(dir, _, applied): Damaged| Applied {
            place: applied.place.strip_prefix(dir.path()).unwrap().to_owned(),
            ..applied
        };
        assert_eq!(relative(damaged(kind, 7)), relative(damaged(kind, 7)));
    }
}

#[test]
fn damage_to_a_file_that_does_not_suit_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let sample = Sample::make(dir.path()).unwrap();
    let before = state(dir.path());
    for kind in Kind::all() {
        let done = kind.apply(&sample.volume, &Target::Path("plain".into()), 1);
        assert!(matches!(done, Err(Error::Unsuited(_))), "{}: {done:?}", kind.name);
    }
    assert_eq!(state(dir.path()), before);
}

#[test]
fn answers_tell_right_from_wrong() {
    let before = b"0123456789";
    let check = |answer: &Answer, now: io::Result<&[u8]>, fails: Range<u64>| {
        let size = now.as_ref().map(|now| now.len() as u64).map_err(|_| io::Error::other("fails"));
        answer.check(before, b"home", size, |range| {
            let now = now.as_ref().map_err(|_| io::Error::other("fails"))?;
            if range.start < fails.end && fails.start < range.end {
                return Err(io::Error::other("fails"));
            }
            Ok(now[range.start as usize..range.end as usize].to_vec())
        })
    };
    let fails = || Err(io::Error::other("fails"));
    let lost = || vec![2..4, 7..10];
    let answers: [(Answer, &[u8]); 4] = [
        (Answer::Same, b"0123456789"),
        (Answer::Zeros(lost()), b"01\0\x00456\0\0\0"),
        (Answer::Size(3), b"012"),
        (Answer::Plain, b"home"),
    ];
    for (answer, now) in &answers {
        assert_eq!(check(answer, Ok(*now), 0..0), Ok(()));
        assert!(check(answer, fails(), 0..0).is_err());
        assert!(check(answer, Ok(*now), 1..2).is_err());
        for (_, other) in answers.iter().filter(|(other, _)| other != answer) {
            assert!(check(answer, Ok(*other), 0..0).is_err(), "{answer:?}");
        }
    }
    assert_eq!(check(&Answer::Size(12), Ok(b"0123456789\0\0"), 0..0), Ok(()));
    assert_eq!(check(&Answer::Error(vec![2..4]), Ok(before), 2..4), Ok(()));
    assert!(check(&Answer::Error(vec![2..4]), Ok(before), 0..0).is_err());
    assert_eq!(check(&Answer::Unreadable, fails(), 0..0), Ok(()));
    assert!(check(&Answer::Unreadable, Ok(before), 0..0).is_err());
}
