//! `braid stack modify`: modules come and go while programs use the volume; the users who may
//! modify it; and the dump of the result. Needs root, /dev/fuse, `setpriv` and Python; skipped
//! without root.

use crate::common::{Bench, RANGE, pattern, stack};
use crate::users::{ALICE, BOB, as_user, said};
use std::fs::{self, File, OpenOptions, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A file with these modules, from the top down, each in YAML without its braces; it has no
/// settings of the volume.
fn modules(bench: &Bench, name: &str, modules: &[&str]) {
    let open: String = modules
        .iter()
        .map(|module| if module.ends_with('{') { format!("{module} ") } else { format!("{module}, ") })
        .collect();
    let closed = " }".repeat(modules.len() + 1);
    fs::write(bench.path(name), format!("stack: {{ {open}volume: {{ }}{closed}\n")).unwrap();
}

const NOOP: &str = "noop: {";
const DENY: &str = "deny: { paths: [ 'kept/**' ]";
const ISLAND: &str = "permissions: { rules: [ { paths: [ 'kept/**' ], uid: [ 4802 ], deny: [ read ] } ]";
const THROTTLE: &str = "throttle: { by: uid, bandwidth: 10GiB/s";

fn modify(bench: &Bench, list: &[&str]) -> String {
    modules(bench, "n.yaml", list);
    bench.ok(&["stack", "modify", "m", "n.yaml"])
}

fn listed(bench: &Bench) -> Vec<String> {
    let text = bench.ok(&["stack", "dump", "m"]);
    let key = |line: &str| line.trim().split(':').next().map(str::to_owned);
    let known = ["noop", "deny", "permissions", "throttle", "consistency", "volume"];
    text.lines().filter_map(key).filter(|key| known.contains(&key.as_str())).collect()
}

#[test]
fn modules_come_and_go_and_know_what_is_there() {
    let Some(bench) = Bench::shared() else { return };
    let text = stack(&bench);
    bench.mount();
    fs::set_permissions(bench.path("m"), Permissions::from_mode(0o777)).unwrap();
    let at = |name: &str| bench.path("m").join(name);
    fs::create_dir(at("kept")).unwrap();
    let data = pattern(3, 5 * RANGE);
    fs::write(at("kept/file"), &data).unwrap();
    fs::set_permissions(at("kept/file"), Permissions::from_mode(0o666)).unwrap();
    fs::hard_link(at("kept/file"), at("other")).unwrap();
    // The kernel knows both names, and has the file open.
    let open = OpenOptions::new().read(true).write(true).open(at("other")).unwrap();
    assert_eq!(fs::read(at("kept/file")).unwrap(), data);
    let bob = |name: &str| as_user(BOB, Command::new("cat").arg(at(name)));
    assert!(bob("kept/file").status.success());

    modules(&bench, "n.yaml", &[ISLAND, NOOP]);
    let added = "module permissions: added\nmodule noop: added\n";
    assert_eq!(bench.ok(&["stack", "modify", "m", "n.yaml", "--dry-run"]), added);
    assert_eq!(listed(&bench), ["volume"]);
    assert_eq!(bench.ok(&["stack", "modify", "m", "n.yaml"]), added);
    assert_eq!(listed(&bench), ["permissions", "noop", "volume"]);
    for name in ["kept/file", "other"] {
        // A name that was not looked up since is unknown.
        assert!(fs::metadata(at(name)).is_ok());
    }
    for name in ["kept/file", "other"] {
        let output = bob(name);
        assert!(said(&output).contains("Permission denied"), "{name}: {}", said(&output));
    }
    assert_eq!(fs::read(at("kept/file")).unwrap(), data);
    assert_eq!(modify(&bench, &[ISLAND, NOOP]), "nothing changed\n");
    assert_eq!(modify(&bench, &[NOOP, ISLAND]), "modules: in the order noop, permissions\n");
    assert!(!bob("other").status.success(), "names are handed on");

    assert_eq!(
        modify(&bench, &[DENY, THROTTLE]),
        "module deny: added\nmodule throttle: added\nmodule noop: removed\nmodule permissions: removed\n"
    );
    assert!(bob("kept/file").status.success());
    let error = OpenOptions::new().write(true).open(at("kept/file")).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
    // Open files go on.
    open.write_all_at(&data[..RANGE], RANGE as u64).unwrap();
    open.sync_all().unwrap();
    // The stack file is as it was, and the mount is not.
    assert_eq!(stack(&bench), text);
    let refused = bench.refused(&["reload", "m"]);
    assert!(refused.contains("the modules were deny, throttle, volume"), "{refused}");
    assert!(refused.contains("braid stack modify MOUNT FILE"), "{refused}");
    bench.ok(&["tier", "set", "slow", "weight=7", "./m"]);
    assert_eq!(listed(&bench), ["deny", "throttle", "volume"]);

    assert_eq!(modify(&bench, &[]), "module deny: removed\nmodule throttle: removed\n");
    open.write_all_at(&data[..RANGE], 0).unwrap();
    drop(open);
    let expected = [&data[..RANGE], &data[..RANGE], &data[2 * RANGE..]].concat();
    assert!(crate::common::read_anew(&at("kept/file")) == expected);
    bench.unmount_clean();
}

/// Modules of frames stay, with the files that programs have open; others come and go above and
/// below them.
#[test]
fn modules_come_and_go_above_and_below_frames() {
    let Some(bench) = Bench::shared() else { return };
    let key = bench.path("key");
    fs::write(&key, [7; 32]).unwrap();
    fs::set_permissions(&key, Permissions::from_mode(0o600)).unwrap();
    let encrypt = format!("encrypt: {{ key_file: {}", key.display());
    let frames = [encrypt.as_str(), "checksum: {"];
    let text = stack(&bench);
    let volume = text.split_once("volume:\n").unwrap().1.replace("\n    ", "\n          ");
    bench.write_stack(&format!(
        "stack:\n  noop:\n    encrypt:\n      key_file: {}\n      checksum:\n        volume:\n      {volume}",
        key.display()
    ));
    bench.mount();
    fs::set_permissions(bench.path("m"), Permissions::from_mode(0o777)).unwrap();
    let at = |name: &str| bench.path("m").join(name);
    fs::create_dir(at("kept")).unwrap();
    let data = pattern(3, 5 * RANGE + 777);
    fs::write(at("kept/file"), &data).unwrap();
    fs::set_permissions(at("kept/file"), Permissions::from_mode(0o666)).unwrap();
    let open = OpenOptions::new().read(true).write(true).open(at("kept/file")).unwrap();
    let gone = File::create_new(at("gone")).unwrap();
    fs::remove_file(at("gone")).unwrap();

    let beside = |above: &[&str], below: &[&str]| modify(&bench, &[above, &frames, below].concat());
    let stop = AtomicBool::new(false);
    let written = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let file =
                OpenOptions::new().read(true).write(true).create_new(true).open(at("written")).unwrap();
            while !stop.load(Ordering::Relaxed) {
                let round = written.fetch_add(1, Ordering::Relaxed);
                let data = pattern(round, 100_000);
                file.write_all_at(&data, 0).unwrap();
                file.sync_data().unwrap();
                let mut found = vec![0; data.len()];
                file.read_exact_at(&mut found, 0).unwrap();
                assert!(found == data, "{round}");
            }
        });
        for _ in 0..20 {
            assert_eq!(beside(&[DENY], &[]), "module deny: added\nmodule noop: removed\n");
            assert_eq!(beside(&[DENY], &[THROTTLE]), "module throttle: added\n");
            assert_eq!(beside(&[], &[THROTTLE, NOOP]), "module noop: added\nmodule deny: removed\n");
            assert_eq!(
                beside(&[NOOP], &[]),
                "module throttle: removed\nmodules: in the order noop, encrypt, checksum\n"
            );
        }
        let before = written.load(Ordering::Relaxed);
        crate::common::until("it is written on", || written.load(Ordering::Relaxed) > before + 3);
        stop.store(true, Ordering::Relaxed);
        writer.join().unwrap();
    });

    // They act, on both sides.
    let bob = |name: &str| as_user(BOB, Command::new("cat").arg(at(name)));
    assert!(bob("kept/file").status.success());
    for (above, below) in [(&[ISLAND][..], &[][..]), (&[], &[ISLAND])] {
        beside(above, below);
        let output = bob("kept/file");
        assert!(said(&output).contains("Permission denied"), "{above:?}: {}", said(&output));
        beside(&[], &[]);
        assert!(bob("kept/file").status.success());
    }

    // A reload brings settings into force, but for those of frames.
    beside(&[THROTTLE], &[]);
    let as_was = bench.ok(&["stack", "dump", "m"]);
    let throttled = stack(&bench).replace("noop:", "throttle:\n    by: uid\n    bandwidth: 9GiB/s");
    bench.write_stack(&throttled);
    assert_eq!(bench.ok(&["reload", "m"]), "module throttle: other settings\n");
    let other = as_was.replace(&*key.to_string_lossy(), "/none");
    let refused = |name: &str, text: &str, says: &str| {
        fs::write(bench.path(name), text).unwrap();
        let words = if name == "s.yaml" { vec!["reload", "m"] } else { vec!["stack", "modify", "m", name] };
        let said = bench.refused(&words);
        assert!(said.contains(says) && said.contains("help: "), "{said}");
    };
    refused("n.yaml", &other, "module 'encrypt' keeps open files to itself");
    refused("n.yaml", &as_was.replace("checksum:", "noop:"), "module 'checksum' keeps open files to itself");
    refused(
        "n.yaml",
        &as_was.replace("checksum:", "checksum:\n        frame: 4KiB"),
        "module 'checksum' keeps",
    );
    let hidden =
        "stack: { ENCRYPT, checksum: { volume: { }, compress: { } } } }\n".replace("ENCRYPT", &encrypt);
    refused("n.yaml", &hidden, "it names a module of frames where none can be");
    let two = "stack: { noop: { one: { volume: { } }, ENCRYPT, checksum: { volume: { } } } } }\n";
    refused("n.yaml", &two.replace("ENCRYPT", &encrypt), "it names more than one volume, log or view");
    let frame = throttled.replace("checksum:", "checksum:\n        frame: 4KiB");
    refused("s.yaml", &frame, "settings of 'checksum' can't change while the stack is mounted");
    bench.write_stack(&throttled);

    // What is open has seen nothing of it.
    open.write_all_at(&data[..RANGE], RANGE as u64).unwrap();
    gone.write_all_at(&data, 0).unwrap();
    gone.sync_all().unwrap();
    drop((open, gone));
    let expected = [&data[..RANGE], &data[..RANGE], &data[2 * RANGE..]].concat();
    assert!(crate::common::read_anew(&at("kept/file")) == expected);
    bench.unmount_clean();
    bench.mount();
    assert!(fs::read(at("kept/file")).unwrap() == expected);
    bench.unmount_clean();
}

