//! Lifetimes of inodes and open files.

use super::bed::{Bed, ROOT, errno};
use super::{Case, always};
use braid_contract::{Attr, Errno, FileKind, InodeId, RenameMode, SetAttr, WriteFlags, XattrMode};
use std::ffi::OsStr;

pub(super) const CASES: [Case; 10] = [
    ("a file that is open outlives its name", always, a_file_that_is_open_outlives_its_name),
    ("a file that is open outlives its replacement", always, a_file_outlives_its_replacement),
    ("a number that is forgotten is found again by name", always, found_again_by_name),
    ("an open file outlives being forgotten", always, an_open_file_outlives_being_forgotten),
    ("a removed file is stale when it is forgotten", always, a_removed_file_is_stale),
    ("what is closed is closed", always, what_is_closed_is_closed),
    ("many files are open", always, many_files_are_open),
    ("a file without a name can get one", makes_unnamed, a_file_without_a_name_can_get_one),
    ("a file that gets no name goes", makes_unnamed, a_file_that_gets_no_name_goes),
    ("a name that was lost is not given again", makes_unnamed, a_lost_name_is_not_given_again),
];

fn a_file_that_is_open_outlives_its_name(bed: &Bed<'_>) {
    let (ino, handle) = bed.create(ROOT, "file");
    bed.write(handle, 0, &[1; 200_000]);
    bed.unlink(ROOT, "file").unwrap();
    bed.is_absent(ROOT, "file");
    let attr = bed.attr_of(handle, ino);
    assert_eq!((attr.size, attr.nlink), (200_000, 0));
    bed.write(handle, 200_000, b"more");
    bed.expect(handle, &[vec![1; 200_000], b"more".to_vec()].concat());
    // Another file of that name is another file.
    let other = bed.file(ROOT, "file", b"other");
    assert_ne!(other, ino);
    bed.truncate(ino, 10);
    bed.expect(handle, &[1; 10]);
    bed.close(handle);
    assert_eq!(bed.content(ROOT, "file"), b"other");
}

fn a_file_outlives_its_replacement(bed: &Bed<'_>) {
    let (old, handle) = bed.create(ROOT, "name");
    bed.write(handle, 0, b"old");
    let new = bed.file(ROOT, "file", b"new");
    bed.rename((ROOT, "file"), (ROOT, "name"), RenameMode::Replace).unwrap();
    assert_eq!(bed.lookup(ROOT, "name"), new);
    bed.write(handle, 3, b", and open");
    bed.expect(handle, b"old, and open");
    assert_eq!(bed.attr_of(handle, old).nlink, 0);
    bed.close(handle);
    assert_eq!(bed.content(ROOT, "name"), b"new");
}

fn found_again_by_name(bed: &Bed<'_>) {
    let dir = bed.mkdir(ROOT, "dir");
    let file = bed.file(dir, "file", b"content");
    for _ in 0..9 {
        bed.lookup(dir, "file");
    }
    bed.fs.forget(file, 4);
    assert_eq!(bed.attr(file).size, 7, "six lookups are left");
    bed.fs.forget(file, 6);
    bed.fs.forget(dir, 1);
    bed.fs.forget(InodeId(u64::MAX - 3), 5);
    let dir = bed.lookup(ROOT, "dir");
    assert_eq!(bed.content(dir, "file"), b"content");
    assert_eq!(bed.lookup(dir, "file"), file, "as long as it is the same file");
}

fn an_open_file_outlives_being_forgotten(bed: &Bed<'_>) {
    let (ino, handle) = bed.create(ROOT, "file");
    bed.write(handle, 0, b"content");
    bed.fs.forget(ino, 1);
    bed.write(handle, 7, b", and more");
    bed.expect(handle, b"content, and more");
    bed.fs.fsync(&bed.caller, handle, false).unwrap();
    bed.close(handle);
    assert_eq!(bed.content(ROOT, "file"), b"content, and more");
}

fn a_removed_file_is_stale(bed: &Bed<'_>) {
    let file = bed.file(ROOT, "file", b"content");
    bed.unlink(ROOT, "file").unwrap();
    bed.fs.forget(file, 1);
    let answer = errno(bed.fs.getattr(&bed.caller, file, None));
    assert!(matches!(answer, Some(Errno::ESTALE | Errno::ENOENT)), "{answer:?}");
}

fn what_is_closed_is_closed(bed: &Bed<'_>) {
    let (_, handle) = bed.create(ROOT, "file");
    bed.close(handle);
    let answers = [
        errno(bed.fs.read(&bed.caller, handle, 0, &mut [0; 5], false)),
        errno(bed.fs.write(&bed.caller, handle, 0, b"x", WriteFlags::default())),
        errno(bed.fs.flush(&bed.caller, handle)),
        errno(bed.fs.fsync(&bed.caller, handle, false)),
        errno(bed.fs.release(handle)),
    ];
    assert_eq!(answers, [Some(Errno::EBADF); 5]);
    assert_eq!(bed.content(ROOT, "file"), b"");
}

