//! The extent of each sync.

use super::*;
use braid_contract::{RenameMode, XattrMode};

fn lost(disk: &Disk, path: &str) -> Option<Vec<u8>> {
    contents(&outcome(disk, AllLost), path)
}

fn has_xattr(disk: &Disk) -> bool {
    let file = disk.root().open_at(os("file"), Access::Path).unwrap();
    file.get_xattr(os("user.x"), &mut []).is_ok()
}

#[test]
fn fsync_makes_the_file_durable_and_its_name_only_where_the_model_says_so() {
    for fsync_names in [false, true] {
        let disk = disk(Model { fsync_names, ..APART });
        let dir = mkdir(&disk.root(), "dir");
        let file = create(&dir, "file");
        write(&file, 0, b"bytes");
        file.sync(false).unwrap();
        let wanted = fsync_names.then(|| b"bytes".to_vec());
        assert_eq!(lost(&disk, "dir/file"), wanted);
        dir.sync(false).unwrap();
        disk.root().sync(false).unwrap();
        assert_eq!(lost(&disk, "dir/file").as_deref(), Some(&b"bytes"[..]));
    }
}

#[test]
fn in_one_order_a_sync_covers_all_metadata_before_it_and_no_data_of_others() {
    let disk = disk(ORDERED);
    let root = disk.root();
    let other = create(&root, "other");
    write(&other, 0, b"other");
    let file = create(&root, "file");
    write(&file, 0, b"bytes");
    file.sync(false).unwrap();
    create(&root, "later");
    assert_eq!(lost(&disk, "file").as_deref(), Some(&b"bytes"[..]));
    assert_eq!(lost(&disk, "other").as_deref(), Some(&[0; 5][..]));
    assert_eq!(lost(&disk, "later"), None);
}

#[test]
fn a_sync_of_an_unchanged_file_covers_nothing_else() {
    for model in [APART, ORDERED] {
        let disk = disk(model);
        let file = create(&disk.root(), "file");
        disk.root().sync_fs().unwrap();
        create(&disk.root(), "other");
        file.sync(false).unwrap();
        assert_eq!(lost(&disk, "other"), None);
    }
}

#[test]
fn fdatasync_covers_data_and_size_but_not_what_is_not_needed_to_read_them() {
    for model in [APART, ORDERED] {
        let disk = disk(model);
        let file = create(&disk.root(), "file");
        disk.root().sync_fs().unwrap();
        write(&file, 0, b"bytes");
        file.set_xattr(os("user.x"), b"1", XattrMode::Set).unwrap();
        file.set_mode(0o600).unwrap();
        file.sync(true).unwrap();
        let found = outcome(&disk, AllLost);
        assert_eq!(contents(&found, "file").as_deref(), Some(&b"bytes"[..]));
        assert!(!has_xattr(&found));
        assert_eq!(outcomes(&disk, has_xattr).len(), 2);
        file.sync(false).unwrap();
        let found = outcome(&disk, AllLost);
        assert!(has_xattr(&found));
        assert_eq!(dump(&found), dump(&disk));
    }
}

#[test]
fn metadata_of_one_inode_persists_in_order() {
    let disk = disk(APART);
    let file = create(&disk.root(), "file");
    disk.root().sync_fs().unwrap();
    for n in 0..4_u32 {
        file.set_xattr(os("user.x"), &n.to_le_bytes(), XattrMode::Set).unwrap();
        file.set_mode(n).unwrap();
    }
    let look = |disk: &Disk| {
        let file = disk.root().open_at(os("file"), Access::Path).unwrap();
        let mut value = [9; 4];
        let _ = file.get_xattr(os("user.x"), &mut value);
        (value[0], file.stat().unwrap().attr.mode)
    };
    let seen = outcomes(&disk, look);
    let wanted = [(9, 0o644), (0, 0o644), (0, 0), (1, 0), (1, 1), (2, 1), (2, 2), (3, 2), (3, 3)];
    assert_eq!(seen, BTreeSet::from(wanted));
}

#[test]
fn a_sync_of_a_directory_covers_its_names_and_no_data() {
    let disk = disk(APART);
    let file = create(&disk.root(), "file");
    write(&file, 0, b"bytes");
    disk.root().sync(false).unwrap();
    assert_eq!(lost(&disk, "file").as_deref(), Some(&b""[..]));
    assert_eq!(outcome(&disk, AllKept).root().stat().unwrap(), disk.root().stat().unwrap());
}

#[test]
fn a_sync_after_a_rename_covers_the_new_name_and_the_loss_of_the_old_one() {
    let disk = disk(Model { fsync_names: true, ..APART });
    let root = disk.root();
    let dir = mkdir(&root, "dir");
    let file = create(&root, "file");
    root.sync_fs().unwrap();
    root.rename_at(os("file"), &*dir, os("moved"), RenameMode::Replace).unwrap();
    root.rename_at(os("dir"), &*root, os("renamed"), RenameMode::Replace).unwrap();
    create(&root, "other");
    file.sync(false).unwrap();
    let found = outcome(&disk, AllLost);
    assert_eq!(names(&*found.root()), ["renamed"]);
    assert_eq!(contents(&found, "renamed/moved"), Some(Vec::new()));
}

#[test]
fn a_file_without_a_name_can_be_synced() {
    for model in [APART, ORDERED, Model::WORST, Model::EXT4, Model::BTRFS] {
        let disk = disk(model);
        let file = create(&disk.root(), "file");
        write(&file, 0, b"bytes");
        disk.root().remove_at(os("file"), false).unwrap();
        file.sync(false).unwrap();
        file.sync(true).unwrap();
        assert_eq!(read(&file, 0, 9), b"bytes");
        disk.root().sync(false).unwrap();
        assert_eq!(lost(&disk, "file"), None);
        drop(file);
        assert_eq!(count_outcomes(&disk), 1);
    }
}

#[test]
fn observers_are_told_before_each_effect_and_of_nothing_else() {
    use std::sync::{Arc, Mutex};
    let disk = disk(APART);
    let told = Arc::new(Mutex::new(Vec::new()));
    let (sink, observed) = (told.clone(), disk.clone());
    disk.set_observer(Some(Arc::new(move |effect| {
        let frozen = observed.freeze();
        let found = frozen.after_process_crash();
        sink.lock().unwrap().push((effect.to_string(), names(&*found.root()).len()));
    })));
    let root = disk.root();
    let file = create(&root, "file");
    assert_eq!(errno(root.create_at(os("file"), 0)), Some(Errno::EEXIST));
    write(&file, 100, b"bytes");
    file.sync(false).unwrap();
    file.sync(false).unwrap();
    root.sync(false).unwrap();
    root.sync(false).unwrap();
    root.rename_at(os("file"), &*root, os("renamed"), RenameMode::Replace).unwrap();
    disk.set_observer(None);
    root.remove_at(os("renamed"), false).unwrap();
    let told = told.lock().unwrap();
    let ino = file.stat().unwrap().attr.ino.0;
    let wanted = [
        ("disk: create /file (inode 2)".to_owned(), 0),
        (format!("disk: write /file (inode {ino}) at 100 len 5"), 1),
        (format!("disk: fsync /file (inode {ino})"), 1),
        ("disk: fsync / (inode 2)".to_owned(), 1),
        ("disk: rename /file -> renamed (inode 2)".to_owned(), 1),
    ];
    assert_eq!(*told, wanted);
}
