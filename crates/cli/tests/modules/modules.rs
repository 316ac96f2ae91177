//! Modules on top of a volume, by a stack file. Needs root and /dev/fuse, the last
//! two tests also loop devices and mkfs.ext4; skipped without them.

use crate::common::{Bench, stack};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, lchown, symlink};
use std::process::Command;

/// `deny` on top of `noop`.
fn with_deny(paths: &str) -> impl Fn(&Bench) -> String {
    let deny = format!("stack:\n  deny:\n    paths: {paths}\n    noop:\n");
    move |bench| {
        let text = stack(bench).replacen("stack:\n  noop:\n", "", 1);
        let volume: String = text.lines().map(|line| format!("  {line}\n")).collect();
        format!("{deny}{volume}")
    }
}

#[track_caller]
fn denied<T>(result: std::io::Result<T>) {
    assert_eq!(result.err().map(|error| error.kind()), Some(ErrorKind::PermissionDenied));
}

#[test]
fn what_a_pattern_denies_can_be_read_and_not_changed() {
    let Some(bench) = Bench::new() else { return };
    let plain = stack(&bench);
    let at = |name: &str| bench.path("m").join(name);
    bench.ok(&["mount", "s.yaml", "m"]);
    fs::create_dir(at("images")).unwrap();
    fs::write(at("images/a.iso"), b"image").unwrap();
    fs::write(at("other"), b"other").unwrap();
    bench.unmount_clean();

    let denying = with_deny("[ '**/*.iso' ]")(&bench);
    bench.write_stack(&denying);
    bench.ok(&["mount", "s.yaml", "m"]);
    let iso = at("images/a.iso");
    let mut names: Vec<_> =
        fs::read_dir(at("images")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["a.iso"]);
    assert_eq!(fs::read(&iso).unwrap(), b"image");
    denied(OpenOptions::new().write(true).open(&iso));
    denied(OpenOptions::new().append(true).open(&iso));
    denied(File::create(at("images/b.iso")));
    denied(fs::remove_file(&iso));
    denied(fs::rename(&iso, at("moved")));
    denied(fs::rename(at("other"), at("images/b.iso")));
    denied(fs::hard_link(&iso, at("linked")));
    denied(symlink("x", at("b.iso")));
    denied(fs::set_permissions(&iso, fs::Permissions::from_mode(0o600)));
    fs::write(at("other"), b"changed").unwrap();
    fs::rename(at("other"), at("images/else")).unwrap();
    assert_eq!(fs::read(at("images/else")).unwrap(), b"changed");
    // The dump of the running stack has the settings.
    assert!(bench.ok(&["stack", "dump", "m"]).contains("**/*.iso"));
    bench.ok(&["tier", "set", "slow", "weight=5", "./m"]);
    assert!(stack(&bench).contains("weight: 5") && stack(&bench).contains("**/*.iso"));
    bench.unmount_clean();
    bench.write_stack(&plain);
    bench.ok(&["mount", "s.yaml", "m"]);
    fs::remove_file(&iso).unwrap();
    bench.unmount_clean();
}

#[test]
fn other_settings_come_into_force_on_a_mounted_volume_and_names_are_not_forgotten() {
    let Some(bench) = Bench::new() else { return };
    let [first, second] = ["[ '*.iso' ]", "[ '*.img', 'b/*' ]"].map(|paths| with_deny(paths)(&bench));
    bench.write_stack(&first);
    bench.ok(&["mount", "s.yaml", "m"]);
    let at = |name: &str| bench.path("m").join(name);
    fs::create_dir(at("a")).unwrap();
    let mut files: Vec<File> =
        ["a/x", "a/y.img", "z.img"].iter().map(|name| File::create(at(name)).unwrap()).collect();
    denied(File::create(at("x.iso")));
    fs::rename(at("a"), at("b")).unwrap();

    bench.write_stack(&second);
    assert_eq!(bench.ok(&["reload", "m", "--dry-run"]), "module deny: other settings\n");
    denied(File::create(at("x.iso")));
    assert_eq!(bench.ok(&["reload", "m"]), "module deny: other settings\n");
    assert_eq!(bench.ok(&["reload", "m"]), "nothing changed\n");
    // The kernel knows these inodes and does not look their names up again.
    for name in ["b/x", "b/y.img", "z.img"] {
        denied(OpenOptions::new().write(true).open(at(name)));
    }
    File::create(at("x.iso")).unwrap();
    // Open files stay open.
    files.iter_mut().for_each(|file| file.write_all(b"more").unwrap());
    drop(files);
    assert_eq!(fs::read(at("b/x")).unwrap(), b"more");

    bench.write_stack(&second.replacen("[ '*.img', 'b/*' ]", "[ '[a' ]", 1));
    let said = bench.refused(&["reload", "m"]);
    assert!(said.contains("s.yaml:3: stack.deny.paths: '[a' is not a pattern of paths"), "{said}");
    bench.write_stack(&second.replacen("    noop:\n", "", 1).replace("      volume", "    volume"));
    denied(File::create(at("z.img")));
    bench.write_stack(&second);
    bench.unmount_clean();
}

