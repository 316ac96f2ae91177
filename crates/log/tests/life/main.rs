//! The life of a file system: checkpoints beside operations, full devices, devices that
//! fail, damage, and files as devices.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(dead_code, reason = "the simulated device has more than this needs")]

mod after_crash;
#[path = "../common/mod.rs"]
mod common;
mod full;
#[path = "../log_crash/tree.rs"]
mod tree;

use braid_contract::{
    Caller, Environment, Errno, FileSystem, HandleId, InodeId, OpenBefore, OpenFlags, SetAttr, SplitMix,
    WriteFlags,
};
use braid_log::{
    BLOCK, CrashedLog, Device, Disk, Driver, LogFs, Owner, Settings, Use, check, figures, format, make_file,
};
use braid_sys::SharedWords;
use braid_testkit::sim::{SimClock, SimEnvironment};
use common::{Left, SimDisk};
use std::ffi::OsStr;
use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tree::Tree;

const READ_WRITE: OpenFlags = OpenFlags { read: true, write: true, direct: false, sync: false };

fn environment() -> Arc<dyn Environment> {
    Arc::new(SimEnvironment::new(Arc::new(SimClock::new()), 3))
}

fn open(device: Arc<dyn Device>, workers: usize) -> braid_contract::Result<LogFs> {
    let settings = Settings { workers, log_bytes: 1 << 20, ..Settings::default() };
    LogFs::open(device, settings, environment())
}

fn fresh(size: u64, workers: usize) -> (Arc<SimDisk>, LogFs) {
    let device = SimDisk::new(size);
    let disk: Arc<dyn Device> = device.clone();
    format(&disk, Owner::default(), &*environment()).unwrap();
    let fs = open(disk, workers).unwrap();
    (device, fs)
}

fn caller(tid: u32) -> Caller {
    Caller { tid, pid: tid, ..Caller::root() }
}

fn create(
    fs: &LogFs,
    caller: &Caller,
    dir: InodeId,
    name: &str,
) -> braid_contract::Result<(InodeId, HandleId)> {
    let made = fs.create(caller, dir, OsStr::new(name), 0o644, 0, true, READ_WRITE.into())?;
    Ok((made.0.attr.ino, made.1.handle))
}

fn write(fs: &LogFs, handle: HandleId, at: u64, data: &[u8]) -> braid_contract::Result<usize> {
    fs.write(&caller(1), handle, at, data, WriteFlags::default())
}

/// Random operations of one thread, in directories that it shares.
fn work(fs: &LogFs, thread: u32, rounds: u32) {
    let (caller, mut random) = (caller(thread), SplitMix::of(9, thread.into()));
    let dirs: Vec<InodeId> =
        ["a", "b"].map(|name| fs.lookup(&caller, InodeId::ROOT, OsStr::new(name)).unwrap().attr.ino).to_vec();
    for _ in 0..rounds {
        let mut place = || (random.pick(&dirs), format!("n{}", random.below(12)));
        let ((dir, name), (to, new)) = (place(), place());
        let (name, new) = (OsStr::new(&name), OsStr::new(&new));
        // Others are at the same names: most operations that can fail do now and then.
        match random.below(6) {
            0 | 1 => {
                let Ok((_, opened)) = fs.create(&caller, dir, name, 0o644, 0, false, READ_WRITE.into())
                else {
                    continue;
                };
                let data = vec![thread as u8; 1 + random.below(20_000) as usize];
                fs.write(&caller, opened.handle, random.below(9000), &data, WriteFlags::default()).unwrap();
                fs.release(opened.handle).unwrap();
            }
            2 => drop(fs.unlink(&caller, dir, name)),
            3 => drop(fs.rename(
                &caller,
                dir,
                name,
                to,
                new,
                random.pick(&[Default::default(), braid_contract::RenameMode::Exchange]),
            )),
            4 => {
                let Ok(entry) = fs.lookup(&caller, dir, name) else { continue };
                let size = SetAttr { size: Some(random.below(30_000)), ..SetAttr::default() };
                drop(fs.setattr(&caller, entry.attr.ino, None, &size));
                drop(fs.link(&caller, entry.attr.ino, to, new));
                fs.forget(entry.attr.ino, 1);
            }
            _ => drop(fs.sync()),
        }
    }
}

