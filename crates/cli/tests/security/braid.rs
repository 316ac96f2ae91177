//! Contents of `.braid` that another user wrote: the attacks that
//! `docs/security.md` names, on a volume that a user created and root mounts.
//! Needs root, /dev/fuse, `setpriv` and `python3`; skipped without root.

use crate::common::{Bench, RANGE, until};
use crate::users::{ALICE, BIG, BOB, as_user, said, with_crc};
use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// All visible state of a directory's files.
type Contents = Vec<(OsString, Vec<u8>, Vec<u8>, [i64; 4])>;

fn contents(dir: &Path) -> Contents {
    let mut found: Contents = fs::read_dir(dir)
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            let meta = fs::symlink_metadata(&path).unwrap();
            let mut attributes = vec![0; 1024];
            let len = rustix::fs::llistxattr(&path, &mut attributes[..]).unwrap();
            attributes.truncate(len);
            let bytes = if meta.is_file() { fs::read(&path).unwrap() } else { Vec::new() };
            let numbers = [meta.blocks().cast_signed(), meta.mtime(), meta.mtime_nsec(), meta.mode().into()];
            (path.file_name().unwrap().to_owned(), bytes, attributes, numbers)
        })
        .collect();
    found.sort();
    found
}

impl Bench {
    /// A user's volume with a file of Alice's, and beside its tiers a directory
    /// of root's outside the volume.
    fn beside_a_secret() -> Option<(Self, Contents)> {
        let bench = Self::shared()?;
        bench.made_by_a_user();
        Some(bench.with_a_secret())
    }

    fn with_a_secret(self) -> (Self, Contents) {
        let bench = self;
        bench.mount();
        bench.open_to_all();
        bench.big_file(ALICE, "alice", 10);
        bench.ok(&["umount", "m"]);
        bench.make_dir("outside");
        fs::write(bench.path("outside/secret"), vec![7; 4 * RANGE]).unwrap();
        for (name, mode) in [("outside/secret", 0o600), ("outside", 0o700)] {
            fs::set_permissions(bench.path(name), Permissions::from_mode(mode)).unwrap();
        }
        for tier in ["a", "b"] {
            bench.copy(&format!("{tier}/.braid"), &format!("{tier}.kept"));
        }
        let outside = contents(&bench.path("outside"));
        (bench, outside)
    }

    fn copy(&self, from: &str, to: &str) {
        let copied = Command::new("cp").arg("-a").arg(self.path(from)).arg(self.path(to)).status();
        assert!(copied.unwrap().success());
    }

    /// Restores `.braid` of both tiers.
    fn restore(&self) {
        for tier in ["a", "b"] {
            fs::remove_dir_all(self.path(tier).join(".braid")).unwrap();
            self.copy(&format!("{tier}.kept"), &format!("{tier}/.braid"));
        }
    }

    /// The command, which hostile files must not hold up.
    fn in_time(&self, words: &[&str]) -> Output {
        let command = self.command(words);
        let mut timed = Command::new("timeout");
        timed.arg("60").arg(command.get_program()).args(command.get_args());
        timed.current_dir(self.path(".")).stdin(Stdio::null()).output().unwrap()
    }

    /// Mounts the volume, or gets a refusal; answers whether it is mounted.
    #[track_caller]
    fn try_mount(&self, what: &str) -> bool {
        let output = self.in_time(&["mount", "s.yaml", "m"]);
        let told = said(&output);
        assert!(output.status.success() || output.status.code() == Some(1), "{what}: {told}");
        assert!(output.status.success() || told.contains("braid"), "{what}: {told}");
        let log = fs::read_to_string(self.path("log")).unwrap_or_default();
        assert!(!log.contains("panicked"), "{what}: {log}");
        output.status.success()
    }

