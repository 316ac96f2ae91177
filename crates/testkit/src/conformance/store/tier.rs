//! The tier as a whole: its label, its objects, the directory that it may be.

use super::super::pattern;
use super::{A, B, Case, LABEL, always, errno, expect, list, put, set_up};
use braid_contract::{Access, Errno, ObjectId, Store};
use std::ffi::OsStr;

pub(super) const CASES: [Case; 7] = [
    ("labels are replaced as a whole", always, labels_are_replaced_as_a_whole),
    ("a probe knows the tier by its label", always, a_probe_knows_the_tier_by_its_label),
    ("all objects are listed", always, all_objects_are_listed),
    ("what is cleared can be used anew", always, what_is_cleared_can_be_used_anew),
    ("a notice leaves the tier as it is", always, a_notice_leaves_the_tier_as_it_is),
    ("files of the directory become objects", |store| store.directory().is_ok(), files_become_objects),
    ("a directory is refused", |store| store.directory().is_err(), a_directory_is_refused),
];

fn labels_are_replaced_as_a_whole(store: &dyn Store) {
    assert_eq!(store.label().unwrap(), None);
    for label in [&pattern(1, 4096)[..], b"short", b"", &[0xff; 4096]] {
        store.set_label(label).unwrap();
        assert_eq!(store.label().unwrap().as_deref(), Some(label));
    }
}

fn a_probe_knows_the_tier_by_its_label(store: &dyn Store) {
    set_up(store, &[A]);
    put(store, A, 0, b"data");
    store.probe(LABEL).unwrap();
    assert_eq!(errno(store.probe(b"another label")), Some(Errno::ESTALE));
    store.probe(LABEL).unwrap();
    expect(store, A, 0, b"data");
    store.sync(&[A], true).unwrap();
}

fn all_objects_are_listed(store: &dyn Store) {
    set_up(store, &[]);
    assert_eq!(list(store), []);
    let mut ids: Vec<ObjectId> =
        (0..600).map(|seed| ObjectId(pattern(seed, 16).try_into().unwrap())).collect();
    ids.iter().for_each(|id| store.create(*id).unwrap());
    ids.sort();
    assert!(list(store) == ids, "each once");
    let (gone, kept) = ids.split_at(300);
    store.remove(gone).unwrap();
    assert!(list(store) == kept, "each that was not removed");
}

fn what_is_cleared_can_be_used_anew(store: &dyn Store) {
    set_up(store, &[A, B]);
    put(store, A, 0, b"data");
    store.leave_notice(b"notice").unwrap();
    store.clear().unwrap();
    assert_eq!(store.label().unwrap(), None);
    assert_eq!(list(store), []);
    assert_eq!(errno(store.stat(A)), Some(Errno::ENOENT));
    store.clear().unwrap();
    set_up(store, &[A]);
    expect(store, A, 0, b"");
}

fn a_notice_leaves_the_tier_as_it_is(store: &dyn Store) {
    set_up(store, &[A]);
    for notice in [&b"what this is"[..], b"what this is", b"something else"] {
        store.leave_notice(notice).unwrap();
    }
    assert_eq!(list(store), [A]);
    assert_eq!(store.label().unwrap().as_deref(), Some(LABEL));
}

fn files_become_objects(store: &dyn Store) {
    set_up(store, &[B]);
    let dir = store.directory().unwrap();
    let file = dir.create_at(OsStr::new("file"), 0o640).unwrap();
    file.write_all_at(0, b"was there before").unwrap();
    store.adopt(A, &*file).unwrap();
    assert_eq!(errno(store.adopt(A, &*file)), Some(Errno::EEXIST));
    expect(store, A, 0, b"was there before");
    let found = store.object_file(A).unwrap().stat().unwrap().attr;
    assert_eq!((found.ino, found.nlink), (file.stat().unwrap().attr.ino, 2));
    put(store, A, 16, b", and after");
    assert_eq!(file.stat().unwrap().attr.size, 27, "its other name leads to the object");
    drop(file);
    dir.remove_at(OsStr::new("file"), false).unwrap();
    store.sync_all().unwrap();
    expect(store, A, 0, b"was there before, and after");
    assert_eq!(list(store), [A, B]);
    assert_eq!(errno(dir.open_at(OsStr::new("file"), Access::Path)), Some(Errno::ENOENT));
}

fn a_directory_is_refused(store: &dyn Store) {
    set_up(store, &[A]);
    assert_eq!(errno(store.directory()), Some(Errno::EOPNOTSUPP));
    assert_eq!(errno(store.object_file(A)), Some(Errno::EOPNOTSUPP));
}
