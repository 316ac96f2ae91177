//! Sessions of applications with the runtime of a mount. Needs root and /dev/fuse; skipped
//! without them.

use crate::common::{Bench, RANGE, pattern, until};
use crate::seen::{BOTH, READ, Seen, errno, me, socket};
use braid_contract::{
    Caller, Class, Errno, FileKind, InodeId, KeyChange, PutOptions, RenameMode, ScanRange, SetAttr, XattrMode,
};
use braid_runtime::{Geometry, Options};
use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_gid, set_thread_groups, set_thread_uid};
use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const USER: u32 = 54_321;

fn mounted() -> Option<Bench> {
    let bench = Bench::new()?;
    bench.ok(&["mount", "--runtime=workers=3", "s.yaml", "m"]);
    Some(bench)
}

/// Does something as another user, in a thread of its own.
fn as_user<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            set_thread_groups(&[]).unwrap();
            set_thread_gid(Gid::from_raw(USER)).unwrap();
            set_thread_uid(Uid::from_raw(USER)).unwrap();
            work()
        });
        thread.join().unwrap()
    })
}

#[test]
fn the_kernel_and_a_session_see_each_others_changes() {
    let Some(bench) = mounted() else { return };
    let seen = Seen::of(&bench, "m");
    let path = |name: &str| bench.path("m").join(name);

    // Data that only the kernel's cache has.
    let data = pattern(1, 3 * RANGE + 100);
    let file = File::create(path("by-kernel")).unwrap();
    file.write_all_at(&data, 0).unwrap();
    assert!(seen.read("by-kernel").unwrap() == data);

    // A name that the kernel knew to be none.
    assert!(fs::metadata(path("by-session")).is_err());
    seen.write("by-session", &data).unwrap();
    assert!(fs::read(path("by-session")).unwrap() == data);

    // Data in the kernel's cache changes below it.
    let newer = pattern(2, data.len());
    seen.write("by-session", &newer).unwrap();
    assert!(fs::read(path("by-session")).unwrap() == newer);
    let ino = seen.look("by-session").unwrap();
    // The kernel reports the close only later.
    until("the program's file is closed", || bench.status()["open_files"] == 1);
    let cut = SetAttr { size: Some(10), ..SetAttr::default() };
    seen.fs.setattr(&me(), ino, None, &cut).unwrap();
    assert_eq!(fs::read(path("by-session")).unwrap(), newer[..10]);
    assert_eq!(fs::metadata(path("by-session")).unwrap().len(), 10);

    // Names, modes and attributes.
    seen.fs
        .rename(
            &me(),
            seen.root,
            OsStr::new("by-session"),
            seen.root,
            OsStr::new("renamed"),
            RenameMode::Replace,
        )
        .unwrap();
    assert!(fs::metadata(path("by-session")).is_err() && path("renamed").exists());
    seen.fs.setattr(&me(), ino, None, &SetAttr { mode: Some(0o600), ..SetAttr::default() }).unwrap();
    assert_eq!(fs::metadata(path("renamed")).unwrap().mode() & 0o7777, 0o600);
    seen.fs.setxattr(&me(), ino, OsStr::new("user.x"), b"y", XattrMode::Set).unwrap();
    assert_eq!(seen.fs.getxattr(&me(), ino, OsStr::new("user.x")).unwrap(), b"y");
    let linked = seen.fs.link(&me(), ino, seen.root, OsStr::new("linked")).unwrap();
    assert_eq!((linked.attr.nlink, fs::metadata(path("renamed")).unwrap().nlink()), (2, 2));
    fs::remove_file(path("renamed")).unwrap();
    assert_eq!(seen.look("renamed"), Err(Errno::ENOENT.0));
    seen.fs.unlink(&me(), seen.root, OsStr::new("linked")).unwrap();
    assert!(fs::metadata(path("linked")).is_err());

    // A file that is removed while it is open stays.
    seen.write("going", b"still here").unwrap();
    let ino = seen.look("going").unwrap();
    let handle = seen.fs.open(&me(), ino, READ.into()).unwrap().handle;
    fs::remove_file(path("going")).unwrap();
    let mut found = [0; 10];
    assert_eq!(seen.fs.read(&me(), handle, 0, &mut found, false).unwrap(), 10);
    assert_eq!(&found, b"still here");
    drop((seen, file));
    bench.ok(&["fsck", "m"]);
    bench.unmount_clean();
}

