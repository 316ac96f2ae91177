//! Directories that can't be tiers or mount points: each is refused with
//! finding and advice, and nothing is created.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use braid_daemon::flags::{StackFlags, parse};
use braid_daemon::{Config, stack_file, validate};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A directory with tiers `a` and `b` and an empty mount point `m`.
struct Bench {
    dir: TempDir,
}

impl Bench {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a", "b", "m"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        Self { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The refusal of these tiers, without the path of the bench.
    fn refusal(&self, tiers: &[(&str, &str)], mountpoint: &str) -> String {
        let tiers = tiers.iter().map(|(name, dir)| format!("{name}={}", self.path(dir).display()));
        let flags = StackFlags { tiers: tiers.collect(), ..StackFlags::default() };
        self.said(&parse(&flags).unwrap(), mountpoint, false)
    }

    fn said(&self, config: &Config, mountpoint: &str, nonempty: bool) -> String {
        let refusal = validate::mount(config, &self.path(mountpoint), nonempty).unwrap_err();
        let real = fs::canonicalize(self.dir.path()).unwrap();
        refusal.to_string().replace(&format!("{}/", real.display()), "")
    }

    fn is_untouched(&self) -> bool {
        let empty = |name: &str| fs::read_dir(self.path(name)).unwrap().next().is_none();
        empty("a") && empty("b") && empty("m")
    }
}

/// The checks that need the kernel's FUSE device follow those of the tiers.
fn has_fuse() -> bool {
    let has = Path::new("/dev/fuse").exists();
    if !has {
        braid_testkit::skipped("/dev/fuse");
    }
    has
}

#[test]
fn two_tiers_on_the_same_directory() {
    let bench = Bench::new();
    let advice = "help: give each tier a directory of its own";
    let same = "tiers 'x' and 'y' are the same directory, a";
    assert_eq!(bench.refusal(&[("x", "a"), ("y", "a")], "m"), format!("--tier y=a: {same}\n  {advice}"));
    assert_eq!(
        bench.refusal(&[("x", "a"), ("y", "b/../a/.")], "m"),
        format!("--tier y=b/../a/.: {same}\n  {advice}")
    );
    symlink("a", bench.path("link")).unwrap();
    assert_eq!(bench.refusal(&[("x", "link"), ("y", "a")], "m"), format!("--tier y=a: {same}\n  {advice}"));
    assert!(bench.is_untouched());
}

#[test]
fn a_tier_inside_another() {
    let bench = Bench::new();
    fs::create_dir_all(bench.path("c/in/deep")).unwrap();
    let message = "tier 'y' (c/in/deep) is inside tier 'x' (c)\n  \
                   help: put the two beside each other, in directories of their own";
    assert_eq!(
        bench.refusal(&[("x", "c"), ("y", "c/in/deep")], "m"),
        format!("--tier y=c/in/deep: {message}")
    );
    assert_eq!(
        bench.refusal(&[("y", "c/in/deep"), ("x", "c")], "m"),
        format!("--tier y=c/in/deep: {message}")
    );
    // A name with the same beginning is beside it.
    fs::create_dir(bench.path("ab")).unwrap();
    assert!(!bench.refusal(&[("x", "a"), ("y", "ab")], "no").contains("inside"));
}

#[test]
fn tiers_that_can_not_be_used() {
    let bench = Bench::new();
    assert_eq!(
        bench.refusal(&[("x", "a"), ("y", "no")], "m"),
        "--tier y=no: there is no directory no\n  help: mount the tier's device, or make the directory: mkdir -p no"
    );
    fs::write(bench.path("file"), "").unwrap();
    assert_eq!(
        bench.refusal(&[("x", "file")], "m"),
        "--tier x=file: file is not a directory\n  help: a tier is a directory, a device, or a log file system (braid log create); name one"
    );
    assert_eq!(
        bench.refusal(&[("x", "file/x")], "m"),
        "--tier x=file/x: a part of file/x is not a directory\n  help: check the path"
    );
    if !rustix::process::geteuid().is_root() {
        fs::set_permissions(bench.path("b"), fs::Permissions::from_mode(0o555)).unwrap();
        assert_eq!(
            bench.refusal(&[("x", "a"), ("y", "b")], "m"),
            "--tier y=b: b is not writable for this user\n  \
             help: give this user read, write and search permission on b"
        );
    }
    assert!(bench.is_untouched());
}

