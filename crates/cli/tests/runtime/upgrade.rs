//! Volumes of earlier format versions are mounted, used and checked like any
//! other, and become volumes of the present version, which earlier builds
//! refuse. `fixtures/<version>/make.sh` created them. Needs root, /dev/fuse and
//! loop devices.

use crate::common::{Bench, is_well, leave_namespace, read_anew};
use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_gid, set_thread_groups, set_thread_uid};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The user who created a user's volume.
const USER: u32 = 65534;

const STACK: &str = "\
stack:
  volume:
    home: fast
    policy: { weighted: { } }
    rules:
      - { when: 'path.endsWith(\".wide\")', range: 128KiB, policy: weighted }
    range: 64KiB
    tiers:
      fast: { dir: fast, weight: 1, reserve: 0 }
      slow: { dir: slow, weight: 1, reserve: 0 }
mount: { cache: direct }
";

/// A bench with a volume of a fixture, `root` or `user`, that belongs to `uid`.
fn bench(version: &str, volume: &str, uid: u32) -> Option<Bench> {
    let mut bench = Bench::bare(&["m"])?;
    if !Path::new("/dev/loop-control").exists() {
        braid_testkit::skipped("loop devices");
        return None;
    }
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(version);
    for tier in ["fast", "slow"] {
        let image = format!("{tier}.img");
        let packed = File::open(fixtures.join(format!("{volume}-{tier}.gz"))).unwrap();
        let unpacked = File::create(bench.path(&image)).unwrap();
        let gzip = Command::new("gzip").arg("-dc").stdin(packed).stdout(unpacked).status().unwrap();
        assert!(gzip.success());
        bench.mount_image(tier, &image);
    }
    bench.write_stack(STACK);
    for path in ["", "m"] {
        chown(bench.path(path), Some(uid), Some(uid)).unwrap();
    }
    Some(bench)
}

/// The fill of block `at`, of 4 KiB, of the file with this seed.
fn block(seed: u64, at: u64) -> [u8; 4096] {
    [((seed + 7 * at) % 255 + 1) as u8; 4096]
}

/// The contents that `fill.py` wrote to a file of so many blocks.
fn filled(seed: u64, blocks: u64) -> Vec<u8> {
    (0..blocks).flat_map(|at| block(seed, at)).collect()
}

#[track_caller]
fn holds(path: &Path, expected: &[u8]) {
    let found = read_anew(path);
    assert_eq!(found.len(), expected.len(), "size of {}", path.display());
    let differs = found.iter().zip(expected).position(|(a, b)| a != b);
    assert_eq!(differs, None, "{}", path.display());
}

/// Files that only one of the volumes has, or has with other contents: those in
/// use when root's daemon was killed.
fn left_by(volume: &str, m: &Path) {
    if volume == "root" {
        holds(&m.join("held"), &filled(50, 65));
        assert!(!m.join("removed").exists());
        holds(&m.join("emptied"), &[]);
        holds(&m.join("cut"), &filled(100, 64)[..100_000]);
    } else {
        assert!(!m.join("held").exists());
        holds(&m.join("removed"), &filled(90, 64));
        holds(&m.join("emptied"), &filled(80, 64));
        holds(&m.join("cut"), &filled(100, 64));
    }
}

/// Checks all contents of the fixture.
fn is_as_made(bench: &Bench, volume: &str, uid: u32) {
    let m = bench.path("m");
    holds(&m.join("plain"), b"a plain file\n");
    let plain = m.join("plain").metadata().unwrap();
    assert_eq!((plain.mode() & 0o7777, plain.uid(), plain.nlink()), (0o640, uid, 1));
    holds(&m.join("dir/spread"), &filled(10, 100));
    let [spread, second, link] =
        ["dir/spread", "dir/second", "link"].map(|name| m.join(name).metadata().unwrap());
    assert_eq!((spread.mode() & 0o7777, spread.nlink()), (0o604, 2));
    assert_eq!((spread.ino(), spread.ino()), (second.ino(), link.ino()));
    let mut value = [0; 32];
    let len = rustix::fs::getxattr(m.join("dir/second"), "user.of", &mut value).unwrap();
    assert_eq!(&value[..len], b"a spread file");
    holds(&m.join("file.wide"), &filled(20, 96));
    let mut holes = vec![0; 83 * 4096];
    for at in (0..3).chain(80..83) {
        holes[at as usize * 4096..][..4096].copy_from_slice(&block(30, at));
    }
    holds(&m.join("holes"), &holes);
    for (name, seed, blocks) in [("pinned", 40, 64), ("moved", 60, 64), ("large", 70, 512)] {
        holds(&m.join(name), &filled(seed, blocks));
    }
    left_by(volume, &m);
    for name in ["pinned", "moved"] {
        assert_eq!(bench.on(&format!("m/{name}"), "fast"), 0, "{name}");
    }
    assert_eq!(bench.json(&["explain", "m/file.wide", "--json"])["range_size"], 128 << 10);
    assert_eq!((&bench.job(2)["state"], &bench.job(3)["state"]), (&"done".into(), &"paused".into()));
    for pinned in ["m/pinned", "m/plain"] {
        assert!(bench.refused(&["move", pinned, "--to", "fast"]).contains("pinned"), "{pinned}");
    }
}