#[test]
fn stacks_are_checked_before_they_are_mounted_and_listed_afterwards() {
    let Some(bench) = Bench::new() else { return };
    let text = stack(&bench);
    let said = "s.yaml: noop over volume of 2 tiers; no problems\n";
    assert_eq!(bench.ok(&["stack", "check", "s.yaml"]), said);
    let here = |stacks: &serde_json::Value| {
        let at = bench.path("m");
        let of_bench = |stack: &&serde_json::Value| stack["mountpoint"] == at.to_str().unwrap();
        stacks["stacks"].as_array().unwrap().iter().find(of_bench).cloned()
    };
    assert_eq!(here(&bench.json(&["stack", "list", "--json"])), None);
    bench.ok(&["mount", "s.yaml", "m"]);
    let listed = here(&bench.json(&["stack", "list", "--json"])).unwrap();
    assert_eq!(listed["modules"], serde_json::json!(["noop", "volume"]));
    assert_eq!(listed["pid"], bench.status()["pid"]);
    let table = bench.ok(&["stack", "list"]);
    let row = table.lines().find(|line| line.contains(bench.path("m").to_str().unwrap())).unwrap();
    assert!(row.contains("noop, volume"), "{table}");
    // A mounted one is no problem, and is as it was.
    assert_eq!(bench.ok(&["stack", "check", "s.yaml"]), said);
    bench.unmount_clean();

    for (found, replaced, problem) in [
        ("dir: b", "dir: a/b", "s.yaml:9: stack.noop.volume.tiers.slow.dir: there is no directory"),
        ("weight: 1", "wieght: 1", "s.yaml:9: stack.noop.volume.tiers.slow"),
        ("noop:", "nope:", "s.yaml:2: stack"),
    ] {
        bench.write_stack(&text.replacen(found, replaced, 1));
        let said = bench.refused(&["stack", "check", "s.yaml"]);
        assert!(said.contains(problem) && said.contains("help: "), "{said}");
    }
    assert!(bench.refused(&["stack", "check", "other.yaml"]).contains("other.yaml"));
    let schema = bench.json(&["stack", "schema"]);
    assert!(schema["definitions"]["volume"]["properties"]["tiers"].is_object());
}

/// How often the device below a directory was flushed.
fn flushes(bench: &Bench, name: &str) -> u64 {
    let number = fs::metadata(bench.path(name)).unwrap().dev();
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let stat = fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat")).unwrap();
    stat.split_whitespace().nth(15).unwrap().parse().unwrap()
}

/// With home on ext4 on a device of its own, whose flushes can be counted.
fn on_a_device() -> Option<Bench> {
    let mut bench = Bench::bare(&["b", "m"])?;
    File::create(bench.path("image")).unwrap().set_len(64 << 20).unwrap();
    let made = Command::new("mkfs.ext4").arg("-qF").arg(bench.path("image")).status();
    if !made.is_ok_and(|status| status.success()) {
        braid_testkit::skipped("mkfs.ext4");
        return None;
    }
    bench.mount_image("home", "image");
    Some(bench)
}

fn write_consistency(bench: &Bench, settings: &str) {
    bench.write_stack(&format!(
        "stack:\n  consistency:\n    {settings}\n    volume:\n      home: fast\n      tiers:\n        fast: \
         {{ dir: home }}\n        slow: {{ dir: b }}\n"
    ));
}

