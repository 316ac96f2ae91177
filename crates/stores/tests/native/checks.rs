//! The properties of a native file system that code above relies on. The checks
//! take any descriptor of an empty directory, so that a simulated file system
//! can be checked in the same way.

use braid_contract::{
    Access, Errno, FallocateMode, Fd, FileKind, RenameMode, Result, SeekTarget, SetTime, Timestamp,
    XattrMode, open_by_steps,
};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::{IoSlice, IoSliceMut};
use std::path::Path;

const PAGE: usize = 4096;

/// A name of a check, and the check.
pub(crate) type Check = (&'static str, fn(&Fd));

/// Every check; each wants an empty directory of its own.
pub(crate) const CHECKS: [Check; 20] = [
    ("names_lead_to_what_they_were_given_to", names_lead_to_what_they_were_given_to),
    ("a_file_is_made_once", a_file_is_made_once),
    ("a_file_may_get_its_name_later", a_file_may_get_its_name_later),
    ("links_at_the_end_are_not_followed", links_at_the_end_are_not_followed),
    ("only_directories_are_gone_through", only_directories_are_gone_through),
    ("nodes_have_their_kind_and_number", nodes_have_their_kind_and_number),
    ("a_file_has_as_many_links_as_names", a_file_has_as_many_links_as_names),
    ("removal_tells_files_from_directories", removal_tells_files_from_directories),
    ("renames_replace_refuse_and_exchange", renames_replace_refuse_and_exchange),
    ("listing_goes_on_where_it_stopped", listing_goes_on_where_it_stopped),
    ("handles_outlive_names_and_not_inodes", handles_outlive_names_and_not_inodes),
    ("the_same_inode_is_opened_anew", the_same_inode_is_opened_anew),
    ("extended_attributes_by_any_descriptor", extended_attributes_by_any_descriptor),
    ("attributes_by_any_descriptor", attributes_by_any_descriptor),
    ("reads_and_writes_whatever_the_alignment", reads_and_writes_whatever_the_alignment),
    ("descriptors_allow_what_they_were_opened_for", descriptors_allow_what_they_were_opened_for),
    ("space_is_reserved_freed_and_zeroed", space_is_reserved_freed_and_zeroed),
    ("copies_between_files", copies_between_files),
    ("words_are_those_of_the_file", words_are_those_of_the_file),
    ("small_files_are_replaced_as_a_whole", small_files_are_replaced_as_a_whole),
];

pub(crate) fn os(text: &str) -> &OsStr {
    OsStr::new(text)
}

pub(crate) fn errno<T>(result: Result<T>) -> Errno {
    result.err().unwrap().errno()
}

fn write(file: &Fd, offset: u64, bytes: &[u8]) {
    assert_eq!(file.write_at(offset, &[IoSlice::new(bytes)], false).unwrap(), bytes.len());
}

fn read(file: &Fd, offset: u64, len: usize) -> Vec<u8> {
    let mut buf = vec![0xee; len];
    let done = file.read_at(offset, &mut [IoSliceMut::new(&mut buf)], false).unwrap();
    buf.truncate(done);
    buf
}

fn make(dir: &Fd, name: &str, bytes: &[u8]) -> Fd {
    let file = dir.create_at(os(name), 0o600).unwrap();
    write(&file, 0, bytes);
    file
}

fn contents(dir: &Fd, name: &str) -> Vec<u8> {
    read(&dir.open_at(os(name), Access::Read).unwrap(), 0, 100)
}

fn names(dir: &Fd) -> BTreeMap<OsString, (u64, u32)> {
    let mut names = BTreeMap::new();
    let visit = &mut |entry: &braid_contract::NativeDirEntry<'_>| {
        names.insert(entry.name.to_owned(), (entry.ino, entry.kind));
        Ok(true)
    };
    dir.open_at(os("."), Access::Directory).unwrap().read_dir(0, visit).unwrap();
    names
}