#[test]
fn checkpoints_beside_operations_keep_everything() {
    for round in 0..6 {
        let (device, fs) = fresh(64 << 20, 3);
        for name in ["a", "b"] {
            fs.mkdir(&caller(0), InodeId::ROOT, OsStr::new(name), 0o755, 0).unwrap();
        }
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    fs.checkpoint().unwrap();
                }
            });
            let threads: Vec<_> = (1..4)
                .map(|thread| {
                    let fs = &fs;
                    scope.spawn(move || work(fs, thread + round * 10, 400))
                })
                .collect();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            ended.store(true, Ordering::Relaxed);
        });
        fs.audit().unwrap();
        let before = Tree::read(&fs).unwrap();
        assert!(before.lines.len() > 5);
        for left in [Left::Nothing, Left::All] {
            let device = device.moment().after_power_loss(left);
            let checked = check(&*device).unwrap();
            assert_eq!(checked.problems, [""; 0], "round {round}");
            let fs = open(device, 2).unwrap();
            let after = Tree::read(&fs).unwrap();
            assert!(before == after, "round {round}:\n{}", before.difference(&after));
            fs.audit().unwrap();
        }
    }
}

#[test]
fn concurrent_syncs_share_flushes_and_keep_their_promise() {
    let (device, fs) = fresh(64 << 20, 4);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let fs = &fs;
            scope.spawn(move || {
                for round in 0..50 {
                    let (_, handle) =
                        create(fs, &caller(thread), InodeId::ROOT, &format!("{thread}-{round}")).unwrap();
                    fs.fsync(&caller(thread), handle, false).unwrap();
                    fs.release(handle).unwrap();
                }
            });
        }
    });
    assert!(fs.flushes() <= 200, "{}", fs.flushes());
    let fs = open(device.moment().after_power_loss(Left::Nothing), 4).unwrap();
    assert_eq!(Tree::read(&fs).unwrap().lines.len(), 201);
}

#[test]
fn a_worker_without_room_takes_that_of_others() {
    let (_, fs) = fresh(32 << 20, 4);
    let (_, handle) = create(&fs, &caller(2), InodeId::ROOT, "file").unwrap();
    let put = |at: u64| fs.write(&caller(2), handle, at, &[3; 1 << 20], WriteFlags::default()).unwrap();
    (0..6).for_each(|mib| _ = put(mib << 20));
    assert_eq!(fs.stolen(), 0);
    let free = fs.free_by_worker();
    assert!(free[2] < 2 << 20 && [0, 1, 3].iter().all(|other| free[*other] > 6 << 20), "{free:?}");
    (6..16).for_each(|mib| _ = put(mib << 20));
    assert!(fs.stolen() > 7 << 20, "{}", fs.stolen());
    fs.audit().unwrap();
}

#[test]
fn names_alone_fill_a_device_too() {
    let (device, fs) = fresh(16 << 20, 2);
    let name = |count: u32| format!("{count:0>200}");
    let mut count = 0;
    let error = loop {
        match create(&fs, &caller(count), InodeId::ROOT, &name(count)) {
            Ok((_, handle)) => fs.release(handle).unwrap(),
            Err(error) => break error,
        }
        count += 1;
    };
    assert_eq!(error.errno(), Errno::ENOSPC);
    assert!(count > 10_000, "{count}");
    fs.audit().unwrap();
    let again = open(device.moment().after_power_loss(Left::All), 2).unwrap();
    again.sync().unwrap();
    for at in 0..count {
        fs.unlink(&caller(at), InodeId::ROOT, OsStr::new(&name(at))).unwrap();
    }
    fs.audit().unwrap();
    assert!(create(&fs, &caller(0), InodeId::ROOT, "again").is_ok());
}