#[test]
fn a_session_has_the_rights_of_its_user() {
    let Some(bench) = mounted() else { return };
    let path = |name: &str| bench.path("m").join(name);
    for dir in ["open", "closed", "sticky"] {
        fs::create_dir(path(dir)).unwrap();
    }
    fs::write(path("secret"), "secret").unwrap();
    fs::set_permissions(path("secret"), Permissions::from_mode(0o600)).unwrap();
    fs::write(path("closed/inside"), "secret").unwrap();
    fs::set_permissions(path("closed"), Permissions::from_mode(0o700)).unwrap();
    fs::set_permissions(path("open"), Permissions::from_mode(0o777)).unwrap();
    fs::set_permissions(path("sticky"), Permissions::from_mode(0o1777)).unwrap();
    fs::write(path("sticky/of-root"), "").unwrap();
    fs::write(path("by-acl"), "shared").unwrap();
    fs::set_permissions(path("by-acl"), Permissions::from_mode(0o640)).unwrap();
    // Their whole way has to be open to this user.
    fs::set_permissions(bench.path(""), Permissions::from_mode(0o755)).unwrap();
    let (allowed, denied) = (Errno::EACCES.0, Errno::EPERM.0);
    as_user(|| {
        let seen = Seen::of(&bench, "m");
        assert_eq!(seen.read("secret"), Err(allowed));
        assert_eq!(seen.read("by-acl"), Err(allowed));
        assert_eq!(seen.write("new", b""), Err(allowed));
        assert_eq!(seen.write("secret", b""), Err(allowed));
        let closed = seen.look("closed").unwrap();
        assert_eq!(errno(seen.fs.lookup(&me(), closed, OsStr::new("inside"))).err(), Some(allowed));
        assert_eq!(errno(seen.fs.open_dir(&me(), closed)).err(), Some(allowed));
        // It can't claim to be root, or guess an inode.
        let secret = seen.look("secret").unwrap();
        assert_eq!(errno(seen.fs.open(&Caller::root(), secret, READ.into())).err(), Some(allowed));
        for ino in 2..200 {
            let told = errno(seen.fs.getattr(&me(), InodeId(ino), None));
            assert!(told.is_err() || [secret, closed].contains(&InodeId(ino)), "{ino}");
        }
        let chown = SetAttr { uid: Some(USER), ..SetAttr::default() };
        assert_eq!(errno(seen.fs.setattr(&me(), secret, None, &chown)).err(), Some(denied));
        let chmod = SetAttr { mode: Some(0o666), ..SetAttr::default() };
        assert_eq!(errno(seen.fs.setattr(&me(), secret, None, &chmod)).err(), Some(denied));
        assert_eq!(errno(seen.fs.unlink(&me(), seen.root, OsStr::new("secret"))).err(), Some(allowed));
        assert_eq!(
            errno(seen.fs.link(&me(), secret, seen.look("open").unwrap(), OsStr::new("l"))).err(),
            Some(denied)
        );
        let trusted = errno(seen.fs.setxattr(&me(), secret, OsStr::new("trusted.x"), b"", XattrMode::Set));
        assert_eq!(trusted.err(), Some(denied));
        assert_eq!(
            errno(seen.fs.getxattr(&me(), secret, OsStr::new("trusted.braid.id"))).err(),
            Some(Errno::ENODATA.0)
        );
        // Nor the directories beyond the one it was shown.
        let below = Seen::of(&bench, "m/open");
        assert_eq!(errno(below.fs.lookup(&me(), below.root, OsStr::new(".."))).err(), Some(allowed));
        assert_eq!(errno(below.fs.getattr(&me(), seen.root, None)).err(), Some(Errno::ESTALE.0));
        below.write("mine", b"hello").unwrap();
        let mine = below.look("mine").unwrap();
        let lent = SetAttr { mode: Some(0o4755), ..SetAttr::default() };
        assert_eq!(errno(below.fs.setattr(&me(), mine, None, &lent)).err(), Some(denied));
        below.fs.setattr(&me(), mine, None, &SetAttr { mode: Some(0o755), ..SetAttr::default() }).unwrap();
        let sticky = Seen::of(&bench, "m/sticky");
        assert_eq!(errno(sticky.fs.unlink(&me(), sticky.root, OsStr::new("of-root"))).err(), Some(denied));
        sticky.write("mine", b"").unwrap();
        sticky.fs.unlink(&me(), sticky.root, OsStr::new("mine")).unwrap();
        let device = sticky.fs.mknod(
            &me(),
            sticky.root,
            OsStr::new("null"),
            FileKind::CharDevice.mode() | 0o666,
            0,
            0x103,
        );
        assert_eq!(errno(device).err(), Some(denied));
        // The kernel does not let it open this one.
        assert_eq!(
            Seen::with(&bench, "m/closed/..", Options::default()).err().map(|error| error.errno().0),
            Some(allowed)
        );
    });
    let mine = fs::metadata(path("open/mine")).unwrap();
    assert_eq!((mine.uid(), mine.gid(), mine.mode() & 0o7777), (USER, USER, 0o755));
    // A write of another user than root takes the set-user-id bit away.
    fs::set_permissions(path("open/mine"), Permissions::from_mode(0o4777)).unwrap();
    as_user(|| Seen::of(&bench, "m/open").write("mine", b"other").unwrap());
    assert_eq!(fs::metadata(path("open/mine")).unwrap().mode() & 0o7777, 0o777);
    // An ACL counts.
    let acl = std::process::Command::new("setfacl")
        .args(["-m", &format!("u:{USER}:r")])
        .arg(path("by-acl"))
        .status();
    if acl.is_ok_and(|status| status.success()) {
        as_user(|| assert_eq!(Seen::of(&bench, "m").read("by-acl").unwrap(), b"shared"));
    } else {
        braid_testkit::skipped("setfacl");
    }
    chown(path("secret"), Some(USER), None).unwrap();
    as_user(|| assert_eq!(Seen::of(&bench, "m").read("secret").unwrap(), b"secret"));
    bench.unmount_clean();
}