fn names_lead_to_what_they_were_given_to(root: &Fd) {
    root.make_dir_at(os("d"), 0o700).unwrap();
    root.make_dir_at(os("d/e"), 0o700).unwrap();
    root.create_at(os("d/e/f"), 0o600).unwrap();
    let inner = root.open_at(os("d/e"), Access::Path).unwrap();
    let a = inner.open_at(os("f"), Access::Read).unwrap().stat().unwrap();
    let b = root.open_at(os("d/e/f"), Access::Path).unwrap().stat().unwrap();
    assert_eq!((a.attr.ino, a.device), (b.attr.ino, b.device));
    assert_eq!(a.device, root.usage().unwrap().space.device);
    assert_eq!(errno(root.open_at(os("no"), Access::Path)), Errno::ENOENT);
    assert_eq!(errno(root.open_at(os("d/e/f/g"), Access::Path)), Errno::ENOTDIR);
    assert_eq!(errno(root.open_at(os("d/e/f"), Access::Directory)), Errno::ENOTDIR);
    assert_eq!(errno(root.open_at(os("d"), Access::ReadWrite)), Errno::EISDIR);
    assert_eq!(errno(root.open_at(os(&"n".repeat(256)), Access::Path)), Errno::ENAMETOOLONG);
    root.open_at(os("d"), Access::Directory).unwrap().sync(false).unwrap();
    root.sync_fs().unwrap();
}

fn a_file_is_made_once(root: &Fd) {
    make(root, "f", b"abc");
    assert_eq!(errno(root.create_at(os("f"), 0o600)), Errno::EEXIST);
    assert_eq!(contents(root, "f"), b"abc");
    root.make_dir_at(os("d"), 0o700).unwrap();
    assert_eq!(errno(root.make_dir_at(os("d"), 0o700)), Errno::EEXIST);
    assert_eq!(errno(root.create_at(os("d"), 0o600)), Errno::EEXIST);
    assert_eq!(errno(root.create_at(os("no/f"), 0o600)), Errno::ENOENT);
}

fn a_file_may_get_its_name_later(root: &Fd) {
    root.make_dir_at(os("d"), 0o700).unwrap();
    // A descriptor for looking will do.
    let dir = root.open_at(os("d"), Access::Path).unwrap();
    let file = match dir.create_unnamed(0o640) {
        // Not every file system can.
        Err(error) if error.errno() == Errno::EOPNOTSUPP => return,
        made => made.unwrap(),
    };
    write(&file, 0, b"abc");
    let attr = file.stat().unwrap().attr;
    assert_eq!((attr.kind, attr.nlink, attr.mode & 0o777), (FileKind::Regular, 0, 0o640));
    assert!(names(&dir).keys().all(|name| name == "." || name == ".."));
    assert_eq!(errno(file.path()), Errno::ENOENT);
    let again = file.reopen(Access::Path).unwrap();
    again.link_to(root.as_native(), os("f")).unwrap();
    assert_eq!(contents(root, "f"), b"abc");
    assert_eq!(file.stat().unwrap().attr.nlink, 1);
    root.remove_at(os("f"), false).unwrap();
    assert_eq!(errno(file.link_to(root.as_native(), os("g"))), Errno::ENOENT);
    assert_eq!(read(&file, 0, 9), b"abc");
    // Nothing is left of one that never gets a name.
    let handle = dir.create_unnamed(0o600).unwrap().handle();
    if let Ok(handle) = handle {
        assert_eq!(errno(root.open_handle(&handle, Access::Path)), Errno::ESTALE);
    }
    assert_eq!(errno(root.open_at(os("f"), Access::Path)), Errno::ENOENT);
    assert_eq!(errno(file.create_unnamed(0o600)), Errno::ENOTDIR);
}