#[test]
fn what_can_not_come_into_force_is_refused_and_changes_nothing() {
    let Some(bench) = Bench::shared() else { return };
    bench.mount();
    let refused = |text: &str| {
        fs::write(bench.path("n.yaml"), text).unwrap();
        bench.refused(&["stack", "modify", "m", "n.yaml"])
    };
    for (text, says) in [
        ("stack:\n  mirror: { volume: { } }\n", "n.yaml:2: stack.mirror: there is no module 'mirror'"),
        (
            "stack:\n  compress: { volume: { } }\n",
            "module 'compress' keeps open files to itself, so that it can't come",
        ),
        (
            "stack:\n  deny: { paths: [ '[a' ], volume: { } }\n",
            "n.yaml:2: stack.deny.paths: '[a' is not a pattern",
        ),
        ("stack:\n  noop: { }\n", "n.yaml:2: stack.noop: found nothing below this key"),
        ("stack: [\n", "n.yaml"),
        ("stack:\n  consistency: { mode: close-to-open, volume: { } }\n", "closes need not wait for Braid"),
    ] {
        let said = refused(text);
        assert!(said.contains(says) && said.contains("help: "), "{said}");
    }
    let of = |count: usize| {
        format!("stack: {}volume: {{ }}{}\n", "{ noop: ".repeat(count) + "{ ", " }".repeat(count + 1))
    };
    let said = refused(&of(33));
    assert!(
        said.contains("n.yaml:1: ") && said.contains("more than 32 modules on top of each other"),
        "{said}"
    );
    fs::write(bench.path("n.yaml"), of(1)).unwrap();
    let told = bench.json(&["stack", "modify", "m", "n.yaml", "--dry-run", "--json"]);
    assert_eq!(told["modules"], serde_json::json!(["noop", "volume"]));
    assert_eq!(told["changes"], serde_json::json!(["module noop: added"]));
    fs::write(bench.path("n.yaml"), of(32)).unwrap();
    assert_eq!(bench.ok(&["stack", "modify", "m", "n.yaml"]), "module noop: added\n".repeat(32));
    fs::write(bench.path("m/file"), b"through all of them").unwrap();
    assert_eq!(fs::read(bench.path("m/file")).unwrap(), b"through all of them");
    // A user who asks for a secret of root's to be read does not get it.
    assert!(bench.refused(&["stack", "modify", "m", "nothing.yaml"]).contains("there is no such file"));
    bench.unmount_clean();
}

