//! Inodes that contradict one another, as no single damage makes them.

use super::gather::Gathered;
use super::mend::mend;
use super::report::{Salvaged, Trouble};
use crate::extents::{Piece, Run};
use crate::inode::State;
use crate::record::{Begin, Change};
use braid_contract::{FileKind, Timestamp};
use std::collections::BTreeSet;

const BLOCKS: u64 = 64 * 16;

fn state(kind: FileKind, parent: u64, changes: Vec<Change>) -> State {
    let begin = Begin {
        mode: kind.mode() | 0o644,
        uid: 1,
        gid: 2,
        rdev: 0,
        nlink: 1,
        parent,
        generation: 0,
        time: Timestamp { secs: 5, nanos: 0 },
        actor: Default::default(),
    };
    let mut state = State::default();
    let changes = [vec![Change::Begin(Box::new(begin))], changes].concat();
    state.apply(7, changes, &mut Vec::new());
    state
}

fn dir(parent: u64, names: &[(&str, u64, FileKind)]) -> State {
    let enter = |(name, ino, kind): &(&str, u64, FileKind)| {
        Change::Enter(name.as_bytes().into(), *ino, (kind.mode() >> 12) as u8)
    };
    state(FileKind::Directory, parent, names.iter().map(enter).collect())
}

fn file(parent: u64, runs: &[(u64, u64)]) -> State {
    let mut at = 0;
    let pieces = runs.iter().map(|(start, len)| {
        at += len;
        Piece { at: at - len, run: Run { start: *start, len: *len }, is_written: true }
    });
    state(FileKind::Regular, parent, vec![Change::Map(pieces.collect()), Change::Size(1 << 20)])
}

fn mended(inodes: Vec<(u64, State)>) -> (Gathered, Salvaged) {
    let mut found = Gathered { inodes: inodes.into_iter().collect(), ..Gathered::default() };
    let mut salvaged = Salvaged::default();
    mend(&mut found, BLOCKS, Timestamp::default(), &mut salvaged);
    agrees(&found);
    (found, salvaged)
}

/// Everything has a path from the root, and as many names as it says.
fn agrees(found: &Gathered) {
    let (mut reached, mut next) = (BTreeSet::new(), vec![1]);
    let mut names = std::collections::BTreeMap::<u64, u32>::new();
    while let Some(ino) = next.pop() {
        assert!(reached.insert(ino), "{ino} is twice in the tree");
        let state = &found.inodes[&ino];
        let mut below = 0;
        for (_, named) in state.names().into_iter().flat_map(|names| names.after(0)) {
            assert_eq!(found.inodes[&named.ino].kind_bits(), named.kind);
            *names.entry(named.ino).or_default() += 1;
            if named.is_dir() {
                assert_eq!(found.inodes[&named.ino].parent, ino);
                below += 1;
                next.push(named.ino);
            }
        }
        assert_eq!(state.nlink, 2 + below, "links of directory {ino}");
    }
    for (ino, state) in &found.inodes {
        assert!(reached.contains(ino) || names.get(ino) == Some(&state.nlink), "inode {ino}");
    }
}

fn name_of(found: &Gathered, dir: u64, ino: u64) -> Option<String> {
    let names = found.inodes[&dir].names()?;
    let mut named = names.after(0).filter(|(_, named)| named.ino == ino);
    named.next().map(|(_, named)| String::from_utf8_lossy(&named.name).into_owned())
}

const DIR: FileKind = FileKind::Directory;
const FILE: FileKind = FileKind::Regular;