#[test]
fn a_device_that_fails_ends_changes_and_not_reading() {
    let (device, fs) = fresh(16 << 20, 2);
    let (ino, handle) = create(&fs, &caller(1), InodeId::ROOT, "file").unwrap();
    write(&fs, handle, 0, &[7; 10_000]).unwrap();
    fs.fsync(&caller(1), handle, false).unwrap();
    device.fail_after(0);
    write(&fs, handle, 0, &[8; 10]).unwrap_err();
    let renamed = |fs: &LogFs| {
        fs.rename(
            &caller(1),
            InodeId::ROOT,
            OsStr::new("file"),
            InodeId::ROOT,
            OsStr::new("new"),
            Default::default(),
        )
    };
    // It is in memory; the sync reports the error.
    renamed(&fs).unwrap();
    assert_eq!(fs.sync().unwrap_err().errno(), Errno::EIO);
    device.fail_after(u64::MAX);
    for refused in [fs.sync(), create(&fs, &caller(1), InodeId::ROOT, "other").map(drop)] {
        let error = refused.unwrap_err();
        assert_eq!(error.errno(), Errno::EIO);
        assert!(error.to_string().contains("takes no changes any more"), "{error}");
    }
    let mut buf = [0; 10];
    assert_eq!((fs.read(&caller(1), handle, 0, &mut buf, false).unwrap(), buf), (10, [7; 10]));
    assert_eq!(fs.getattr(&caller(1), ino, None).unwrap().size, 10_000);
    drop(fs);
    let fs = open(device.moment().after_power_loss(Left::Nothing), 2).unwrap();
    assert!(Tree::read(&fs).unwrap().lines.contains_key("/file"));
}

#[test]
fn damage_is_found_and_never_believed() {
    let (device, fs) = fresh(16 << 20, 2);
    for file in 0..40 {
        let (_, handle) = create(&fs, &caller(file), InodeId::ROOT, &format!("file-{file}")).unwrap();
        write(&fs, handle, 0, &[1; 5000]).unwrap();
        fs.release(handle).unwrap();
    }
    fs.checkpoint().unwrap();
    for file in 0..40 {
        let (_, handle) = create(&fs, &caller(file), InodeId::ROOT, &format!("more-{file}")).unwrap();
        fs.fsync(&caller(file), handle, false).unwrap();
        fs.release(handle).unwrap();
    }
    let whole = Tree::read(&fs).unwrap();
    let sound = device.moment().after_power_loss(Left::All);
    assert_eq!(check(&*sound).unwrap().problems, [""; 0]);
    // One copy of the superblock may be damaged, and is reported.
    for offset in [100, (16 << 20) - BLOCK + 100] {
        let device = device.moment().after_power_loss(Left::All);
        device.damage(offset, 3);
        let problems = check(&*device).unwrap().problems;
        assert!(
            problems.len() == 1 && problems[0].contains("copy of the superblock at byte"),
            "{problems:?}"
        );
        assert!(Tree::read(&open(device, 2).unwrap()).unwrap() == whole);
    }
    // Anywhere else: found, or of no importance.
    let (mut random, mut found) = (SplitMix::new(5), 0);
    for _ in 0..400 {
        let device = device.moment().after_power_loss(Left::All);
        // Where logs and images are.
        let at = random.below(40) * 64 * BLOCK + random.below(3) * BLOCK + random.below(2500);
        device.damage(at.min((16 << 20) - 1), random.below(8) as u8);
        let checked = check(&*device).unwrap();
        match open(device, 2) {
            Ok(fs) if checked.problems.is_empty() => {
                let tree = Tree::read(&fs).unwrap();
                // Data of files is not checked; nor can synced operations be told from unsynced
                // ones.
                let same = tree.lines.keys().filter(|path| whole.lines.contains_key(*path)).count();
                assert!(
                    same == tree.lines.len() && same + 3 > whole.lines.len(),
                    "{}",
                    whole.difference(&tree)
                );
            }
            Ok(_) => found += 1,
            Err(error) => {
                assert_eq!(error.errno(), Errno::EUCLEAN, "{error}");
                assert!(!checked.problems.is_empty(), "{error}");
                found += 1;
            }
        }
    }
    assert!(found > 10, "{found}");
}

