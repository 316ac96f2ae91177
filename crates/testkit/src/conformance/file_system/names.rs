//! Creating, finding, linking and removing names.

use super::bed::{Bed, LONG_AGO, READ_WRITE, ROOT, errno};
use super::{Case, always};
use braid_contract::{Attr, Errno, FileKind, InodeId, Result};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

pub(super) const CASES: [Case; 15] = [
    ("the root is a directory", always, the_root_is_a_directory),
    ("names lead to what they were given to", always, names_lead_to_what_they_were_given_to),
    ("a name is taken once", always, a_name_is_taken_once),
    ("modes are masked and owners are the caller's", always, modes_are_masked),
    ("an existing file is opened unless made exclusively", always, an_existing_file_is_opened),
    ("nodes of every kind", always, nodes_of_every_kind),
    ("devices have their number", |bed| bed.is_superuser(), devices_have_their_number),
    ("symbolic links keep their target", always, symbolic_links_keep_their_target),
    ("a file has as many links as names", always, a_file_has_as_many_links_as_names),
    ("directories count their subdirectories", counts_subdirectories, directories_count_subdirectories),
    ("removal tells files from directories", always, removal_tells_files_from_directories),
    ("any bytes make a name", always, any_bytes_make_a_name),
    ("a name is not too long", always, a_name_is_not_too_long),
    ("what is no directory holds no names", always, what_is_no_directory_holds_no_names),
    ("a change of names is seen in the directory's time", always, a_change_is_seen_in_the_time),
];

fn the_root_is_a_directory(bed: &Bed<'_>) {
    let root = bed.attr(ROOT);
    assert_eq!((root.ino, root.kind), (ROOT, FileKind::Directory));
    assert!(root.nlink >= 1);
    bed.is_absent(ROOT, "nothing");
    assert_eq!(bed.lookup(ROOT, "."), ROOT);
    assert_eq!(bed.names(ROOT), [""; 0]);
}

fn names_lead_to_what_they_were_given_to(bed: &Bed<'_>) {
    let dir = bed.mkdir(ROOT, "dir");
    let file = bed.file(dir, "file", b"content");
    let entry = bed.find(dir, "file").unwrap();
    assert_eq!((entry.attr.ino, entry.attr.kind, entry.attr.size), (file, FileKind::Regular, 7));
    assert_eq!(bed.find(dir, "file").unwrap(), entry, "again");
    assert_eq!(bed.attr(file), entry.attr);
    assert_eq!(bed.lookup(ROOT, "dir"), dir);
    assert_eq!(bed.lookup(dir, "."), dir);
    assert_eq!(bed.lookup(dir, ".."), ROOT);
    let inner = bed.mkdir(dir, "inner");
    assert_eq!(bed.lookup(inner, ".."), dir);
    for (parent, name) in [(ROOT, "file"), (dir, "dir"), (dir, "File"), (dir, "fil"), (inner, "file")] {
        bed.is_absent(parent, name);
    }
    assert_eq!(bed.content(dir, "file"), b"content");
    assert_eq!(bed.names(dir), ["file", "inner"]);
}

fn a_name_is_taken_once(bed: &Bed<'_>) {
    bed.mkdir(ROOT, "dir");
    let file = bed.file(ROOT, "file", b"content");
    bed.fs.symlink(&bed.caller, ROOT, OsStr::new("link"), OsStr::new("nowhere")).unwrap();
    for name in ["dir", "file", "link"] {
        let os = OsStr::new(name);
        let answers = [
            errno(bed.try_mkdir(ROOT, name)),
            errno(bed.try_create(ROOT, name, true)),
            errno(bed.fs.mknod(&bed.caller, ROOT, os, 0o010_600, 0, 0)),
            errno(bed.fs.mknod(&bed.caller, ROOT, os, 0o100_600, 0, 0)),
            errno(bed.fs.symlink(&bed.caller, ROOT, os, OsStr::new("elsewhere"))),
            errno(bed.link(file, ROOT, name)),
        ];
        assert_eq!(answers, [Some(Errno::EEXIST); 6], "{name}");
    }
    assert_eq!(bed.content(ROOT, "file"), b"content");
    assert_eq!(bed.names(ROOT), ["dir", "file", "link"]);
}