/// Uses the volume: files grow, change, are truncated, moved, replaced and
/// removed, and a job continues.
fn use_it(bench: &Bench) {
    let m = bench.path("m");
    let mut spread = OpenOptions::new().append(true).open(m.join("dir/second")).unwrap();
    spread.write_all(&block(1, 0)).unwrap();
    spread.sync_all().unwrap();
    let holes = OpenOptions::new().write(true).open(m.join("holes")).unwrap();
    holes.write_all_at(&block(2, 0), 40 * 4096).unwrap();
    holes.set_len(81 * 4096).unwrap();
    drop(holes);
    bench.ok(&["move", "m/moved", "--to", "fast"]);
    bench.ok(&["unpin", "m/pinned"]);
    bench.ok(&["move", "m/pinned", "--to", "fast"]);
    bench.ok(&["job", "resume", "3"]);
    bench.ok(&["job", "set", "3", "bandwidth=none"]);
    bench.ok(&["job", "wait", "3"]);
    fs::write(m.join("new"), filled(3, 100)).unwrap();
    fs::rename(m.join("new"), m.join("cut")).unwrap();
    fs::remove_file(m.join("file.wide")).unwrap();
    fs::write(m.join("emptied"), filled(4, 70)).unwrap();
}

/// Checks the result of [`use_it`].
fn is_as_used(bench: &Bench) {
    let m = bench.path("m");
    holds(&m.join("dir/spread"), &[filled(10, 100), block(1, 0).to_vec()].concat());
    let mut holes = vec![0; 81 * 4096];
    for (seed, at) in [(30, 0), (30, 1), (30, 2), (30, 80)] {
        holes[at as usize * 4096..][..4096].copy_from_slice(&block(seed, at));
    }
    holes[40 * 4096..][..4096].copy_from_slice(&block(2, 0));
    holds(&m.join("holes"), &holes);
    for (name, seed, blocks) in
        [("moved", 60, 64), ("pinned", 40, 64), ("large", 70, 512), ("cut", 3, 100), ("emptied", 4, 70)]
    {
        holds(&m.join(name), &filled(seed, blocks));
    }
    assert!(!m.join("file.wide").exists());
    assert_eq!((bench.on("m/moved", "slow"), bench.on("m/large", "fast")), (0, 0));
    assert_eq!(bench.job(3)["state"], "done");
}

/// The format versions in the records that identify volume and tier: a build
/// refuses any above its own.
fn versions(bench: &Bench, tiers: [&str; 2]) -> [u16; 3] {
    let [home, other] = tiers;
    [format!("{home}/.braid/label"), format!("{home}/.braid/volume"), format!("{other}/.braid/label")].map(
        |name| {
            let bytes = fs::read(bench.path(&name)).unwrap();
            u16::from_le_bytes([bytes[8], bytes[9]])
        },
    )
}

/// The versions of a volume that the present build creates.
fn present_versions(bench: &Bench) -> [u16; 3] {
    for dir in ["new", "new/a", "new/b", "new/m"] {
        bench.make_dir(dir);
    }
    bench.ok(&["mount", "--tier", "x=new/a", "--tier", "y=new/b", "new/m"]);
    bench.ok(&["umount", "new/m"]);
    versions(bench, ["new/a", "new/b"])
}

fn upgrades(bench: &Bench, volume: &str, uid: u32) {
    assert_eq!(versions(bench, ["fast", "slow"]), [1, 1, 1]);
    // A check changes nothing.
    is_well(bench);
    assert_eq!(versions(bench, ["fast", "slow"]), [1, 1, 1]);
    bench.ok(&["mount", "s.yaml", "m"]);
    is_as_made(bench, volume, uid);
    assert!(bench.ok(&["fsck", "m"]).ends_with("no problems\n"));
    // Unchanged parts are read in the same way after a first mount.
    bench.unmount_clean();
    bench.ok(&["mount", "s.yaml", "m"]);
    is_as_made(bench, volume, uid);
    use_it(bench);
    is_as_used(bench);
    assert!(bench.ok(&["fsck", "m"]).ends_with("no problems\n"));
    bench.unmount_clean();
    bench.ok(&["mount", "s.yaml", "m"]);
    is_as_used(bench);
    bench.unmount_clean();
    assert_eq!(versions(bench, ["fast", "slow"]), present_versions(bench));
}

#[test]
fn a_volume_of_version_1_that_was_not_unmounted_is_read_and_used() {
    let Some(bench) = bench("v1", "root", 0) else { return };
    upgrades(&bench, "root", 0);
}

/// Makes this thread, and processes that it starts, act as a user.
fn become_user(uid: u32) {
    set_thread_groups(&[]).unwrap();
    set_thread_gid(Gid::from_raw(uid)).unwrap();
    set_thread_uid(Uid::from_raw(uid)).unwrap();
}

/// Opens `/dev/fuse` to users, for this thread and processes that it starts: on
/// some machines it is root's alone.
fn open_fuse_to_users(bench: &mut Bench) {
    bench.make_tmpfs("dev", c"mode=755");
    let device = bench.path("dev/fuse");
    let of_all = Mode::from_raw_mode(0o666);
    mknodat(CWD, &device, FileType::CharacterDevice, of_all, makedev(10, 229)).unwrap();
    fs::set_permissions(&device, Permissions::from_mode(0o666)).unwrap();
    rustix::mount::mount_bind(device, "/dev/fuse").unwrap();
}

/// In mounts of its own, which end with the thread.
fn a_user_upgrades() -> Option<PathBuf> {
    leave_namespace();
    let mut bench = bench("v1", "user", USER)?;
    open_fuse_to_users(&mut bench);
    become_user(USER);
    upgrades(&bench, "user", USER);
    Some(bench.path(""))
}

#[test]
fn a_volume_of_version_1_of_a_user_is_read_and_used() {
    if !rustix::process::geteuid().is_root() {
        braid_testkit::skipped("root and /dev/fuse");
        return;
    }
    let dir = std::thread::spawn(a_user_upgrades).join().unwrap();
    // The user could not remove its mounts.
    dir.map(fs::remove_dir_all);
}