    /// Adds a forged job to home, in the daemon's format.
    fn forge_job(&self, what: &str) {
        let body = format!(
            "{{\"id\": 1, \"what\": {what}, \"state\": \"queued\", \"bandwidth\": null, \"created_ns\": 0, \
             \"started_ns\": null, \"ended_ns\": null, \"done\": {{\"bytes\": 0, \"ranges\": 0, \
             \"files\": 0}}, \"total\": null, \"skipped\": {{}}, \"errors\": 0, \"message\": null, \
             \"holds\": false}}\n"
        );
        let _ = fs::create_dir(self.path("a/.braid/jobs"));
        let crc = crc32c::crc32c(body.as_bytes());
        fs::write(self.path("a/.braid/jobs/1"), format!("braid-job 1 {crc:08x}\n{body}")).unwrap();
    }
}

#[test]
fn a_forged_job_moves_nothing_that_is_not_the_volumes() {
    let Some((bench, outside)) = Bench::beside_a_secret() else { return };
    symlink("../outside", bench.path("a/link")).unwrap();
    fs::write(bench.path("a/own"), vec![1; 4 * RANGE]).unwrap();
    let absolute = bench.path("outside/secret").display().to_string();
    let moves = ["../outside/secret", "link/secret", "link", "../outside", ".braid/volume", &absolute];
    let moves = moves.map(|path| format!("{{\"kind\": \"move\", \"path\": \"{path}\", \"to\": \"slow\"}}"));
    let home = format!("{{\"kind\": \"replace-home\", \"dir\": \"{}\"}}", bench.path("outside").display());
    for job in moves.iter().chain([&home]) {
        bench.forge_job(job);
        let table = fs::read(bench.path("a/.braid/volume")).unwrap();
        bench.mount();
        until(job, || {
            let told = bench.braid(&["job", "show", "1", "--json"]);
            let told: serde_json::Value = serde_json::from_slice(&told.stdout).unwrap_or_default();
            told["state"].as_str().is_none_or(|state| ["done", "failed"].contains(&state))
        });
        bench.alice_has_her_data();
        bench.ok(&["umount", "m"]);
        assert!(contents(&bench.path("outside")) == outside, "{job}");
        assert!(fs::read(bench.path("a/.braid/volume")).unwrap() == table, "{job}");
    }
    // A similar job for a file of the volume is carried out.
    bench.forge_job("{\"kind\": \"move\", \"path\": \"own\", \"to\": \"slow\"}");
    bench.mount();
    bench.until(1, |job| job["state"] == "done");
    assert_eq!(bench.on("m/own", "slow"), 4);
    bench.ok(&["umount", "m"]);
}

/// Replaces a file or a directory by a link.
fn lead(path: &Path, to: &Path) {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path).unwrap(),
        Ok(_) => fs::remove_file(path).unwrap(),
        Err(_) => {}
    }
    symlink(to, path).unwrap();
}

#[test]
fn links_in_braid_lead_the_daemon_nowhere() {
    let Some((bench, outside)) = Bench::beside_a_secret() else { return };
    let (dir, secret) = (bench.path("outside"), bench.path("outside/secret"));
    let shards: Vec<String> = (0..=255).map(|shard| format!("{shard:02x}")).collect();
    let below = |name: &str| shards.iter().map(|shard| format!("{name}/{shard}")).collect::<Vec<_>>();
    let mut all: Vec<(Vec<String>, &Path)> =
        vec![(below("b/.braid/data"), &dir), (below("a/.braid/index"), &dir)];
    for name in ["b/.braid/data", "a/.braid/index", "a/.braid/open", "a/.braid/jobs", "a/.braid/intent"] {
        all.push((vec![name.into()], &dir));
    }
    for name in ["a/.braid/limbo", "a/.braid/ballast", "a/.braid", "b/.braid"] {
        all.push((vec![name.into()], &dir));
    }
    for name in ["label", "volume", "heat", "counts", "README", "label.new", "jobs/1", "ballast"] {
        all.push((vec![format!("a/.braid/{name}")], &secret));
    }
    for (links, to) in all {
        let what = links[0].clone();
        let _ = fs::create_dir(bench.path("a/.braid/jobs"));
        links.iter().for_each(|link| lead(&bench.path(link), to));
        if bench.try_mount(&what) {
            // It may fail, but must not write elsewhere.
            let line = format!(
                "for n in range(20):\n try:\n  fd = os.open(f'm/new{{n}}', os.O_WRONLY | os.O_CREAT, 0o600)\n  \
                 for at in range(4): os.write(fd, b'x' * {RANGE})\n  os.fsync(fd)\n except OSError: pass"
            );
            bench.python(ALICE, &line);
            bench.in_time(&["move", "m/new0", "--to", "slow"]);
            bench.in_time(&["umount", "m"]);
        }
        bench.in_time(&["fsck", "s.yaml", "--repair"]);
        assert!(contents(&dir) == outside, "{what} led to {}", to.display());
        for link in &links {
            let _ = fs::remove_file(bench.path(link));
        }
        for tier in ["a/.braid", "b/.braid"] {
            let _ = fs::create_dir(bench.path(tier));
        }
        bench.restore();
    }
}