fn links_at_the_end_are_not_followed(root: &Fd) {
    make(root, "f", b"abc");
    root.make_symlink_at(os("l"), os("f")).unwrap();
    assert_eq!(errno(root.open_at(os("l"), Access::Read)), Errno::ELOOP);
    assert_eq!(errno(root.open_at(os("l"), Access::Directory)), Errno::ENOTDIR);
    assert_eq!(errno(root.make_symlink_at(os("l"), os("x"))), Errno::EEXIST);
    let link = root.open_at(os("l"), Access::Path).unwrap();
    assert_eq!(link.read_link().unwrap(), b"f");
    let attr = link.stat().unwrap().attr;
    assert_eq!((attr.kind, attr.size), (FileKind::Symlink, 1));
    let again = link.reopen(Access::Path).unwrap();
    assert_eq!(again.stat().unwrap().attr.ino, attr.ino);
    let at = SetTime::At(Timestamp { secs: 5, nanos: 6 });
    again.set_times(None, Some(at)).unwrap();
    assert_eq!(link.stat().unwrap().attr.mtime, Timestamp { secs: 5, nanos: 6 });
    link.link_to(root.as_native(), os("m")).unwrap();
    assert_eq!(root.open_at(os("m"), Access::Path).unwrap().read_link().unwrap(), b"f");
    if let Ok(found) = link.handle().and_then(|handle| root.open_handle(&handle, Access::Path)) {
        assert_eq!(found.read_link().unwrap(), b"f");
    }
}

fn only_directories_are_gone_through(root: &Fd) {
    root.make_dir_at(os("d"), 0o700).unwrap();
    let dir = root.open_below(Path::new("d")).unwrap();
    dir.make_dir_at(os("e"), 0o700).unwrap();
    make(&dir, "f", b"abc");
    root.make_symlink_at(os("l"), os("d")).unwrap();
    type Open = fn(&Fd, &str) -> Result<Fd>;
    let ways: [Open; 2] = [
        |root, path| root.open_below(Path::new(path)),
        |root, path| open_by_steps(root.as_native(), Path::new(path)),
    ];
    for open in ways {
        let ino = |fd: Fd| fd.stat().unwrap().attr.ino;
        let inner = dir.open_at(os("e"), Access::Path).unwrap();
        assert_eq!(ino(open(root, "d/e").unwrap()), ino(inner));
        assert_eq!(ino(open(root, "").unwrap()), ino(Fd::clone(root)));
        for path in ["l", "l/e", "d/f"] {
            assert!(matches!(errno(open(root, path)), Errno::ELOOP | Errno::ENOTDIR), "{path}");
        }
        assert_eq!(errno(open(root, "d/none/e")), Errno::ENOENT);
        assert_eq!(errno(open(&dir, "..")), Errno::EXDEV);
    }
}

fn nodes_have_their_kind_and_number(root: &Fd) {
    for (name, mode, kind) in [
        ("p", 0o010_640, FileKind::Fifo),
        ("s", 0o140_600, FileKind::Socket),
        ("r", 0o100_604, FileKind::Regular),
    ] {
        root.make_node_at(os(name), mode, 0).unwrap();
        let attr = root.open_at(os(name), Access::Path).unwrap().stat().unwrap().attr;
        assert_eq!((attr.kind, attr.rdev), (kind, 0), "{name}");
    }
    // Needs a privilege.
    let rdev = 0x45 | 0xabc << 8 | 0x123 << 20;
    if root.make_node_at(os("c"), 0o020_600, rdev).is_ok() {
        let attr = root.open_at(os("c"), Access::Path).unwrap().stat().unwrap().attr;
        assert_eq!((attr.kind, attr.rdev), (FileKind::CharDevice, rdev));
    }
}

