//! A tier whose directory or device goes away, and comes back.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use braid_contract::{Errno, Hint, ObjectId, Store, StoreIo};
use braid_stores::dir::DirStore;
use braid_testkit::once_free;
use std::io::{IoSlice, IoSliceMut};
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

const A: ObjectId = ObjectId([0xa; 16]);
const B: ObjectId = ObjectId([0xb; 16]);
const IO: StoreIo = StoreIo { direct: false, hint: Hint { stream: None, life: None } };
const LABEL: &[u8] = b"the tier's label";

fn open(dir: &Path) -> DirStore {
    let store = DirStore::open(dir).unwrap();
    store.set_label(LABEL).unwrap();
    store
}

fn put(store: &DirStore, id: ObjectId, bytes: &[u8]) {
    store.create(id).unwrap();
    assert_eq!(store.write_at(id, 0, &[IoSlice::new(bytes)], IO).unwrap(), bytes.len());
}

fn get(store: &DirStore, id: ObjectId) -> Result<Vec<u8>, Errno> {
    let mut buf = vec![0; 100];
    let len = store.read_at(id, 0, &mut [IoSliceMut::new(&mut buf)], IO).map_err(|error| error.errno())?;
    buf.truncate(len);
    Ok(buf)
}

fn probe(store: &DirStore) -> Result<(), Errno> {
    store.probe(LABEL).map_err(|error| error.errno())
}

fn sync(store: &DirStore, id: ObjectId) -> Result<(), Errno> {
    store.sync(&[id], true).map_err(|error| error.errno())
}

#[test]
fn a_tier_that_is_there_is_relied_on_and_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tier");
    std::fs::create_dir(&path).unwrap();
    let store = open(&path);
    assert_eq!(probe(&store), Ok(()));
    let error = store.probe(b"another label").unwrap_err();
    assert_eq!(error.errno(), Errno::ESTALE);
    let text = error.to_string();
    assert!(text.contains("is its device mounted?") && text.contains(path.to_str().unwrap()), "{text}");

    std::fs::rename(&path, dir.path().join("away")).unwrap();
    assert_eq!(probe(&store), Err(Errno::ESTALE), "nothing there");
    std::fs::write(&path, "").unwrap();
    assert_eq!(probe(&store), Err(Errno::ESTALE), "a file there");
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    assert_eq!(probe(&store), Err(Errno::ESTALE), "an empty directory, as under a mount");
    std::fs::remove_dir(&path).unwrap();
    std::fs::rename(dir.path().join("away"), &path).unwrap();
    put(&store, A, b"abc");
    assert_eq!((probe(&store), sync(&store, A)), (Ok(()), Ok(())));
}

#[test]
fn what_was_not_durable_when_a_tier_went_is_told_once() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let dir = tempfile::tempdir().unwrap();
    let (path, other) = (dir.path().join("tier"), dir.path().join("other"));
    std::fs::create_dir(&path).unwrap();
    let store = open(&path);
    put(&store, A, b"synced");
    sync(&store, A).unwrap();
    run("cp", &["-a", str(&path), str(&other)]);
    put(&store, B, b"unsynced");
    std::fs::rename(&path, dir.path().join("away")).unwrap();
    std::fs::rename(&other, &path).unwrap();
    // Until a probe, the old one is used.
    assert_eq!(get(&store, B).unwrap(), b"unsynced");
    assert_eq!(probe(&store), Ok(()));
    assert_eq!(get(&store, A).unwrap(), b"synced");
    assert_eq!(get(&store, B), Err(Errno::ENOENT));
    assert_eq!(sync(&store, A), Ok(()));
    assert_eq!(sync(&store, B), Err(Errno::EIO));
    assert_eq!(sync(&store, B), Err(Errno::ENOENT));
    assert_eq!(store.sync_all().unwrap_err().errno(), Errno::EIO);
    store.sync_all().unwrap();
    // The new one is locked, the old one not any more.
    assert_eq!(DirStore::open(&path).err().unwrap().errno(), Errno::EBUSY);
    DirStore::open(&dir.path().join("away")).unwrap();
}

#[test]
fn a_tier_that_somebody_else_uses_is_not_taken() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tier");
    std::fs::create_dir(&path).unwrap();
    let store = open(&path);
    std::fs::rename(&path, dir.path().join("away")).unwrap();
    std::fs::create_dir(&path).unwrap();
    let theirs = open(&path);
    assert_eq!(probe(&store), Err(Errno::EBUSY));
    drop(theirs);
    // A child that another test starts has the lock too, until it runs its
    // program.
    once_free(|| store.probe(LABEL));
}