/// Replaces a file as an attacker would.
fn spoil(path: &Path, how: &str) {
    let _ = fs::remove_file(path).or_else(|_| fs::remove_dir_all(path));
    match how {
        "a FIFO" => assert!(Command::new("mkfifo").arg(path).status().unwrap().success()),
        "a directory" => fs::create_dir(path).unwrap(),
        "endless" => symlink("/dev/zero", path).unwrap(),
        "noise" => fs::write(path, crate::common::pattern(1, 1 << 20)).unwrap(),
        "zeros" => fs::write(path, [0; 4096]).unwrap(),
        _ => fs::write(path, "").unwrap(),
    }
}

#[test]
fn what_is_damaged_in_braid_is_left_out_or_refused_and_reported() {
    // Root's own directory: less is read of a user's.
    let Some(bench) = Bench::shared() else { return };
    let (bench, _) = bench.with_a_secret();
    let mark = format!("a/.braid/open/{}", "0f".repeat(16));
    let strange = format!("a/.braid/open/{}.ffffffff.{}", "0e".repeat(16), "ff".repeat(64));
    let mut mounted = 0;
    for name in ["heat", "counts", "jobs/1", "volume", "label", "README", "ballast"]
        .map(|name| format!("a/.braid/{name}"))
        .iter()
        .chain([&mark, &strange, &"b/.braid/label".to_owned(), &"b/.braid/README".to_owned()])
    {
        for how in ["empty", "zeros", "noise", "a directory", "endless", "a FIFO"] {
            let _ = fs::create_dir(bench.path("a/.braid/jobs"));
            spoil(&bench.path(name), how);
            if bench.try_mount(&format!("{name}: {how}")) {
                mounted += 1;
                bench.alice_has_her_data();
                bench.ok(&["umount", "m"]);
            }
            bench.restore();
        }
    }
    assert!(mounted > 30, "{mounted}");
    let log = fs::read_to_string(bench.path("log")).unwrap();
    assert!(log.contains("a job is passed over") && log.contains("heat of ranges is of no use"), "{log}");
}

#[test]
fn an_index_that_is_cut_while_it_is_used_ends_nothing_but_its_file() {
    let Some((bench, _)) = Bench::beside_a_secret() else { return };
    let index = bench.index_of("alice");
    bench.mount();
    bench.big_file(BOB, "bob", 11);
    bench.python_ok(ALICE, &format!("sys.exit(len(open('m/alice', 'rb').read({RANGE})) != {RANGE})"));
    let line = format!(
        "fd = os.open('m/alice', os.O_RDWR)\nos.pread(fd, 1, 0)\nprint('open', flush=True)\nsys.stdin.read()\n\
         os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)\n\
         for act in [lambda: os.pread(fd, {BIG}, 0), lambda: os.pwrite(fd, b'x', {BIG} * 2)]:\n \
         try: act()\n except OSError: pass"
    );
    let mut user = Command::new(crate::users::python())
        .args(["-c", &format!("import os, sys\n{line}")])
        .current_dir(bench.path("."))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    user.stdout.as_mut().unwrap().read_exact(&mut [0; 4]).unwrap();
    fs::File::options().write(true).open(&index).unwrap().set_len(0).unwrap();
    drop(user.stdin.take());
    user.wait().unwrap();
    bench.python_ok(BOB, &format!("sys.exit(open('m/bob', 'rb').read() != b'\\x0b' * {BIG})"));
    bench.ok(&["umount", "m"]);
}