fn a_file_has_as_many_links_as_names(root: &Fd) {
    let file = make(root, "a", b"abc");
    root.make_dir_at(os("d"), 0o700).unwrap();
    let dir = root.open_at(os("d"), Access::Path).unwrap();
    root.open_at(os("a"), Access::Path).unwrap().link_to(dir.as_native(), os("b")).unwrap();
    file.link_to(root.as_native(), os("c")).unwrap();
    assert_eq!(errno(file.link_to(root.as_native(), os("c"))), Errno::EEXIST);
    assert_eq!(file.stat().unwrap().attr.nlink, 3);
    for name in ["a", "d/b", "c"] {
        root.remove_at(os(name), false).unwrap();
    }
    assert_eq!(file.stat().unwrap().attr.nlink, 0);
    // Open, it stays.
    assert_eq!(read(&file, 0, 9), b"abc");
    write(&file, 3, b"d");
    assert_eq!(file.stat().unwrap().attr.size, 4);
}

fn removal_tells_files_from_directories(root: &Fd) {
    make(root, "f", b"");
    root.make_dir_at(os("d"), 0o700).unwrap();
    make(root, "d/f", b"");
    assert_eq!(errno(root.remove_at(os("f"), true)), Errno::ENOTDIR);
    assert_eq!(errno(root.remove_at(os("d"), false)), Errno::EISDIR);
    assert_eq!(errno(root.remove_at(os("d"), true)), Errno::ENOTEMPTY);
    assert_eq!(errno(root.remove_at(os("no"), false)), Errno::ENOENT);
    root.remove_at(os("d/f"), false).unwrap();
    root.remove_at(os("d"), true).unwrap();
    root.remove_at(os("f"), false).unwrap();
    assert_eq!(names(root).len(), 2);
}

fn renames_replace_refuse_and_exchange(root: &Fd) {
    make(root, "a", b"a");
    let replaced = make(root, "b", b"b");
    root.make_dir_at(os("d"), 0o700).unwrap();
    let dir = root.open_at(os("d"), Access::Directory).unwrap();
    let rename = |from, to: &Fd, name, mode| root.rename_at(os(from), to.as_native(), os(name), mode);
    assert_eq!(errno(rename("a", root, "b", RenameMode::NoReplace)), Errno::EEXIST);
    assert_eq!(errno(rename("a", root, "no", RenameMode::Exchange)), Errno::ENOENT);
    assert_eq!(errno(rename("a", root, "d", RenameMode::Replace)), Errno::EISDIR);
    assert_eq!(errno(rename("d", root, "a", RenameMode::Replace)), Errno::ENOTDIR);
    assert_eq!(errno(rename("d", &dir, "x", RenameMode::Replace)), Errno::EINVAL);
    rename("a", root, "b", RenameMode::Exchange).unwrap();
    assert_eq!((contents(root, "a"), contents(root, "b")), (b"b".to_vec(), b"a".to_vec()));
    rename("b", root, "a", RenameMode::Replace).unwrap();
    assert_eq!(contents(root, "a"), b"a");
    assert_eq!(replaced.stat().unwrap().attr.nlink, 0);
    assert_eq!(errno(root.open_at(os("b"), Access::Path)), Errno::ENOENT);
    rename("a", &dir, "c", RenameMode::NoReplace).unwrap();
    assert_eq!(contents(root, "d/c"), b"a");
    root.make_dir_at(os("e"), 0o700).unwrap();
    assert_eq!(errno(rename("e", root, "d", RenameMode::Replace)), Errno::ENOTEMPTY);
    rename("d", root, "e", RenameMode::Replace).unwrap();
    assert_eq!(contents(root, "e/c"), b"a");
    // Two names of one file: nothing happens.
    let file = root.open_at(os("e/c"), Access::Path).unwrap();
    file.link_to(root.as_native(), os("l")).unwrap();
    rename("l", &root.open_at(os("e"), Access::Path).unwrap(), "c", RenameMode::Replace).unwrap();
    assert_eq!(file.stat().unwrap().attr.nlink, 2);
}