#[test]
fn what_is_no_log_file_system_is_refused() {
    let device: Arc<dyn Device> = SimDisk::new(16 << 20);
    assert_eq!(open(Arc::clone(&device), 1).unwrap_err().errno(), Errno::EINVAL);
    let small: Arc<dyn Device> = SimDisk::new(8 << 20);
    assert_eq!(format(&small, Owner::default(), &*environment()).unwrap_err().errno(), Errno::EINVAL);
    format(&device, Owner::default(), &*environment()).unwrap();
    for workers in [0, 65] {
        assert_eq!(open(Arc::clone(&device), workers).unwrap_err().errno(), Errno::EINVAL);
    }
    assert!(open(device, 64).is_ok());
}

#[test]
fn a_file_is_a_device_for_one_at_a_time() {
    for (driver, other) in [(Driver::Auto, Driver::IoUring), (Driver::IoUring, Driver::Auto)] {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = dir.path().join("file");
        make_file(&path, 20 << 20).unwrap();
        assert_eq!(make_file(&path, 1).unwrap_err().errno(), Errno::EEXIST);
        let disk: Arc<dyn Device> = Arc::new(Disk::open_by(driver, &path, Use::Write).unwrap());
        assert_eq!(Disk::open(&path, Use::Read).unwrap_err().errno(), Errno::EBUSY);
        format(&disk, Owner { uid: 3, gid: 4 }, &*environment()).unwrap();
        let fs = open(disk, 2).unwrap();
        let (_, handle) = create(&fs, &caller(1), InodeId::ROOT, "name").unwrap();
        write(&fs, handle, 5, &[9; 100_000]).unwrap();
        let whole = Tree::read(&fs).unwrap();
        fs.close().unwrap();
        assert_eq!(write(&fs, handle, 0, b"x").unwrap_err().errno(), Errno::EIO, "it is closed");
        drop(fs);
        let disk = Disk::open(&path, Use::Read).unwrap();
        let found = figures(&disk).unwrap();
        assert_eq!((found.is_clean, found.files, found.directories, found.records), (true, 1, 1, 0));
        drop(disk);
        let fs = open(Arc::new(Disk::open_by(other, &path, Use::Write).unwrap()), 2).unwrap();
        assert!(Tree::read(&fs).unwrap() == whole);
        fs.audit().unwrap();
        assert_eq!(fs.getattr(&caller(0), InodeId::ROOT, None).unwrap().uid, 3);
    }
}

#[test]
fn direct_transfers_of_any_place_and_length() {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let path = dir.path().join("file");
    make_file(&path, 8 << 20).unwrap();
    let direct = Disk::open_by(Driver::IoUring, &path, Use::Write).unwrap();
    let data: Vec<u8> = (0..6 << 20).map(|at: u32| (at % 253) as u8).collect();
    let (first, rest) = data.split_at(100_001);
    direct.write_at(4096, &[IoSlice::new(first), IoSlice::new(&[]), IoSlice::new(rest)]).unwrap();
    direct.flush().unwrap();
    for (offset, len) in [(4096, 6 << 20), (5000, 1), (4096 + 77, 3_000_001), (8191, 2), (4096, 8192)] {
        let mut found = vec![0; len];
        direct.read_at(offset as u64, &mut found).unwrap();
        assert!(found == data[offset - 4096..][..len], "{offset} {len}");
    }
    for offset in [(8 << 20) - 1, u64::MAX] {
        let beyond = direct.read_at(offset, &mut [0; 2]).unwrap_err();
        assert_eq!(beyond.errno(), Errno::EIO);
    }
    direct.discard(0, 1 << 20);
    assert_eq!(direct.driver(), "io_uring");
}

#[test]
fn a_new_owner_gets_no_rights_of_the_old_one() {
    let (_, fs) = fresh(16 << 20, 1);
    let (ino, _) = create(&fs, &caller(1), InodeId::ROOT, "program").unwrap();
    let capability = OsStr::new("security.capability");
    let set = |changes: SetAttr| fs.setattr(&caller(1), ino, None, &changes).unwrap().mode;
    for (before, after) in [(0o6755, 0o755), (0o6745, 0o2745), (0o1777, 0o1777)] {
        fs.setxattr(&caller(1), ino, capability, b"all", Default::default()).unwrap();
        set(SetAttr { mode: Some(before), ..SetAttr::default() });
        assert_eq!(set(SetAttr { gid: Some(before), ..SetAttr::default() }), after, "{before:o}");
        assert_eq!(fs.getxattr(&caller(1), ino, capability).unwrap_err().errno(), Errno::ENODATA);
    }
    assert_eq!(set(SetAttr { mode: Some(0o4700), uid: Some(9), ..SetAttr::default() }), 0o4700);
}