#[test]
fn what_is_under_way_while_the_tier_changes_is_told_or_done_and_nothing_stays_open() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    // In memory, since everything is synced all the time.
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let (path, other, between) =
        (dir.path().join("tier"), dir.path().join("other"), dir.path().join("between"));
    std::fs::create_dir(&path).unwrap();
    let store = open(&path);
    run("cp", &["-a", str(&path), str(&other)]);
    let done = AtomicBool::new(false);
    let exchange = || {
        std::fs::rename(&path, &between).unwrap();
        assert_eq!(probe(&store), Err(Errno::ESTALE));
        std::fs::rename(&other, &path).unwrap();
        std::fs::rename(&between, &other).unwrap();
        // Operations in flight since the time before last may still hold its
        // lock.
        let found = std::iter::repeat_with(|| probe(&store)).find(|found| *found != Err(Errno::EBUSY));
        assert_eq!(found, Some(Ok(())));
        assert_eq!(DirStore::open(&path).err().unwrap().errno(), Errno::EBUSY);
    };
    std::thread::scope(|scope| {
        for n in 0..4 {
            let (store, done) = (&store, &done);
            scope.spawn(move || use_one(store, ObjectId([n; 16]), done));
        }
        let exchanged = std::panic::catch_unwind(AssertUnwindSafe(|| (0..100).for_each(|_| exchange())));
        done.store(true, Ordering::Relaxed);
        exchanged.unwrap();
    });
    let links = std::fs::read_dir("/proc/self/fd").unwrap();
    let open = links.filter_map(|link| std::fs::read_link(link.unwrap().path()).ok());
    let left: Vec<_> = open.filter(|open| open.starts_with(&other)).collect();
    assert!(left.is_empty(), "{left:?}");
    drop(DirStore::open(&other).unwrap());
}

/// Uses an object until it is done, and removes it now and then. The tier
/// always answers, and only the errors of a change may occur.
fn use_one(store: &DirStore, id: ObjectId, done: &AtomicBool) {
    let buf = [1; 5000];
    let may_be = |result: braid_contract::Result<()>| {
        if let Err(error) = result {
            assert!(matches!(error.errno(), Errno::ESTALE | Errno::EIO | Errno::ENOENT), "{error}");
        }
    };
    for round in 0_u32.. {
        if done.load(Ordering::Relaxed) {
            break;
        }
        may_be(store.create(id));
        let written = store.write_at(id, 0, &[IoSlice::new(&buf)], IO);
        may_be(written.map(|len| assert_eq!(len, buf.len())));
        may_be(store.read_at(id, 0, &mut [IoSliceMut::new(&mut [0; 100])], IO).map(drop));
        may_be(store.sync(&[id], true));
        if round.is_multiple_of(8) {
            may_be(store.remove(&[id]));
            may_be(store.sync_all());
        }
    }
}

#[test]
fn a_lazily_unmounted_tier_is_noticed_and_taken_up_again() {
    let Some(disk) = Disk::new() else { return };
    disk.mount();
    let store = open(&disk.mountpoint);
    put(&store, A, b"abc");
    sync(&store, A).unwrap();
    put(&store, B, b"def");
    disk.unmount_lazily();
    assert_eq!(probe(&store), Err(Errno::ESTALE));
    disk.mount();
    assert_eq!(probe(&store), Ok(()));
    // The file system was alive all the time: nothing is lost.
    assert_eq!((sync(&store, A), sync(&store, B)), (Ok(()), Ok(())));
    assert_eq!(get(&store, B).unwrap(), b"def");
    assert!(!disk.try_unmount(), "what is used is the new mount");
    assert_eq!(DirStore::open(&disk.mountpoint).err().unwrap().errno(), Errno::EBUSY);
    drop(store);
    assert!(disk.try_unmount());
}

#[test]
fn a_tier_that_comes_back_on_another_device_is_used_there() {
    let Some(mut disk) = Disk::new() else { return };
    disk.mount();
    let store = open(&disk.mountpoint);
    put(&store, A, b"abc");
    sync(&store, A).unwrap();
    let replugged = disk.as_it_is();
    put(&store, B, b"unsynced");
    disk.unmount_lazily();
    disk.detach();
    assert_eq!(probe(&store), Err(Errno::ESTALE));
    disk.attach(&replugged);
    assert_eq!(probe(&store), Err(Errno::ESTALE), "not mounted yet");
    disk.mount();
    assert_eq!(probe(&store), Ok(()));
    assert_eq!(get(&store, A).unwrap(), b"abc");
    assert_eq!((sync(&store, A), sync(&store, B)), (Ok(()), Err(Errno::EIO)));
    put(&store, B, b"again");
    assert_eq!(sync(&store, B), Ok(()));
    assert!(disk.mountpoint.join(format!(".braid/data/0b/{B}")).exists());
    assert_eq!(DirStore::open(&disk.mountpoint).err().unwrap().errno(), Errno::EBUSY);
}

