//! Refused rules, and the rights that the others give.

use super::rules::{Place, Right};
use super::*;
use crate::testing;
use braid_contract::{Caller, Entry, InodeId, OpenRequest, RenameMode, SetAttr, SetTime};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

fn settings(value: serde_json::Value) -> std::result::Result<Settings, String> {
    serde_json::from_value(value).map_err(|error| error.to_string())
}

macro_rules! rules {
    ($($rules:tt)*) => { settings(serde_json::json!({ "rules": [ $($rules)* ] })).unwrap() };
}

#[test]
fn rules_that_say_nothing_contradict_themselves_or_never_count_are_refused() {
    let refused = |value: serde_json::Value, says: &str| {
        let said = settings(value).unwrap_err();
        assert!(said.contains(says), "{said}");
    };
    let of = |rules: serde_json::Value| serde_json::json!({ "rules": rules });
    refused(of(serde_json::json!([{ "uid": [1] }])), "the rule says nothing");
    refused(of(serde_json::json!([{ "uid": [1], "read_only": false }])), "the rule says nothing");
    refused(of(serde_json::json!([{ "uid": [], "deny": ["read"] }])), "uid: with an empty list");
    refused(of(serde_json::json!([{ "deny": [] }])), "deny: with an empty list");
    refused(
        of(serde_json::json!([{ "allow": ["read"], "deny": ["list", "read"] }])),
        "allows and denies 'read'",
    );
    refused(of(serde_json::json!([{ "read_only": true, "allow": ["read"] }])), "'read_only' says all");
    refused(of(serde_json::json!([{ "deny": ["erase"] }])), "unknown variant `erase`");
    refused(serde_json::json!({ "rules": [{ "deny": ["read"] }], "default": "deny" }), "denies all to all");
    let twice = [
        serde_json::json!([{ "deny": ["read"] }, { "uid": [1], "allow": ["read"] }]),
        serde_json::json!([{ "uid": [1, 2], "deny": ["read"] }, { "uid": [2], "allow": ["read"] }]),
        serde_json::json!([{ "paths": ["a", "b"], "deny": ["read"] }, { "paths": ["b"], "gid": [1], "allow": ["read"] }]),
        serde_json::json!([{ "deny": ["read"] }, { "deny": ["write"] }, { "uid": [1], "allow": ["write", "read"] }]),
    ];
    for rules in twice {
        refused(of(rules), "never counts");
    }
    for rules in [
        serde_json::json!([{ "uid": [1], "deny": ["read"] }, { "uid": [1, 2], "allow": ["read"] }]),
        serde_json::json!([{ "uid": [1], "deny": ["read"] }, { "gid": [1], "allow": ["read"] }]),
        serde_json::json!([{ "deny": ["read"] }, { "uid": [1], "allow": ["write", "read"] }]),
        serde_json::json!([{ "paths": ["a/**"], "deny": ["read"] }, { "deny": ["read"] }]),
    ] {
        assert!(settings(of(rules.clone())).is_ok(), "{rules}");
    }
}

/// Whether this user has that right there.
fn may(rules: &Settings, uid: u32, groups: Option<&[u32]>, right: Right, place: Place<'_>) -> bool {
    rules.grant(Who { uid, gid: uid, groups }, right, place)
}

#[test]
fn of_each_right_the_first_rule_that_is_about_it_decides() {
    let rules = rules![
        { "paths": ["a/**"], "uid": [1], "allow": ["read"] },
        { "paths": ["a/**"], "deny": ["read", "write"] },
        { "gid": [7], "read_only": true }
    ];
    let at = |path: &'static str| Place::At(Path::new(path));
    for (uid, groups, right, path, expected) in [
        (1, &[][..], Right::Read, "a/x", true),
        (1, &[], Right::Write, "a/x", false),
        (1, &[], Right::List, "a", true),
        (2, &[], Right::Read, "a/x", false),
        (2, &[], Right::Read, "a", false),
        (2, &[], Right::Read, "b/a/x", true),
        (2, &[], Right::Write, "b", true),
        (7, &[], Right::Write, "b", false),
        (2, &[3, 7], Right::Write, "b", false),
        (2, &[3, 7], Right::Read, "b", true),
    ] {
        assert_eq!(may(&rules, uid, Some(groups), right, at(path)), expected, "{uid} {right:?} {path}");
    }
    assert!(!may(&rules, 2, None, Right::Write, at("b")), "who may be in a group that is denied");
    assert!(may(&rules, 2, None, Right::Read, at("b")));
}

