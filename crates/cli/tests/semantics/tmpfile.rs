//! Files that are made without a name (`O_TMPFILE`), and get one or not. Needs
//! root and /dev/fuse; skipped without them.

use crate::common::{Bench, RANGE, is_well, kill_and_wait, pattern, read_anew, until, write_back};
use crate::users::{ALICE, BOB};
use braid_testkit::SplitMix;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, XattrFlags, linkat};
use rustix::io::Errno;
use std::fs::{self, File, Permissions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The bytes of a file that has ranges on both tiers.
const LEN: usize = 12 * RANGE + 77;

/// A file without a name in this directory.
fn unnamed(dir: &Path) -> File {
    open_unnamed(dir, OFlags::empty(), 0o600).unwrap()
}

fn open_unnamed(dir: &Path, more: OFlags, mode: u32) -> rustix::io::Result<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC | more;
    Ok(rustix::fs::open(dir, flags, Mode::from_raw_mode(mode))?.into())
}

/// Writes so that each range is placed by itself.
fn spread(file: &File, data: &[u8]) {
    for (at, chunk) in data.chunks(RANGE).enumerate() {
        write_back(file, chunk, (at * RANGE) as u64);
    }
}

fn name_it(file: &File, path: &Path) -> rustix::io::Result<()> {
    linkat(file, "", CWD, path, AtFlags::EMPTY_PATH)
}

fn proc_path(file: &File) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

/// Whether a tier other than home has no object.
fn is_bare(bench: &Bench) -> bool {
    let shards = fs::read_dir(bench.path("b/.braid/data")).unwrap();
    shards.flatten().filter(|shard| shard.path().is_dir()).all(|shard| crate::common::is_empty(&shard.path()))
}

#[test]
fn a_file_gets_its_name_when_it_is_complete() {
    let Some(bench) = Bench::new() else { return };
    for (number, mode) in ["writeback", "passthrough", "direct"].into_iter().enumerate() {
        bench.ok(&["mount", "s.yaml", "m", "--cache", mode]);
        let (dir, data) = (bench.path("m").join(mode), pattern(number as u64, LEN));
        fs::create_dir(&dir).unwrap();
        let file = unnamed(&dir);
        assert_eq!(file.metadata().unwrap().nlink(), 0);
        spread(&file, &data);
        file.set_permissions(Permissions::from_mode(0o640)).unwrap();
        rustix::fs::fsetxattr(&file, "user.colour", b"green", XattrFlags::empty()).unwrap();
        assert!(crate::common::is_empty(&dir), "{mode}");
        // By its descriptor, and as a program without privileges does it.
        name_it(&file, &dir.join("name")).unwrap();
        linkat(CWD, proc_path(&file), CWD, dir.join("other"), AtFlags::SYMLINK_FOLLOW).unwrap();
        assert_eq!(name_it(&file, &dir.join("name")), Err(Errno::EXIST));
        let found = fs::metadata(dir.join("name")).unwrap();
        assert_eq!(
            (found.nlink(), found.ino(), found.len()),
            (2, file.metadata().unwrap().ino(), LEN as u64)
        );
        // It goes on like any other.
        file.write_all_at(b"afterwards", LEN as u64).unwrap();
        drop(file);
        let whole = [data, b"afterwards".to_vec()].concat();
        assert!(read_anew(&dir.join("name")) == whole, "{mode}");
        assert!(bench.on(&format!("m/{mode}/name"), "slow") > 0, "{mode}");
        let small = unnamed(&dir);
        small.write_all_at(b"small", 0).unwrap();
        name_it(&small, &dir.join("small")).unwrap();
        drop(small);
        bench.unmount_clean();

        bench.ok(&["mount", "s.yaml", "m", "--cache", mode]);
        assert!(fs::read(dir.join("other")).unwrap() == whole, "{mode}");
        assert_eq!(fs::read(dir.join("small")).unwrap(), b"small");
        let found = fs::metadata(dir.join("name")).unwrap();
        assert_eq!((found.nlink(), found.mode() & 0o7777, found.len()), (2, 0o640, whole.len() as u64));
        let mut value = [0; 16];
        let len = rustix::fs::getxattr(dir.join("name"), "user.colour", &mut value).unwrap();
        assert_eq!(&value[..len], b"green");
        // With its names, all of it goes.
        fs::remove_dir_all(&dir).unwrap();
        until("the objects go", || is_bare(&bench));
        bench.unmount_clean();
    }
}

