//! Errors of writeback: a sync of an object reports data that the device did
//! not take, however many others were used since.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use braid_contract::{Errno, Hint, ObjectId, Store, StoreIo};
use braid_stores::dir::DirStore;
use std::io::{IoSlice, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const IO: StoreIo = StoreIo { direct: false, hint: Hint { stream: None, life: None } };
const FIRST: u16 = 0;
/// More objects than are kept open.
const MANY: u16 = 3000;

/// Objects in the same shard.
fn id(n: u16) -> ObjectId {
    let mut id = [7; 16];
    id[8..10].copy_from_slice(&n.to_be_bytes());
    ObjectId(id)
}

fn write(store: &DirStore, n: u16, len: usize) {
    let data = vec![n as u8; len];
    assert_eq!(store.write_at(id(n), 0, &[IoSlice::new(&data)], IO).unwrap(), data.len());
}

fn sync(store: &DirStore, n: u16) -> Result<(), Errno> {
    store.sync(&[id(n)], true).map_err(|error| error.errno())
}

/// A store with `count` empty objects, all durable, on a device that accepts no
/// more data.
fn store_on_full_disk(disk: &Disk, count: u16) -> DirStore {
    let store = DirStore::open(&disk.mountpoint).unwrap();
    store.set_label(b"label").unwrap();
    for n in 0..count {
        store.create(id(n)).unwrap();
        // So that the blocks that describe it exist.
        store.write_at(id(n), 0, &[IoSlice::new(b"x")], IO).unwrap();
    }
    store.sync_all().unwrap();
    disk.fill();
    store
}

#[test]
fn an_error_that_somebody_else_was_told_of_is_told_by_our_sync_too() {
    let Some(disk) = Disk::new() else { return };
    let store = store_on_full_disk(&disk, MANY);
    write(&store, FIRST, 4 << 20);
    assert!(!disk.sync_first(), "the device took the data");
    use_others(&store);
    assert_eq!(sync(&store, FIRST), Err(Errno::ENOSPC));
}

#[test]
fn an_error_at_closing_what_was_not_synced_is_told_by_the_sync() {
    let Some(disk) = Disk::new() else { return };
    let store = store_on_full_disk(&disk, 400);
    write(&store, FIRST, 4 << 20);
    for n in 1..400 {
        write(&store, n, 1);
    }
    let open = disk.open_files();
    assert!(!open.contains(&id(FIRST).to_string()), "kept open");
    assert!(open.contains(&id(399).to_string()), "not kept open");
    assert_eq!(sync(&store, FIRST), Err(Errno::ENOSPC));
    disk.empty();
    write(&store, FIRST, 4 << 20);
    assert_eq!(sync(&store, FIRST), Ok(()));
}

#[test]
fn a_sync_of_everything_that_fails_keeps_what_is_to_be_told() {
    let Some(disk) = Disk::new() else { return };
    let store = store_on_full_disk(&disk, MANY);
    write(&store, FIRST, 4 << 20);
    assert!(store.sync_all().is_err());
    // There is nothing left to write now; the data is lost all the same.
    let _ = store.sync_all();
    assert!(!disk.sync_first());
    use_others(&store);
    assert_eq!(sync(&store, FIRST), Err(Errno::ENOSPC));
}

fn use_others(store: &DirStore) {
    for n in 1..MANY {
        store.next_data(id(n), 0).unwrap();
    }
}

/// A file system on a device that can be made to accept only data that it has
/// space for already.
struct Disk {
    dir: tempfile::TempDir,
    backing: PathBuf,
    mountpoint: PathBuf,
    device: String,
}

impl Disk {
    /// `None`, with the reason printed, where devices can't be attached.
    fn new() -> Option<Self> {
        if !braid_sys::is_privileged() || !Path::new("/dev/loop-control").exists() {
            braid_testkit::skipped("root and loop devices");
            return None;
        }
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let (backing, mountpoint) = (dir.path().join("backing"), dir.path().join("mount"));
        std::fs::create_dir(&backing).unwrap();
        std::fs::create_dir(&mountpoint).unwrap();
        run("mount", &["-t", "tmpfs", "-o", "size=40m", "tmpfs", str(&backing)]);
        let mut disk = Self { dir, backing, mountpoint, device: String::new() };
        let image = disk.backing.join("image");
        std::fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
        // Without a journal, which would stop everything at its first error.
        run("mkfs.ext4", &["-q", "-F", "-O", "^has_journal", "-E", "lazy_itable_init=0", str(&image)]);
        disk.device = run("losetup", &["--find", "--show", str(&image)]).trim().to_owned();
        run("mount", &["-t", "ext4", "-o", "errors=continue", &disk.device, str(&disk.mountpoint)]);
        Some(disk)
    }

    /// Makes the device accept no new data.
    fn fill(&self) {
        let mut fill = std::fs::File::create(self.backing.join("fill")).unwrap();
        for len in [64 << 10, 4 << 10] {
            let error = loop {
                if let Err(error) = fill.write_all(&vec![1; len]) {
                    break error;
                }
            };
            assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
        }
    }

    /// Makes it accept data again.
    fn empty(&self) {
        std::fs::remove_file(self.backing.join("fill")).unwrap();
    }

    /// Syncs the first object from another program; answers whether that
    /// succeeded.
    fn sync_first(&self) -> bool {
        let object = self.mountpoint.join(format!(".braid/data/07/{}", id(FIRST)));
        try_run("sync", &["--data", str(&object)]).status.success()
    }

    /// The open files of this process on it.
    fn open_files(&self) -> Vec<String> {
        let links = std::fs::read_dir("/proc/self/fd").unwrap();
        let open = links.filter_map(|link| std::fs::read_link(link.unwrap().path()).ok());
        open.filter(|path| path.starts_with(self.dir.path()))
            .map(|path| path.file_name().unwrap().to_str().unwrap().to_owned())
            .collect()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        try_run("umount", &["--lazy", str(&self.mountpoint)]);
        try_run("losetup", &["--detach", &self.device]);
        try_run("umount", &["--lazy", str(&self.backing)]);
    }
}

fn str(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn try_run(program: &str, args: &[&str]) -> Output {
    Command::new(program).args(args).output().unwrap()
}

fn run(program: &str, args: &[&str]) -> String {
    let output = try_run(program, args);
    assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}
