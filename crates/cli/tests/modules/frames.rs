//! The modules `compress`, `encrypt` and `checksum` on a mounted volume. Needs root and
//! /dev/fuse; skipped without them.

use crate::common::{Bench, pattern, read_anew, stack};
use std::fs::{self, File, OpenOptions, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A stack with these modules, each of which ends its line: `compress: { codec: lz4,`.
fn write_stack(bench: &Bench, modules: &str) {
    let tiers = "{ fast: { dir: a, weight: 3 }, slow: { dir: b, weight: 1 } }";
    let volume = format!("volume: {{ home: fast, policy: weighted, range: 64KiB, tiers: {tiers} }}");
    let ends = "}".repeat(modules.matches('{').count());
    bench.write_stack(&format!("stack:\n  {modules}\n  {volume}\n  {ends}\n"));
}

fn write_key(bench: &Bench, name: &str, byte: u8) -> String {
    let path = bench.path(name);
    fs::write(&path, [byte; 32]).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    path.to_str().unwrap().to_owned()
}

fn all(bench: &Bench) -> String {
    let key = write_key(bench, "key", 7);
    format!(
        "compress: {{ codec: zstd, level: 1, encrypt: {{ key_file: {key}, plain: refuse, checksum: {{ frame: 16KiB,"
    )
}

fn synced(path: &Path, data: &[u8]) {
    let file = File::create(path).unwrap();
    file.write_all_at(data, 0).unwrap();
    file.sync_all().unwrap();
}

/// A file of a tier that has these bytes, and where they are in it.
fn holding(dir: &Path, wanted: &[u8]) -> Option<(PathBuf, u64)> {
    fs::read_dir(dir).unwrap().map(|entry| entry.unwrap()).find_map(|entry| {
        let (kind, path) = (entry.file_type().unwrap(), entry.path());
        if kind.is_dir() {
            return holding(&path, wanted);
        }
        let data = if kind.is_file() { fs::read(&path).unwrap() } else { Vec::new() };
        let at = data.windows(wanted.len()).position(|part| part == wanted)?;
        Some((path, at as u64))
    })
}

/// Whether a file of a tier has these bytes.
fn is_below(dir: &Path, wanted: &[u8]) -> bool {
    holding(dir, wanted).is_some()
}

/// A file of a tier that begins with the head of one in frames.
fn framed_below(dir: &Path) -> Option<PathBuf> {
    fs::read_dir(dir).unwrap().map(|entry| entry.unwrap()).find_map(|entry| {
        let kind = entry.file_type().unwrap();
        let path = entry.path();
        match kind.is_dir() {
            true => framed_below(&path),
            false => fs::read(&path).is_ok_and(|data| data.starts_with(b"BRAIDFRM")).then_some(path),
        }
    })
}

#[test]
fn files_are_the_same_after_a_mount_and_a_kill_and_nothing_of_them_is_on_the_tiers() {
    let Some(bench) = Bench::new() else { return };
    write_stack(&bench, &all(&bench));
    let checked = bench.ok(&["stack", "check", "s.yaml"]);
    assert!(checked.contains("compress over encrypt over checksum over volume"), "{checked}");
    bench.ok(&["mount", "s.yaml", "m"]);
    let at = |name: &str| bench.path("m").join(name);
    let text = "the same again and again, and nobody is to know; ".repeat(20_000);
    synced(&at("text"), text.as_bytes());
    let by_chance = pattern(3, 700_001);
    synced(&at("chance"), &by_chance);
    fs::set_permissions(at("chance"), Permissions::from_mode(0o640)).unwrap();
    let file = OpenOptions::new().write(true).open(at("text")).unwrap();
    file.write_all_at(b"other words", 300_000).unwrap();
    file.set_len(800_000).unwrap();
    let mut expected = text.into_bytes();
    expected[300_000..300_011].copy_from_slice(b"other words");
    expected.truncate(800_000);
    assert!(read_anew(&at("text")) == expected);
    let about = fs::metadata(at("text")).unwrap();
    assert_eq!(about.len(), 800_000);
    assert!(about.blocks() * 512 < 500_000, "{} blocks", about.blocks());
    drop(file);
    File::open(at("text")).unwrap().sync_all().unwrap();
    bench.kill();
    bench.ok(&["mount", "s.yaml", "m"]);
    assert!(fs::read(at("text")).unwrap() == expected);
    assert!(fs::read(at("chance")).unwrap() == by_chance);
    bench.unmount_clean();
    for tier in ["a", "b"] {
        assert!(!is_below(&bench.path(tier), b"nobody is to know"), "{tier}");
        assert!(!is_below(&bench.path(tier), &by_chance[50_000..50_016]), "{tier}");
    }
}

#[test]
fn what_does_not_fit_is_refused_with_its_line() {
    let Some(bench) = Bench::new() else { return };
    let key = write_key(&bench, "key", 7);
    let open = write_key(&bench, "open", 7);
    fs::set_permissions(&open, Permissions::from_mode(0o644)).unwrap();
    for (modules, said) in [
        (
            "encrypt: { key_file: KEY, compress: {",
            "'compress' can't be below 'encrypt': the order is compress, encrypt, checksum",
        ),
        ("compress: { compress: {", "'compress' can't be below 'compress'"),
        ("compress: { noop: { checksum: {", "'checksum' has to be directly below 'compress'"),
        (
            "compress: { noop: { consistency: { mode: relaxed, within: 1s,",
            "'compress' counts on each sync, and 'consistency' below it would put them off",
        ),
        ("compress: { frame: 8KiB, checksum: { frame: 4KiB,", "'frame' is 8KiB here and 4KiB below"),
        ("compress: { codec: gzip,", "codec: 'gzip' is not known: write zstd or lz4"),
        ("compress: { level: 20,", "level: 20 is not from -7 to 19"),
        ("compress: { codec: lz4, level: 1,", "lz4 has no levels"),
        ("checksum: { frame: 5000,", "frame: '5000' is no power of two from 4KiB to 1MiB"),
        ("encrypt: {", "there is no key: write key_file or kernel_key"),
        ("encrypt: { key_file: KEY, kernel_key: a,", "key_file and kernel_key: write one of them"),
        ("encrypt: { kernel_key: braid-none,", "there is no key of the type 'user' with this name"),
        ("encrypt: { key_file: key,", "does not begin with '/'"),
        ("encrypt: { key_file: OPEN,", "others may read or change the key"),
        ("encrypt: { key_file: /none,", "No such file"),
        ("encrypt: { key_file: KEY, plain: write,", "expected refuse or read"),
    ] {
        write_stack(&bench, &modules.replace("KEY", &key).replace("OPEN", &open));
        let refused = bench.refused(&["stack", "check", "s.yaml"]);
        assert!(refused.contains("s.yaml:") && refused.contains(said), "{modules}: {refused}");
    }
}

#[test]
fn another_key_is_refused_and_settings_stay_while_it_is_mounted() {
    let Some(bench) = Bench::new() else { return };
    let [right, wrong] = [("right", 1), ("wrong", 2)].map(|(name, byte)| write_key(&bench, name, byte));
    let with = |key: &str| write_stack(&bench, &format!("encrypt: {{ key_file: {key},"));
    with(&right);
    bench.ok(&["mount", "s.yaml", "m"]);
    synced(&bench.path("m").join("file"), b"data");
    with(&wrong);
    let refused = bench.refused(&["reload", "m"]);
    assert!(refused.contains("settings of 'encrypt' can't change while the stack is mounted"), "{refused}");
    bench.ok(&["umount", "m"]);
    let refused = bench.refused(&["mount", "s.yaml", "m"]);
    assert!(refused.contains("the key is not the one"), "{refused}");
    with(&right);
    bench.ok(&["mount", "s.yaml", "m"]);
    assert_eq!(fs::read(bench.path("m").join("file")).unwrap(), b"data");
    bench.unmount_clean();
}

#[test]
fn plain_files_are_read_and_damage_is_told() {
    let Some(bench) = Bench::new() else { return };
    // All slots of a frame are in one range, and so on one tier, where `braid frames cat` looks.
    let wide = || bench.write_stack(&stack(&bench).replace("range: 64KiB", "range: 2MiB"));
    wide();
    bench.ok(&["mount", "s.yaml", "m"]);
    let at = |name: &str| bench.path("m").join(name);
    synced(&at("plain"), &pattern(1, 200_000));
    bench.unmount_clean();
    write_stack(&bench, "checksum: {");
    wide();
    bench.ok(&["mount", "s.yaml", "m"]);
    assert!(fs::read(at("plain")).unwrap() == pattern(1, 200_000));
    let framed = pattern(2, 1000);
    synced(&at("framed"), &framed);
    bench.unmount_clean();
    let on_tiers = |find: &dyn Fn(&Path) -> Option<(PathBuf, u64)>| {
        ["a", "b"].iter().find_map(|tier| find(&bench.path(tier)))
    };
    let (below, _) = on_tiers(&|tier| Some((framed_below(tier)?, 0))).unwrap();
    // In each slot that has it: the kernel may have written it back more than once.
    while let Some((path, place)) = on_tiers(&|tier| holding(tier, &framed[500..600])) {
        let file = OpenOptions::new().write(true).open(path).unwrap();
        file.write_all_at(b"damage", place).unwrap();
    }
    let (status, said) = bench.fails(&["frames", "cat", below.to_str().unwrap()]);
    assert!(status == 1 && said.contains("1 frames are damaged"), "{said}");
    bench.ok(&["mount", "s.yaml", "m"]);
    let failed = fs::read(at("framed")).unwrap_err();
    assert_eq!(failed.raw_os_error(), Some(rustix::io::Errno::IO.raw_os_error()));
    assert!(fs::read(at("plain")).unwrap() == pattern(1, 200_000));
    bench.unmount_clean();
    write_stack(&bench, &format!("encrypt: {{ key_file: {}, plain: read,", write_key(&bench, "key", 1)));
    wide();
    bench.ok(&["mount", "s.yaml", "m"]);
    assert!(fs::read(at("plain")).unwrap() == pattern(1, 200_000));
    assert!(OpenOptions::new().write(true).open(at("plain")).is_err());
    bench.unmount_clean();
}

#[test]
fn files_in_frames_are_read_without_a_mount() {
    let Some(bench) = Bench::new() else { return };
    write_stack(&bench, &all(&bench));
    bench.ok(&["mount", "s.yaml", "m"]);
    let (small, large) = (pattern(4, 10_000), pattern(5, 1_000_000));
    synced(&bench.path("m").join("small"), &small);
    synced(&bench.path("m").join("large"), &large);
    bench.unmount_clean();
    let cat = |file: &str| {
        let output = bench.braid(&["frames", "cat", "--key-file", "key", file]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    };
    assert!(cat("a/small") == small);
    let refused = bench.refused(&["frames", "cat", "a/small"]);
    assert!(refused.contains("it is encrypted: name the key by --key-file"), "{refused}");
    assert!(bench.refused(&["frames", "cat", "s.yaml"]).contains("it is not made of frames"));
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("rescue/rescue.py");
    let (a, b) = (bench.path("a"), bench.path("b"));
    let tier = |name: &str, dir: &Path| format!("{name}={}", dir.display());
    let rescued = Command::new("python3")
        .arg(script)
        .args(["--home", "fast", "--tier", &tier("fast", &a), "--tier", &tier("slow", &b)])
        .arg(bench.path("out"))
        .output();
    match rescued {
        Ok(output) => assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr)),
        Err(_) => return braid_testkit::skipped("python3"),
    }
    assert!(cat("out/small") == small && cat("out/large") == large);
}