#[test]
fn a_file_that_gets_no_name_leaves_nothing() {
    let Some(bench) = Bench::new() else { return };
    bench.ok(&["mount", "s.yaml", "m"]);
    let mount = bench.path("m");
    let file = unnamed(&mount);
    spread(&file, &pattern(1, LEN));
    assert!(!is_bare(&bench));
    // The check does not take it for a leftover.
    assert!(bench.ok(&["fsck", "m"]).ends_with("no problems\n"));
    assert!(!is_bare(&bench));
    let again = File::open(proc_path(&file)).unwrap();
    drop(file);
    let mut read = vec![0; LEN];
    again.read_exact_at(&mut read, 0).unwrap();
    assert!(read == pattern(1, LEN), "it is still open");
    drop(again);
    until("the objects go at the last close", || is_bare(&bench));
    bench.unmount_clean();

    bench.ok(&["mount", "s.yaml", "m"]);
    let (synced, other, named) = (unnamed(&mount), unnamed(&mount), unnamed(&mount));
    for file in [&synced, &other, &named] {
        spread(file, &pattern(2, LEN));
    }
    synced.sync_all().unwrap();
    named.set_permissions(Permissions::from_mode(0o604)).unwrap();
    name_it(&named, &mount.join("named")).unwrap();
    named.sync_all().unwrap();
    kill_and_wait(i32::try_from(bench.status()["pid"].as_i64().unwrap()).unwrap());
    drop((synced, other, named));
    bench.ok(&["umount", "m"]);
    bench.ok(&["mount", "s.yaml", "m"]);
    assert!(fs::read(mount.join("named")).unwrap() == pattern(2, LEN));
    assert_eq!(fs::metadata(mount.join("named")).unwrap().mode() & 0o7777, 0o604);
    fs::remove_file(mount.join("named")).unwrap();
    until("recovery takes the others away", || is_bare(&bench));
    bench.unmount_clean();
}

#[test]
fn a_file_that_is_not_to_get_a_name_gets_none() {
    let Some(bench) = Bench::new() else { return };
    bench.ok(&["mount", "s.yaml", "m"]);
    let (mount, name) = (bench.path("m"), bench.path("m/name"));
    let file = open_unnamed(&mount, OFlags::EXCL, 0o600).unwrap();
    spread(&file, &pattern(1, LEN));
    assert_eq!(name_it(&file, &name), Err(Errno::NOENT));
    drop(file);
    // Nor does one that has lost it.
    let file = unnamed(&mount);
    spread(&file, &pattern(2, LEN));
    name_it(&file, &name).unwrap();
    fs::remove_file(&name).unwrap();
    assert_eq!(name_it(&file, &name), Err(Errno::NOENT));
    drop(file);
    assert!(!name.exists());
    let regular = mount.join("regular");
    fs::write(&regular, "").unwrap();
    assert_eq!(open_unnamed(&regular, OFlags::empty(), 0o600).unwrap_err(), Errno::NOTDIR);
    bench.unmount_clean();
}