#[test]
fn tiers_and_mount_points_that_hide_each_other() {
    if !has_fuse() {
        return;
    }
    let bench = Bench::new();
    let advice = "help: mount elsewhere: the mount would hide the tier, or the tier would hold the mount";
    assert_eq!(
        bench.refusal(&[("x", "a"), ("y", "b")], "a"),
        format!("--tier x=a: tier 'x' and the mount point are the same directory, a\n  {advice}")
    );
    fs::create_dir(bench.path("a/mnt")).unwrap();
    assert_eq!(
        bench.refusal(&[("x", "a"), ("y", "b")], "a/mnt"),
        format!("mount point a/mnt: it is inside tier 'x' (a)\n  {advice}")
    );
    let flags =
        StackFlags { tiers: vec![format!("x={}", bench.path("a/mnt").display())], ..StackFlags::default() };
    assert_eq!(
        bench.said(&parse(&flags).unwrap(), "a", true),
        format!("--tier x=a/mnt: tier 'x' (a/mnt) is inside the mount point a\n  {advice}")
    );
}

#[test]
fn mount_points_that_can_not_be_used() {
    if !has_fuse() {
        return;
    }
    let bench = Bench::new();
    let refusal = |mountpoint: &str| bench.refusal(&[("x", "a"), ("y", "b")], mountpoint);
    assert_eq!(refusal("no"), "mount point no: there is no such directory\n  help: make it: mkdir -p no");
    fs::write(bench.path("file"), "").unwrap();
    assert_eq!(refusal("file"), "mount point file: this is not a directory\n  help: name an empty directory");
    fs::write(bench.path("m/x"), "").unwrap();
    assert_eq!(
        refusal("m"),
        "mount point m: the directory is not empty\n  \
         help: choose an empty directory, or pass --nonempty to hide what is there while mounted"
    );
    fs::remove_file(bench.path("m/x")).unwrap();
    assert!(bench.is_untouched());
}

#[test]
fn a_stack_file_says_where() {
    let bench = Bench::new();
    let text = "\
stack:
  volume:
    home: fast
    policy: { weighted: { } }
    tiers:
      fast:
        weight: 400
        dir: a
      slow: { dir: gone }
";
    fs::write(bench.path("s.yaml"), text).unwrap();
    let config = stack_file::load(&bench.path("s.yaml")).unwrap();
    assert_eq!(
        bench.said(&config, "m", false),
        "s.yaml:9: stack.volume.tiers.slow.dir: there is no directory gone\n  \
         help: mount the tier's device, or make the directory: mkdir -p gone"
    );
    fs::write(bench.path("s.yaml"), text.replace("gone", "./a")).unwrap();
    let config = stack_file::load(&bench.path("s.yaml")).unwrap();
    assert_eq!(
        bench.said(&config, "m", false),
        "s.yaml:9: stack.volume.tiers.slow.dir: tiers 'fast' and 'slow' are the same directory, a\n  \
         help: give each tier a directory of its own"
    );
}

#[test]
fn what_is_right_is_accepted() {
    if !has_fuse() {
        return;
    }
    let bench = Bench::new();
    let tiers = ["a", "b"].map(|name| format!("{name}={}", bench.path(name).display()));
    let config = parse(&StackFlags { tiers: tiers.to_vec(), ..StackFlags::default() }).unwrap();
    let point = validate::mount(&config, &bench.path("m/."), false).unwrap();
    assert_eq!(point.path, fs::canonicalize(bench.path("m")).unwrap());
    assert!(bench.is_untouched());
}