#[test]
fn the_key_may_be_in_the_kernel() {
    let Some(bench) = Bench::new() else { return };
    let name = format!("braid-test-{}", std::process::id());
    let id = |output: std::process::Output| String::from_utf8(output.stdout).unwrap().trim().to_owned();
    let keyctl = |words: &[&str]| {
        let key = std::process::Stdio::from(fs::File::open(bench.path("key")).unwrap());
        std::process::Command::new("keyctl").args(words).stdin(key).output()
    };
    write_key(&bench, "key", 7);
    let Ok(made) = keyctl(&["padd", "user", &name, "@u"]) else {
        return braid_testkit::skipped("keyctl");
    };
    assert!(made.status.success(), "{made:?}");
    write_stack(&bench, &format!("encrypt: {{ kernel_key: {name},"));
    bench.ok(&["mount", "s.yaml", "m"]);
    synced(&bench.path("m").join("file"), b"data");
    bench.ok(&["umount", "m"]);
    let unlinked = keyctl(&["unlink", &id(made), "@u"]).unwrap();
    assert!(unlinked.status.success(), "{unlinked:?}");
    let refused = bench.refused(&["mount", "s.yaml", "m"]);
    assert!(
        refused.contains("stack.encrypt: kernel_key: ") && refused.contains("there is no key"),
        "{refused}"
    );
    // It is the same key as that of a file.
    write_stack(&bench, &format!("encrypt: {{ key_file: {},", bench.path("key").display()));
    bench.ok(&["mount", "s.yaml", "m"]);
    assert_eq!(fs::read(bench.path("m").join("file")).unwrap(), b"data");
    bench.unmount_clean();
}