fn listing_goes_on_where_it_stopped(root: &Fd) {
    let wanted: Vec<String> = (0..700).map(|n| format!("{n:0>60}")).collect();
    for name in &wanted {
        root.make_node_at(os(name), 0o100_600, 0).unwrap();
    }
    root.make_dir_at(os("d"), 0o700).unwrap();
    let dir = root.open_at(os("."), Access::Directory).unwrap();
    let (mut seen, mut offset) = (BTreeMap::new(), 0);
    loop {
        let mut taken = 0;
        dir.read_dir(offset, &mut |entry| {
            if taken == 7 {
                return Ok(false);
            }
            taken += 1;
            offset = entry.next_offset;
            assert!(seen.insert(entry.name.to_owned(), entry.kind).is_none(), "{:?} came twice", entry.name);
            Ok(true)
        })
        .unwrap();
        if taken == 0 {
            break;
        }
    }
    assert_eq!(seen.len(), wanted.len() + 3);
    for (name, kind) in [(".", 0o040_000), ("..", 0o040_000), ("d", 0o040_000), (&wanted[3], 0o100_000)] {
        assert!([0, kind].contains(&seen[os(name)]), "{name}");
    }
    let ino = names(root)[os(&wanted[5])].0;
    assert_eq!(ino, root.open_at(os(&wanted[5]), Access::Path).unwrap().stat().unwrap().attr.ino.0);
    assert_eq!(errno(dir.read_dir(0, &mut |_| Err(Errno::EMFILE.into()))), Errno::EMFILE);
    // Names created after the directory was opened are listed from the start.
    make(root, "late", b"");
    let mut late = false;
    dir.read_dir(0, &mut |entry| {
        late |= entry.name == "late";
        Ok(true)
    })
    .unwrap();
    assert!(late);
}

fn handles_outlive_names_and_not_inodes(root: &Fd) {
    let file = make(root, "a", b"abc");
    let handle = match file.handle() {
        Ok(handle) => handle,
        Err(error) => return assert_eq!(error.errno(), Errno::EOPNOTSUPP),
    };
    let other = make(root, "b", b"").handle().unwrap();
    assert_ne!(handle, other);
    let number = file.stat().unwrap().attr.ino.0;
    match root.handle_of(number).and_then(|handle| root.open_handle(&handle, Access::Path)) {
        Ok(found) => assert_eq!(found.stat().unwrap().attr.ino.0, number),
        Err(error) => assert!(matches!(error.errno(), Errno::EOPNOTSUPP | Errno::EPERM), "{error}"),
    }
    assert_ne!(handle.generation(), other.generation());
    drop(file);
    root.rename_at(os("a"), root.as_native(), os("c"), RenameMode::Replace).unwrap();
    let found = match root.open_handle(&handle, Access::ReadWrite) {
        Ok(found) => found,
        Err(error) => return assert_eq!(error.errno(), Errno::EPERM),
    };
    assert_eq!(read(&found, 0, 9), b"abc");
    let path = root.open_handle(&handle, Access::Path).unwrap();
    assert_eq!(path.handle().unwrap(), handle);
    drop((found, path));
    root.remove_at(os("c"), false).unwrap();
    assert_eq!(errno(root.open_handle(&handle, Access::Path)), Errno::ESTALE);
    let dir = root.handle().unwrap();
    let dir = root.open_handle(&dir, Access::Directory).unwrap();
    assert!(names(&dir).contains_key(os("b")));
}

fn the_same_inode_is_opened_anew(root: &Fd) {
    drop(make(root, "f", b"abc"));
    let path = root.open_at(os("f"), Access::Path).unwrap();
    root.remove_at(os("f"), false).unwrap();
    let file = path.reopen(Access::ReadWrite).unwrap();
    write(&file, 3, b"d");
    assert_eq!(read(&path.reopen(Access::Read).unwrap(), 0, 9), b"abcd");
    let again = file.reopen(Access::Path).unwrap().reopen(Access::Path).unwrap();
    assert_eq!(again.stat().unwrap().attr.size, 4);
    assert_eq!(errno(again.reopen(Access::Directory)), Errno::ENOTDIR);
    let dir = root.reopen(Access::Path).unwrap();
    make(&dir, "g", b"x");
    dir.reopen(Access::Directory).unwrap().sync(false).unwrap();
    assert_eq!(contents(root, "g"), b"x");
}

