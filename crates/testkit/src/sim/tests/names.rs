//! The possible results of operations on names.

use super::*;
use braid_contract::RenameMode;

fn rename(from: &Fd, name: &str, to: &Fd, new_name: &str) {
    from.rename_at(os(name), &**to, os(new_name), RenameMode::Replace).unwrap();
}

fn root_names(disk: &Disk) -> Vec<String> {
    names(&*disk.root())
}

/// Names in the root and in its directories `a` and `b`.
fn names_below(disk: &Disk) -> Vec<String> {
    let mut found = Vec::new();
    for dir in ["a", "b"] {
        if let Ok(fd) = disk.root().open_at(os(dir), Access::Directory) {
            found.extend(names(&*fd).into_iter().map(|name| format!("{dir}/{name}")));
        }
    }
    found
}

/// A disk with the directories `a` and `b`, durable.
fn two_dirs(model: Model) -> (Disk, Fd, Fd) {
    let disk = disk(model);
    let (a, b) = (mkdir(&disk.root(), "a"), mkdir(&disk.root(), "b"));
    disk.root().sync_fs().unwrap();
    (disk, a, b)
}

#[test]
fn names_of_one_directory_persist_in_order() {
    for model in [APART, ORDERED] {
        let disk = disk(model);
        for name in ["one", "two", "three"] {
            create(&disk.root(), name);
        }
        disk.root().remove_at(os("one"), false).unwrap();
        let wanted = set_of([&[], &["one"], &["one", "two"], &["one", "two", "three"], &["two", "three"]]);
        assert_eq!(outcomes(&disk, root_names), wanted);
        assert_eq!(count_outcomes(&disk), 5);
        assert_eq!(questions(&disk), 1);
    }
}

#[test]
fn directories_are_independent_unless_the_file_system_has_one_order() {
    let make = |model| {
        let (disk, a, b) = two_dirs(model);
        create(&a, "x");
        create(&b, "y");
        disk
    };
    let wanted = set_of([&[], &["a/x"], &["b/y"], &["a/x", "b/y"]]);
    assert_eq!(outcomes(&make(APART), names_below), wanted);
    let wanted = set_of([&[], &["a/x"], &["a/x", "b/y"]]);
    assert_eq!(outcomes(&make(ORDERED), names_below), wanted);
}

#[test]
fn a_rename_between_directories_is_atomic_and_needs_what_came_before_in_both() {
    let (disk, a, b) = two_dirs(APART);
    create(&a, "x");
    create(&b, "y");
    rename(&a, "x", &b, "z");
    create(&a, "w");
    let wanted = set_of([&[], &["a/x"], &["b/y"], &["a/x", "b/y"], &["b/y", "b/z"], &["a/w", "b/y", "b/z"]]);
    assert_eq!(outcomes(&disk, names_below), wanted);
    assert_eq!(count_outcomes(&disk), wanted.len());
}

#[test]
fn a_rename_over_a_file_leaves_the_old_one_or_the_new_one() {
    for model in [APART, ORDERED] {
        let disk = disk(model);
        let root = disk.root();
        write(&create(&root, "file"), 0, b"old");
        root.sync_fs().unwrap();
        let new = create(&root, "temporary");
        write(&new, 0, b"new");
        new.sync(false).unwrap();
        rename(&root, "temporary", &root, "file");
        let seen = outcomes(&disk, |disk| contents(disk, "file"));
        assert_eq!(seen, BTreeSet::from([Some(b"old".to_vec()), Some(b"new".to_vec())]));
        root.sync(false).unwrap();
        let seen = outcomes(&disk, |disk| contents(disk, "file"));
        assert_eq!(seen, BTreeSet::from([Some(b"new".to_vec())]));
    }
}

#[test]
fn without_a_sync_of_the_file_a_rename_may_show_it_empty() {
    let disk = disk(APART);
    let root = disk.root();
    write(&create(&root, "temporary"), 0, b"new");
    rename(&root, "temporary", &root, "file");
    root.sync(false).unwrap();
    let seen = outcomes(&disk, |disk| contents(disk, "file"));
    assert_eq!(seen, BTreeSet::from([Some(vec![]), Some(vec![0; 3]), Some(b"new".to_vec())]));
}

#[test]
fn a_name_that_is_lost_brings_back_the_file_with_its_data_and_links() {
    let disk = disk(APART);
    let root = disk.root();
    let file = create(&root, "file");
    write(&file, 0, b"bytes");
    root.sync_fs().unwrap();
    drop(file);
    let before = dump(&disk);
    root.remove_at(os("file"), false).unwrap();
    assert_eq!(root.usage().unwrap().space.free, 16 << 20);
    assert_eq!(dump(&outcome(&disk, AllLost)), before);
    assert_eq!(names(&*outcome(&disk, AllKept).root()), Vec::<String>::new());
    root.sync(false).unwrap();
    assert_eq!(root_names(&outcome(&disk, AllLost)), Vec::<String>::new());
}

