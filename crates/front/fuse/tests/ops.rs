//! The kernel's requests, seen through system calls on a mount.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use braid_contract::{Caller, DirEntry, DirSink, FileSystem, FileSystemCapabilities, HandleId, Layer};
use common::{Choice, Mount};
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FlockOperation, Mode, OFlags, RenameFlags, SeekFrom, StatxFlags, Timespec,
    Timestamps, XattrFlags,
};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering;

fn errno<T: std::fmt::Debug>(result: std::io::Result<T>) -> i32 {
    result.unwrap_err().raw_os_error().unwrap()
}

#[test]
fn missing_names_are_remembered_until_they_exist() {
    let mount = Mount::new(Choice::Cached);
    let lookups = || mount.fs.lookups.load(Ordering::Relaxed);
    let names = ["created", "made", "renamed", "linked", "symlinked", "node", "exchanged"];
    for name in names {
        assert!(!mount.path(name).exists());
    }
    let before = lookups();
    for name in names {
        assert_eq!(errno(fs::metadata(mount.path(name))), 2);
        assert_eq!(errno(fs::File::open(mount.path(name))), 2);
    }
    assert_eq!(lookups(), before, "the kernel answers for names that it knows to be missing");

    fs::write(mount.path("created"), "1").unwrap();
    fs::create_dir(mount.path("made")).unwrap();
    fs::write(mount.path("source"), "2").unwrap();
    fs::rename(mount.path("source"), mount.path("renamed")).unwrap();
    fs::hard_link(mount.path("created"), mount.path("linked")).unwrap();
    std::os::unix::fs::symlink("created", mount.path("symlinked")).unwrap();
    rustix::fs::mknodat(CWD, mount.path("node"), rustix::fs::FileType::Fifo, Mode::RWXU, 0).unwrap();
    fs::write(mount.path("exchanged"), "3").unwrap();
    rustix::fs::renameat_with(
        CWD,
        mount.path("exchanged"),
        CWD,
        mount.path("renamed"),
        RenameFlags::EXCHANGE,
    )
    .unwrap();
    for name in names {
        assert!(mount.path(name).symlink_metadata().is_ok(), "{name}");
    }
    assert_eq!(errno(fs::metadata(mount.path("source"))), 2);
    assert_eq!(fs::read_to_string(mount.path("exchanged")).unwrap(), "2");
    assert_eq!(fs::read_to_string(mount.path("renamed")).unwrap(), "3");

    fs::remove_file(mount.path("created")).unwrap();
    fs::remove_dir(mount.path("made")).unwrap();
    for name in ["created", "made"] {
        assert_eq!(errno(fs::metadata(mount.path(name))), 2, "{name}");
    }
    fs::write(mount.path("created"), "again").unwrap();
    assert_eq!(fs::read_to_string(mount.path("created")).unwrap(), "again");
    assert_eq!(fs::metadata(mount.path("linked")).unwrap().nlink(), 1);
}

#[test]
fn rename_modes() {
    let mount = Mount::new(Choice::Cached);
    let rename = |flags| rustix::fs::renameat_with(CWD, mount.path("a"), CWD, mount.path("b"), flags);
    fs::write(mount.path("a"), "a").unwrap();
    fs::write(mount.path("b"), "b").unwrap();
    assert_eq!(rename(RenameFlags::NOREPLACE), Err(Errno::EXIST));
    rename(RenameFlags::EXCHANGE).unwrap();
    assert_eq!(fs::read_to_string(mount.path("a")).unwrap(), "b");
    rename(RenameFlags::empty()).unwrap();
    assert_eq!(fs::read_to_string(mount.path("b")).unwrap(), "b");
    assert!(!mount.path("a").exists());
    fs::write(mount.path("a"), "a").unwrap();
    rename(RenameFlags::WHITEOUT).unwrap();
    assert_eq!(fs::read_to_string(mount.path("b")).unwrap(), "a");
    let left = fs::metadata(mount.path("a")).unwrap();
    assert!(left.file_type().is_char_device() && left.rdev() == 0, "{left:?}");
}