#[test]
fn a_mount_of_flags_is_modified_too_and_the_dump_makes_one_like_it() {
    let Some(bench) = Bench::shared() else { return };
    let flags = [
        "mount", "m", "--tier", "fast=a", "--tier", "slow=b", "--home", "fast", "--range", "64KiB",
        "--dirty", "64MiB",
    ];
    bench.ok(&[&flags[..], &["--inodes", "5000", "--options", "noatime"]].concat());
    assert_eq!(modify(&bench, &[ISLAND, THROTTLE]), "module permissions: added\nmodule throttle: added\n");
    bench.ok(&["tier", "set", "slow", "weight=7", "reserve=3%", "./m"]);
    bench.ok(&["drill", "slow", "read:EIO,count=3", "./m"]);
    let before = bench.ok(&["stack", "dump", "m"]);
    for part in
        ["weight: 7", "reserve: 3%", "dirty: 64MiB", "inodes: 5000", "noatime", "read:EIO,count=3", "10GiB/s"]
    {
        assert!(before.contains(part), "{part}: {before}");
    }
    bench.ok(&["drill", "slow", "--clear", "./m"]);
    bench.ok(&["umount", "m"]);
    fs::write(bench.path("s.yaml"), &before).unwrap();
    bench.ok(&["mount", "s.yaml", "m"]);
    assert_eq!(bench.ok(&["stack", "dump", "m"]), before);
    let listed = bench.json(&["stack", "list", "--json"]);
    let here = bench.path("m");
    let stacks = listed["stacks"].as_array().unwrap();
    let ours = stacks.iter().find(|stack| stack["mountpoint"] == here.to_str().unwrap()).unwrap();
    assert_eq!(ours["modules"], serde_json::json!(["permissions", "throttle", "volume"]));
    bench.ok(&["drill", "slow", "--clear", "./m"]);
    bench.ok(&["umount", "m"]);
}