fn extended_attributes_by_any_descriptor(root: &Fd) {
    let file = make(root, "f", b"");
    let path = root.open_at(os("f"), Access::Path).unwrap();
    let name = os("user.braid.test");
    let mut buf = [0; 64];
    assert_eq!(errno(path.get_xattr(name, &mut buf)), Errno::ENODATA);
    assert_eq!(errno(path.set_xattr(name, b"1", XattrMode::Replace)), Errno::ENODATA);
    for (fd, other) in [(&file, &path), (&path, &file)] {
        fd.set_xattr(name, b"12", XattrMode::Create).unwrap();
        assert_eq!(errno(other.set_xattr(name, b"3", XattrMode::Create)), Errno::EEXIST);
        other.set_xattr(name, b"345", XattrMode::Replace).unwrap();
        assert_eq!(fd.get_xattr(name, &mut buf).unwrap(), 3);
        assert_eq!(&buf[..3], b"345");
        assert_eq!(errno(fd.get_xattr(name, &mut buf[..2])), Errno::ERANGE);
        let len = other.list_xattr(&mut buf).unwrap();
        assert!(buf[..len].split(|byte| *byte == 0).any(|one| one == b"user.braid.test"));
        assert_eq!(errno(other.list_xattr(&mut buf[..3])), Errno::ERANGE);
        fd.remove_xattr(name).unwrap();
        assert_eq!(errno(other.remove_xattr(name)), Errno::ENODATA);
    }
}

fn attributes_by_any_descriptor(root: &Fd) {
    let file = make(root, "f", b"abc");
    let path = root.open_at(os("f"), Access::Path).unwrap();
    let before = file.stat().unwrap().attr;
    assert_eq!((before.kind, before.mode, before.size), (FileKind::Regular, 0o600, 3));
    let at = |secs, nanos| Timestamp { secs, nanos };
    for (fd, mode, time) in [(&file, 0o4751, at(1, 2)), (&path, 0o640, at(-7, 999_999_999))] {
        fd.set_mode(mode).unwrap();
        fd.set_owner(Some(before.uid), None).unwrap();
        fd.set_owner(None, None).unwrap();
        fd.set_mode(mode).unwrap();
        fd.set_times(None, Some(SetTime::At(time))).unwrap();
        let attr = path.stat().unwrap().attr;
        assert_eq!((u32::from(attr.mode), attr.mtime, attr.atime), (mode, time, before.atime));
        assert_eq!((attr.uid, attr.gid, attr.nlink), (before.uid, before.gid, 1));
        fd.set_times(Some(SetTime::At(before.atime)), Some(SetTime::Now)).unwrap();
        assert!(path.stat().unwrap().attr.mtime >= before.mtime);
    }
    file.set_times(Some(SetTime::At(at(0, 1))), None).unwrap();
    let attr = file.stat().unwrap().attr;
    assert_eq!(attr.atime, at(0, 1));
    assert_eq!(attr.btime, before.btime);
    assert!(attr.ctime >= before.ctime);
}