/// Names are only replaced.
struct OnlyReplaces(Arc<dyn FileSystem>);

impl Layer for OnlyReplaces {
    fn child(&self) -> &dyn FileSystem {
        &*self.0
    }

    fn capabilities(&self) -> FileSystemCapabilities {
        FileSystemCapabilities { rename_modes: false, ..self.0.capabilities() }
    }
}

#[test]
fn rename_modes_are_refused_for_a_file_system_that_has_none() {
    let mount = Mount::over(Choice::Cached, &common::config(), |fs| Arc::new(OnlyReplaces(fs)));
    let rename = |flags| rustix::fs::renameat_with(CWD, mount.path("a"), CWD, mount.path("b"), flags);
    fs::write(mount.path("a"), "a").unwrap();
    assert_eq!(rename(RenameFlags::NOREPLACE), Err(Errno::INVAL));
    fs::write(mount.path("b"), "b").unwrap();
    assert_eq!(rename(RenameFlags::EXCHANGE), Err(Errno::INVAL));
    assert_eq!(rename(RenameFlags::WHITEOUT), Err(Errno::INVAL));
    assert_eq!(fs::read_to_string(mount.path("b")).unwrap(), "b");
    rename(RenameFlags::empty()).unwrap();
    assert_eq!(fs::read_to_string(mount.path("b")).unwrap(), "a");
}

#[test]
fn a_birth_time_that_is_unknown_is_not_answered() {
    let mount = Mount::new(Choice::Cached);
    fs::write(mount.path("file"), "12345").unwrap();
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    let found = rustix::fs::statx(CWD, mount.path("file"), AtFlags::STATX_FORCE_SYNC, wanted).unwrap();
    assert_eq!(found.stx_mask & wanted.bits(), StatxFlags::BASIC_STATS.bits());
    let behind = fs::metadata(mount.backing("file")).unwrap();
    assert_eq!((found.stx_size, found.stx_ino, found.stx_nlink), (5, behind.ino(), 1));
    assert_eq!(found.stx_mtime.tv_nsec, behind.mtime_nsec() as u32);
}

#[test]
fn times_are_exact_before_and_after_the_epoch() {
    let mount = Mount::new(Choice::Cached);
    let file = fs::File::create(mount.path("file")).unwrap();
    // 1901 is the earliest time that ext4 holds.
    for (secs, nanos) in
        [(-2_147_483_648, 0), (-2_147_483_647, 123_456_789), (-1, 999_999_999), (0, 1), (1 << 33, 5)]
    {
        let spec = |secs| Timespec { tv_sec: secs, tv_nsec: nanos };
        let times = Timestamps { last_access: spec(secs), last_modification: spec(secs + 1) };
        rustix::fs::utimensat(CWD, mount.path("file"), &times, AtFlags::empty()).unwrap();
        for found in [fs::metadata(mount.path("file")).unwrap(), fs::metadata(mount.backing("file")).unwrap()]
        {
            assert_eq!((found.atime(), found.atime_nsec()), (secs, nanos));
            assert_eq!((found.mtime(), found.mtime_nsec()), (secs + 1, nanos));
        }
    }
    let omit = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT };
    let now = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW };
    let before = fs::metadata(mount.path("file")).unwrap();
    rustix::fs::futimens(&file, &Timestamps { last_access: omit, last_modification: now }).unwrap();
    let after = fs::metadata(mount.path("file")).unwrap();
    assert_eq!(before.atime(), after.atime());
    assert!(after.mtime() > 1_700_000_000);
}

#[test]
fn modes_devices_and_umask_arrive() {
    let mount = Mount::new(Choice::Cached);
    // The umask is the process's, and other tests run in parallel.
    let script = "umask 027; mkdir dir; touch file; mknod -m 640 pipe p; mknod null c 1 3; chmod 6751 file";
    let status = Command::new("sh").args(["-ec", script]).current_dir(mount.mountpoint()).status().unwrap();
    assert!(status.success());
    let mode = |name| fs::metadata(mount.path(name)).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode("dir"), mode("file"), mode("pipe"), mode("null")), (0o750, 0o6751, 0o640, 0o640));
    assert!(fs::metadata(mount.path("pipe")).unwrap().file_type().is_fifo());
    let null = fs::metadata(mount.path("null")).unwrap();
    assert!(null.file_type().is_char_device());
    assert_eq!(null.rdev(), rustix::fs::makedev(1, 3));
    fs::write(mount.path("null"), "device files work for root").unwrap();
}