#[test]
fn what_is_mounted_read_only_is_so_for_a_session() {
    let Some(mut bench) = mounted() else { return };
    fs::write(bench.path("m/file"), "x").unwrap();
    bench.bind("m", "ro");
    let options = rustix::mount::MountFlags::RDONLY | rustix::mount::MountFlags::BIND;
    rustix::mount::mount_remount(bench.path("ro"), options, "").unwrap();
    let seen = Seen::of(&bench, "ro");
    assert_eq!(seen.read("file").unwrap(), b"x");
    assert_eq!(seen.write("file", b"y"), Err(Errno::EROFS.0));
    assert_eq!(errno(seen.fs.unlink(&me(), seen.root, OsStr::new("file"))).err(), Some(Errno::EROFS.0));
    let elsewhere = Seen::with(&bench, "a", Options::default());
    assert_eq!(elsewhere.err().map(|error| error.errno()), Some(Errno::EXDEV));
    drop(seen);
    let flags = rustix::mount::UnmountFlags::empty();
    until("it is unmounted", || {
        let _copies = crate::common::without_copies();
        rustix::mount::unmount(bench.path("ro"), flags).is_ok()
    });
    bench.ok(&["umount", "m"]);
}

#[test]
fn a_hostile_application_harms_only_itself() {
    let Some(bench) = mounted() else { return };
    let seen = Seen::of(&bench, "m");
    seen.write("file", b"fine").unwrap();
    let said = |line: &[u8]| {
        let mut socket = UnixStream::connect(socket(&bench)).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        socket.write_all(line).unwrap();
        let mut answer = Vec::new();
        // A connection that is broken off is an answer.
        let _ = socket.read_to_end(&mut answer);
        String::from_utf8(answer).unwrap()
    };
    let begin = |version: u32, queues: u64| {
        format!(
            "{{\"begin\":{{\"version\":{version},\"geometry\":{{\"queues\":{queues},\"depth\":8,\"data\":4096}},\
             \"class\":\"auto\",\"ordered\":false}}}}\n"
        )
    };
    assert!(said(begin(9, 1).as_bytes()).contains("version 9"));
    for queues in [0, 17, u64::MAX >> 1] {
        assert!(said(begin(2, queues).as_bytes()).contains("sizes"), "{queues}");
    }
    for line in [&b"\n"[..], b"{}\n", b"[]\n", &[0xff; 100_000], b"{\"show\":{}}\n", b"x"] {
        said(line);
    }
    // More sessions than a user may have: the others go on.
    let many: Vec<_> = (0..60).map(|_| as_user(|| Seen::with(&bench, "m", Options::default()))).collect();
    assert!(many.iter().any(Result::is_ok) && many.iter().any(Result::is_err));
    let mut all = vec![];
    for _ in 0..200 {
        all.extend(UnixStream::connect(socket(&bench)));
    }
    assert_eq!(seen.read("file").unwrap(), b"fine");
    drop((all, many));
    // There is room again when the threads have noticed.
    until("a session", || Seen::with(&bench, "m", Options::default()).is_ok());
    drop(seen);
    bench.unmount_clean();
}