fn many_files_are_open(bed: &Bed<'_>) {
    let files: Vec<_> = (0..150).map(|n| bed.create(ROOT, &format!("file-{n}"))).collect();
    for (n, (_, handle)) in files.iter().enumerate() {
        bed.write(*handle, n as u64, format!("{n}").as_bytes());
    }
    for (n, (ino, handle)) in files.iter().enumerate() {
        assert_eq!(bed.read(*handle, n as u64, 9), format!("{n}").as_bytes());
        bed.close(*handle);
        bed.fs.forget(*ino, 1);
    }
    assert_eq!(bed.names(ROOT).len(), 150);
}

/// Whether files can be made without a name.
fn makes_unnamed(bed: &Bed<'_>) -> bool {
    match bed.try_unnamed(ROOT, 0o600) {
        Ok((entry, opened)) => {
            bed.close(opened.handle);
            bed.fs.forget(entry.attr.ino, 1);
            true
        }
        Err(error) => {
            assert_eq!(error.errno(), Errno::EOPNOTSUPP, "{error}");
            false
        }
    }
}

fn a_file_without_a_name_can_get_one(bed: &Bed<'_>) {
    let dir = bed.mkdir(ROOT, "dir");
    let (entry, opened) = bed.try_unnamed(dir, 0o666).unwrap();
    let (ino, handle) = (entry.attr.ino, opened.handle);
    let Attr { kind, mode, nlink, size, uid, .. } = entry.attr;
    assert_eq!((kind, mode, nlink, size, uid), (FileKind::Regular, 0o644, 0, 0, bed.caller.uid));
    assert!(bed.names(dir).is_empty());
    bed.write(handle, 0, &[5; 300_000]);
    bed.set(ino, SetAttr { mode: Some(0o640), ..SetAttr::default() });
    bed.fs.setxattr(&bed.caller, ino, OsStr::new("user.a"), b"1", XattrMode::Set).unwrap();
    bed.fs.fsync(&bed.caller, handle, false).unwrap();
    assert_eq!(bed.attr_of(handle, ino).nlink, 0);
    bed.file(ROOT, "taken", b"x");
    assert_eq!(errno(bed.link(ino, ROOT, "taken")), Some(Errno::EEXIST));
    let linked = bed.link(ino, ROOT, "name").unwrap();
    assert_eq!((linked.attr.ino, linked.attr.nlink, linked.attr.size), (ino, 1, 300_000));
    assert_eq!(linked.generation, entry.generation);
    bed.write(handle, 300_000, b"more");
    bed.fs.fsync(&bed.caller, handle, false).unwrap();
    assert_eq!(bed.link(ino, dir, "other").unwrap().attr.nlink, 2);
    bed.close(handle);
    let whole = [vec![5; 300_000], b"more".to_vec()].concat();
    assert!(bed.content(ROOT, "name") == whole && bed.content(dir, "other") == whole);
    assert_eq!(bed.attr(ino).mode, 0o640);
    assert_eq!(bed.fs.getxattr(&bed.caller, ino, OsStr::new("user.a")).unwrap(), b"1");
    // It is a file like others, and goes like them.
    bed.rename((ROOT, "name"), (dir, "other"), RenameMode::Replace).unwrap();
    bed.unlink(ROOT, "name").unwrap();
    bed.unlink(dir, "other").unwrap();
    bed.rmdir(ROOT, "dir").unwrap();
}

fn a_file_that_gets_no_name_goes(bed: &Bed<'_>) {
    let (entry, opened) = bed.try_unnamed(ROOT, 0o600).unwrap();
    bed.write(opened.handle, 0, &[6; 300_000]);
    bed.expect(opened.handle, &[6; 300_000]);
    bed.close(opened.handle);
    bed.fs.forget(entry.attr.ino, 1);
    let answer = errno(bed.fs.getattr(&bed.caller, entry.attr.ino, None));
    assert!(matches!(answer, Some(Errno::ESTALE | Errno::ENOENT)), "{answer:?}");
    assert!(bed.names(ROOT).is_empty());
}

fn a_lost_name_is_not_given_again(bed: &Bed<'_>) {
    let (entry, opened) = bed.try_unnamed(ROOT, 0o600).unwrap();
    bed.write(opened.handle, 0, &[7; 300_000]);
    bed.link(entry.attr.ino, ROOT, "first").unwrap();
    bed.unlink(ROOT, "first").unwrap();
    assert_eq!(errno(bed.link(entry.attr.ino, ROOT, "second")), Some(Errno::ENOENT));
    bed.is_absent(ROOT, "second");
    bed.expect(opened.handle, &[7; 300_000]);
    bed.close(opened.handle);
}