/// Appends to a file as a user other than its owner.
fn append_as_nobody(path: &Path) {
    let status = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-ec", "printf x >> \"$0\""])
        .arg(path)
        .current_dir("/")
        .status()
        .unwrap();
    assert!(status.success());
}

#[test]
fn writes_of_others_clear_set_id_bits() {
    for choice in [Choice::Cached, Choice::Direct, Choice::Passthrough] {
        let mount = Mount::new(choice);
        // Temporary directories are private to their owner.
        for place in [mount.mountpoint(), &mount.backing("")] {
            fs::set_permissions(place, fs::Permissions::from_mode(0o755)).unwrap();
        }
        fs::write(mount.path("file"), "text").unwrap();
        fs::set_permissions(mount.path("file"), fs::Permissions::from_mode(0o6777)).unwrap();
        append_as_nobody(&mount.path("file"));
        for path in [mount.path("file"), mount.backing("file")] {
            assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o7777, 0o777);
        }
        if choice != Choice::Passthrough {
            assert!(mount.fs.last_write.lock().unwrap().kill_set_id);
        }
        fs::set_permissions(mount.path("file"), fs::Permissions::from_mode(0o6777)).unwrap();
        fs::write(mount.path("file"), "as root").unwrap();
        assert_eq!(fs::metadata(mount.path("file")).unwrap().permissions().mode() & 0o7777, 0o6777);
    }
}

#[test]
fn write_flags_follow_the_open_flags() {
    let mount = Mount::new(Choice::Direct);
    for (flags, direct, sync) in [
        (OFlags::empty(), false, false),
        (OFlags::DIRECT, true, false),
        (OFlags::DSYNC, false, true),
        (OFlags::SYNC | OFlags::DIRECT, true, true),
    ] {
        let flags = OFlags::WRONLY | OFlags::CREATE | flags;
        let file = rustix::fs::open(mount.path("file"), flags, Mode::RWXU).unwrap();
        rustix::io::pwrite(&file, &[1; 4096], 0).unwrap();
        let last = *mount.fs.last_write.lock().unwrap();
        assert_eq!((last.direct, last.sync), (direct, sync), "{flags:?}");
    }
}

#[test]
fn attribute_values_follow_the_size_protocol() {
    let mount = Mount::new(Choice::Cached);
    let path = mount.path("file");
    fs::write(&path, "").unwrap();
    let set = |value: &[u8], flags| rustix::fs::setxattr(&path, "user.test", value, flags);
    assert_eq!(set(b"value", XattrFlags::REPLACE), Err(Errno::NODATA));
    set(b"value", XattrFlags::CREATE).unwrap();
    assert_eq!(set(b"value", XattrFlags::CREATE), Err(Errno::EXIST));
    set(b"", XattrFlags::empty()).unwrap();
    assert_eq!(rustix::fs::getxattr_query(&path, "user.test"), Ok(0));
    set(&[7; 300], XattrFlags::REPLACE).unwrap();

    assert_eq!(rustix::fs::getxattr_query(&path, "user.test"), Ok(300));
    let mut exact = [0; 300];
    assert_eq!(rustix::fs::getxattr(&path, "user.test", &mut exact[..]), Ok(300));
    assert_eq!(exact, [7; 300]);
    let mut small = [0; 299];
    assert_eq!(rustix::fs::getxattr(&path, "user.test", &mut small[..]), Err(Errno::RANGE));

    assert_eq!(rustix::fs::listxattr_query(&path), Ok("user.test\0".len()));
    assert_eq!(rustix::fs::listxattr(&path, &mut small[..5]), Err(Errno::RANGE));
    let len = rustix::fs::listxattr(&path, &mut small[..]).unwrap();
    assert_eq!(&small[..len], b"user.test\0");
    rustix::fs::removexattr(&path, "user.test").unwrap();
    assert_eq!(rustix::fs::getxattr_query(&path, "user.test"), Err(Errno::NODATA));
    assert_eq!(rustix::fs::removexattr(&path, "user.test"), Err(Errno::NODATA));
}

