//! Reading directories.

use super::bed::{Bed, ROOT, errno};
use super::{Case, always};
use braid_contract::{Errno, FileKind};
use std::collections::BTreeMap;
use std::ffi::OsStr;

pub(super) const CASES: [Case; 7] = [
    ("a directory lists itself and its parent", always, a_directory_lists_itself_and_its_parent),
    ("each name is listed once, however many are taken", always, each_name_is_listed_once),
    ("a directory is read on from any offset", always, a_directory_is_read_on),
    ("what is listed has its kind and number", always, what_is_listed_has_its_kind_and_number),
    ("entries come with attributes if asked for", always, entries_come_with_attributes),
    ("what is removed while a directory is read", always, removed_while_it_is_read),
    ("a directory is opened, synced and closed", always, a_directory_is_opened_synced_and_closed),
];

fn a_directory_lists_itself_and_its_parent(bed: &Bed<'_>) {
    let dir = bed.mkdir(ROOT, "dir");
    for (ino, names) in [(dir, [".", ".."].as_slice()), (ROOT, &[".", "..", "dir"])] {
        let handle = bed.fs.open_dir(&bed.caller, ino).unwrap();
        let mut listed: Vec<_> =
            bed.list_some(handle, 0, false, usize::MAX).into_iter().map(|listed| listed.name).collect();
        listed.sort();
        assert_eq!(listed, names);
        bed.fs.release_dir(handle).unwrap();
    }
}

fn each_name_is_listed_once(bed: &Bed<'_>) {
    let mut wanted: Vec<String> = (0..300).map(|n| format!("{n:0>40}")).collect();
    wanted.iter().for_each(|name| _ = bed.mkdir(ROOT, name));
    wanted.sort();
    for (plus, room) in [(false, 1), (false, 7), (true, 7), (true, usize::MAX), (false, usize::MAX)] {
        let mut names: Vec<_> =
            bed.list(ROOT, plus, room).into_iter().map(|listed| listed.name.into_string().unwrap()).collect();
        names.sort();
        assert_eq!(names, wanted, "{room} at a time");
    }
}

fn a_directory_is_read_on(bed: &Bed<'_>) {
    (0..50).for_each(|n| _ = bed.file(ROOT, &format!("file-{n}"), b""));
    let handle = bed.fs.open_dir(&bed.caller, ROOT).unwrap();
    let all = bed.list_some(handle, 0, false, usize::MAX);
    // Also backwards, and again.
    for (at, listed) in all.iter().enumerate().rev() {
        assert_eq!(bed.list_some(handle, listed.next_offset, false, usize::MAX), all[at + 1..], "after {at}");
    }
    assert_eq!(bed.list_some(handle, 0, false, 5), all[..5]);
    bed.fs.release_dir(handle).unwrap();
}

fn what_is_listed_has_its_kind_and_number(bed: &Bed<'_>) {
    let dir = bed.mkdir(ROOT, "dir");
    let made = BTreeMap::from([
        ("directory", (bed.mkdir(dir, "directory"), FileKind::Directory)),
        ("file", (bed.file(dir, "file", b""), FileKind::Regular)),
        (
            "link",
            (
                bed.fs.symlink(&bed.caller, dir, OsStr::new("link"), OsStr::new("x")).unwrap().attr.ino,
                FileKind::Symlink,
            ),
        ),
    ]);
    for plus in [false, true] {
        let listed = bed.list(dir, plus, 2);
        assert_eq!(listed.len(), made.len());
        for listed in listed {
            let (ino, kind) = made[listed.name.to_str().unwrap()];
            assert_eq!((listed.ino, listed.kind.unwrap_or(kind)), (ino, kind), "{:?}", listed.name);
        }
    }
}

fn entries_come_with_attributes(bed: &Bed<'_>) {
    let dir = bed.mkdir(ROOT, "dir");
    for n in 0..20 {
        let name = format!("file-{n}");
        let ino = bed.file(dir, &name, &vec![1; n]);
        bed.fs.forget(ino, 1);
    }
    let listed = bed.list(dir, true, 6);
    assert_eq!(listed.len(), 20);
    for listed in &listed {
        // It may have been left out: then the name is looked up.
        let Some(entry) = listed.entry else { continue };
        let name = listed.name.to_str().unwrap();
        assert_eq!(entry.attr.ino, listed.ino);
        assert_eq!(format!("file-{}", entry.attr.size), name);
        // It counts as a lookup, so the number is valid without another one.
        assert_eq!(bed.attr(entry.attr.ino).size, entry.attr.size, "{name}");
        let looked_up = bed.find(dir, name).unwrap();
        assert_eq!((looked_up.attr.ino, looked_up.generation), (entry.attr.ino, entry.generation));
        bed.fs.forget(entry.attr.ino, 2);
    }
    assert!(listed.iter().any(|listed| listed.entry.is_some()), "no entry came with attributes");
    for listed in bed.list(dir, false, 6) {
        assert_eq!(listed.entry, None);
    }
}

fn removed_while_it_is_read(bed: &Bed<'_>) {
    let wanted: Vec<String> = (0..60).map(|n| format!("file-{n}")).collect();
    wanted.iter().for_each(|name| _ = bed.file(ROOT, name, b""));
    let handle = bed.fs.open_dir(&bed.caller, ROOT).unwrap();
    let mut seen: Vec<String> = Vec::new();
    let mut offset = 0;
    loop {
        let some = bed.list_some(handle, offset, false, 4);
        let Some(last) = some.last() else { break };
        offset = last.next_offset;
        for listed in some {
            let name = listed.name.into_string().unwrap();
            if name.starts_with("file-") {
                bed.unlink(ROOT, &name).unwrap();
                seen.push(name);
            }
        }
    }
    bed.fs.release_dir(handle).unwrap();
    seen.sort();
    let mut sorted = wanted;
    sorted.sort();
    assert_eq!(seen, sorted, "what was there all the time is listed once");
    assert_eq!(bed.names(ROOT), [""; 0]);
}

fn a_directory_is_opened_synced_and_closed(bed: &Bed<'_>) {
    let dir = bed.mkdir(ROOT, "dir");
    let handle = bed.fs.open_dir(&bed.caller, dir).unwrap();
    bed.file(dir, "file", b"");
    bed.fs.sync_dir(&bed.caller, handle).unwrap();
    let other = bed.fs.open_dir(&bed.caller, dir).unwrap();
    bed.fs.release_dir(handle).unwrap();
    assert_eq!(bed.list_some(other, 0, false, usize::MAX).len(), 3);
    bed.unlink(dir, "file").unwrap();
    bed.rmdir(ROOT, "dir").unwrap();
    let gone = bed.try_list(other, 0, false, usize::MAX);
    assert!(gone.is_ok() || errno(gone) == Some(Errno::ENOENT), "it is gone, and may say so");
    bed.fs.release_dir(other).unwrap();
    assert_eq!(errno(bed.find(ROOT, "dir")), Some(Errno::ENOENT));
    bed.fs.sync().unwrap();
}