fn reads_and_writes_whatever_the_alignment(root: &Fd) {
    let file = make(root, "f", b"");
    let data: Vec<u8> = (0..5 * PAGE).map(|n| (n % 251) as u8).collect();
    for (start, end, direct) in
        [(0, 2 * PAGE, true), (2 * PAGE, 2 * PAGE + 7, true), (2 * PAGE + 7, 5 * PAGE, false)]
    {
        let halves = data[start..end].split_at((end - start) / 2);
        let bufs = [IoSlice::new(halves.0), IoSlice::new(halves.1)];
        assert_eq!(file.write_at(start as u64, &bufs, direct).unwrap(), end - start);
    }
    assert_eq!(file.write_at(0, &[IoSlice::new(&data[..PAGE])], true).unwrap(), PAGE);
    for (start, len, direct) in [(0, PAGE, true), (1, 77, true), (PAGE, 9 * PAGE, true), (3, 9 * PAGE, false)]
    {
        let mut buf = vec![0xee; len + 1];
        let done = file.read_at(start as u64, &mut [IoSliceMut::new(&mut buf[1..])], direct).unwrap();
        assert_eq!(done, len.min(5 * PAGE - start));
        assert_eq!(buf[1..=done], data[start..start + done], "{start} {len}");
    }
    assert_eq!(read(&file, 99 * PAGE as u64, 5), b"");
    // A gap reads as zeros.
    write(&file, 10 * PAGE as u64, b"end");
    assert_eq!(read(&file, 10 * PAGE as u64 - 2, 9), b"\0\0end");
    file.truncate(2).unwrap();
    file.truncate(4).unwrap();
    assert_eq!(read(&file, 0, 9), [0, 1, 0, 0]);
    file.sync(true).unwrap();
    file.sync(false).unwrap();
}

fn descriptors_allow_what_they_were_opened_for(root: &Fd) {
    drop(make(root, "f", b"abc"));
    let open = |access| root.open_at(os("f"), access).unwrap();
    let try_write = |fd: &Fd| fd.write_at(0, &[IoSlice::new(b"x")], false);
    let try_read = |fd: &Fd| fd.read_at(0, &mut [IoSliceMut::new(&mut [0; 3])], false);
    assert_eq!(errno(try_write(&open(Access::Read))), Errno::EBADF);
    assert_eq!(errno(try_read(&open(Access::Write))), Errno::EBADF);
    assert_eq!(errno(try_read(&open(Access::Path))), Errno::EBADF);
    assert_eq!(errno(open(Access::Path).sync(false)), Errno::EBADF);
    assert_eq!(errno(open(Access::Read).truncate(0)), Errno::EINVAL);
    assert_eq!(try_write(&open(Access::Write)).unwrap(), 1);
    assert_eq!(contents(root, "f"), b"xbc");
}

fn space_is_reserved_freed_and_zeroed(root: &Fd) {
    let file = make(root, "f", &[7; 4 * PAGE]);
    let size = |file: &Fd| file.stat().unwrap().attr.size;
    let page = PAGE as u64;
    file.allocate(FallocateMode::Allocate { keep_size: true }, 4 * page, 4 * page).unwrap();
    assert_eq!(size(&file), 4 * page);
    file.allocate(FallocateMode::Allocate { keep_size: false }, 4 * page, 4 * page).unwrap();
    assert_eq!(size(&file), 8 * page);
    assert_eq!(file.stat().unwrap().attr.blocks, 8 * page / 512);
    assert_eq!(read(&file, 4 * page, PAGE), [0; PAGE]);
    file.allocate(FallocateMode::PunchHole, page + 5, 2 * page).unwrap();
    assert_eq!(size(&file), 8 * page);
    assert_eq!(read(&file, page + 4, 2), [7, 0]);
    assert_eq!(read(&file, 3 * page + 4, 2), [0, 7]);
    // Beyond the end there is nothing to free, and the end stays.
    file.allocate(FallocateMode::PunchHole, 20 * page, page).unwrap();
    file.allocate(FallocateMode::ZeroRange { keep_size: true }, 3 * page, 9 * page).unwrap();
    assert_eq!(size(&file), 8 * page);
    assert_eq!(read(&file, 3 * page, 9), [0; 9]);
    file.allocate(FallocateMode::ZeroRange { keep_size: false }, 0, 9 * page).unwrap();
    assert_eq!(size(&file), 9 * page);
    assert_eq!(read(&file, 0, 9), [0; 9]);
    data_is_told_from_holes(root);
}

