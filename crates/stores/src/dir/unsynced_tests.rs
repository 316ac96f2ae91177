//! Tests of the marks of changed objects, and how long they last.

use super::*;
use crate::native::{KernelFd, open_tier_dir};
use std::ffi::OsStr;

const ID: ObjectId = ObjectId([3; 16]);

/// A directory with a file in it for each of the first `count` objects.
fn objects(count: u16) -> (tempfile::TempDir, Vec<(ObjectId, Fd)>) {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let root = open_tier_dir(dir.path()).unwrap();
    let object = |n: u16| {
        // All in one shard.
        let mut id = ID;
        id.0[..2].copy_from_slice(&n.to_be_bytes());
        (id, root.create_at(OsStr::new(&id.to_string()), 0o600).unwrap())
    };
    let objects = (0..count).map(object).collect();
    (dir, objects)
}

fn one() -> (tempfile::TempDir, ObjectId, Fd) {
    let (dir, mut objects) = objects(1);
    let (id, file) = objects.remove(0);
    (dir, id, file)
}

fn all(unsynced: &Unsynced) -> Vec<ObjectId> {
    unsynced.all().into_iter().map(|(id, _)| id).collect()
}

#[test]
fn a_change_that_comes_during_a_sync_is_left_for_the_next() {
    let (unsynced, (_dir, id, file)) = (Unsynced::new(), one());
    unsynced.made(id);
    unsynced.changed(id, &file);
    let before = unsynced.mark(id);
    unsynced.changed(id, &file);
    unsynced.synced(id, before).unwrap();
    assert_eq!(all(&unsynced), [id]);
    assert!(!unsynced.mark(id).is_new());
    unsynced.synced(id, unsynced.mark(id)).unwrap();
    assert!(all(&unsynced).is_empty());
}

#[test]
fn a_mark_that_went_and_came_again_is_another() {
    let (unsynced, (_dir, id, file)) = (Unsynced::new(), one());
    unsynced.changed(id, &file);
    let first = unsynced.mark(id);
    unsynced.synced(id, first).unwrap();
    unsynced.changed(id, &file);
    unsynced.synced(id, first).unwrap();
    assert_eq!(all(&unsynced), [id]);
}

#[test]
fn names_of_an_earlier_process_are_synced_once() {
    let unsynced = Unsynced::new();
    assert!(unsynced.name_needs_sync(ID, unsynced.mark(ID)));
    unsynced.names_synced(ID);
    assert!(!unsynced.name_needs_sync(ID, unsynced.mark(ID)));
    unsynced.made(ID);
    assert!(unsynced.name_needs_sync(ID, unsynced.mark(ID)));
}

#[test]
fn what_was_changed_stays_open_by_its_first_descriptor_until_it_is_synced() {
    let (unsynced, (_dir, id, file)) = (Unsynced::new(), one());
    let other = file.reopen(braid_contract::Access::ReadWrite).unwrap();
    unsynced.changed(id, &file);
    unsynced.changed(id, &other);
    assert!(Arc::ptr_eq(&unsynced.file(id).unwrap(), &file));
    unsynced.synced(id, unsynced.mark(id)).unwrap();
    assert!(unsynced.file(id).is_none());
    assert_eq!(Arc::strong_count(&file), 1);
}

#[test]
fn what_is_removed_before_its_change_is_noted_is_not_kept_open() {
    let (unsynced, (dir, id, file)) = (Unsynced::new(), one());
    std::fs::remove_file(dir.path().join(id.to_string())).unwrap();
    unsynced.removed(id);
    unsynced.changed(id, &file);
    assert!(all(&unsynced).is_empty());
    assert_eq!(Arc::strong_count(&file), 1);
}

#[test]
fn of_too_many_open_ones_the_longest_open_is_closed_and_stays_unsynced() {
    let (unsynced, (_dir, objects)) = (Unsynced::new(), objects(OPEN_PER_SHARD as u16 + 1));
    for (id, file) in &objects {
        unsynced.changed(*id, file);
    }
    let is_open = |n: usize| unsynced.file(objects[n].0).is_some();
    assert!(!is_open(0) && is_open(1) && is_open(OPEN_PER_SHARD));
    assert_eq!(all(&unsynced).len(), objects.len());
    unsynced.close_all();
    assert!(!(0..objects.len()).any(is_open));
    for (id, _) in &objects {
        unsynced.synced(*id, unsynced.mark(*id)).unwrap();
    }
    assert_eq!(lock(&unsynced.lane(ID).shard).open_count, 0);
}

#[test]
fn the_queue_of_open_ones_does_not_grow_with_every_sync() {
    let (unsynced, (_dir, id, file)) = (Unsynced::new(), one());
    for _ in 0..10 * OPEN_PER_SHARD {
        unsynced.changed(id, &file);
        unsynced.synced(id, unsynced.mark(id)).unwrap();
    }
    assert!(lock(&unsynced.lane(id).shard).open.len() <= OPEN_PER_SHARD + 2);
}

#[test]
fn an_object_that_could_not_be_written_back_says_so_at_its_next_sync() {
    let unsynced = Unsynced::new();
    // A descriptor without writeback; and one with a name.
    let device = KernelFd::open(std::fs::File::open("/dev/null").unwrap().into());
    unsynced.changed(ID, &device);
    unsynced.lane(ID).write_back_to(0);
    assert!(unsynced.file(ID).is_none());
    unsynced.synced_with_all(ID, unsynced.mark(ID));
    // The kernel's error for files without data.
    assert_eq!(unsynced.synced(ID, unsynced.mark(ID)).unwrap_err().errno().0, 29, "ESPIPE");
    assert_eq!(all(&unsynced), [ID]);
    unsynced.synced(ID, unsynced.mark(ID)).unwrap();
    assert!(all(&unsynced).is_empty());
}

#[test]
fn a_sync_of_everything_that_failed_leaves_what_was_open_to_syncs_of_its_own() {
    let (unsynced, (_dir, objects)) = (Unsynced::new(), objects(2));
    let [(before, file), (after, other)] = &objects[..] else { unreachable!() };
    unsynced.changed(*before, file);
    unsynced.could_not_sync_all();
    unsynced.changed(*before, file);
    unsynced.changed(*after, other);
    for (id, mark) in unsynced.all() {
        unsynced.synced_with_all(id, mark);
    }
    assert_eq!(all(&unsynced), [*before]);
    assert!(Arc::ptr_eq(&unsynced.file(*before).unwrap(), file));
    unsynced.synced(*before, unsynced.mark(*before)).unwrap();
    assert!(all(&unsynced).is_empty());
}

#[test]
fn what_is_changed_after_giving_up_is_noticed() {
    let (unsynced, (_dir, objects)) = (Unsynced::new(), objects(2));
    unsynced.changed(objects[0].0, &objects[0].1);
    assert!(!unsynced.is_given_up());
    assert_eq!(unsynced.give_up(), [objects[0].0]);
    unsynced.changed(objects[1].0, &objects[1].1);
    assert!(unsynced.is_given_up());
}

#[test]
fn a_panic_of_one_that_writes_back_does_not_keep_others_from_it() {
    let (unsynced, (_dir, id, file)) = (Unsynced::new(), one());
    unsynced.changed(id, &file);
    std::thread::scope(|scope| {
        let panics = || {
            let _writer = unsynced.lane(id).writer.lock().unwrap();
            panic!("meant to");
        };
        assert!(scope.spawn(panics).join().is_err());
    });
    unsynced.close_all();
    assert!(unsynced.file(id).is_none());
}