#[test]
fn who_is_named_may_modify_and_others_may_not() {
    let Some(bench) = Bench::shared() else { return };
    let text = stack(&bench);
    bench.write_stack(&format!("{text}mount: {{ modifiable-by: [ nobody-here ] }}\n"));
    let said_so = bench.refused(&["stack", "check", "s.yaml"]);
    assert!(
        said_so.contains("s.yaml:9: mount.modifiable-by: found 'nobody-here', expected a user"),
        "{said_so}"
    );
    bench.write_stack(&format!("{text}mount: {{ modifiable-by: [ {ALICE} ] }}\n"));
    bench.mount();
    modules(&bench, "n.yaml", &[NOOP]);
    let run = |uid: u32, words: &[&str]| as_user(uid, &bench.command(words));
    for words in [&["stack", "modify", "m", "n.yaml"][..], &["reload", "m"], &["stack", "dump", "m"]] {
        let output = run(BOB, words);
        assert!(
            said(&output).contains("only root and the user who mounted may ask"),
            "{words:?}: {}",
            said(&output)
        );
    }
    let output = run(ALICE, &["stack", "modify", "m", "n.yaml"]);
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(listed(&bench), ["noop", "volume"]);
    assert!(run(ALICE, &["stack", "dump", "m"]).status.success());
    // Nothing else is hers: the daemon reads no file for her, and takes no volume from her.
    let output = run(ALICE, &["tier", "set", "slow", "weight=9", "./m"]);
    assert!(said(&output).contains("only root and the user who mounted may ask"), "{}", said(&output));
    fs::write(bench.path("secret"), "stack: { volume: { home: treasure } }").unwrap();
    fs::set_permissions(bench.path("secret"), Permissions::from_mode(0o600)).unwrap();
    let output = run(ALICE, &["stack", "modify", "m", "secret"]);
    assert!(!output.status.success() && !said(&output).contains("treasure"), "{}", said(&output));
    let pipe = bench.path("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, 0o600.into()).unwrap();
    for key in [&*pipe, Path::new("/no/such/key")] {
        let encrypt = format!("stack: {{ encrypt: {{ key_file: {}, volume: {{}} }} }}\n", key.display());
        fs::write(bench.path("n.yaml"), encrypt).unwrap();
        let output = run(ALICE, &["stack", "modify", "m", "n.yaml"]);
        assert!(said(&output).contains("module 'encrypt' keeps open files to itself"), "{}", said(&output));
    }
    let other = "stack: { volume: { home: x, profile: /etc/shadow, tiers: { x: { dir: /etc } } } }\n";
    fs::write(bench.path("n.yaml"), format!("{other}mount: {{ modifiable-by: [ {BOB} ] }}\n")).unwrap();
    let output = run(ALICE, &["stack", "modify", "m", "n.yaml"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "module noop: removed\n", "{}", said(&output));
    assert!(!run(BOB, &["stack", "dump", "m"]).status.success());
    let dump = bench.ok(&["stack", "dump", "m"]);
    assert!(dump.contains(&format!("modifiable-by: [ {ALICE} ]")), "{dump}");
    bench.unmount_clean();
}

/// Ends the programs, also where the test fails.
struct AtEnd<'a>(&'a AtomicBool);

impl Drop for AtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Programs that write, read, make and rename all the while find their data.
#[test]
fn programs_go_on_while_modules_come_and_go() {
    let Some(bench) = Bench::shared() else { return };
    bench.write_stack(&(stack(&bench) + "mount: { cache: direct }\n"));
    bench.mount();
    let (over, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let work = |seed: u64| {
        let path = |what: &str| bench.path("m").join(format!("{what}{seed}"));
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path("f")).unwrap();
        let mut round = 0;
        while !over.load(Ordering::Relaxed) {
            round += 1;
            let (data, mut found) = (pattern(seed * 1_000_000 + round, RANGE / 2), vec![0; RANGE / 2]);
            let offset = round % 9 * data.len() as u64;
            file.write_all_at(&data, offset).unwrap();
            file.read_exact_at(&mut found, offset).unwrap();
            assert!(found == data, "round {round} of {seed}");
            fs::write(path("n"), &data).unwrap();
            fs::rename(path("n"), path("o")).unwrap();
            assert!(fs::read(path("o")).unwrap() == data);
            File::open(path("o")).unwrap().sync_all().unwrap();
            done.fetch_add(1, Ordering::Relaxed);
        }
    };
    std::thread::scope(|scope| {
        let work = &work;
        let workers: Vec<_> = (1..5).map(|seed| scope.spawn(move || work(seed))).collect();
        let _end = AtEnd(&over);
        let stacks: [&[&str]; 6] =
            [&[NOOP], &[ISLAND, THROTTLE], &[THROTTLE, DENY, NOOP], &[], &[DENY, ISLAND], &[THROTTLE]];
        for list in stacks.iter().cycle().take(12) {
            // Between two changes, all programs do something.
            let before = done.load(Ordering::Relaxed);
            crate::common::until("programs go on", || {
                done.load(Ordering::Relaxed) >= before + 4
                    || workers.iter().any(|worker| worker.is_finished())
            });
            modify(&bench, list);
        }
    });
    bench.unmount_clean();
}