#[test]
fn in_doubt_about_the_path_nothing_is_granted() {
    let rules = rules![
        { "paths": ["a/b/**"], "uid": [1], "allow": ["read"] },
        { "paths": ["a/**"], "deny": ["read"] }
    ];
    let below = |dir: &'static str| Place::Below(Path::new(dir));
    for (uid, place, expected) in [
        (1, Place::Anywhere, false),
        (1, below("a/b"), true),
        (1, below("a"), false),
        (1, below("c"), true),
        (1, below(""), false),
        (2, below("a/b"), false),
    ] {
        assert_eq!(may(&rules, uid, Some(&[]), Right::Read, place), expected, "{uid} {place:?}");
    }
    assert!(may(&rules, 2, Some(&[]), Right::Write, Place::Anywhere));
}

/// Carries out everything. `in` is inode 2, `out` inode 3; a file's name is its number, and
/// names without one are directories.
struct Willing;

const IN: InodeId = InodeId(2);
const OUT: InodeId = InodeId(3);

impl Service for Willing {
    fn capabilities(&self) -> FileSystemCapabilities {
        testing::capabilities()
    }

    fn call(&self, request: Request<'_>) -> Reply {
        match request {
            Request::Path { ino: InodeId::ROOT } => Reply::Path(Ok(PathBuf::new())),
            Request::Path { ino: IN } => Reply::Path(Ok(PathBuf::from("in"))),
            Request::Path { ino: OUT } => Reply::Path(Ok(PathBuf::from("out"))),
            Request::Path { .. } => Reply::Path(Err(Errno::ENOENT.into())),
            Request::Lookup { name, .. } => Reply::Lookup(Ok(entry(name))),
            Request::Link { ino, .. } => Reply::Link(Ok(testing::entry(ino.0))),
            Request::Unlink { .. } => Reply::Unlink(Ok(())),
            Request::Rename { .. } => Reply::Rename(Ok(())),
            Request::Open { .. } => Reply::Open(Ok(testing::opened(1))),
            Request::OpenDir { .. } => Reply::OpenDir(Ok(HandleId(2))),
            Request::Tmpfile { .. } => Reply::Tmpfile(Ok((testing::entry(40), testing::opened(1)))),
            Request::Setattr { ino, .. } => Reply::Setattr(Ok(testing::entry(ino.0).attr)),
            Request::Getxattr { .. } => Reply::Getxattr(Ok(Vec::new())),
            other => other.operation().failed(Errno::EIO.into()),
        }
    }
}

fn entry(name: &OsStr) -> Entry {
    let number = name.to_str().unwrap().parse();
    let mut entry = testing::entry(*number.as_ref().unwrap_or(&9));
    if number.is_err() {
        entry.attr.kind = braid_contract::FileKind::Directory;
    }
    entry
}

/// User 1 may do all in `in`, user 3 may write there, and other users nothing.
fn island() -> Permissions {
    let rules = rules![
        { "paths": ["in/**"], "uid": [1], "allow": ["read", "write", "list"] },
        { "paths": ["in/**"], "uid": [3], "allow": ["write"] },
        { "paths": ["in/**"], "deny": ["read", "write", "list"] }
    ];
    let fs = Permissions::new(&rules, Arc::new(Served(Willing))).unwrap();
    for (parent, name) in [(IN, "10"), (OUT, "11"), (IN, "12"), (OUT, "12")] {
        fs.lookup(&caller(2), parent, OsStr::new(name)).unwrap();
    }
    fs
}

fn caller(uid: u32) -> Caller {
    Caller { uid, gid: uid, groups: Some(Arc::from([])), pid: 1, tid: 1, of_stack: false }
}

fn open(fs: &Permissions, uid: u32, ino: u64, write: bool) -> std::result::Result<HandleId, Errno> {
    let flags = OpenFlags { read: !write, write, ..OpenFlags::default() };
    let opened = fs.open(&caller(uid), InodeId(ino), OpenRequest::from(flags));
    opened.map(|opened| opened.handle).map_err(|error| error.errno())
}

fn denied<T: std::fmt::Debug>(result: Result<T>) {
    assert_eq!(result.unwrap_err().errno(), Errno::EACCES);
}

#[test]
fn a_file_is_judged_by_all_names_that_are_known() {
    let fs = island();
    assert!(open(&fs, 1, 10, false).is_ok() && open(&fs, 1, 10, true).is_ok());
    for (ino, read, write) in [(10, false, false), (11, true, true), (12, false, false), (77, false, false)] {
        let found = (open(&fs, 2, ino, false), open(&fs, 2, ino, true));
        assert_eq!((found.0.is_ok(), found.1.is_ok()), (read, write), "{ino}: {found:?}");
    }
    // Without its last name, too.
    fs.unlink(&caller(1), IN, OsStr::new("10")).unwrap();
    assert_eq!(open(&fs, 2, 10, false), Err(Errno::EACCES));
    denied(fs.open_dir(&caller(2), IN));
    denied(fs.open_dir(&caller(3), IN));
    fs.open_dir(&caller(2), OUT).unwrap();
    denied(fs.getxattr(&caller(2), InodeId(12), OsStr::new("user.x")));
    fs.getxattr(&caller(2), InodeId(12), OsStr::new("system.posix_acl_access")).unwrap();
}