#[test]
fn many_threads_use_a_session() {
    let Some(bench) = mounted() else { return };
    let geometry = Geometry { queues: 3, depth: 2, data: 4096 };
    for ordered in [false, true] {
        let options = Options { geometry, ordered, class: Class::Throughput, ..Options::default() };
        let seen = Seen::with(&bench, "m", options).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let seen = &seen;
                scope.spawn(move || {
                    for turn in 0..20 {
                        let (name, data) = (format!("t{thread}"), pattern(thread * 100 + turn, 30_000));
                        seen.write(&name, &data).unwrap();
                        assert!(seen.read(&name).unwrap() == data);
                    }
                });
            }
        });
        let status = bench.json(&["runtime", "m", "--json"]);
        let requests: u64 = status["queues"]
            .as_array()
            .unwrap()
            .iter()
            .map(|queue| queue["requests"].as_u64().unwrap())
            .sum();
        assert!(requests > 8 * 20 * 8, "{status}");
        assert_eq!(status["sessions"].as_array().unwrap().len(), 1);
        assert_eq!(status["queues"][0]["class"], "throughput");
        assert!(bench.ok(&["runtime", "m"]).contains("WORKER"));
        for verb in ["status", "runtime"] {
            let said = bench.ok(&[verb, "m"]);
            assert!(said.contains("of at most 3") && said.contains("1 session, 3 queues"), "{said}");
        }
    }
    bench.unmount_clean();
}

#[test]
fn a_mount_ends_under_its_sessions() {
    let Some(bench) = mounted() else { return };
    let seen = Seen::of(&bench, "m");
    seen.write("file", b"x").unwrap();
    let ino = seen.look("file").unwrap();
    seen.fs.open(&me(), ino, BOTH.into()).unwrap();
    bench.unmount_clean();
    let gone = seen.fs.getattr(&me(), ino, None).unwrap_err();
    assert_eq!(gone.errno(), Errno::ENOTCONN);
    assert!(gone.to_string().contains("the runtime has ended"), "{gone}");
    bench.ok(&["mount", "--runtime", "--no-xattr", "s.yaml", "m"]);
    let plain = Seen::of(&bench, "m");
    let ino = plain.look("file").unwrap();
    let refused = Err(Errno::EOPNOTSUPP.0);
    assert_eq!(errno(plain.fs.setxattr(&me(), ino, OsStr::new("user.x"), b"y", XattrMode::Set)), refused);
    assert_eq!(errno(plain.fs.listxattr(&me(), ino)).map(drop), refused);
    drop(plain);
    bench.unmount_clean();
    bench.ok(&["mount", "--no-runtime", "s.yaml", "m"]);
    let said = bench.refused(&["runtime", "m"]);
    assert!(said.contains("--runtime"), "{said}");
    let said = bench.refused(&["bench", "runtime", "m"]);
    assert!(said.contains("mount with --runtime"), "{said}");
    bench.unmount_clean();
}

