//! The mount as the upper directory of an overlay file system, as containers
//! have it. Needs root, /dev/fuse and overlay; skipped without them.

use crate::common::{Bench, RANGE, drop_caches, pattern, until, write_ranges};
use rustix::fs::{CWD, RenameFlags};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::ffi::CString;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::Path;

/// Mounts the overlay `bench/o` while it exists.
struct Overlay<'a>(&'a Bench);

impl<'a> Overlay<'a> {
    fn new(bench: &'a Bench) -> Self {
        let [lower, upper, work] = ["lower", "m/upper", "m/work"].map(|name| bench.path(name));
        let (lower, upper, work) = (lower.display(), upper.display(), work.display());
        let options = CString::new(format!("lowerdir={lower},upperdir={upper},workdir={work}")).unwrap();
        mount("overlay", bench.path("o"), "overlay", MountFlags::empty(), Some(&*options)).unwrap();
        Self(bench)
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.0.path("o").join(name)
    }
}

impl Drop for Overlay<'_> {
    fn drop(&mut self) {
        // A process that was just started has copies of this one's descriptors.
        until("the overlay is unmounted", || unmount(self.0.path("o"), UnmountFlags::empty()).is_ok());
    }
}

fn names(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.collect();
    names.sort();
    names
}

fn fill_lower(bench: &Bench, large: &[u8]) {
    let lower = bench.path("lower");
    for dir in ["kept", "emptied"] {
        fs::create_dir(lower.join(dir)).unwrap();
        fs::write(lower.join(dir).join("inner"), dir).unwrap();
    }
    for name in ["removed", "renamed", "replaced", "exchanged"] {
        fs::write(lower.join(name), name).unwrap();
    }
    fs::write(lower.join("large"), large).unwrap();
}

fn change(overlay: &Overlay<'_>, new: &[u8]) {
    let path = |name| overlay.path(name);
    fs::remove_file(path("removed")).unwrap();
    fs::rename(path("renamed"), path("moved")).unwrap();
    fs::rename(path("moved"), path("kept/moved")).unwrap();
    write_ranges(&path("new"), new);
    fs::rename(path("new"), path("replaced")).unwrap();
    rustix::fs::renameat_with(CWD, path("exchanged"), CWD, path("kept/inner"), RenameFlags::EXCHANGE)
        .unwrap();
    // Copied up whole.
    File::options().write(true).open(path("large")).unwrap().write_all_at(b"changed", RANGE as u64).unwrap();
    // Made anew, a directory hides the lower one.
    fs::remove_dir_all(path("emptied")).unwrap();
    fs::create_dir(path("emptied")).unwrap();
    fs::write(path("emptied/other"), "other").unwrap();
}

fn check(overlay: &Overlay<'_>, large: &[u8], new: &[u8]) {
    let path = |name| overlay.path(name);
    let text = |name| fs::read_to_string(path(name)).unwrap();
    assert_eq!(names(&path("")), ["emptied", "exchanged", "kept", "large", "replaced"]);
    assert_eq!(names(&path("kept")), ["inner", "moved"]);
    assert_eq!(names(&path("emptied")), ["other"]);
    assert_eq!(text("kept/moved"), "renamed");
    assert_eq!((text("kept/inner"), text("exchanged")), ("exchanged".to_owned(), "kept".to_owned()));
    assert!(fs::read(path("replaced")).unwrap() == new);
    let read = fs::read(path("large")).unwrap();
    assert!(read[..RANGE] == large[..RANGE] && read[RANGE + 7..] == large[RANGE + 7..]);
    assert_eq!(&read[RANGE..RANGE + 7], b"changed");
}

fn as_upper(cache: &str) {
    let Some(mut bench) = Bench::new() else { return };
    if !fs::read_to_string("/proc/filesystems").unwrap().contains("\toverlay\n") {
        return braid_testkit::skipped("overlay");
    }
    bench.make_tmpfs("lower", c"mode=755");
    bench.make_dir("o");
    let (large, new) = (pattern(1, 20 * RANGE), pattern(2, 9 * RANGE + 5));
    fill_lower(&bench, &large);
    let mount = || bench.ok(&["mount", "s.yaml", "m", "--cache", cache]);
    mount();
    ["m/upper", "m/work"].iter().for_each(|name| bench.make_dir(name));
    {
        let overlay = Overlay::new(&bench);
        change(&overlay, &new);
        check(&overlay, &large, &new);
        drop_caches();
        check(&overlay, &large, &new);
    }
    assert!(bench.on("m/upper/replaced", "slow") > 0);
    let whiteout = fs::symlink_metadata(bench.path("m/upper/renamed")).unwrap();
    assert!(whiteout.file_type().is_char_device() && whiteout.rdev() == 0, "{whiteout:?}");
    bench.unmount_clean();
    mount();
    check(&Overlay::new(&bench), &large, &new);
    bench.kill();
    mount();
    check(&Overlay::new(&bench), &large, &new);
    bench.unmount_clean();
}

#[test]
fn an_overlay_keeps_its_changes_on_a_mount_that_writes_back() {
    as_upper("writeback");
}

#[test]
fn an_overlay_keeps_its_changes_on_a_mount_that_passes_through() {
    as_upper("passthrough");
}

#[test]
fn an_overlay_keeps_its_changes_on_a_mount_that_caches_nothing() {
    as_upper("direct");
}