#[test]
fn acls_are_kept_and_honoured() {
    let mount = Mount::new(Choice::Cached);
    for place in [mount.mountpoint(), &mount.backing("")] {
        fs::set_permissions(place, fs::Permissions::from_mode(0o755)).unwrap();
    }
    fs::write(mount.path("file"), "text").unwrap();
    fs::set_permissions(mount.path("file"), fs::Permissions::from_mode(0o600)).unwrap();
    // Version 2; owner rw-, user 65534 rw-, group ---, mask rw-, other ---.
    let entries: [(u16, u16, u32); 5] = [(1, 6, !0), (2, 6, 65534), (4, 0, !0), (16, 6, !0), (32, 0, !0)];
    let mut acl = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        acl.extend(tag.to_le_bytes().into_iter().chain(permissions.to_le_bytes()).chain(id.to_le_bytes()));
    }
    rustix::fs::setxattr(mount.path("file"), "system.posix_acl_access", &acl, XattrFlags::empty()).unwrap();
    append_as_nobody(&mount.path("file"));
    assert_eq!(fs::read_to_string(mount.path("file")).unwrap(), "textx");
    assert_eq!(fs::metadata(mount.path("file")).unwrap().permissions().mode() & 0o777, 0o660);
}

/// Lists a directory with buffers of `size` bytes.
fn list(path: &Path, size: usize) -> Vec<(Vec<u8>, u64, rustix::fs::FileType)> {
    let fd = rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
    let mut buffer = Vec::with_capacity(size);
    let mut entries = rustix::fs::RawDir::new(fd, buffer.spare_capacity_mut());
    let mut found = Vec::new();
    while let Some(entry) = entries.next() {
        let entry = entry.unwrap();
        found.push((entry.file_name().to_bytes().to_vec(), entry.ino(), entry.file_type()));
    }
    found
}

#[test]
fn large_directories_are_listed_completely_and_forgotten() {
    const FILES: usize = 50_000;
    let mount = Mount::new(Choice::Cached);
    fs::create_dir(mount.backing("dir")).unwrap();
    for index in 0..FILES {
        // Names of all lengths, so that entries end anywhere in a buffer.
        let name = format!("{index:06}{}", "x".repeat(index % 200));
        fs::File::create(mount.backing("dir").join(name)).unwrap();
    }
    for size in [700, 4096, 65536] {
        let found = list(&mount.path("dir"), size);
        let names: BTreeSet<&[u8]> = found.iter().map(|(name, ..)| name.as_slice()).collect();
        assert_eq!((found.len(), names.len()), (FILES + 2, FILES + 2), "buffer of {size}");
        assert!(names.contains(&b"."[..]) && names.contains(&b".."[..]));
        assert!(found.iter().all(|(_, ino, _)| *ino != 0));
        for (name, ino, kind) in found.iter().filter(|(name, ..)| !name.starts_with(b".")).step_by(997) {
            let stat = fs::metadata(mount.path("dir").join(std::ffi::OsStr::from_bytes(name))).unwrap();
            assert_eq!((*ino, *kind), (stat.ino(), rustix::fs::FileType::RegularFile));
        }
    }
    // Each lookup counted by a listing has to be returned.
    fs::remove_dir_all(mount.path("dir")).unwrap();
    assert!(mount.fs.wait_all_forgotten());
    assert_eq!(fs::read_dir(mount.backing("")).unwrap().count(), 0);
}

/// Fails after a few entries of each call for a listing.
struct FailsMidway(Arc<dyn FileSystem>);

/// Passes on a few entries.
struct Few<'a>(&'a mut dyn DirSink, usize);