#[test]
fn a_log_file_system_has_sessions_too() {
    let Some(bench) = Bench::bare(&["m"]) else { return };
    bench.ok(&["log", "create", "fs", "--size", "64MiB"]);
    bench.ok(&["log", "mount", "--runtime=workers=1", "--log-file", "log", "fs", "m"]);
    let seen = Seen::of(&bench, "m");
    let data = pattern(3, 100_000);
    seen.write("by-session", &data).unwrap();
    assert!(fs::read(bench.path("m/by-session")).unwrap() == data);
    fs::write(bench.path("m/by-kernel"), "x").unwrap();
    assert_eq!(seen.read("by-kernel").unwrap(), b"x");
    assert!(bench.ok(&["runtime", "m"]).contains("of at most 1"));
    drop(seen);
    bench.ok(&["umount", "m"]);
    assert!(bench.ok(&["log", "check", "fs"]).starts_with("fs: sound"));
}

/// Keys and values by a session, beside files by the mount.
fn use_values(bench: &Bench, is_atomic: bool) {
    fs::create_dir(bench.path("m/values")).unwrap();
    let seen = Seen::of(bench, "m/values");
    let values = seen.session.values(seen.root).unwrap();
    assert_eq!(values.batch_is_atomic(), is_atomic);
    let put = |key: &str, value: &[u8]| values.put(&me(), key.as_bytes(), value, PutOptions::default());
    let get = |key: &str| errno(values.get(&me(), key.as_bytes()));
    let (file, long) = (bench.path("m/values/a"), pattern(5, 128 << 10));
    // The kernel has looked it up, and caches neither its absence nor its contents.
    assert!(!file.exists());
    assert!(put("a", b"one").unwrap());
    assert_eq!(fs::read(&file).unwrap(), b"one");
    assert!(put("a", &long).unwrap());
    assert!(fs::read(&file).unwrap() == long && get("a").unwrap().unwrap() == long);
    // It has not written this back yet.
    fs::write(bench.path("m/values/b"), "by a program").unwrap();
    assert_eq!(get("b").unwrap().unwrap(), b"by a program");
    assert_eq!(values.len(&me(), b"b").unwrap(), Some(12));
    values.batch(&me(), &[KeyChange::Put(b"c/d", b"batch"), KeyChange::Delete(b"a")]).unwrap();
    assert_eq!((get("a"), get("c/d")), (Ok(None), Ok(Some(b"batch".to_vec()))));
    let page = values.scan(&me(), &ScanRange::default(), 10, true).unwrap();
    let found: Vec<&[u8]> = page.entries.iter().map(|(key, _)| &key[..]).collect();
    assert_eq!(found, [&b"b"[..], b"c/d"]);
    assert!(bench.ok(&["kv", "scan", "m/values"]).contains("c/d"));
    values.sync().unwrap();
    assert_eq!(errno(put("x", &pattern(1, (128 << 10) + 1))), Err(Errno::EFBIG.0));
    assert!(values.delete(&me(), b"b").unwrap() && !values.delete(&me(), b"b").unwrap());
    assert!(!bench.path("m/values/b").exists());
    // Another user's session has that user's rights.
    fs::set_permissions(bench.path("m/values"), Permissions::from_mode(0o777)).unwrap();
    put("secret", b"value").unwrap();
    as_user(|| {
        let seen = Seen::of(bench, "m/values");
        let values = seen.session.values(seen.root).unwrap();
        let denied = errno(values.get(&me(), b"secret"));
        assert_eq!(denied, Err(Errno::EACCES.0));
        assert_eq!(errno(values.put(&me(), b"secret", b"", PutOptions::default())), Err(Errno::EACCES.0));
        assert!(values.put(&me(), b"own", b"1", PutOptions::default()).unwrap());
        assert_eq!(values.get(&me(), b"own").unwrap().unwrap(), b"1");
    });
    assert_eq!(fs::metadata(bench.path("m/values/own")).unwrap().uid(), USER);
    for load in ["put", "get"] {
        for through in ["runtime", "mount"] {
            let words = [
                "--load",
                load,
                "--through",
                through,
                "--seconds",
                "0.05",
                "--size",
                "100",
                "--file",
                "9000",
                "--json",
            ];
            let measured = bench.json(&[&["bench", "runtime", "m"], &words[..]].concat());
            assert!(measured["operations"].as_u64().unwrap() > 0, "{measured}");
        }
    }
    assert_eq!(fs::read_dir(bench.path("m")).unwrap().count(), 1, "they leave nothing");
}

