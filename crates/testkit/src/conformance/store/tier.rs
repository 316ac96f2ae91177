//! The tier as a whole: its label, its objects, the directory that it may be.

use super::super::pattern;
use super::{A, B, Case, LABEL, always, can, errno, expect, list, put, set_up};
use braid_contract::{Access, Errno, ObjectId, Store};
use std::ffi::OsStr;

pub(super) const CASES: [Case; 8] = [
    ("labels are replaced as a whole", always, labels_are_replaced_as_a_whole),
    ("a probe knows the tier by its label", always, a_probe_knows_the_tier_by_its_label),
    ("all objects are listed", always, all_objects_are_listed),
    ("what is cleared can be used anew", always, what_is_cleared_can_be_used_anew),
    ("a notice leaves the tier as it is", always, a_notice_leaves_the_tier_as_it_is),
    ("files of the directory become objects", |store| can(store).native_files, files_become_objects),
    ("a part of a file is shared", |store| can(store).native_files, a_part_of_a_file_is_shared),
    ("what is done with files is refused", |store| !can(store).native_files, files_are_refused),
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

fn a_part_of_a_file_is_shared(store: &dyn Store) {
    set_up(store, &[A, B]);
    let data = pattern(1, 40_000);
    put(store, A, 0, &data);
    put(store, B, 0, &[7; 9000]);
    let from = store.object_file(A).unwrap().reopen(Access::Read).unwrap();
    let mut wanted = vec![7; 9000];
    // Whole blocks, parts of some, and data that ends early.
    for (offset, from_offset, len) in [(8192, 4096, 20_000), (100, 5, 3000), (30_000, 39_000, 5000)] {
        let all = len.min(data.len() as u64 - from_offset);
        let mut done = 0;
        while done < all {
            let some = store.share_range(B, offset + done, &*from, from_offset + done, len - done).unwrap();
            assert!((1..=all - done).contains(&some), "{some} bytes");
            done += some;
        }
        let (at, end) = (offset as usize, (offset + all) as usize);
        wanted.resize(wanted.len().max(end), 0);
        wanted[at..end].copy_from_slice(&data[from_offset as usize..(from_offset + all) as usize]);
        expect(store, B, 0, &wanted);
    }
    assert_eq!(store.share_range(B, 0, &*from, 40_000, 10).unwrap(), 0, "nothing is there");
    store.sync(&[B], false).unwrap();
    put(store, A, 4096, &[9; 8192]);
    store.remove(&[A]).unwrap();
    expect(store, B, 0, &wanted);
}

fn files_are_refused(store: &dyn Store) {
    set_up(store, &[A]);
    assert_eq!(errno(store.directory()), Some(Errno::EOPNOTSUPP));
    assert_eq!(errno(store.object_file(A)), Some(Errno::EOPNOTSUPP));
}