impl DirSink for Few<'_> {
    fn add(&mut self, entry: &DirEntry<'_>) -> bool {
        self.1 > 0 && {
            self.1 -= 1;
            self.0.add(entry)
        }
    }
}

impl Layer for FailsMidway {
    fn child(&self) -> &dyn FileSystem {
        &*self.0
    }

    fn read_dir(
        &self,
        caller: &Caller,
        handle: HandleId,
        offset: i64,
        plus: bool,
        sink: &mut dyn DirSink,
    ) -> braid_contract::Result<()> {
        let mut few = Few(sink, 5);
        self.0.read_dir(caller, handle, offset, plus, &mut few)?;
        if few.1 == 0 { Err(braid_contract::Errno::EMFILE.into()) } else { Ok(()) }
    }
}

#[test]
fn what_a_listing_took_before_it_failed_is_listed_and_forgotten() {
    let mount = Mount::over(Choice::Cached, &common::config(), |fs| Arc::new(FailsMidway(fs)));
    fs::create_dir(mount.backing("dir")).unwrap();
    for name in 0..30 {
        fs::File::create(mount.backing("dir").join(name.to_string())).unwrap();
    }
    // Each call gets some, so that none has to tell of the failure.
    assert_eq!(list(&mount.path("dir"), 4096).len(), 32);
    fs::remove_dir_all(mount.path("dir")).unwrap();
    assert!(mount.fs.wait_all_forgotten());
}

#[test]
fn kinds_are_found_where_the_directory_does_not_tell() {
    let mount = Mount::new(Choice::Cached);
    fs::create_dir(mount.path("dir")).unwrap();
    fs::write(mount.path("file"), "").unwrap();
    std::os::unix::fs::symlink("file", mount.path("link")).unwrap();
    // The kernel asks for plain names from the second buffer on.
    for index in 0..2000 {
        std::os::unix::fs::symlink("x", mount.path(&format!("filler-{index}"))).unwrap();
    }
    use rustix::fs::FileType::{Directory, RegularFile, Symlink};
    for (name, _, kind) in list(mount.mountpoint(), 4096) {
        let expected = match name.as_slice() {
            b"." | b".." | b"dir" => Directory,
            b"file" => RegularFile,
            _ => Symlink,
        };
        assert_eq!(kind, expected, "{}", String::from_utf8_lossy(&name));
    }
}

#[test]
fn fallocate_modes() {
    let mount = Mount::new(Choice::Cached);
    let file = fs::File::options().create_new(true).read(true).write(true).open(mount.path("file")).unwrap();
    let size = || file.metadata().unwrap().len();
    let allocate = |flags, offset, len| rustix::fs::fallocate(&file, flags, offset, len);
    let keep = FallocateFlags::KEEP_SIZE;
    allocate(keep, 0, 1 << 20).unwrap();
    assert_eq!(size(), 0);
    assert!(file.metadata().unwrap().blocks() >= 2048);
    allocate(FallocateFlags::empty(), 0, 1 << 20).unwrap();
    assert_eq!(size(), 1 << 20);
    std::os::unix::fs::FileExt::write_all_at(&file, &[7; 1 << 20], 0).unwrap();
    allocate(FallocateFlags::PUNCH_HOLE | keep, 4096, 65536).unwrap();
    allocate(FallocateFlags::ZERO_RANGE | keep, 1 << 19, 8192).unwrap();
    allocate(FallocateFlags::ZERO_RANGE, 1 << 20, 4096).unwrap();
    let data = fs::read(mount.path("file")).unwrap();
    assert_eq!(data.len(), (1 << 20) + 4096);
    let zeros = |range: std::ops::Range<usize>| data[range].iter().all(|byte| *byte == 0);
    assert!(zeros(4096..4096 + 65536) && zeros(1 << 19..(1 << 19) + 8192) && zeros(1 << 20..data.len()));
    assert!(data[..4096].iter().all(|byte| *byte == 7));
    for refused in [FallocateFlags::COLLAPSE_RANGE, FallocateFlags::INSERT_RANGE] {
        assert_eq!(allocate(refused, 0, 4096), Err(Errno::OPNOTSUPP), "{refused:?}");
    }
    assert_eq!(rustix::fs::seek(&file, SeekFrom::Hole(0)).unwrap(), 4096);
    assert_eq!(rustix::fs::seek(&file, SeekFrom::Data(4096)).unwrap(), 4096 + 65536);
    assert_eq!(rustix::fs::seek(&file, SeekFrom::Data(1 << 30)), Err(Errno::NXIO));
}