fn modes_are_masked(bed: &Bed<'_>) {
    let mode = |attr: Attr| attr.mode;
    let (caller, name) = (&bed.caller, OsStr::new);
    let dir = bed.fs.mkdir(caller, ROOT, name("dir"), 0o1777, 0o027).unwrap().attr;
    assert_eq!(mode(dir), 0o1750);
    let (file, opened) =
        bed.fs.create(caller, ROOT, name("file"), 0o100_666, 0o022, true, READ_WRITE.into()).unwrap();
    bed.close(opened.handle);
    assert_eq!(mode(file.attr), 0o644);
    // The mask is the caller's: also one that takes the owner's rights.
    let node = bed.fs.mknod(caller, ROOT, name("fifo"), 0o010_666, 0o477, 0).unwrap().attr;
    assert_eq!(mode(node), 0o200);
    for attr in [dir, file.attr, node] {
        assert_eq!((attr.uid, attr.gid), (caller.uid, caller.gid), "{attr:?}");
        assert_eq!(bed.attr(attr.ino).mode, attr.mode);
    }
}

fn an_existing_file_is_opened(bed: &Bed<'_>) {
    let file = bed.file(ROOT, "file", b"content");
    bed.mkdir(ROOT, "dir");
    let (entry, opened) = bed.try_create(ROOT, "file", false).unwrap();
    assert_eq!(entry.attr.ino, file);
    bed.expect(opened.handle, b"content");
    bed.close(opened.handle);
    assert_eq!(errno(bed.try_create(ROOT, "dir", false)), Some(Errno::EISDIR));
    let (entry, opened) = bed.try_create(ROOT, "new", false).unwrap();
    assert_eq!((entry.attr.size, entry.attr.nlink), (0, 1));
    bed.close(opened.handle);
}

fn nodes_of_every_kind(bed: &Bed<'_>) {
    let kinds = [
        ("regular", 0o100_640, FileKind::Regular),
        ("fifo", 0o010_640, FileKind::Fifo),
        ("socket", 0o140_640, FileKind::Socket),
    ];
    for (name, mode, kind) in kinds {
        let made = bed.fs.mknod(&bed.caller, ROOT, OsStr::new(name), mode, 0o022, 0).unwrap();
        let found = bed.find(ROOT, name).unwrap();
        assert_eq!(found, made);
        assert_eq!((found.attr.kind, found.attr.mode, found.attr.nlink), (kind, 0o640, 1));
    }
    let ino = bed.lookup(ROOT, "regular");
    let handle = bed.open(ino);
    bed.write(handle, 0, b"made by mknod");
    bed.expect(handle, b"made by mknod");
    bed.close(handle);
}

fn devices_have_their_number(bed: &Bed<'_>) {
    let rdev = 0x45 | 0xabc << 8 | 0x123 << 20;
    let made = bed.fs.mknod(&bed.caller, ROOT, OsStr::new("device"), 0o020_600, 0, rdev);
    match made {
        // Where devices are not to be made, root or not.
        Err(error) => assert_eq!(error.errno(), Errno::EPERM),
        Ok(made) => {
            assert_eq!(made.attr.kind, FileKind::CharDevice);
            assert_eq!(bed.find(ROOT, "device").unwrap().attr.rdev, made.attr.rdev);
            assert_ne!(made.attr.rdev, 0);
        }
    }
}

