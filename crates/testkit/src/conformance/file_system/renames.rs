//! Renames in all modes.

use super::bed::{Bed, ROOT, errno};
use super::{Case, always};
use braid_contract::{Errno, FileKind, RenameMode};

use RenameMode::{Exchange, NoReplace, Replace, Whiteout};

pub(super) const CASES: [Case; 10] = [
    ("a renamed file is what it was", always, a_renamed_file_is_what_it_was),
    ("a rename replaces a file", always, a_rename_replaces_a_file),
    ("a rename replaces an empty directory", always, a_rename_replaces_an_empty_directory),
    ("a rename tells files from directories", always, a_rename_tells_files_from_directories),
    ("a directory moves with what is in it", always, a_directory_moves_with_what_is_in_it),
    ("a directory does not go into itself", always, a_directory_does_not_go_into_itself),
    ("of two names of one file neither is replaced", always, two_names_of_one_file),
    ("what must not be replaced is not", renames_in_modes, what_must_not_be_replaced_is_not),
    ("names are exchanged", renames_in_modes, names_are_exchanged),
    ("a whiteout is left", renames_in_modes, a_whiteout_is_left),
];

fn renames_in_modes(bed: &Bed<'_>) -> bool {
    bed.fs.capabilities().rename_modes
}

fn a_renamed_file_is_what_it_was(bed: &Bed<'_>) {
    let dir = bed.mkdir(ROOT, "dir");
    let file = bed.file(ROOT, "file", b"content");
    let before = bed.attr(file);
    bed.rename((ROOT, "file"), (ROOT, "renamed"), Replace).unwrap();
    bed.is_absent(ROOT, "file");
    assert_eq!(bed.lookup(ROOT, "renamed"), file);
    bed.rename((ROOT, "renamed"), (dir, "moved"), Replace).unwrap();
    bed.is_absent(ROOT, "renamed");
    assert_eq!(bed.lookup(dir, "moved"), file);
    let after = bed.attr(file);
    assert_eq!((after.mtime, after.size, after.nlink), (before.mtime, before.size, 1));
    assert_eq!(bed.content(dir, "moved"), b"content");
    assert_eq!((bed.names(ROOT), bed.names(dir)), (vec!["dir".into()], vec!["moved".to_owned()]));
    assert_eq!(errno(bed.rename((ROOT, "file"), (ROOT, "x"), Replace)), Some(Errno::ENOENT));
}

fn a_rename_replaces_a_file(bed: &Bed<'_>) {
    let dir = bed.mkdir(ROOT, "dir");
    let file = bed.file(ROOT, "file", b"new content");
    let old = bed.file(dir, "name", b"old");
    let other_name = bed.link(old, dir, "other").unwrap();
    assert_eq!(other_name.attr.nlink, 2);
    bed.rename((ROOT, "file"), (dir, "name"), Replace).unwrap();
    assert_eq!(bed.lookup(dir, "name"), file);
    assert_eq!(bed.content(dir, "name"), b"new content");
    assert_eq!(bed.content(dir, "other"), b"old");
    assert_eq!(bed.attr(old).nlink, 1);
    assert_eq!(
        (bed.names(ROOT), bed.names(dir)),
        (vec!["dir".into()], vec!["name".into(), "other".to_owned()])
    );
}

fn a_rename_replaces_an_empty_directory(bed: &Bed<'_>) {
    let (one, other) = (bed.mkdir(ROOT, "one"), bed.mkdir(ROOT, "other"));
    bed.file(one, "in-one", b"");
    bed.file(other, "in-other", b"");
    assert_eq!(errno(bed.rename((ROOT, "one"), (ROOT, "other"), Replace)), Some(Errno::ENOTEMPTY));
    bed.unlink(other, "in-other").unwrap();
    bed.rename((ROOT, "one"), (ROOT, "other"), Replace).unwrap();
    assert_eq!(bed.lookup(ROOT, "other"), one);
    assert_eq!((bed.names(ROOT), bed.names(one)), (vec!["other".into()], vec!["in-one".to_owned()]));
}

fn a_rename_tells_files_from_directories(bed: &Bed<'_>) {
    let dir = bed.mkdir(ROOT, "dir");
    bed.file(ROOT, "file", b"content");
    bed.file(dir, "inner", b"");
    assert_eq!(errno(bed.rename((ROOT, "file"), (ROOT, "dir"), Replace)), Some(Errno::EISDIR));
    assert_eq!(errno(bed.rename((ROOT, "dir"), (ROOT, "file"), Replace)), Some(Errno::ENOTDIR));
    assert_eq!(
        (bed.names(ROOT), bed.names(dir)),
        (vec!["dir".into(), "file".into()], vec!["inner".to_owned()])
    );
    assert_eq!(bed.content(ROOT, "file"), b"content");
}

fn a_directory_moves_with_what_is_in_it(bed: &Bed<'_>) {
    let (one, other) = (bed.mkdir(ROOT, "one"), bed.mkdir(ROOT, "other"));
    let dir = bed.mkdir(one, "dir");
    let deep = bed.mkdir(dir, "deep");
    bed.file(deep, "file", b"content");
    bed.rename((one, "dir"), (other, "moved"), Replace).unwrap();
    bed.is_absent(one, "dir");
    assert_eq!(bed.lookup(other, "moved"), dir);
    assert_eq!(bed.lookup(dir, ".."), other);
    assert_eq!(bed.lookup(deep, ".."), dir);
    assert_eq!(bed.content(deep, "file"), b"content");
    bed.rmdir(ROOT, "one").unwrap();
}

