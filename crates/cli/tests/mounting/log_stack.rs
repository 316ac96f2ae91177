//! Stacks with a log file system at the bottom, through the `braid` command. Needs root and
//! /dev/fuse; skipped without them.

use crate::common::{Bench, pattern};
use crate::seen::{Seen, errno, me};
use braid_contract::{Errno, KeyChange, KeyValue, PutOptions};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::process::Command;

/// A bench with a log file system in the file `fs`, and a stack file with these modules on
/// top of it, each in YAML without its braces; `more` is the rest of the file.
fn bench(modules: &[&str], more: &str) -> Option<Bench> {
    let bench = Bench::bare(&["m", "k"])?;
    bench.ok(&["log", "create", "fs", "--size", "64MiB"]);
    fs::write(bench.path("key"), [7; 32]).unwrap();
    fs::set_permissions(bench.path("key"), fs::Permissions::from_mode(0o600)).unwrap();
    write(&bench, "s.yaml", modules, more);
    Some(bench)
}

fn write(bench: &Bench, name: &str, modules: &[&str], more: &str) {
    let open: String = modules
        .iter()
        .map(|module| if module.ends_with('{') { format!("{module} ") } else { format!("{module}, ") })
        .collect();
    let closed = " }".repeat(modules.len());
    let text = format!("stack: {{ {open}log: {{ device: fs, workers: 2 }}{closed} }}\n{more}");
    fs::write(bench.path(name), text).unwrap();
}

/// The command for a mount of a stack file: it makes nothing, other than that of the bench.
fn mount(bench: &Bench, flags: &[&str], stack: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_braid"));
    command.current_dir(bench.path("")).arg("mount").args(flags).args(["--log-file", "log", stack, "m"]);
    command
}

