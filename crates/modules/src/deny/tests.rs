//! Refused operations, by which names.

use super::*;
use crate::testing;
use braid_contract::{
    Caller, Entry, HandleId, InodeId, OpenFlags, OpenRequest, Operation, RenameMode, SetAttr,
};
use std::ffi::OsStr;
use std::path::PathBuf;

/// Carries out everything. `dir` is inode 2; a file's name is its number.
struct Willing;

const DIR: InodeId = InodeId(2);

impl Service for Willing {
    fn capabilities(&self) -> FileSystemCapabilities {
        testing::capabilities()
    }

    fn call(&self, request: Request<'_>) -> Reply {
        match request {
            Request::Path { ino: InodeId::ROOT } => Reply::Path(Ok(PathBuf::new())),
            Request::Path { ino: DIR } => Reply::Path(Ok(PathBuf::from("dir"))),
            Request::Lookup { name, .. } => Reply::Lookup(Ok(entry(name))),
            Request::Link { ino, .. } => Reply::Link(Ok(entry(OsStr::new(&ino.0.to_string())))),
            Request::Unlink { .. } => Reply::Unlink(Ok(())),
            Request::Rename { .. } => Reply::Rename(Ok(())),
            Request::Tmpfile { .. } => Reply::Tmpfile(Ok((testing::entry(40), testing::opened(1)))),
            // Reached, and not refused by the module.
            other => other.operation().failed(Errno::EIO.into()),
        }
    }
}

/// A file whose name begins with its number.
fn entry(name: &OsStr) -> Entry {
    let number: String = name.to_string_lossy().chars().take_while(char::is_ascii_digit).collect();
    testing::entry(number.parse().unwrap())
}

fn deny(patterns: &[&str]) -> Deny {
    let paths = patterns.iter().map(|text| Pattern::try_from((*text).to_owned()).unwrap()).collect();
    Deny::new(&Settings { paths }, Arc::new(Served(Willing))).unwrap()
}

fn caller() -> Caller {
    Caller { uid: 0, gid: 0, groups: None, pid: 1, tid: 1, of_stack: false }
}

fn look_up(fs: &Deny, parent: InodeId, name: &str) {
    fs.lookup(&caller(), parent, OsStr::new(name)).unwrap();
}

/// The answer to an open for writing.
fn open(fs: &Deny, ino: u64) -> Errno {
    let flags = OpenFlags { write: true, ..OpenFlags::default() };
    let request = OpenRequest { flags, ..OpenRequest::default() };
    fs.open(&caller(), InodeId(ino), request).unwrap_err().errno()
}

#[test]
fn a_file_is_judged_by_every_name_that_it_was_found_by() {
    let fs = deny(&["*.iso", "dir/**"]);
    let c = &caller();
    for (parent, name) in [(InodeId::ROOT, "10.iso"), (InodeId::ROOT, "11.txt"), (DIR, "12.txt")] {
        look_up(&fs, parent, name);
    }
    assert_eq!([open(&fs, 10), open(&fs, 11), open(&fs, 12)], [Errno::EPERM, Errno::EIO, Errno::EPERM]);
    // Reading is allowed.
    assert_eq!(fs.open(c, InodeId(10), OpenRequest::default()).unwrap_err().errno(), Errno::EIO);
    let (old, new) = (OsStr::new("11.txt"), OsStr::new("11.iso"));
    let rename = |from, to| fs.rename(c, InodeId::ROOT, from, InodeId::ROOT, to, RenameMode::Replace);
    assert_eq!(rename(old, new).unwrap_err().errno(), Errno::EPERM);
    assert_eq!(fs.link(c, InodeId(10), InodeId::ROOT, old).unwrap_err().errno(), Errno::EPERM);
    look_up(&fs, InodeId::ROOT, "11.iso");
    assert_eq!(open(&fs, 11), Errno::EPERM, "it has another name");
    fs.forget(InodeId(11), 2);
    look_up(&fs, InodeId::ROOT, "11.txt");
    assert_eq!(open(&fs, 11), Errno::EIO, "that name is forgotten");
    // A file without a name, such as one that is still open, is not protected.
    fs.unlink(c, InodeId::ROOT, OsStr::new("11.txt")).unwrap();
    assert_eq!(open(&fs, 11), Errno::EIO);
}