#[test]
fn a_directory_that_is_gone_and_open_is_changed_in_memory_alone() {
    let (device, fs) = fresh(16 << 20, 1);
    let me = caller(1);
    let dir = fs.mkdir(&me, InodeId::ROOT, OsStr::new("dir"), 0o755, 0).unwrap().attr.ino;
    let handle = fs.open_dir(&me, dir).unwrap();
    fs.rmdir(&me, InodeId::ROOT, OsStr::new("dir")).unwrap();
    let attr = fs.setattr(&me, dir, None, &SetAttr { mode: Some(0o700), ..SetAttr::default() }).unwrap();
    assert_eq!((attr.mode, attr.nlink), (0o700, 0));
    let name = OsStr::new("user.a");
    assert_eq!(fs.removexattr(&me, dir, name).unwrap_err().errno(), Errno::ENODATA);
    fs.setxattr(&me, dir, name, b"1", Default::default()).unwrap();
    assert_eq!(fs.getxattr(&me, dir, name).unwrap(), b"1");
    fs.checkpoint().unwrap();
    fs.audit().unwrap();
    let again = open(device.moment().after_power_loss(Left::All), 1).unwrap();
    assert_eq!(Tree::read(&again).unwrap().lines.len(), 1);
    fs.release_dir(handle).unwrap();
    fs.forget(dir, 1);
    assert_eq!(fs.getattr(&me, dir, None).unwrap_err().errno(), Errno::ESTALE);
}

#[test]
fn provenance_says_who_and_survives() {
    let (device, fs) = fresh(16 << 20, 1);
    let pid = std::process::id();
    let me = Caller { uid: 5, gid: 6, pid, tid: pid, groups: None, of_stack: false };
    let (ino, handle) = create(&fs, &me, InodeId::ROOT, "file").unwrap();
    fs.write(&Caller { uid: 7, ..me.clone() }, handle, 0, b"data", WriteFlags::default()).unwrap();
    let name = OsStr::new("braid.provenance");
    let told = fs.getxattr(&me, ino, name).unwrap();
    let text = String::from_utf8(told.clone()).unwrap();
    let command = braid_sys::task_names(pid).unwrap().0;
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("created time=1893") && lines[1].starts_with("written time=1893"), "{text}");
    assert!(lines[0].ends_with(&format!("uid=5 gid=6 pid={pid} command={command}")), "{text}");
    assert!(lines[1].contains("uid=7 "), "{text}");
    assert_eq!(fs.listxattr(&me, ino).unwrap(), b"");
    assert_eq!(fs.removexattr(&me, ino, name).unwrap_err().errno(), Errno::EPERM);
    fs.sync().unwrap();
    let fs = open(device.moment().after_power_loss(Left::Nothing), 1).unwrap();
    assert_eq!(fs.getxattr(&me, ino, name).unwrap(), told);
}

/// The names behind an offset of an open directory, each with its own.
fn names_after(fs: &LogFs, dir: HandleId, offset: i64, most: usize) -> Vec<(i64, String)> {
    struct Names(Vec<(i64, String)>, usize);
    impl braid_contract::DirSink for Names {
        fn add(&mut self, entry: &braid_contract::DirEntry<'_>) -> bool {
            let is_room = self.0.len() < self.1;
            if is_room {
                self.0.push((entry.next_offset, entry.name.to_string_lossy().into_owned()));
            }
            is_room
        }
    }
    let mut names = Names(Vec::new(), most);
    fs.read_dir(&caller(1), dir, offset, false, &mut names).unwrap();
    names.0
}