fn symbolic_links_keep_their_target(bed: &Bed<'_>) {
    let long = vec![b'x'; 1000];
    for (name, target) in [("a", &b"target"[..]), ("b", b"/\xff\n"), ("c", b"c"), ("d", &long)] {
        let made = bed.fs.symlink(&bed.caller, ROOT, OsStr::new(name), OsStr::from_bytes(target)).unwrap();
        assert_eq!((made.attr.kind, made.attr.size), (FileKind::Symlink, target.len() as u64));
        assert_eq!(bed.lookup(ROOT, name), made.attr.ino, "it is not followed");
        assert_eq!(bed.fs.readlink(&bed.caller, made.attr.ino).unwrap(), target);
    }
    let file = bed.file(ROOT, "file", b"");
    bed.fs.readlink(&bed.caller, file).unwrap_err();
    let other = bed.link(bed.lookup(ROOT, "a"), ROOT, "other").unwrap();
    assert_eq!((other.attr.kind, other.attr.nlink), (FileKind::Symlink, 2));
    bed.unlink(ROOT, "a").unwrap();
    assert_eq!(bed.fs.readlink(&bed.caller, other.attr.ino).unwrap(), b"target");
}

fn a_file_has_as_many_links_as_names(bed: &Bed<'_>) {
    let dir = bed.mkdir(ROOT, "dir");
    let file = bed.file(ROOT, "file", b"content");
    assert_eq!(bed.attr(file).nlink, 1);
    let linked = bed.link(file, dir, "other").unwrap();
    assert_eq!((linked.attr.ino, linked.attr.nlink), (file, 2));
    bed.link(file, ROOT, "third").unwrap();
    assert_eq!(bed.attr(file).nlink, 3);
    assert_eq!(bed.content(dir, "other"), b"content");
    assert_eq!(errno(bed.link(dir, ROOT, "dir2")), Some(Errno::EPERM), "no links to directories");
    bed.unlink(ROOT, "file").unwrap();
    assert_eq!(bed.attr(file).nlink, 2);
    bed.is_absent(ROOT, "file");
    bed.unlink(ROOT, "third").unwrap();
    assert_eq!(bed.content(dir, "other"), b"content");
    assert_eq!(bed.attr(file).nlink, 1);
}

/// Some file systems count 1 for every directory.
fn counts_subdirectories(bed: &Bed<'_>) -> bool {
    bed.attr(ROOT).nlink >= 2
}

fn directories_count_subdirectories(bed: &Bed<'_>) {
    let dir = bed.mkdir(ROOT, "dir");
    let links = |ino: InodeId| bed.attr(ino).nlink;
    assert_eq!(links(dir), 2);
    let before = links(ROOT);
    let inner = bed.mkdir(dir, "inner");
    bed.file(dir, "file", b"");
    assert_eq!((links(ROOT), links(dir), links(inner)), (before, 3, 2));
    bed.rename((dir, "inner"), (ROOT, "moved"), Default::default()).unwrap();
    assert_eq!((links(ROOT), links(dir), links(inner)), (before + 1, 2, 2));
    bed.rmdir(ROOT, "moved").unwrap();
    assert_eq!(links(ROOT), before);
}

fn removal_tells_files_from_directories(bed: &Bed<'_>) {
    bed.file(ROOT, "file", b"");
    let dir = bed.mkdir(ROOT, "dir");
    bed.file(dir, "inner", b"");
    assert_eq!(errno(bed.rmdir(ROOT, "file")), Some(Errno::ENOTDIR));
    assert_eq!(errno(bed.unlink(ROOT, "dir")), Some(Errno::EISDIR));
    assert_eq!(errno(bed.rmdir(ROOT, "dir")), Some(Errno::ENOTEMPTY));
    assert_eq!(errno(bed.unlink(ROOT, "nothing")), Some(Errno::ENOENT));
    assert_eq!(errno(bed.rmdir(ROOT, "nothing")), Some(Errno::ENOENT));
    bed.unlink(dir, "inner").unwrap();
    bed.rmdir(ROOT, "dir").unwrap();
    bed.unlink(ROOT, "file").unwrap();
    assert_eq!(bed.names(ROOT), [""; 0]);
    // The directory is gone for holders of its number, too.
    let gone = |answer: Result<()>| {
        assert!(matches!(errno(answer), Some(Errno::ENOENT | Errno::ESTALE)), "in a directory that is gone");
    };
    gone(bed.try_mkdir(dir, "x").map(drop));
    gone(bed.try_create(dir, "x", true).map(drop));
    gone(bed.find(dir, "x").map(drop));
}

