//! The kernel's file systems have the properties that code above relies on.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod checks;

use braid_contract::{Errno, RenameMode};
use braid_stores::native::open_tier_dir;
use checks::{CHECKS, errno, os};

#[test]
fn the_kernel_keeps_every_promise() {
    for place in ["/var/tmp", "/dev/shm"] {
        for (name, check) in CHECKS {
            let dir = tempfile::tempdir_in(place).unwrap();
            println!("{place}: {name}");
            check(&open_tier_dir(dir.path()).unwrap());
        }
    }
}

#[test]
fn a_tier_directory_is_locked_and_named_in_errors() {
    let dir = tempfile::tempdir().unwrap();
    let held = open_tier_dir(dir.path()).unwrap();
    let error = open_tier_dir(dir.path()).unwrap_err();
    assert_eq!(error.errno(), Errno::EBUSY);
    assert!(error.to_string().contains(dir.path().to_str().unwrap()), "{error}");
    drop(held);
    open_tier_dir(dir.path()).unwrap();
}

#[test]
fn another_kind_of_descriptor_is_another_file_system() {
    let (a, b) = (tempfile::tempdir_in("/var/tmp").unwrap(), tempfile::tempdir_in("/dev/shm").unwrap());
    let (a, b) = (open_tier_dir(a.path()).unwrap(), open_tier_dir(b.path()).unwrap());
    let file = a.create_at(os("f"), 0o600).unwrap();
    assert_eq!(errno(file.link_to(b.as_native(), os("f"))), Errno::EXDEV);
    assert_eq!(errno(a.rename_at(os("f"), b.as_native(), os("f"), RenameMode::Replace)), Errno::EXDEV);
}

#[test]
fn memory_is_volatile_and_a_disk_is_not() {
    let usage = |place| {
        let dir = tempfile::tempdir_in(place).unwrap();
        open_tier_dir(dir.path()).unwrap().usage().unwrap()
    };
    assert!(usage("/dev/shm").volatile);
    let disk = usage("/var/tmp");
    assert!(!disk.volatile && !disk.read_only && disk.name_max == 255);
    assert!(disk.space.available <= disk.space.free && disk.space.free <= disk.space.total);
}

#[test]
fn descriptors_are_had_from_the_kernel() {
    let dir = tempfile::tempdir().unwrap();
    let root = open_tier_dir(dir.path()).unwrap();
    assert!(root.create_at(os("f"), 0o600).unwrap().kernel_fd().is_some());
}