#[test]
fn no_new_name_leads_out_of_an_island() {
    let fs = island();
    let rename = |uid, from, name, to, new, mode| {
        fs.rename(&caller(uid), from, OsStr::new(name), to, OsStr::new(new), mode)
    };
    let plain = RenameMode::Replace;
    denied(rename(2, IN, "10", OUT, "10", plain));
    denied(rename(2, OUT, "11", IN, "11", plain));
    denied(rename(2, OUT, "11", IN, "10", RenameMode::Exchange));
    denied(fs.link(&caller(2), InodeId(10), OUT, OsStr::new("x")));
    denied(fs.link(&caller(2), InodeId(12), OUT, OsStr::new("x")));
    denied(fs.link(&caller(2), InodeId(11), IN, OsStr::new("x")));
    // A user who may only write there moves things in it, and nothing out of it.
    rename(3, IN, "10", IN, "20", plain).unwrap();
    denied(rename(3, IN, "20", OUT, "20", plain));
    denied(fs.link(&caller(3), InodeId(10), OUT, OsStr::new("x")));
    fs.link(&caller(3), InodeId(10), IN, OsStr::new("x")).unwrap();
    denied(rename(3, OUT, "11", IN, "20", RenameMode::Exchange));
    rename(1, IN, "20", OUT, "20", plain).unwrap();
    assert!(open(&fs, 2, 10, false).is_err(), "its other name is still there");
    // Directories.
    denied(rename(2, InodeId::ROOT, "in", OUT, "in", plain));
    denied(rename(2, OUT, "in", InodeId::ROOT, "in", plain));
    denied(rename(3, IN, "dir", OUT, "dir", plain));
    rename(2, OUT, "dir", InodeId::ROOT, "dir", plain).unwrap();
    rename(1, IN, "dir", OUT, "dir", plain).unwrap();
    // Files without a name.
    denied(fs.tmpfile(&caller(2), IN, 0o600, 0, OpenRequest::default()));
    fs.tmpfile(&caller(2), OUT, 0o600, 0, OpenRequest::default()).unwrap();
    denied(fs.link(&caller(2), InodeId(40), IN, OsStr::new("x")));
    fs.link(&caller(2), InodeId(40), OUT, OsStr::new("x")).unwrap();
}

#[test]
fn a_directory_above_an_island_stays_where_it_is() {
    let rules = rules![{ "paths": ["out/deep/**", "*.key"], "uid": [2], "deny": ["read"] }];
    let fs = Permissions::new(&rules, Arc::new(Served(Willing))).unwrap();
    let rename = |uid, from, name: &str, to, new: &str| {
        fs.rename(&caller(uid), from, OsStr::new(name), to, OsStr::new(new), RenameMode::Replace)
    };
    denied(rename(2, InodeId::ROOT, "out", InodeId::ROOT, "else"));
    rename(1, InodeId::ROOT, "out", InodeId::ROOT, "else").unwrap();
    // A pattern of names is for them anywhere.
    rename(2, IN, "a", IN, "b").unwrap();
    denied(rename(2, IN, "a", OUT, "deep"));
}

#[test]
fn what_is_open_for_writing_is_written() {
    let fs = island();
    let handle = open(&fs, 1, 10, true).unwrap();
    let set = |uid, handle, changes: SetAttr| fs.setattr(&caller(uid), InodeId(10), handle, &changes);
    let (size, mode) = (
        SetAttr { size: Some(1), ..SetAttr::default() },
        SetAttr { mode: Some(0o777), ..SetAttr::default() },
    );
    let times = SetAttr { mtime: Some(SetTime::Now), ..SetAttr::default() };
    for changes in [size, times] {
        set(2, Some(handle), changes).unwrap();
        denied(set(2, None, changes));
    }
    denied(set(2, Some(handle), mode));
    set(2, None, SetAttr { kill_set_id: true, ..SetAttr::default() }).unwrap();
    // A successor has the same state.
    let next = island();
    next.import(&Module::export(&fs)).unwrap();
    next.setattr(&caller(2), InodeId(10), Some(handle), &times).unwrap();
    let _ = next.release(handle);
    denied(next.setattr(&caller(2), InodeId(10), Some(handle), &times));
    assert!(next.import(&State { version: 9, bytes: Vec::new() }).is_err());
    assert!(next.import(&State { version: 1, bytes: b"{}".to_vec() }).is_err());
}

#[test]
fn groups_are_wanted_where_a_rule_has_some() {
    let wants = |rules: &Settings| {
        Permissions::new(rules, Arc::new(Served(Willing))).unwrap().capabilities().caller_groups
    };
    assert!(wants(&rules![{ "gid": [1], "deny": ["read"] }]));
    assert!(!wants(&rules![{ "uid": [1], "deny": ["read"] }]));
}