#[test]
fn a_scrub_finds_what_is_damaged_and_changes_nothing() {
    let Some(bench) = Bench::new() else { return };
    write_stack(&bench, "checksum: { frame: 16KiB,");
    bench.ok(&["mount", "s.yaml", "m"]);
    fs::create_dir(bench.path("m/dir")).unwrap();
    for (number, name) in ["m/dir/a", "m/dir/b", "m/c"].iter().enumerate() {
        synced(&bench.path(name), &pattern(number as u64, 50_000));
    }
    fs::hard_link(bench.path("m/c"), bench.path("m/dir/link")).unwrap();
    std::os::unix::fs::symlink("/etc", bench.path("m/dir/way")).unwrap();
    let whole = bench.ok(&["scrub", "m"]);
    assert!(whole.starts_with("read 3 files, "), "{whole}");
    bench.ok(&["umount", "m"]);
    // The second frame of a file.
    let marker = &pattern(0, 50_000)[20_000..20_064];
    let held = ["a", "b"].iter().find_map(|tier| holding(&bench.path(tier), marker));
    let (below, at) = held.unwrap();
    let file = OpenOptions::new().write(true).open(below).unwrap();
    file.write_all_at(b"damage", at).unwrap();
    drop(file);
    bench.ok(&["mount", "s.yaml", "m"]);
    let output = bench.braid(&["scrub", "m/c", "m/dir"]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("m/dir/a: bytes 16384 to 32768: Input/output error"), "{said}");
    assert!(said.contains("read 3 files, "), "{said}");
    let found = bench.braid(&["scrub", "--json", "m"]);
    let found: serde_json::Value = serde_json::from_slice(&found.stdout).unwrap();
    assert_eq!((&found["damaged_bytes"], found["unread"].as_array().unwrap().len()), (&16_384.into(), 0));
    assert!(bench.ok(&["scrub", "--bandwidth", "1GiB/s", "m/c"]).starts_with("read 1 file, "));
    let by_job = |path: &str| {
        let id = bench.json(&["scrub", "--background", "--json", path])["id"].to_string();
        let output = bench.braid(&["job", "wait", &id]);
        (output.status.code(), bench.ok(&["job", "show", &id]))
    };
    let (status, said) = by_job("m");
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("why: 1 part can't be read; the first: dir/a: bytes 16384 to 32768: "), "{said}");
    let said = bench.refused(&["scrub", "s.yaml"]);
    assert!(said.contains("not on a Braid file system") && said.contains("help: "), "{said}");
    // Written anew, it is whole again.
    synced(&bench.path("m/dir/a"), &pattern(9, 50_000));
    bench.ok(&["scrub", "m"]);
    assert_eq!(by_job("m").0, Some(0));
    bench.unmount_clean();
}