fn data_is_told_from_holes(root: &Fd) {
    let file = make(root, "holes", b"");
    let far = 1 << 20;
    write(&file, far, &[1; PAGE]);
    file.truncate(4 * far).unwrap();
    let start = file.seek(0, SeekTarget::Data).unwrap();
    assert_eq!(start, far);
    let end = file.seek(start, SeekTarget::Hole).unwrap();
    assert!((far + PAGE as u64..=4 * far).contains(&end));
    assert_eq!(file.seek(0, SeekTarget::Hole).unwrap(), 0);
    assert_eq!(file.seek(start + 9, SeekTarget::Data).unwrap(), start + 9);
    assert_eq!(errno(file.seek(2 * far, SeekTarget::Data)), Errno::ENXIO);
    assert_eq!(errno(file.seek(4 * far, SeekTarget::Hole)), Errno::ENXIO);
}

fn copies_between_files(root: &Fd) {
    let (from, to) = (make(root, "a", b"0123456789"), make(root, "b", b"abc"));
    let mut done = 0;
    while done < 8 {
        let some = from.copy_range(2 + done, to.as_native(), 1 + done, 8 - done).unwrap();
        assert_ne!(some, 0);
        done += some;
    }
    assert_eq!(read(&to, 0, 99), b"a23456789");
    assert_eq!(from.copy_range(10, to.as_native(), 0, 5).unwrap(), 0);
    assert_eq!(errno(from.copy_range(0, from.as_native(), 5, 6)), Errno::EINVAL);
}

fn words_are_those_of_the_file(root: &Fd) {
    let file = make(root, "f", b"");
    file.write_in_place();
    root.write_in_place();
    let page = PAGE as u64;
    file.truncate(4 * page).unwrap();
    file.allocate(FallocateMode::Allocate { keep_size: true }, page, page).unwrap();
    let map = file.map(page, 2 * PAGE).unwrap();
    assert_eq!(map.load(1023).unwrap(), 0);
    map.store(1, 0x0102_0304_0506_0708).unwrap();
    assert_eq!(read(&file, page + 8, 8), [8, 7, 6, 5, 4, 3, 2, 1]);
    write(&file, page + 16, &[9, 0, 0, 0, 0, 0, 0, 1]);
    assert_eq!(map.load(2).unwrap(), 0x0100_0000_0000_0009);
    let other = root.open_at(os("f"), Access::ReadWrite).unwrap().map(0, 4 * PAGE).unwrap();
    assert_eq!(other.load(513).unwrap(), 0x0102_0304_0506_0708);
    file.allocate(FallocateMode::PunchHole, page, page).unwrap();
    assert_eq!((map.load(1).unwrap(), other.load(513).unwrap()), (0, 0));
    file.sync(true).unwrap();
    // It lives longer than the descriptor.
    drop(file);
    assert_eq!(map.load(2).unwrap(), 0);
}

fn small_files_are_replaced_as_a_whole(root: &Fd) {
    assert_eq!(root.read_small("f", 10).unwrap(), None);
    make(root, "f.new", b"left by a crash, and longer");
    root.replace_small("f", b"longer").unwrap();
    root.replace_small("f", b"new").unwrap();
    root.replace_small("e", b"").unwrap();
    assert_eq!(root.read_small("f", 10).unwrap().unwrap(), b"new");
    assert_eq!(root.read_small("f", 2).unwrap().unwrap(), b"ne");
    assert_eq!(root.read_small("e", 2).unwrap().unwrap(), b"");
    assert_eq!(names(root).len(), 4);
    // If the replacement fails, the file and everything else stays as it is.
    root.make_dir_at(os("d"), 0o700).unwrap();
    assert_eq!(errno(root.replace_small("d", b"x")), Errno::EISDIR);
    assert_eq!(names(root).len(), 5);
}