#[test]
fn a_file_inherits_from_its_directory_as_natively() {
    let Some(bench) = Bench::shared() else { return };
    bench.mount();
    bench.open_to_all();
    fs::create_dir(bench.path("native")).unwrap();
    fs::set_permissions(bench.path("native"), Permissions::from_mode(0o1777)).unwrap();
    // Version 2: the owner rwx, BOB rw, group r, mask rw, others none.
    let entry = |tag: u16, rights: u16, id: u32| {
        [&tag.to_le_bytes()[..], &rights.to_le_bytes(), &id.to_le_bytes()].concat()
    };
    let none = u32::MAX;
    let entries = [(1, 7, none), (2, 6, BOB), (4, 4, none), (16, 6, none), (32, 0, none)];
    let acl = [2_u32.to_le_bytes().to_vec()]
        .into_iter()
        .chain(entries.map(|(tag, rights, id)| entry(tag, rights, id)))
        .collect::<Vec<_>>()
        .concat();
    let line = |place: &str| {
        format!(
            "acl = bytes({acl:?})\n\
             for name, mode, default in [('plain', 0o777, 0), ('set', 0o2777, 0), ('acl', 0o777, 1)]:\n\
             \x20   os.mkdir(f'{place}/{{name}}')\n\
             \x20   os.chown(f'{place}/{{name}}', -1, {BOB}) if name == 'set' else None\n\
             \x20   os.chmod(f'{place}/{{name}}', mode)\n\
             \x20   os.setxattr(f'{place}/{{name}}', 'system.posix_acl_default', acl) if default else None\n"
        )
    };
    let made = |place: &str| {
        let make = format!(
            "def acl(fd):\n\
             \x20   try: return os.getxattr(fd, 'system.posix_acl_access').hex()\n\
             \x20   except OSError as error: return error.errno\n\
             for name in ['plain', 'set', 'acl']:\n\
             \x20   for mask in [0, 0o027, 0o777]:\n\
             \x20       os.umask(mask)\n\
             \x20       fd = os.open(f'{place}/{{name}}', os.O_TMPFILE | os.O_RDWR, 0o2666)\n\
             \x20       at = os.fstat(fd)\n\
             \x20       print(name, oct(mask), oct(at.st_mode), at.st_uid, at.st_gid, at.st_nlink, acl(fd))\n"
        );
        let output = bench.python(ALICE, &make);
        assert!(output.status.success(), "{}", crate::users::said(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    for place in ["m", "native"] {
        let output = bench.python(0, &line(place));
        assert!(output.status.success(), "{}", crate::users::said(&output));
    }
    let (here, native) = (made("m"), made("native"));
    assert_eq!(here, native);
    assert!(here.contains(&format!("set 0o27 0o102640 {ALICE} {BOB} 0 ")), "{here}");
    bench.unmount_clean();
}

#[test]
fn permissions_are_those_of_the_directory() {
    let Some(bench) = Bench::shared() else { return };
    bench.mount();
    bench.open_to_all();
    fs::create_dir(bench.path("m/closed")).unwrap();
    let make = |dir: &str| {
        let line = format!("os.open('{dir}', os.O_TMPFILE | os.O_RDWR, 0o600)");
        crate::users::said(&bench.python(ALICE, &line))
    };
    assert!(make("m/closed").contains("[Errno 13]"), "{}", make("m/closed"));
    assert_eq!(make("m"), "");
    // She writes a file, and gives it a name where she may.
    bench.python_ok(
        ALICE,
        &format!(
            "fd = os.open('m', os.O_TMPFILE | os.O_RDWR, 0o600)\n\
             for at in range(12): os.write(fd, bytes([10]) * {RANGE}); os.fsync(fd)\n\
             os.link(f'/proc/self/fd/{{fd}}', 'm/alice', src_dir_fd=fd)"
        ),
    );
    bench.alice_has_her_data();
    let found = fs::metadata(bench.path("m/alice")).unwrap();
    assert_eq!((found.uid(), found.gid(), found.mode() & 0o7777), (ALICE, ALICE, 0o600));
    bench.unmount_clean();
}

/// A close and a link at the same time: the file has its name and its data, or
/// neither.
#[test]
fn a_name_that_comes_at_the_last_close_comes_with_the_data() {
    let Some(bench) = Bench::new() else { return };
    bench.ok(&["mount", "s.yaml", "m"]);
    let mount = bench.path("m");
    let data = pattern(9, 3 * RANGE);
    let mut random = SplitMix::new(4);
    let mut named = 0;
    for number in 0..150 {
        let file = unnamed(&mount);
        spread(&file, &data);
        // Keeps the inode, and is no open file.
        let held: File =
            rustix::fs::open(proc_path(&file), OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap().into();
        let turns = random.next_u64() % 2_000;
        let name = mount.join(format!("{number}"));
        let linked = std::thread::scope(|scope| {
            scope.spawn(move || drop(file));
            (0..turns).for_each(|_| std::hint::spin_loop());
            name_it(&held, &name)
        });
        match linked {
            Ok(()) => {
                drop(held);
                assert!(read_anew(&name) == data, "{number}");
                named += 1;
            }
            Err(error) => {
                assert!(matches!(error, Errno::NOENT | Errno::STALE), "{error}");
                assert!(!name.exists());
            }
        }
    }
    bench.ok(&["umount", "m"]);
    is_well(&bench);
    bench.ok(&["mount", "s.yaml", "m"]);
    let found = fs::read_dir(&mount).unwrap().flatten().map(|entry| fs::read(entry.path()).unwrap());
    assert_eq!(found.map(|found| assert!(found == data)).count(), named);
    bench.unmount_clean();
}