#[test]
fn a_device_that_fails_is_noticed_though_the_label_is_in_memory() {
    let Some(disk) = Disk::new() else { return };
    disk.mount();
    let store = open(&disk.mountpoint);
    put(&store, A, b"abc");
    store.sync_all().unwrap();
    assert_eq!(probe(&store), Ok(()));
    let bytes = std::fs::read(&disk.image).unwrap();
    std::fs::OpenOptions::new().write(true).open(&disk.image).unwrap().set_len(0).unwrap();
    assert_eq!(store.label().unwrap().unwrap(), LABEL, "as it is in memory");
    assert_eq!(probe(&store), Err(Errno::EIO));
    std::fs::write(&disk.image, bytes).unwrap();
    assert_eq!(probe(&store), Ok(()));
    assert_eq!(get(&store, A).unwrap(), b"abc");
}

#[test]
fn a_tier_that_is_read_only_is_not_relied_on_until_it_is_writable() {
    let Some(disk) = Disk::new() else { return };
    disk.mount();
    let store = open(&disk.mountpoint);
    put(&store, A, b"abc");
    sync(&store, A).unwrap();
    drop(store);
    disk.remount("ro");
    let store = DirStore::open(&disk.mountpoint).unwrap();
    assert_eq!(probe(&store), Err(Errno::EROFS));
    assert_eq!(get(&store, A).unwrap(), b"abc");
    let written = store.write_at(A, 0, &[IoSlice::new(b"x")], IO);
    assert_eq!(written.unwrap_err().errno(), Errno::EROFS);
    assert_eq!(store.truncate(A, 0).unwrap_err().errno(), Errno::EROFS);
    disk.remount("rw");
    assert_eq!(probe(&store), Ok(()));
    put(&store, A, b"x");
}

#[test]
fn a_dead_ext4_is_let_go_of_and_taken_up_again_when_it_is_mounted_anew() {
    if let Some(disk) = Disk::new() {
        is_let_go_of(&disk);
    }
}

#[test]
fn a_dead_xfs_is_let_go_of_and_taken_up_again_when_it_is_mounted_anew() {
    if let Some(disk) = Disk::with("xfs", 300 << 20) {
        is_let_go_of(&disk);
    }
}

fn is_let_go_of(disk: &Disk) {
    disk.mount();
    let store = open(&disk.mountpoint);
    put(&store, A, b"synced");
    sync(&store, A).unwrap();
    put(&store, B, b"unsynced");
    // So that a descriptor for direct I/O is open too.
    let mut block = [0; 4096];
    store.read_at(A, 0, &mut [IoSliceMut::new(&mut block)], StoreIo { direct: true, ..IO }).unwrap();
    run("xfs_io", &["-x", "-c", "shutdown", str(&disk.mountpoint)]);
    assert_eq!(probe(&store), Err(Errno::EIO));
    let answers =
        [get(&store, A).err(), sync(&store, B).err(), store.usage().err().map(|error| error.errno())];
    assert_eq!(answers, [Some(Errno::ESTALE); 3], "nothing of it is held");
    assert_eq!(probe(&store), Err(Errno::EIO), "still mounted");
    run("umount", &[str(&disk.mountpoint)]);
    assert_eq!(probe(&store), Err(Errno::ESTALE));
    disk.mount();
    let other = DirStore::open(&disk.mountpoint).unwrap();
    assert_eq!(probe(&store), Err(Errno::EBUSY), "somebody else was faster");
    drop(other);
    assert_eq!(probe(&store), Ok(()));
    assert_eq!(DirStore::open(&disk.mountpoint).err().unwrap().errno(), Errno::EBUSY);
    assert_eq!(get(&store, A).unwrap(), b"synced");
    assert_eq!((sync(&store, A), sync(&store, B)), (Ok(()), Err(Errno::EIO)));
    assert_ne!(sync(&store, B), Err(Errno::EIO), "told once");
    assert_eq!(store.sync_all().unwrap_err().errno(), Errno::EIO);
    store.sync_all().unwrap();
    put(&store, B, b"again");
    assert_eq!(sync(&store, B), Ok(()));
}