#[test]
fn another_process_goes_on_with_everything_that_is_open() {
    let (device, fs) = fresh(32 << 20, 2);
    let (root, me) = (InodeId::ROOT, caller(1));
    let (named, of_named) = create(&fs, &me, root, "named").unwrap();
    let (gone, of_gone) = create(&fs, &me, root, "removed").unwrap();
    let unnamed = fs.tmpfile(&me, root, 0o600, 0, READ_WRITE.into()).unwrap();
    let (nameless, of_nameless) = (unnamed.0.attr.ino, unnamed.1.handle);
    for handle in [of_named, of_gone, of_nameless] {
        write(&fs, handle, 0, &[7; 100_000]).unwrap();
    }
    fs.unlink(&me, root, OsStr::new("removed")).unwrap();
    // A directory that is listed in two steps, with a name that goes in between.
    let dir = fs.mkdir(&me, root, OsStr::new("dir"), 0o755, 0).unwrap().attr.ino;
    for name in ["a", "b", "c", "d", "e"] {
        let (_, handle) = create(&fs, &me, dir, name).unwrap();
        fs.release(handle).unwrap();
    }
    fs.unlink(&me, dir, OsStr::new("a")).unwrap();
    let listing = fs.open_dir(&me, dir).unwrap();
    let first = names_after(&fs, listing, 0, 4);
    assert_eq!(first.iter().map(|(_, name)| &name[..]).collect::<Vec<_>>(), [".", "..", "b", "c"]);
    // One that is known, and closed: the kernel keeps its listing.
    let closed = fs.mkdir(&me, root, OsStr::new("closed"), 0o755, 0).unwrap().attr.ino;
    for name in ["a", "b", "c"] {
        fs.release(create(&fs, &me, closed, name).unwrap().1).unwrap();
    }
    fs.unlink(&me, closed, OsStr::new("a")).unwrap();
    let list = |fs: &LogFs, offset| {
        let handle = fs.open_dir(&me, closed).unwrap();
        let names = names_after(fs, handle, offset, 9);
        fs.release_dir(handle).unwrap();
        names
    };
    let listed = list(&fs, 0);
    // A directory that is removed while it is in use.
    let removed = fs.mkdir(&me, root, OsStr::new("cwd"), 0o750, 0).unwrap().attr.ino;
    fs.rmdir(&me, root, OsStr::new("cwd")).unwrap();
    let before = [named, gone, nameless, dir, removed].map(|ino| fs.getattr(&me, ino, None).unwrap());
    let free = fs.statfs(&me).unwrap().files_free;

    let live = fs.give().unwrap();
    assert_eq!(create(&fs, &me, root, "late").unwrap_err().errno(), Errno::EIO, "it is given away");
    let live = braid_log::LiveLog::unpack(&live.pack()).unwrap();
    let settings = Settings { workers: 2, ..Settings::default() };
    let disk: Arc<dyn Device> = device.clone();
    let fs = LogFs::open_taken(disk, settings, environment(), live.clone()).unwrap();

    assert_eq!([named, gone, nameless, dir, removed].map(|ino| fs.getattr(&me, ino, None).unwrap()), before);
    assert!(free.abs_diff(fs.statfs(&me).unwrap().files_free) < 1000);
    for handle in [of_named, of_gone, of_nameless] {
        let mut read = vec![0; 100_000];
        assert_eq!(fs.read(&me, handle, 0, &mut read, false).unwrap(), 100_000);
        assert!(read.iter().all(|byte| *byte == 7));
        write(&fs, handle, 100_000, b"more").unwrap();
    }
    let rest = names_after(&fs, listing, first[3].0, 9);
    assert_eq!(rest.iter().map(|(_, name)| &name[..]).collect::<Vec<_>>(), ["d", "e"]);
    assert_eq!(list(&fs, 0), listed);
    assert_eq!(list(&fs, listed[2].0).len(), 1);
    let (_, new) = create(&fs, &me, root, "new").unwrap();
    assert!(![of_named, of_gone, of_nameless, listing].contains(&new), "a handle was given twice");
    assert!(fs.link(&me, gone, root, OsStr::new("back")).is_err(), "what was removed came back");
    fs.link(&me, nameless, root, OsStr::new("got-a-name")).unwrap();
    fs.forget(removed, 1);
    assert_eq!(fs.getattr(&me, removed, None).unwrap_err().errno(), Errno::ESTALE);
    for handle in [of_named, of_gone, of_nameless, new] {
        fs.release(handle).unwrap();
    }
    fs.release_dir(listing).unwrap();
    fs.audit().unwrap();
    fs.close().unwrap();
    assert_eq!(check(&*device).unwrap().problems, [""; 0]);

    // The state is of the moment when it was given.
    let disk: Arc<dyn Device> = device.clone();
    let refused = LogFs::open_taken(disk, Settings::default(), environment(), live).unwrap_err();
    assert_eq!(refused.errno(), Errno::ESTALE, "{refused}");
    let other = SimDisk::new(32 << 20);
    let disk: Arc<dyn Device> = other.clone();
    format(&disk, Owner::default(), &*environment()).unwrap();
    let fs = open(disk, 1).unwrap();
    let live = fs.give().unwrap();
    let disk: Arc<dyn Device> = device;
    let refused = LogFs::open_taken(disk, Settings::default(), environment(), live).unwrap_err();
    assert!(refused.to_string().contains("record") || refused.to_string().contains("another"), "{refused}");
}

