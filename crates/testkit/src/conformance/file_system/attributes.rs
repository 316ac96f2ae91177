//! Attributes: those that `stat` shows, and extended ones.

use super::bed::{Bed, LONG_AGO, ROOT, errno};
use super::{Case, always};
use braid_contract::{Attr, Errno, InodeId, SetAttr, SetTime, Timestamp, XattrMode};
use std::ffi::OsStr;

const NAME: &str = "user.conformance";

pub(super) const CASES: [Case; 9] = [
    ("modes are set", always, modes_are_set),
    ("times are set", always, times_are_set),
    ("the clock's time is set", always, the_clocks_time_is_set),
    ("owners are set", |bed| bed.is_superuser(), owners_are_set),
    ("several attributes at once", always, several_attributes_at_once),
    ("set-id bits are taken", |bed| bed.is_superuser(), set_id_bits_are_taken),
    ("a change of the inode is seen in its time", always, a_change_is_seen_in_the_time),
    ("extended attributes", has_xattrs, extended_attributes),
    ("extended attributes of what is no file", has_xattrs, extended_attributes_of_directories),
];

fn modes_are_set(bed: &Bed<'_>) {
    let (file, dir) = (bed.file(ROOT, "file", b""), bed.mkdir(ROOT, "dir"));
    for mode in [0o640, 0o1777, 0, 0o755] {
        for ino in [file, dir] {
            let attr = bed.set(ino, SetAttr { mode: Some(mode), ..SetAttr::default() });
            assert_eq!(u32::from(attr.mode), mode);
            assert_eq!(bed.attr(ino).mode, attr.mode);
        }
    }
}

fn times_are_set(bed: &Bed<'_>) {
    let link = bed.fs.symlink(&bed.caller, ROOT, OsStr::new("link"), OsStr::new("x")).unwrap().attr.ino;
    let times =
        [LONG_AGO, Timestamp { secs: 0, nanos: 1 }, Timestamp { secs: 2_000_000_000, nanos: 999_999_999 }];
    for ino in [bed.file(ROOT, "file", b""), bed.mkdir(ROOT, "dir"), link] {
        for (atime, mtime) in times.into_iter().zip(times.into_iter().rev()) {
            let both = SetAttr {
                atime: Some(SetTime::At(atime)),
                mtime: Some(SetTime::At(mtime)),
                ..SetAttr::default()
            };
            let attr = bed.set(ino, both);
            assert_eq!((attr.atime, attr.mtime), (atime, mtime));
            let found = bed.attr(ino);
            assert_eq!((found.atime, found.mtime), (atime, mtime));
        }
    }
    let before = bed.attr(link);
    let attr = bed.set(link, SetAttr { mtime: Some(SetTime::At(LONG_AGO)), ..SetAttr::default() });
    assert_eq!((attr.atime, attr.mtime), (before.atime, LONG_AGO), "one of them alone");
}

fn the_clocks_time_is_set(bed: &Bed<'_>) {
    let file = bed.file(ROOT, "file", b"");
    let made = bed.attr(file).mtime;
    bed.age(file);
    let attr = bed.set(file, SetAttr { mtime: Some(SetTime::Now), ..SetAttr::default() });
    assert_eq!(attr.atime, LONG_AGO);
    assert!(attr.mtime >= made, "{attr:?}");
}

fn owners_are_set(bed: &Bed<'_>) {
    let file = bed.file(ROOT, "file", b"");
    let owner = |attr: Attr| (attr.uid, attr.gid);
    let attr = bed.set(file, SetAttr { uid: Some(1234), ..SetAttr::default() });
    assert_eq!(owner(attr), (1234, bed.caller.gid));
    let attr = bed.set(file, SetAttr { gid: Some(5678), ..SetAttr::default() });
    assert_eq!((owner(attr), owner(bed.attr(file))), ((1234, 5678), (1234, 5678)));
    let dir = bed.mkdir(ROOT, "dir");
    let attr = bed.set(dir, SetAttr { uid: Some(1), gid: Some(2), ..SetAttr::default() });
    assert_eq!(owner(attr), (1, 2));
}

fn several_attributes_at_once(bed: &Bed<'_>) {
    let file = bed.file(ROOT, "file", b"content");
    let changes = SetAttr {
        mode: Some(0o600),
        size: Some(3),
        mtime: Some(SetTime::At(LONG_AGO)),
        ..SetAttr::default()
    };
    let attr = bed.set(file, changes);
    assert_eq!((attr.mode, attr.size, attr.mtime), (0o600, 3, LONG_AGO));
    assert_eq!(bed.content(ROOT, "file"), b"con");
    assert_eq!(bed.attr(file).mtime, LONG_AGO);
    let same = bed.set(file, SetAttr::default());
    assert_eq!((same.mode, same.size, same.mtime), (0o600, 3, LONG_AGO), "no change");
}