#[test]
fn an_operation_under_way_keeps_a_dead_file_system_only_until_it_ends() {
    let Some(disk) = Disk::new() else { return };
    disk.mount();
    let store = open(&disk.mountpoint);
    put(&store, A, b"abc");
    let under_way = store.object_file(A).unwrap();
    run("xfs_io", &["-x", "-c", "shutdown", str(&disk.mountpoint)]);
    assert_eq!(probe(&store), Err(Errno::EIO));
    assert!(!disk.try_unmount());
    drop(under_way);
    assert!(disk.try_unmount());
}

#[test]
fn a_read_only_tier_is_read_until_it_is_taken_away() {
    let Some(disk) = Disk::new() else { return };
    disk.mount();
    let store = open(&disk.mountpoint);
    put(&store, A, b"abc");
    sync(&store, A).unwrap();
    disk.remount("errors=remount-ro");
    assert_eq!(probe(&store), Ok(()));
    // As if it had found an error in itself.
    std::fs::write(disk.in_sys("trigger_fs_error"), "1").unwrap();
    assert_eq!(probe(&store), Err(Errno::EROFS));
    assert_eq!(get(&store, A).unwrap(), b"abc");
    disk.unmount_lazily();
    assert!(disk.in_sys("").exists(), "it is in use");
    assert_eq!(probe(&store), Err(Errno::ESTALE));
    assert_eq!(get(&store, A), Err(Errno::ESTALE));
    assert!(!disk.in_sys("").exists(), "it is not in use");
    disk.mount();
    assert_eq!(probe(&store), Ok(()));
    put(&store, A, b"def");
    assert_eq!(sync(&store, A), Ok(()));
}

static ALONE: Mutex<()> = Mutex::new(());

/// A file system in a file, attached as a block device.
struct Disk {
    /// One at a time: a program that another test starts has, for a moment, all
    /// open files of this process.
    _alone: MutexGuard<'static, ()>,
    kind: &'static str,
    dir: tempfile::TempDir,
    image: PathBuf,
    mountpoint: PathBuf,
    device: String,
}

impl Disk {
    /// `None`, with the reason printed, where devices can't be attached.
    fn new() -> Option<Self> {
        Self::with("ext4", 16 << 20)
    }

    fn with(kind: &'static str, size: u64) -> Option<Self> {
        if !braid_sys::is_privileged() || !Path::new("/dev/loop-control").exists() {
            braid_testkit::skipped("root and loop devices");
            return None;
        }
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let (image, mountpoint) = (dir.path().join("image"), dir.path().join("mount"));
        std::fs::create_dir(&mountpoint).unwrap();
        std::fs::File::create(&image).unwrap().set_len(size).unwrap();
        match kind {
            "ext4" => {
                run("mkfs.ext4", &["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", str(&image)])
            }
            _ => run("mkfs.xfs", &["-q", str(&image)]),
        };
        let mut disk =
            Self { _alone: alone, kind, dir, image: PathBuf::new(), mountpoint, device: String::new() };
        disk.attach(&image);
        Some(disk)
    }

    fn attach(&mut self, image: &Path) {
        self.image = image.to_owned();
        self.device = run("losetup", &["--find", "--show", str(image)]).trim().to_owned();
    }

    /// A copy of the device in its state after power loss now.
    fn as_it_is(&self) -> PathBuf {
        let copy = self.dir.path().join("copy");
        std::fs::copy(&self.image, &copy).unwrap();
        copy
    }

    /// Mounts of the device stay until their last use ends.
    fn detach(&self) {
        run("losetup", &["--detach", &self.device]);
    }

    fn mount(&self) {
        run("mount", &["-t", self.kind, &self.device, str(&self.mountpoint)]);
    }

    fn in_sys(&self, name: &str) -> PathBuf {
        let device = self.device.trim_start_matches("/dev/");
        Path::new("/sys/fs").join(self.kind).join(device).join(name)
    }

    fn remount(&self, how: &str) {
        run("mount", &["-o", &format!("remount,{how}"), str(&self.mountpoint)]);
    }

    fn unmount_lazily(&self) {
        run("umount", &["--lazy", str(&self.mountpoint)]);
    }

    fn try_unmount(&self) -> bool {
        Command::new("umount").arg(&self.mountpoint).output().unwrap().status.success()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.mountpoint).output();
        let _ = Command::new("losetup").args(["--detach", &self.device]).output();
    }
}

fn str(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn run(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output().unwrap();
    assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}