#[test]
fn writes_are_durable_when_the_consistency_says() {
    const TIMES: u64 = 60;
    let Some(bench) = on_a_device() else { return };
    let with = |settings: &str| write_consistency(&bench, settings);
    let at = |name: &str| bench.path("m").join(name);
    // Flushes of home while something is done so many times; the kernel makes some of its own.
    let during = |work: &mut dyn FnMut()| {
        let before = flushes(&bench, "home");
        (0..TIMES).for_each(|_| work());
        flushes(&bench, "home") - before
    };
    let again = |settings: &str| {
        with(settings);
        assert_eq!(bench.ok(&["reload", "m"]), "module consistency: other settings\n");
    };

    with("mode: close-to-open");
    bench.ok(&["mount", "s.yaml", "m"]);
    assert!(during(&mut || fs::write(at("file"), [2; 4096]).unwrap()) >= TIMES);
    let read = during(&mut || assert_eq!(fs::read(at("file")).unwrap(), [2; 4096]));
    assert!(read < TIMES / 2, "{read} flushes");

    again("mode: relaxed\n    within: 300s");
    let file = OpenOptions::new().write(true).open(at("file")).unwrap();
    let put_off = during(&mut || {
        (&file).write_all(&[3; 4096]).unwrap();
        file.sync_all().unwrap();
    });
    assert!(put_off < TIMES / 2, "{put_off} flushes");
    drop(file);
    fs::write(at("old"), b"old").unwrap();
    // A file that replaces another is durable first.
    let replaced = during(&mut || {
        let file = File::create(at("new")).unwrap();
        (&file).write_all(b"new").unwrap();
        file.sync_all().unwrap();
        fs::rename(at("new"), at("old")).unwrap();
    });
    assert!(replaced >= TIMES, "{replaced} flushes");
    assert!(bench.ok(&["stack", "dump", "m"]).contains("mode: relaxed"));

    // Data whose sync was put off is with the tier's file system, not with the daemon.
    let file = File::create(at("kept")).unwrap();
    (&file).write_all(&[4; 300_000]).unwrap();
    file.sync_all().unwrap();
    drop(file);
    bench.kill();
    bench.ok(&["mount", "s.yaml", "m"]);
    assert!(fs::read(at("kept")).unwrap() == [4; 300_000]);

    // The kernel may keep writes back since the mount.
    with("mode: strict");
    let said = bench.refused(&["reload", "m"]);
    assert!(said.contains("the kernel may keep writes back since the mount"), "{said}");
    with("mode: lax");
    let said = bench.refused(&["reload", "m"]);
    assert!(said.contains("s.yaml:2: stack.consistency: 'lax' is no mode"), "{said}");
    with("mode: close-to-open\n    within: 5s");
    let said = bench.refused(&["reload", "m"]);
    assert!(said.contains("close-to-open puts nothing off: leave 'within' out"), "{said}");
    with("mode: relaxed");
    bench.unmount_clean();
}

#[test]
fn strict_makes_each_change_durable_when_it_returns() {
    let Some(bench) = on_a_device() else { return };
    write_consistency(&bench, "mode: strict");
    bench.ok(&["mount", "--cache", "writeback", "s.yaml", "m"]);
    let at = |name: &str| bench.path(&format!("m/{name}"));
    let durable = |what: &str, change: &mut dyn FnMut()| {
        let before = flushes(&bench, "home");
        change();
        assert!(flushes(&bench, "home") > before, "{what}");
    };
    let mut file = None;
    durable("create", &mut || file = Some(File::create(at("file")).unwrap()));
    let file = file.unwrap();
    durable("write", &mut || (&file).write_all(&[2; 4096]).unwrap());
    durable("write into the file", &mut || file.write_all_at(&[3; 10], 100).unwrap());
    durable("cut", &mut || file.set_len(1000).unwrap());
    durable("mode", &mut || fs::set_permissions(at("file"), Permissions::from_mode(0o600)).unwrap());
    durable("directory", &mut || fs::create_dir(at("dir")).unwrap());
    durable("rename", &mut || fs::rename(at("file"), at("dir/file")).unwrap());
    durable("link", &mut || fs::hard_link(at("dir/file"), at("link")).unwrap());
    durable("symbolic link", &mut || symlink("dir/file", at("symlink")).unwrap());
    durable("its owner", &mut || lchown(at("symlink"), Some(7), None).unwrap());
    durable("unlink", &mut || fs::remove_file(at("link")).unwrap());
    // A file without a name is nothing to make durable, and can be changed all the same.
    fs::remove_file(at("dir/file")).unwrap();
    file.set_permissions(Permissions::from_mode(0o640)).unwrap();
    file.set_len(10).unwrap();
    drop(file);
    durable("rmdir", &mut || fs::remove_dir(at("dir")).unwrap());
    bench.unmount_clean();
}