#[track_caller]
fn mounted_as(bench: &Bench, stack: &str) {
    let output = mount(bench, &[], stack).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[track_caller]
fn mounted(bench: &Bench) {
    mounted_as(bench, "s.yaml");
}

#[track_caller]
fn not_mounted(bench: &Bench, flags: &[&str], stack: &str) -> String {
    let output = mount(bench, flags, stack).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{flags:?} {stack}");
    String::from_utf8(output.stderr).unwrap()
}

const NOOP: &str = "noop: {";
const DENY: &str = "deny: { paths: [ 'kept/**' ]";
const METRICS: &str = "metrics: {";

#[test]
fn a_log_is_mounted_below_modules_and_shown_and_changed_like_any_stack() {
    let Some(bench) = bench(&[NOOP, METRICS], "mount: { threads: 4 }\n") else { return };
    let said = bench.ok(&["stack", "check", "s.yaml"]);
    assert!(said.contains("noop over metrics over log of ") && said.contains("no problems"), "{said}");
    mounted(&bench);
    let data = pattern(1, 3_000_000);
    fs::write(bench.path("m/big"), &data).unwrap();
    fs::create_dir(bench.path("m/kept")).unwrap();
    fs::write(bench.path("m/kept/file"), "old").unwrap();

    let status = bench.json(&["status", "--json", "m"]);
    let device = bench.path("fs").canonicalize().unwrap();
    assert_eq!(status["log"], device.to_str().unwrap(), "{status}");
    let of = |name: &str| {
        let modules = status["modules"].as_array().unwrap().iter();
        modules.filter(|module| module["module"] == name).count()
    };
    assert_eq!([of("trace"), of("noop"), of("metrics"), of("log")], [1; 4], "{status}");
    let said = bench.ok(&["status", "m"]);
    assert!(said.contains("log file system") && said.contains("log available "), "{said}");
    let said = bench.ok(&["status", "--check", "m"]);
    assert!(said.starts_with("BRAID OK: ") && said.contains(" available"), "{said}");
    let said = bench.ok(&["stack", "list"]);
    assert!(said.contains("noop, metrics, log"), "{said}");

    // A module is added, at first as a dry run.
    write(&bench, "n.yaml", &[DENY, METRICS], "");
    let changes = "module deny: added\nmodule noop: removed\n";
    assert_eq!(bench.ok(&["stack", "modify", "--dry-run", "m", "n.yaml"]), changes);
    fs::write(bench.path("m/kept/file"), "new").unwrap();
    assert_eq!(bench.ok(&["stack", "modify", "m", "n.yaml"]), changes);
    let error = fs::write(bench.path("m/kept/file"), "newer").unwrap_err();
    assert_eq!(error.raw_os_error(), Some(1), "{error}");
    // Settings of the bottom do not count.
    fs::write(bench.path("n.yaml"), "stack: { noop: { volume: { } } }\n").unwrap();
    bench.ok(&["stack", "modify", "m", "n.yaml"]);
    fs::write(bench.path("m/kept/file"), "newer").unwrap();

    let dump = bench.ok(&["stack", "dump", "m"]);
    assert!(dump.contains("noop:") && dump.contains("workers: 2") && !dump.contains("range"), "{dump}");
    bench.ok(&["umount", "m"]);
    bench.ok(&["log", "check", "fs"]);
    fs::write(bench.path("dump.yaml"), &dump).unwrap();
    mounted_as(&bench, "dump.yaml");
    assert!(fs::read(bench.path("m/big")).unwrap() == data);
    assert_eq!(fs::read_to_string(bench.path("m/kept/file")).unwrap(), "newer");
    bench.ok(&["umount", "m"]);
}

#[test]
fn settings_of_modules_are_reloaded_and_those_of_the_log_are_not() {
    let Some(bench) = bench(&[DENY], "") else { return };
    mounted(&bench);
    fs::write(bench.path("m/other"), "").unwrap();
    assert_eq!(bench.ok(&["reload", "m"]), "nothing changed\n");
    write(&bench, "s.yaml", &["deny: { paths: [ 'other' ]"], "");
    assert_eq!(bench.ok(&["reload", "--dry-run", "m"]), "module deny: other settings\n");
    fs::write(bench.path("m/other"), "x").unwrap();
    assert_eq!(bench.ok(&["reload", "m"]), "module deny: other settings\n");
    assert_eq!(fs::write(bench.path("m/other"), "y").unwrap_err().raw_os_error(), Some(1));
    for (text, found) in [
        ("stack: { deny: { paths: [ a ], log: { device: fs } } }", "log.workers: this was taken out"),
        (
            "stack: { deny: { paths: [ a ], log: { device: gs, workers: 2 } } }",
            "log.device: this was changed",
        ),
        ("stack: { log: { device: fs, workers: 2 } }", "the modules were deny, log"),
        ("stack: { volume: { home: a, tiers: { a: { dir: k } } } }", "the modules were deny, log"),
        (
            "stack: { deny: { paths: [ a ], log: { device: fs, workers: 2 } } }\nmount: { threads: 3 }",
            "mount.threads: this was changed",
        ),
    ] {
        fs::write(bench.path("s.yaml"), text).unwrap();
        let said = bench.refused(&["reload", "m"]);
        assert!(said.contains(found) && said.contains("help:"), "{text}: {said}");
    }
    assert_eq!(fs::write(bench.path("m/other"), "y").unwrap_err().raw_os_error(), Some(1));
    bench.ok(&["umount", "m"]);
}

#[test]
fn what_only_volumes_have_is_refused_with_place_and_advice() {
    let Some(bench) = bench(&[NOOP], "") else { return };
    for (flag, found) in [
        (&["--create"][..], "--create: a mount makes no log file system"),
        (&["--inodes", "5000"], "--inodes 5000: a log file system has all inodes in memory"),
        (&["--without", "fast"], "--without fast: this stack has a log file system"),
        (&["-o", "strictatime"], "reading does not renew access times"),
    ] {
        let said = not_mounted(&bench, flag, "s.yaml");
        assert!(said.contains(found) && said.contains("help:"), "{flag:?}: {said}");
    }
    for (words, status) in
        [(&["create", "s.yaml"][..], 1), (&["fsck", "s.yaml"], 8), (&["eject", "s.yaml"], 1)]
    {
        let (found, said) = bench.fails(words);
        assert_eq!(found, status, "{words:?}: {said}");
        assert!(said.contains("s.yaml:1: stack.noop.log: this stack has a log file system"), "{said}");
    }
    for (text, found) in [
        ("stack: { log: { workers: 2 } }", "the key 'device' is missing"),
        ("stack: { log: { device: fs, workers: 65 } }", "write a whole number from 1 to 64"),
        ("stack: { log: { device: fs, worker: 6 } }", "did you mean 'workers'"),
        ("stack: { log: { device: none } }", "none: No such file or directory"),
        ("stack: { log: { device: key } }", "key: there is no log file system"),
        ("stack: { log: { device: k } }", "no block device, no NVMe namespace, and no regular file"),
        (
            "stack: { log: { device: fs, driver: io_uring } }\nmount: { restart: true }",
            "mount.restart: no process could go on after a crash: transfers of the driver io_uring may outlast",
        ),
    ] {
        fs::write(bench.path("bad.yaml"), text).unwrap();
        let said = not_mounted(&bench, &[], "bad.yaml");
        assert!(
            said.contains("bad.yaml") && said.contains(found) && said.contains("help:"),
            "{text}: {said}"
        );
    }
    mounted(&bench);
    fs::write(bench.path("m/file"), "").unwrap();
    let said = bench.refused_as_written(&["mount", "s.yaml", "k"]);
    assert!(said.contains("it is in use") && said.contains("braid umount"), "{said}");
    for words in [&["tier", "list", "m"][..], &["explain", "m/file"], &["drill", "x", "./m"]] {
        let said = bench.refused(words);
        assert!(said.contains("log file system"), "{words:?}: {said}");
    }
    let said = bench.refused(&["top", "--once", "m"]);
    assert!(said.contains("has no tiers") && said.contains("braid status"), "{said}");
    bench.ok(&["umount", "m"]);
}

#[test]
fn keys_and_values_pass_the_modules() {
    let framed = "compress: {";
    let Some(bench) = bench(&["deny: { paths: [ kept ]", framed], "") else { return };
    mounted(&bench);
    let put = |key: &str| {
        bench.ok(&["kv", "put", "m", key, "value"]);
        assert_eq!(fs::read_to_string(bench.path("m").join(key)).unwrap(), "value");
    };
    put("first");
    assert_eq!(bench.ok(&["kv", "get", "m", "first"]), "value");
    bench.ok(&["umount", "m"]);
    // Below the module, it is in a frame.
    bench.ok(&["log", "mount", "--log-file", "log", "fs", "m"]);
    assert_ne!(fs::read(bench.path("m/first")).unwrap(), b"value");
    bench.ok(&["umount", "m"]);
}

/// The answer of a connection by the Redis protocol to a command.
fn asked(redis: &mut BufReader<UnixStream>, command: &str) -> String {
    redis.get_mut().write_all(format!("{command}\r\n").as_bytes()).unwrap();
    let mut said = String::new();
    redis.read_line(&mut said).unwrap();
    let Some(Ok(len)) = said.strip_prefix('$').map(|len| len.trim().parse::<usize>()) else { return said };
    let mut value = vec![0; len + 2];
    redis.read_exact(&mut value).unwrap();
    String::from_utf8(value).unwrap()
}

/// Checks that commands and the open connection and session may all use their values, or none of
/// them.
fn use_values(bench: &Bench, redis: &mut BufReader<UnixStream>, values: &dyn KeyValue, may: bool) {
    let refused = |words: &[&str]| {
        let said = bench.refused(words);
        assert!(said.contains("denied"), "{words:?}: {said}");
    };
    let put = || errno(values.put(&me(), b"key", b"by-session", PutOptions::default()));
    let batch =
        || errno(values.batch(&me(), &[KeyChange::Put(b"key", b"batch"), KeyChange::Delete(b"none")]));
    let get = || errno(values.get(&me(), b"key"));
    let file = || fs::read_to_string(bench.path("m/d/key"));
    if may {
        bench.ok(&["kv", "put", "m", "kept", "by-command"]);
        assert_eq!(asked(redis, "GET kept"), "by-command\r\n");
        assert_eq!(asked(redis, "SET kept by-redis"), "+OK\r\n");
        assert_eq!(bench.ok(&["kv", "get", "m", "kept"]), "by-redis");
        assert_eq!((put(), get()), (Ok(true), Ok(Some(b"by-session".to_vec()))));
        assert_eq!((batch(), file().unwrap()), (Ok(()), "batch".to_owned()));
    } else {
        refused(&["kv", "put", "m", "kept", "x"]);
        refused(&["kv", "get", "m", "kept"]);
        refused(&["kv", "delete", "m", "kept"]);
        refused(&["kv", "scan", "m/d"]);
        for command in ["GET kept", "SET kept x", "DEL kept", "MSET kept x"] {
            let said = asked(redis, command);
            assert!(said.starts_with("-NOPERM"), "{command}: {said}");
        }
        let denied = Errno::EACCES.0;
        assert_eq!((put(), batch(), get()), (Err(denied), Err(denied), Err(denied)));
        assert!(file().is_err());
    }
}

#[test]
fn keys_and_values_pass_modules_that_came_after_the_mount() {
    let Some(bench) = bench(&[], "") else { return };
    let socket = format!("unix:{}", bench.path("kv.sock").display());
    let output = mount(&bench, &["--runtime", "--kv", &socket], "s.yaml").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    fs::create_dir(bench.path("m/d")).unwrap();
    let redis = &mut BufReader::new(UnixStream::connect(bench.path("kv.sock")).unwrap());
    let seen = Seen::of(&bench, "m/d");
    let values = seen.session.values(seen.root).unwrap();
    let is_atomic = |redis: &mut _| asked(redis, "INFO").contains("braid_batch_is_atomic:1");
    use_values(&bench, redis, &*values, true);
    seen.write("file", b"content").unwrap();
    assert!(is_atomic(redis));

    let denied = "permissions: { rules: [ { paths: [ kept, d, 'd/**' ], deny: [ read, write, list ] } ]";
    write(&bench, "denied.yaml", &[denied], "");
    write(&bench, "noop.yaml", &[NOOP], "");
    for _ in 0..2 {
        bench.ok(&["stack", "modify", "m", "denied.yaml"]);
        use_values(&bench, redis, &*values, false);
        assert_eq!(seen.read("file"), Err(Errno::EACCES.0));
        assert!(!is_atomic(redis));
        bench.ok(&["stack", "modify", "m", "noop.yaml"]);
        use_values(&bench, redis, &*values, true);
        assert!(!is_atomic(redis));
        bench.ok(&["stack", "modify", "m", "s.yaml"]);
        use_values(&bench, redis, &*values, true);
        assert_eq!(seen.read("file").unwrap(), b"content");
        assert!(is_atomic(redis));
    }
    drop(seen);
    bench.ok(&["umount", "m"]);
    bench.ok(&["log", "check", "fs"]);
    // A log file system mounted with modules uses its own values once they are gone.
    let output = mount(&bench, &["--kv", &socket], "noop.yaml").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let redis = &mut BufReader::new(UnixStream::connect(bench.path("kv.sock")).unwrap());
    assert!(!is_atomic(redis));
    bench.ok(&["stack", "modify", "m", "s.yaml"]);
    assert!(is_atomic(redis));
    assert_eq!(asked(redis, "GET kept"), "by-redis\r\n");
    bench.ok(&["umount", "m"]);
}

#[test]
fn frames_keep_what_was_synced_over_a_crash_of_the_daemon() {
    let Some(bench) = Bench::bare(&["m"]) else { return };
    bench.ok(&["log", "create", "fs", "--size", "64MiB"]);
    fs::write(bench.path("key"), [7; 32]).unwrap();
    fs::set_permissions(bench.path("key"), fs::Permissions::from_mode(0o600)).unwrap();
    let encrypt = format!("encrypt: {{ key_file: {}", bench.path("key").display());
    write(&bench, "s.yaml", &[&encrypt, "checksum: {"], "");
    let mut daemon = mount(&bench, &["--foreground"], "s.yaml").spawn().unwrap();
    crate::common::until("it is mounted", || {
        fs::metadata(bench.path("m")).unwrap().dev() != fs::metadata(bench.path("fs")).unwrap().dev()
    });
    let data = pattern(2, 500_000);
    let file = fs::File::create(bench.path("m/synced")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &data, 0).unwrap();
    file.sync_all().unwrap();
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    drop(file);
    mounted(&bench);
    assert!(fs::read(bench.path("m/synced")).unwrap() == data);
    bench.ok(&["umount", "m"]);
    bench.ok(&["log", "check", "fs"]);
}

#[test]
fn the_dump_of_a_mount_by_flags_is_a_stack_file_of_it() {
    let Some(bench) = bench(&[], "") else { return };
    let metrics = format!("unix:{}", bench.path("metrics.sock").display());
    let flags = ["log", "mount", "--xattr", "--no-runtime", "--log-file", "log", "fs", "m"];
    bench.ok(&flags);
    bench.ok(&["umount", "m"]);
    bench.ok(&[
        "log",
        "mount",
        "--workers",
        "3",
        "--metrics",
        &metrics,
        "--options",
        "noexec",
        "--cache",
        "direct",
        "--dirty",
        "16MiB",
        "--no-xattr",
        "--threads",
        "2",
        "--transport",
        "device",
        "--poll",
        "100us",
        "--log-file",
        "log",
        "fs",
        "m",
    ]);
    fs::write(bench.path("m/file"), "content").unwrap();
    let dump = bench.ok(&["stack", "dump", "m"]);
    for part in [
        "log:",
        "workers: 3",
        "metrics.sock",
        "noexec",
        "cache: direct",
        "xattr: false",
        "threads: 2",
        "poll: 100us",
    ] {
        assert!(dump.contains(part), "{part}: {dump}");
    }
    assert!(bench.refused(&["reload", "m"]).contains("mounted by flags"));
    bench.ok(&["umount", "m"]);
    fs::write(bench.path("dump.yaml"), &dump).unwrap();
    mounted_as(&bench, "dump.yaml");
    assert_eq!(fs::read_to_string(bench.path("m/file")).unwrap(), "content");
    assert_eq!(bench.ok(&["stack", "dump", "m"]), dump);
    bench.ok(&["umount", "m"]);
}