#[test]
fn copies_are_made_by_the_file_system() {
    let mount = Mount::new(Choice::Cached);
    let data: Vec<u8> = (0..3_000_000_u32).map(|index| (index % 251) as u8).collect();
    fs::write(mount.path("from"), &data).unwrap();
    let from = fs::File::open(mount.path("from")).unwrap();
    let to = fs::File::create(mount.path("to")).unwrap();
    let before = mount.fs.reads.load(Ordering::Relaxed);
    let mut offsets = (100, 5000);
    let mut left = 2_000_000;
    while left > 0 {
        left -= rustix::fs::copy_file_range(&from, Some(&mut offsets.0), &to, Some(&mut offsets.1), left)
            .unwrap();
    }
    assert_eq!(mount.fs.reads.load(Ordering::Relaxed), before);
    let copy = fs::read(mount.path("to")).unwrap();
    assert_eq!(copy.len(), 2_005_000);
    assert!(copy[..5000].iter().all(|byte| *byte == 0));
    assert_eq!(copy[5000..], data[100..2_000_100]);
}

#[test]
fn locks_work_between_descriptors() {
    let mount = Mount::new(Choice::Cached);
    let first = fs::File::create(mount.path("file")).unwrap();
    let second = fs::File::create(mount.path("file")).unwrap();
    let lock = |file, operation| rustix::fs::flock(file, operation);
    lock(&first, FlockOperation::LockExclusive).unwrap();
    assert_eq!(lock(&second, FlockOperation::NonBlockingLockShared), Err(Errno::WOULDBLOCK));
    lock(&first, FlockOperation::Unlock).unwrap();
    lock(&second, FlockOperation::NonBlockingLockShared).unwrap();
}

#[test]
fn ioctl_statfs_and_fsync() {
    let mount = Mount::new(Choice::Cached);
    let file = fs::File::create(mount.path("file")).unwrap();
    file.sync_all().unwrap();
    file.sync_data().unwrap();
    fs::File::open(mount.mountpoint()).unwrap().sync_all().unwrap();
    assert_eq!(rustix::fs::ioctl_getflags(&file), Err(Errno::NOTTY));
    let (ours, theirs) =
        (rustix::fs::statvfs(mount.mountpoint()).unwrap(), rustix::fs::statvfs(mount.backing("")).unwrap());
    assert_eq!(ours.f_blocks * ours.f_frsize, theirs.f_blocks * theirs.f_frsize);
    assert_eq!((ours.f_files, ours.f_namemax, ours.f_bsize), (theirs.f_files, 255, 4096));
}

#[test]
fn a_panic_is_answered_and_the_mount_goes_on() {
    let mount = Mount::new(Choice::Cached);
    // More often than there are threads.
    for _ in 0..20 {
        assert_eq!(errno(fs::metadata(mount.path("panic"))), 5);
        assert_eq!(errno(fs::create_dir(mount.path("panic"))), 5);
    }
    fs::write(mount.path("file"), "fine").unwrap();
    assert_eq!(fs::read_to_string(mount.path("file")).unwrap(), "fine");
}

#[test]
fn errors_reach_the_caller() {
    let mount = Mount::new(Choice::Cached);
    assert_eq!(errno(fs::metadata(mount.path("damaged"))), 117);
    // The kernel would discard this answer, and leave the caller waiting.
    assert_eq!(errno(fs::metadata(mount.path("huge-errno"))), 5);
    assert_eq!(errno(fs::metadata(mount.path("no-system-call"))), 95);
    assert_eq!(errno(fs::metadata(mount.path(&"x".repeat(256)))), 36);
}