/// The type and the bytes of a file's handle; `None` where there are none.
fn handle_of(path: &Path) -> Option<(i32, Vec<u8>)> {
    let line = "import ctypes, sys, struct\nb = ctypes.create_string_buffer(struct.pack('Ii', 128, 0), 136)\n\
                m = ctypes.c_int()\nlibc = ctypes.CDLL(None)\n\
                failed = libc.name_to_handle_at(-100, sys.argv[1].encode(), b, ctypes.byref(m), 0)\n\
                n, t = struct.unpack('Ii', b.raw[:8])\n\
                print(t, b.raw[8:8 + n].hex()) if not failed else sys.exit(1)";
    let told = Command::new(crate::users::python()).args(["-c", line]).arg(path).output().unwrap();
    let told = String::from_utf8(told.stdout).unwrap();
    let (kind, hex) = told.trim().split_once(' ')?;
    let bytes = (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap());
    Some((kind.parse().unwrap(), bytes.collect()))
}

#[test]
fn forged_heat_and_marks_lead_to_no_file_that_is_not_the_volumes() {
    let Some((bench, outside)) = Bench::beside_a_secret() else { return };
    let secret = bench.path("outside/secret");
    let Some((kind, handle)) = handle_of(&secret) else { return };
    let hex: String = handle.iter().map(|byte| format!("{byte:02x}")).collect();
    fs::write(bench.path("a/.braid/open").join(format!("{}.{kind:x}.{hex}", "0f".repeat(16))), "").unwrap();

    let generation = handle.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let mut heat = b"BRAIDHOT\x01\0\0\0\0\0\0\0".to_vec();
    for word in [1, 0, fs::metadata(&secret).unwrap().ino(), generation] {
        heat.extend(word.to_le_bytes());
    }
    heat.extend(kind.to_le_bytes());
    heat.extend((handle.len() as u32).to_le_bytes());
    heat.extend(1_u64.to_le_bytes());
    heat.extend(&handle);
    for word in [0, now as u32, now as u32] {
        heat.extend(word.to_le_bytes());
    }
    heat.extend([0, 3, 0, 0]);
    fs::write(bench.path("a/.braid/heat"), with_crc(heat, 12)).unwrap();

    bench.mount();
    assert_eq!(bench.status()["hottest"], serde_json::json!([]), "what somebody else says is hot");
    bench.alice_has_her_data();
    bench.ok(&["umount", "m"]);
    assert!(contents(&bench.path("outside")) == outside);
}

#[test]
fn a_volume_of_another_user_is_mounted_by_root_alone_who_is_told() {
    let Some((bench, _)) = Bench::beside_a_secret() else { return };
    for tier in ["a", "b"] {
        fs::set_permissions(bench.path(tier), Permissions::from_mode(0o1777)).unwrap();
    }
    let mut mount = Command::new(env!("CARGO_BIN_EXE_braid"));
    mount.args(["mount", "--log-file", "/dev/null", "s.yaml", "m"]).current_dir(bench.path("."));
    let refused = as_user(BOB, &mount);
    let told = said(&refused);
    assert!(!refused.status.success() && told.contains("/.braid belongs to user 4711"), "{told}");
    let log = fs::read_to_string(bench.path("log")).unwrap();
    assert!(
        log.contains("this user can read and change all that is in it") && log.contains("owner=4711"),
        "{log}"
    );
}

#[test]
fn a_home_directory_that_all_can_write_to_is_told_of() {
    let Some(bench) = Bench::shared() else { return };
    let told = |mode: u32| {
        fs::set_permissions(bench.path("a"), Permissions::from_mode(mode)).unwrap();
        let _ = fs::remove_file(bench.path("log"));
        bench.mount();
        bench.ok(&["umount", "m"]);
        fs::read_to_string(bench.path("log")).unwrap().contains("can take .braid away natively")
    };
    assert!(!told(0o755) && told(0o777) && !told(0o1777));
}