fn any_bytes_make_a_name(bed: &Bed<'_>) {
    let mut names: Vec<Vec<u8>> =
        (1..=255).filter(|byte| ![b'/', b'.'].contains(byte)).map(|byte| vec![byte]).collect();
    names.extend([b"...".to_vec(), b". ".to_vec(), b"\xff\xfe\n".to_vec(), vec![b'n'; 255]]);
    for name in &names {
        let name = OsStr::from_bytes(name);
        let made = bed.fs.mknod(&bed.caller, ROOT, name, 0o100_600, 0, 0).unwrap();
        assert_eq!(bed.fs.lookup(&bed.caller, ROOT, name).unwrap(), made);
    }
    let mut listed: Vec<Vec<u8>> =
        bed.list(ROOT, false, 7).into_iter().map(|listed| OsString::into_vec(listed.name)).collect();
    listed.sort();
    names.sort();
    assert_eq!(listed, names);
}

fn a_name_is_not_too_long(bed: &Bed<'_>) {
    let name_max = bed.fs.statfs(&bed.caller).unwrap().name_max as usize;
    let (longest, too_long) = ("n".repeat(name_max), "n".repeat(name_max + 1));
    bed.mkdir(ROOT, &longest);
    assert_eq!(bed.names(ROOT), [longest.as_str()]);
    let answers = [
        errno(bed.try_mkdir(ROOT, &too_long)),
        errno(bed.try_create(ROOT, &too_long, true)),
        errno(bed.find(ROOT, &too_long)),
        errno(bed.rename((ROOT, &longest), (ROOT, &too_long), Default::default())),
    ];
    assert_eq!(answers, [Some(Errno::ENAMETOOLONG); 4]);
}

fn what_is_no_directory_holds_no_names(bed: &Bed<'_>) {
    let file = bed.file(ROOT, "file", b"");
    let other = bed.file(ROOT, "other", b"");
    let answers = [
        errno(bed.find(file, "x")),
        errno(bed.try_mkdir(file, "x")),
        errno(bed.try_create(file, "x", true)),
        errno(bed.link(other, file, "x")),
        errno(bed.unlink(file, "x")),
        errno(bed.rmdir(file, "x")),
        errno(bed.rename((ROOT, "other"), (file, "x"), Default::default())),
        errno(bed.rename((file, "x"), (ROOT, "y"), Default::default())),
        errno(bed.fs.open_dir(&bed.caller, file)),
    ];
    assert_eq!(answers, [Some(Errno::ENOTDIR); 9]);
}

fn a_change_is_seen_in_the_time(bed: &Bed<'_>) {
    let (dir, other) = (bed.mkdir(ROOT, "dir"), bed.mkdir(ROOT, "other"));
    let file = bed.file(dir, "file", b"content");
    let sees = |dirs: &[InodeId], what: &str, change: &dyn Fn()| {
        dirs.iter().for_each(|dir| bed.age(*dir));
        change();
        for dir in dirs {
            assert!(bed.attr(*dir).mtime > LONG_AGO, "{what}");
        }
    };
    bed.age(file);
    sees(&[dir], "create", &|| _ = bed.file(dir, "new", b""));
    sees(&[dir], "link", &|| _ = bed.link(file, dir, "linked").unwrap());
    sees(&[dir], "mkdir", &|| _ = bed.mkdir(dir, "inner"));
    sees(&[dir], "rmdir", &|| bed.rmdir(dir, "inner").unwrap());
    sees(&[dir], "unlink", &|| bed.unlink(dir, "new").unwrap());
    sees(&[dir, other], "rename", &|| {
        bed.rename((dir, "linked"), (other, "renamed"), Default::default()).unwrap();
    });
    assert_eq!(bed.attr(file).mtime, LONG_AGO, "a name is no content");
    bed.age(dir);
    bed.find(dir, "file").unwrap();
    bed.names(dir);
    assert_eq!(bed.attr(dir).mtime, LONG_AGO, "looking changes nothing");
}