fn set_id_bits_are_taken(bed: &Bed<'_>) {
    let file = bed.file(ROOT, "file", b"content");
    let attr = bed.set(file, SetAttr { mode: Some(0o6755), ..SetAttr::default() });
    assert!(attr.mode == 0o6755 && attr.is_set_id());
    let attr = bed.set(file, SetAttr { kill_set_id: true, ..SetAttr::default() });
    assert_eq!((attr.mode, bed.attr(file).mode), (0o755, 0o755));
}

fn a_change_is_seen_in_the_time(bed: &Bed<'_>) {
    let file = bed.file(ROOT, "file", b"content");
    let sees = |what: &str, change: &dyn Fn()| {
        // The clock is coarse: until it has moved on.
        let before = bed.attr(file).ctime;
        let probe = bed.file(ROOT, "clock", b"");
        while bed.attr(probe).ctime <= before {
            bed.set(probe, SetAttr { mtime: Some(SetTime::Now), ..SetAttr::default() });
        }
        change();
        assert!(bed.attr(file).ctime > before, "{what}");
        bed.unlink(ROOT, "clock").unwrap();
        bed.fs.forget(probe, 1);
    };
    sees("chmod", &|| _ = bed.set(file, SetAttr { mode: Some(0o600), ..SetAttr::default() }));
    sees("link", &|| _ = bed.link(file, ROOT, "other").unwrap());
    sees("unlink", &|| bed.unlink(ROOT, "other").unwrap());
    sees("truncate", &|| bed.truncate(file, 3));
}

fn has_xattrs(bed: &Bed<'_>) -> bool {
    let probe = bed.file(ROOT, "probe", b"");
    let answer = errno(bed.fs.setxattr(&bed.caller, probe, OsStr::new(NAME), b"x", XattrMode::Set));
    bed.unlink(ROOT, "probe").unwrap();
    bed.fs.forget(probe, 1);
    answer != Some(Errno::EOPNOTSUPP)
}

fn names(bed: &Bed<'_>, ino: InodeId) -> Vec<String> {
    let bytes = bed.fs.listxattr(&bed.caller, ino).unwrap();
    assert!(bytes.is_empty() || bytes.ends_with(&[0]), "each name ends by a NUL byte");
    let names = bytes.split(|byte| *byte == 0).map(|name| String::from_utf8(name.to_vec()).unwrap());
    let mut names: Vec<String> = names.filter(|name| name.starts_with("user.")).collect();
    names.sort();
    names
}

fn extended_attributes(bed: &Bed<'_>) {
    let file = bed.file(ROOT, "file", b"content");
    let name = OsStr::new(NAME);
    let set = |value: &[u8], mode| bed.fs.setxattr(&bed.caller, file, name, value, mode);
    let get = || bed.fs.getxattr(&bed.caller, file, name);
    assert_eq!((errno(get()), names(bed, file)), (Some(Errno::ENODATA), Vec::new()));
    assert_eq!(errno(set(b"1", XattrMode::Replace)), Some(Errno::ENODATA));
    set(b"12", XattrMode::Create).unwrap();
    assert_eq!(errno(set(b"3", XattrMode::Create)), Some(Errno::EEXIST));
    assert_eq!(get().unwrap(), b"12");
    let long = vec![0xfe; 2000];
    for (value, mode) in [(&b"345"[..], XattrMode::Replace), (b"", XattrMode::Set), (&long, XattrMode::Set)] {
        set(value, mode).unwrap();
        assert_eq!(get().unwrap(), value);
    }
    let other = OsStr::new("user.other");
    bed.fs.setxattr(&bed.caller, file, other, b"other", XattrMode::Set).unwrap();
    assert_eq!(names(bed, file), [NAME, "user.other"]);
    bed.rename((ROOT, "file"), (ROOT, "renamed"), Default::default()).unwrap();
    bed.fs.removexattr(&bed.caller, file, name).unwrap();
    assert_eq!(errno(bed.fs.removexattr(&bed.caller, file, name)), Some(Errno::ENODATA));
    assert_eq!((errno(get()), names(bed, file)), (Some(Errno::ENODATA), vec!["user.other".into()]));
    assert_eq!(bed.content(ROOT, "renamed"), b"content");
}

fn extended_attributes_of_directories(bed: &Bed<'_>) {
    let dir = bed.mkdir(ROOT, "dir");
    let name = OsStr::new(NAME);
    bed.fs.setxattr(&bed.caller, dir, name, b"of the directory", XattrMode::Set).unwrap();
    assert_eq!(bed.fs.getxattr(&bed.caller, dir, name).unwrap(), b"of the directory");
    assert_eq!(names(bed, dir), [NAME]);
    let inner = bed.file(dir, "inner", b"");
    assert_eq!(names(bed, inner), [""; 0]);
}