#[test]
fn a_name_goes_with_the_file_when_it_is_renamed() {
    let fs = deny(&["dir/**"]);
    let c = &caller();
    look_up(&fs, InodeId::ROOT, "20.a");
    look_up(&fs, InodeId::ROOT, "21.b");
    let rename = |from, to, mode| {
        fs.rename(c, InodeId::ROOT, OsStr::new(from), InodeId::ROOT, OsStr::new(to), mode).unwrap();
    };
    rename("20.a", "21.b", RenameMode::Exchange);
    rename("21.b", "22", RenameMode::Replace);
    let other = deny(&["22"]);
    Module::import(&other, &Module::export(&fs)).unwrap();
    assert_eq!([open(&other, 20), open(&other, 21)], [Errno::EPERM, Errno::EIO]);
    let newer = State { version: 3, ..Module::export(&fs) };
    assert_eq!(Module::import(&other, &newer).unwrap_err().errno(), Errno::EINVAL);
    let damaged = State { bytes: b"x".to_vec(), ..Module::export(&fs) };
    assert_eq!(Module::import(&other, &damaged).unwrap_err().errno(), Errno::EINVAL);
}

#[test]
fn a_file_that_was_made_without_a_name_is_judged_by_those_that_it_gets() {
    let fs = deny(&["dir/**"]);
    let c = &caller();
    let (ino, name) = (InodeId(40), OsStr::new("40"));
    fs.tmpfile(c, DIR, 0o600, 0, OpenRequest::default()).unwrap();
    let set = || fs.setattr(c, ino, None, &SetAttr::default()).unwrap_err().errno();
    assert_eq!(set(), Errno::EIO, "it has no name in the directory");
    assert_eq!(fs.link(c, ino, DIR, name).unwrap_err().errno(), Errno::EPERM);
    fs.link(c, ino, InodeId::ROOT, name).unwrap();
    assert_eq!(set(), Errno::EIO);
    fs.rename(c, InodeId::ROOT, OsStr::new("41"), InodeId::ROOT, name, RenameMode::Replace).unwrap();
    fs.forget(ino, 2);
    assert!(Module::export(&fs).bytes == Module::export(&deny(&[])).bytes, "nothing of it is left");
}

#[test]
fn every_operation_that_changes_something_is_refused_where_it_is_denied() {
    let fs = deny(&["**"]);
    let c = &caller();
    let (root, name) = (InodeId::ROOT, OsStr::new("30"));
    look_up(&fs, root, "30");
    let mut refused = vec![
        (Operation::Setattr, fs.setattr(c, InodeId(30), None, &SetAttr::default()).err()),
        (Operation::Mknod, fs.mknod(c, root, name, 0, 0, 0).err()),
        (Operation::Mkdir, fs.mkdir(c, root, name, 0, 0).err()),
        (Operation::Symlink, fs.symlink(c, root, name, name).err()),
        (Operation::Link, fs.link(c, InodeId(30), root, name).err()),
        (Operation::Unlink, fs.unlink(c, root, name).err()),
        (Operation::Rmdir, fs.rmdir(c, root, name).err()),
        (Operation::Rename, fs.rename(c, root, name, root, name, RenameMode::Replace).err()),
        (Operation::Create, fs.create(c, root, name, 0, 0, false, OpenRequest::default()).err()),
        (Operation::Setxattr, fs.setxattr(c, InodeId(30), name, b"", Default::default()).err()),
        (Operation::Removexattr, fs.removexattr(c, InodeId(30), name).err()),
    ];
    refused.retain(|(_, error)| error.as_ref().is_some_and(|error| error.errno() == Errno::EPERM));
    // By a handle whose open was refused, or without a name.
    let passed = [Operation::Tmpfile, Operation::Write, Operation::Fallocate, Operation::CopyRange];
    for operation in Operation::ALL.iter().filter(|operation| operation.changes()) {
        let is_refused = refused.iter().any(|(refused, _)| refused == operation);
        assert_ne!(is_refused, passed.contains(operation), "{operation}");
    }
    assert_eq!(open(&fs, 30), Errno::EPERM);
}

#[test]
fn what_is_open_for_writing_keeps_its_size_and_times() {
    let fs = deny(&["*.iso"]);
    look_up(&fs, InodeId::ROOT, "10.iso");
    let set = |handle: Option<HandleId>, changes: SetAttr| {
        fs.setattr(&caller(), InodeId(10), handle, &changes).unwrap_err().errno()
    };
    let open = Some(HandleId(1));
    let size = SetAttr { size: Some(1), ..SetAttr::default() };
    let mode = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    assert_eq!([set(open, size), set(None, size)], [Errno::EIO, Errno::EPERM]);
    assert_eq!([set(open, mode), set(None, mode)], [Errno::EPERM, Errno::EPERM]);
}