#[test]
fn a_state_of_another_version_or_cut_off_is_refused() {
    let (_, fs) = fresh(32 << 20, 1);
    let (_, handle) = create(&fs, &caller(1), InodeId::ROOT, "a").unwrap();
    write(&fs, handle, 0, b"a").unwrap();
    let packed = fs.give().unwrap().pack();
    for len in 0..packed.len() {
        assert_eq!(braid_log::LiveLog::unpack(&packed[..len]).unwrap_err().errno(), Errno::EINVAL);
    }
    let other = [&[9][..], &packed[1..]].concat();
    assert!(braid_log::LiveLog::unpack(&other).unwrap_err().to_string().contains("form 9"));
    assert!(braid_log::LiveLog::unpack(&[&packed[..], &[0]].concat()).is_err());
}

#[test]
fn the_first_format_is_read_and_becomes_the_present_one() {
    let (device, fs) = fresh(32 << 20, 1);
    create(&fs, &caller(1), InodeId::ROOT, "a").unwrap();
    fs.close().unwrap();
    let version = |to: Option<u8>| {
        let mut block = vec![0; BLOCK as usize];
        let mut found = Vec::new();
        for at in [0, (32 << 20) - BLOCK] {
            device.read_at(at, &mut block).unwrap();
            found.push(block[8]);
            let Some(version) = to else { continue };
            block[8] = version;
            let sum = crc32c::crc32c(&block[..BLOCK as usize - 4]).to_le_bytes();
            block[BLOCK as usize - 4..].copy_from_slice(&sum);
            device.write_at(at, &[IoSlice::new(&block)]).unwrap();
        }
        found
    };
    assert_eq!(version(Some(1)), [2, 2]);
    assert_eq!(check(&*device).unwrap().problems, [""; 0]);
    let fs = open(device.clone(), 1).unwrap();
    fs.lookup(&caller(1), InodeId::ROOT, OsStr::new("a")).unwrap();
    assert_eq!(version(Some(3)), [2, 2]);
    let refused = open(device.clone(), 1).unwrap_err();
    assert!(refused.to_string().contains("format 3"), "{refused}");
}

#[test]
fn the_end_of_the_longest_file_is_there_after_a_crash() {
    let (device, fs) = fresh(32 << 20, 1);
    let (ino, handle) = create(&fs, &caller(1), InodeId::ROOT, "long").unwrap();
    let end = i64::MAX as u64;
    for at in [1 << 62, end - 5000] {
        assert_eq!(write(&fs, handle, at, &[7; 5000]).unwrap(), 5000);
    }
    assert_eq!(write(&fs, handle, end - 4999, &[7; 5000]).unwrap_err().errno(), Errno::EFBIG);
    fs.sync().unwrap();
    let fs = open(device.moment().after_power_loss(Left::Nothing), 1).unwrap();
    assert_eq!(fs.getattr(&caller(1), ino, None).unwrap().size, end);
    let handle = fs.open(&caller(1), ino, READ_WRITE.into()).unwrap().handle;
    let mut found = [0; 6000];
    assert_eq!(fs.read(&caller(1), handle, end - 6000, &mut found, false).unwrap(), 6000);
    assert!(found[..1000] == [0; 1000] && found[1000..] == [7; 5000]);
    fs.close().unwrap();
    assert_eq!(check(&*device).unwrap().problems, [""; 0]);
}