#[test]
fn directories_in_a_circle_come_to_lost_and_found() {
    let (found, salvaged) = mended(vec![
        (1, dir(1, &[("a", 2, FILE), ("me", 1, DIR)])),
        (2, file(1, &[])),
        (9, dir(5, &[])),
        (5, dir(6, &[("six", 6, DIR), ("nine", 9, DIR), ("self", 5, DIR)])),
        (6, dir(5, &[("five", 5, DIR), ("up", 1, DIR)])),
        (7, dir(70, &[("gone", 71, FILE), ("kept", 8, FILE)])),
        (8, file(7, &[])),
    ]);
    let lost = *found.inodes.keys().last().unwrap();
    assert_eq!(name_of(&found, 1, lost).as_deref(), Some("lost+found"));
    assert_eq!(salvaged.count(Trouble::Unnamed), 2, "one of the circle, and directory 7");
    assert_eq!(name_of(&found, 5, 9).as_deref(), Some("nine"));
    assert_eq!(name_of(&found, 7, 8).as_deref(), Some("kept"));
    assert_eq!(name_of(&found, lost, 7).as_deref(), Some("7"));
    // To itself, to the root, and to nothing.
    assert_eq!(salvaged.count(Trouble::Name), 4);
}

#[test]
fn a_directory_keeps_the_name_where_it_says_it_is() {
    let (found, salvaged) = mended(vec![
        (1, dir(1, &[("a", 2, DIR), ("b", 3, DIR), ("wrong", 4, DIR), ("twice", 2, DIR)])),
        (2, dir(1, &[])),
        (3, dir(1, &[("right", 4, DIR)])),
        (4, dir(3, &[("file", 5, DIR)])),
        (5, file(4, &[])),
    ]);
    assert_eq!((name_of(&found, 1, 4), name_of(&found, 3, 4).as_deref()), (None, Some("right")));
    assert_eq!(name_of(&found, 1, 2).as_deref(), Some("a"));
    // The file has another type than its name says.
    assert_eq!((salvaged.count(Trouble::Name), salvaged.count(Trouble::Unnamed)), (3, 1));
}

#[test]
fn blocks_have_one_user_and_exist() {
    let mut newer = file(1, &[(100, 10), (300, 2)]);
    newer.version = 9;
    let (found, salvaged) = mended(vec![
        (1, dir(1, &[("old", 2, FILE), ("new", 3, FILE), ("beyond", 4, FILE), ("far", 5, FILE)])),
        (2, file(1, &[(95, 10), (300, 1), (400, 3)])),
        (3, newer),
        (4, file(1, &[(BLOCKS - 3, 100), (0, 1)])),
        (5, file(1, &[(1 << 50, 1 << 50)])),
    ]);
    let blocks = |ino: u64| found.inodes[&ino].extents().unwrap().iter().collect::<Vec<_>>();
    let piece = |at, start, len| Piece { at, run: Run { start, len }, is_written: true };
    assert_eq!(blocks(3), [piece(0, 100, 10), piece(10, 300, 2)]);
    assert_eq!(blocks(2), [piece(0, 95, 5), piece(11, 400, 3)]);
    // The last block of the device is the superblock's.
    assert_eq!(blocks(4), [piece(0, BLOCKS - 3, 2)]);
    assert!(blocks(5).is_empty());
    assert_eq!(salvaged.count(Trouble::Blocks), 5);
    assert_eq!(found.lacking, BTreeSet::from([2, 4, 5]));
    assert_eq!(found.inodes[&2].size, 1 << 20, "sizes stay");
}

#[test]
fn without_a_root_there_is_another() {
    let odd = state(FILE, 1, vec![Change::Target(b"x".to_vec())]);
    let mut no_kind = State::default();
    no_kind.mode = 0o170_777;
    let (found, salvaged) = mended(vec![(4, file(3, &[])), (5, odd), (6, no_kind), (7, State::default())]);
    assert_eq!(found.inodes.keys().copied().collect::<Vec<_>>(), [1, 4, 5, 6]);
    assert_eq!(
        (found.inodes[&1].mode & 0o7777, salvaged.lost_and_found.as_deref()),
        (0o700, Some("lost+found"))
    );
    assert_eq!((salvaged.count(Trouble::Inode), salvaged.count(Trouble::Unnamed)), (3, 2));
    let (found, _) = mended(Vec::new());
    assert_eq!(found.inodes.len(), 1);
}