#[test]
fn a_session_has_keys_and_values() {
    let Some(bench) = mounted() else { return };
    use_values(&bench, false);
    bench.unmount_clean();
}

#[test]
fn a_session_has_keys_and_values_of_a_log_file_system() {
    let Some(bench) = Bench::bare(&["m"]) else { return };
    bench.ok(&["log", "create", "fs", "--size", "64MiB"]);
    bench.ok(&["log", "mount", "--runtime=workers=1", "--log-file", "log", "fs", "m"]);
    use_values(&bench, true);
    bench.ok(&["umount", "m"]);
    assert!(bench.ok(&["log", "check", "fs"]).starts_with("fs: sound"));
}

#[test]
fn sessions_go_on_through_an_upgrade() {
    let Some(bench) = mounted() else { return };
    let seen = Seen::of(&bench, "m");
    let data = pattern(7, 3 * RANGE);
    seen.write("kept", &data).unwrap();
    seen.write("gone", &data).unwrap();
    let gone = seen.look("gone").unwrap();
    let handle = seen.fs.open(&me(), gone, BOTH.into()).unwrap().handle;
    seen.fs.unlink(&me(), seen.root, OsStr::new("gone")).unwrap();
    let dir = seen.fs.open_dir(&me(), seen.root).unwrap();
    let values = seen.session.values(seen.root).unwrap();
    values.put(&me(), b"value", b"before", PutOptions::default()).unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (seen, over) = (&seen, &over);
            scope.spawn(move || {
                for turn in 0.. {
                    let (name, data) = (format!("t{thread}-{}", turn % 50), pattern(turn, 9000));
                    seen.write(&name, &data).unwrap();
                    assert!(seen.read(&name).unwrap() == data);
                    if turn % 2 == 0 {
                        seen.fs.unlink(&me(), seen.root, OsStr::new(&name)).unwrap();
                    }
                    if over.load(Ordering::Relaxed) {
                        break;
                    }
                }
            });
        }
        for turn in 1..4 {
            bench.ok(&["upgrade", "m"]);
            let mut found = vec![0; data.len()];
            assert_eq!(seen.fs.read(&me(), handle, 0, &mut found, false).unwrap(), data.len());
            assert!(found == data, "after {turn}");
            assert_eq!(values.get(&me(), b"value").unwrap().unwrap(), b"before");
        }
        over.store(true, Ordering::Relaxed);
    });
    assert_eq!(bench.json(&["runtime", "m", "--json"])["sessions"].as_array().unwrap().len(), 1);
    assert!(seen.read("kept").unwrap() == data);
    seen.fs.release(handle).unwrap();
    seen.fs.release_dir(dir).unwrap();
    assert_eq!(errno(seen.fs.read(&me(), handle, 0, &mut [0], false)), Err(Errno::EBADF.0));
    // New ones begin too, and all ends with its session.
    let other = Seen::of(&bench, "m");
    let ino = other.look("kept").unwrap();
    other.fs.open(&me(), ino, READ.into()).unwrap();
    drop((other, values, seen));
    until("the files are closed", || bench.status()["open_files"] == 0);
    bench.unmount_clean();
}