fn a_directory_does_not_go_into_itself(bed: &Bed<'_>) {
    let dir = bed.mkdir(ROOT, "dir");
    let inner = bed.mkdir(dir, "inner");
    for to in [dir, inner] {
        assert_eq!(errno(bed.rename((ROOT, "dir"), (to, "x"), Replace)), Some(Errno::EINVAL));
    }
    // Nor does a directory replace one that contains it.
    let answer = errno(bed.rename((dir, "inner"), (ROOT, "dir"), Replace));
    assert_eq!(answer, Some(Errno::ENOTEMPTY));
    if bed.fs.capabilities().rename_modes {
        assert_eq!(errno(bed.rename((ROOT, "dir"), (dir, "inner"), Exchange)), Some(Errno::EINVAL));
    }
    assert_eq!((bed.lookup(ROOT, "dir"), bed.lookup(dir, "inner")), (dir, inner));
}

fn two_names_of_one_file(bed: &Bed<'_>) {
    let file = bed.file(ROOT, "one", b"content");
    bed.link(file, ROOT, "other").unwrap();
    bed.rename((ROOT, "one"), (ROOT, "other"), Replace).unwrap();
    bed.rename((ROOT, "one"), (ROOT, "one"), Replace).unwrap();
    assert_eq!(bed.names(ROOT), ["one", "other"]);
    assert_eq!(bed.attr(file).nlink, 2);
    let dir = bed.mkdir(ROOT, "dir");
    bed.rename((ROOT, "dir"), (ROOT, "dir"), Replace).unwrap();
    assert_eq!(bed.lookup(ROOT, "dir"), dir);
}

fn what_must_not_be_replaced_is_not(bed: &Bed<'_>) {
    let dir = bed.mkdir(ROOT, "dir");
    bed.file(ROOT, "one", b"one");
    bed.file(dir, "other", b"other");
    for to in [(dir, "other"), (ROOT, "dir"), (ROOT, "one")] {
        assert_eq!(errno(bed.rename((ROOT, "one"), to, NoReplace)), Some(Errno::EEXIST), "{}", to.1);
    }
    assert_eq!((bed.content(ROOT, "one"), bed.content(dir, "other")), (b"one".to_vec(), b"other".to_vec()));
    bed.rename((ROOT, "one"), (dir, "free"), NoReplace).unwrap();
    bed.is_absent(ROOT, "one");
    assert_eq!(bed.content(dir, "free"), b"one");
    assert_eq!(errno(bed.rename((ROOT, "one"), (dir, "free"), NoReplace)), Some(Errno::ENOENT));
}

fn names_are_exchanged(bed: &Bed<'_>) {
    let dir = bed.mkdir(ROOT, "dir");
    let sub = bed.mkdir(dir, "sub");
    bed.file(sub, "inner", b"inner");
    let one = bed.file(ROOT, "one", b"one");
    let other = bed.file(dir, "other", b"other");
    bed.rename((ROOT, "one"), (dir, "other"), Exchange).unwrap();
    assert_eq!((bed.lookup(ROOT, "one"), bed.lookup(dir, "other")), (other, one));
    assert_eq!((bed.content(ROOT, "one"), bed.content(dir, "other")), (b"other".to_vec(), b"one".to_vec()));
    // A file for a directory that is not empty.
    bed.rename((ROOT, "one"), (dir, "sub"), Exchange).unwrap();
    assert_eq!((bed.lookup(ROOT, "one"), bed.lookup(dir, "sub")), (sub, other));
    assert_eq!(bed.lookup(sub, ".."), ROOT);
    assert_eq!(bed.content(sub, "inner"), b"inner");
    for (from, to) in [((ROOT, "no"), (ROOT, "one")), ((ROOT, "one"), (ROOT, "no"))] {
        assert_eq!(errno(bed.rename(from, to, Exchange)), Some(Errno::ENOENT));
    }
    assert_eq!(
        (bed.names(ROOT), bed.names(dir)),
        (vec!["dir".into(), "one".into()], vec!["other".into(), "sub".to_owned()])
    );
    assert_eq!([one, other].map(|ino| bed.attr(ino).nlink), [1; 2]);
}

fn a_whiteout_is_left(bed: &Bed<'_>) {
    let dir = bed.mkdir(ROOT, "dir");
    let (one, other) = (bed.file(ROOT, "one", b"one"), bed.file(dir, "other", b"other"));
    bed.link(other, ROOT, "link").unwrap();
    // One name is free, the other is taken.
    bed.rename((ROOT, "one"), (dir, "free"), Whiteout).unwrap();
    bed.rename((dir, "free"), (dir, "other"), Whiteout).unwrap();
    assert_eq!((bed.lookup(dir, "other"), bed.content(dir, "other")), (one, b"one".to_vec()));
    assert_eq!((bed.attr(other).nlink, bed.content(ROOT, "link")), (1, b"other".to_vec()));
    for (parent, name) in [(ROOT, "one"), (dir, "free")] {
        let left = bed.attr(bed.lookup(parent, name));
        assert_eq!((left.kind, left.rdev, left.nlink), (FileKind::CharDevice, 0, 1), "{name}");
        bed.unlink(parent, name).unwrap();
    }
    assert_eq!(errno(bed.rename((ROOT, "one"), (dir, "free"), Whiteout)), Some(Errno::ENOENT));
    assert_eq!(
        (bed.names(ROOT), bed.names(dir)),
        (vec!["dir".into(), "link".into()], vec!["other".to_owned()])
    );
}