#[test]
fn a_file_does_not_lose_its_last_name_before_it_has_the_next_one() {
    let (disk, a, b) = two_dirs(APART);
    let file = create(&a, "x");
    disk.root().sync_fs().unwrap();
    file.link_to(&*b, os("y")).unwrap();
    a.remove_at(os("x"), false).unwrap();
    a.sync(false).unwrap();
    assert_eq!(outcomes(&disk, names_below), set_of([&["b/y"]]));
}

#[test]
fn link_counts_agree_with_the_names_that_persist() {
    let (disk, a, b) = two_dirs(APART);
    let file = create(&a, "x");
    file.link_to(&*b, os("y")).unwrap();
    let links = |disk: &Disk| {
        let found = names_below(disk);
        let path = found.first()?.clone();
        let stat = disk.root().open_at(os(&path), Access::Path).unwrap().stat().unwrap();
        Some((found, stat.attr.nlink))
    };
    for (found, nlink) in outcomes(&disk, links).into_iter().flatten() {
        assert_eq!(found.len(), nlink as usize);
    }
}

#[test]
fn a_directory_goes_only_after_what_was_moved_out_of_it() {
    let (disk, a, b) = two_dirs(APART);
    create(&a, "x");
    disk.root().sync_fs().unwrap();
    rename(&a, "x", &b, "x");
    disk.root().remove_at(os("a"), true).unwrap();
    disk.root().sync(false).unwrap();
    assert_eq!(outcomes(&disk, names_below), set_of([&["b/x"]]));
}

#[test]
fn directories_that_move_never_end_up_below_themselves() {
    let disk = disk(APART);
    let root = disk.root();
    let (p, q, r) = (mkdir(&root, "p"), mkdir(&root, "q"), mkdir(&root, "r"));
    let (a, b) = (mkdir(&p, "A"), mkdir(&q, "B"));
    create(&a, "in A");
    create(&b, "in B");
    let c = mkdir(&b, "C");
    root.sync_fs().unwrap();
    rename(&p, "A", &c, "A");
    rename(&c, "A", &r, "A");
    rename(&q, "B", &a, "B");
    let files = |disk: &Disk| dump(disk).iter().filter(|line| line.contains("/in ")).count();
    assert_eq!(outcomes(&disk, files), BTreeSet::from([2]));
}

#[test]
fn what_is_in_a_directory_that_was_lost_is_lost() {
    let disk = disk(APART);
    let dir = mkdir(&disk.root(), "a");
    let file = create(&dir, "x");
    file.sync(false).unwrap();
    dir.sync(false).unwrap();
    let seen = outcomes(&disk, names_below);
    assert_eq!(seen, set_of([&[], &["a/x"]]));
    let found = outcome(&disk, AllLost);
    let handle = file.handle().unwrap();
    assert_eq!(errno(found.root().open_handle(&handle, Access::Read)), Some(Errno::ESTALE));
}

#[test]
fn numbers_and_cookies_are_the_same_in_all_outcomes_and_never_used_again() {
    let disk = disk(APART);
    create(&disk.root(), "one");
    let two = create(&disk.root(), "two");
    let lost = outcome(&disk, AllLost);
    let again = create(&lost.root(), "two");
    assert!(again.stat().unwrap().attr.ino.0 > two.stat().unwrap().attr.ino.0);
    let kept = outcome(&disk, AllKept);
    let resumed = |disk: &Disk| {
        let mut seen = Vec::new();
        disk.root()
            .read_dir(0, &mut |entry| {
                seen.push((entry.name.to_owned(), entry.ino, entry.next_offset));
                Ok(true)
            })
            .unwrap();
        seen
    };
    assert_eq!(resumed(&kept), resumed(&disk));
}

#[test]
fn the_times_of_a_directory_are_those_of_the_last_change_that_is_found() {
    let disk = disk(APART);
    let dir = mkdir(&disk.root(), "dir");
    disk.root().sync_fs().unwrap();
    let time = braid_contract::Timestamp { secs: 7, nanos: 0 };
    dir.set_times(None, Some(braid_contract::SetTime::At(time))).unwrap();
    create(&dir, "file");
    let mtime = |disk: &Disk| open_dir(&disk.root(), "dir").stat().unwrap().attr.mtime;
    assert!(mtime(&disk) > time);
    assert_eq!(mtime(&outcome(&disk, AllKept)), mtime(&disk));
    assert!(outcomes(&disk, mtime).contains(&time));
}

#[test]
fn a_file_that_was_made_without_a_name_is_found_by_its_link_only() {
    for model in [APART, ORDERED] {
        let disk = disk(model);
        let file = disk.root().create_unnamed(0o600).unwrap();
        write(&file, 0, b"data");
        file.sync(false).unwrap();
        let found = |disk: &Disk| vec![contents(disk, "f").map(|data| String::from_utf8(data).unwrap())];
        assert_eq!(outcomes(&disk, found), [vec![None]].into());
        file.link_to(&*disk.root(), os("f")).unwrap();
        assert_eq!(outcomes(&disk, found), [vec![None], vec![Some("data".to_owned())]].into());
        disk.root().remove_at(os("f"), false).unwrap();
        assert_eq!(errno(file.link_to(&*disk.root(), os("g"))), Some(Errno::ENOENT));
    }
}