#[test]
fn the_settings_are_in_the_stack_file_and_in_its_dump() {
    let Some(bench) = Bench::new() else { return };
    let text = fs::read_to_string(bench.path("s.yaml")).unwrap();
    let with = |runtime: &str| bench.write_stack(&format!("{text}mount:\n  runtime: {runtime}\n"));
    for (runtime, problem) in [
        ("{ workers: 0 }", "from 1 to 64"),
        ("{ polices: x }", "polices"),
        ("{ poll: 3 }", "a duration"),
        ("perhaps", "yes or no"),
        ("[ 1 ]", "a list"),
    ] {
        with(runtime);
        let said = bench.refused(&["stack", "check", "s.yaml"]);
        assert!(said.contains(problem) && said.contains("s.yaml:"), "{runtime}: {said}");
    }
    with("{ workers: 2, policy: round-robin, scheduler: noop, poll: 1ms }");
    bench.ok(&["mount", "s.yaml", "m"]);
    let status = bench.json(&["runtime", "m", "--json"]);
    assert_eq!(
        (&status["policy"], &status["scheduler"], &status["workers_max"]),
        (&"round-robin".into(), &"noop".into(), &2.into())
    );
    let dump = bench.ok(&["stack", "dump", "m"]);
    for part in ["policy: round-robin", "scheduler: noop", "workers: 2", "poll: 1000us"] {
        assert!(dump.contains(part), "{part}: {dump}");
    }
    for (load, through) in [
        ("stat", "runtime"),
        ("create", "runtime"),
        ("read", "mount"),
        ("write", "runtime"),
        ("create", "mount"),
        ("deeds", "runtime"),
        ("deeds", "mount"),
    ] {
        let words = [
            "bench",
            "runtime",
            "m",
            "--load",
            load,
            "--through",
            through,
            "--seconds",
            "0.2",
            "--clients",
            "2",
            "--json",
        ];
        let measured = bench.json(&words);
        assert!(measured["operations"].as_u64().unwrap() > 0, "{measured}");
        assert_eq!((&measured["load"], &measured["through"]), (&load.into(), &through.into()));
    }
    bench.ok(&[
        "bench",
        "runtime",
        "m",
        "--size",
        "64KiB",
        "--file",
        "128KiB",
        "--class",
        "latency",
        "--seconds",
        "0.1",
    ]);
    bench.ok(&["bench", "runtime", "m", "--load", "write", "--pause", "0.001", "--seconds", "0.1"]);
    assert_eq!(fs::read_dir(bench.path("m")).unwrap().count(), 0, "it leaves nothing");
    let (status, said) = bench.fails(&["bench", "runtime", "m", "--clients", "65"]);
    assert!(status == 2 && said.contains("1 to 64"), "{said}");
    bench.unmount_clean();
}

#[test]
fn only_who_serves_the_mount_acts_for_others() {
    let Some(bench) = mounted() else { return };
    fs::write(bench.path("m/secret"), "secret").unwrap();
    fs::set_permissions(bench.path("m/secret"), fs::Permissions::from_mode(0o640)).unwrap();
    let for_others = Options { for_others: true, ..Options::default() };
    let refused = as_user(|| Seen::with(&bench, "m", for_others).err().map(|error| error.errno().0));
    assert_eq!(refused, Some(1));

    // Root's session does what the caller of each request may, by the groups that it brings.
    let seen = Seen::with(&bench, "m", for_others).unwrap();
    let secret = seen.look("secret").unwrap();
    let open = |caller: &Caller| errno(seen.fs.open(caller, secret, READ.into()).map(drop));
    let user = |groups: Option<&[u32]>| Caller {
        uid: USER,
        gid: USER,
        groups: groups.map(std::sync::Arc::from),
        pid: 1,
        tid: 1,
        of_stack: false,
    };
    assert_eq!(open(&Caller::root()), Ok(()));
    assert_eq!([open(&user(None)), open(&user(Some(&[5, 6])))], [Err(13), Err(13)]);
    assert_eq!(open(&user(Some(&[5, 0]))), Ok(()));
    let many: Vec<u32> = (100_000..165_535).chain([0]).collect();
    assert_eq!(open(&user(Some(&many))), Err(13), "it has no room for so many");
    let roomy = Geometry { data: 512 << 10, ..Geometry::default() };
    let seen = Seen::with(&bench, "m", Options { geometry: roomy, ..for_others }).unwrap();
    let secret = seen.look("secret").unwrap();
    errno(seen.fs.open(&user(Some(&many)), secret, READ.into())).unwrap();
    drop(seen);
    bench.unmount_clean();
}
