//! Installs what the tests need: Debian packages by `apt-get`, and the test
//! programs that are Rust crates below `target/tools`.

use crate::error::{Result, fail};
use crate::paths;
use crate::sh::{cmd, exists, is_root, root_cmd};
use std::path::PathBuf;

/// A Debian package and a program, or the path of a file, that tells whether it
/// is there.
struct Package(&'static str, &'static str);

const DEMO: &[Package] = &[Package("fuse3", "fusermount3"), Package("e2fsprogs", "mkfs.ext4")];

const TESTS: &[Package] = &[
    Package("acl", "setfacl"),
    Package("attr", "setfattr"),
    Package("btrfs-progs", "mkfs.btrfs"),
    Package("dbench", "dbench"),
    Package("fio", "fio"),
    Package("git", "git"),
    // To build pjdfstest.
    Package("libacl1-dev", "/usr/include/sys/acl.h"),
    Package("python3", "python3"),
    Package("redis-server", "redis-server"),
    Package("rocksdb-tools", "db_bench"),
    Package("rsync", "rsync"),
    Package("sqlite3", "sqlite3"),
    Package("stress-ng", "stress-ng"),
    Package("xfsprogs", "mkfs.xfs"),
];

/// What the package is made and looked at with.
const DIST: &[Package] =
    &[Package("binutils", "strip"), Package("dpkg-dev", "dpkg-shlibdeps"), Package("man-db", "man")];

/// What a clean Debian to try it in is made with.
const DIST_DEBIAN: &[Package] = &[Package("mmdebstrap", "mmdebstrap")];

/// What the virtual machine of the power suite needs.
const POWER: &[Package] = &[
    Package("binutils", "strip"),
    Package("busybox-static", "busybox"),
    Package("cpio", "cpio"),
    Package("mmdebstrap", "mmdebstrap"),
    Package("qemu-system-x86", "qemu-system-x86_64"),
    Package("xz-utils", "xz"),
];

/// The test programs that are crates, at the versions that the suites know.
const CRATES: &[(&str, &str)] = &[PJDFSTEST, FSX];

/// The POSIX test suite.
pub(crate) const PJDFSTEST: (&str, &str) = ("pjdfstest", "0.2.2");

/// The file-system exerciser.
pub(crate) const FSX: (&str, &str) = ("fsx", "0.3.2");

/// `setup` or `setup --demo`.
pub(crate) fn run(args: &[String]) -> Result<()> {
    match args {
        [] => all(),
        [only] if only == "--demo" => packages(DEMO),
        _ => fail("usage: cargo xtask setup [--demo]"),
    }
}

/// Everything that the tests need.
pub(crate) fn all() -> Result<()> {
    packages(DEMO)?;
    packages(TESTS)?;
    CRATES.iter().try_for_each(|(name, version)| install_crate(name, version))
}

/// What the demonstration needs.
pub(crate) fn demo() -> Result<()> {
    packages(DEMO)
}

/// What the power suite needs beside that.
pub(crate) fn power() -> Result<()> {
    packages(POWER)
}

/// What the package needs.
pub(crate) fn dist() -> Result<()> {
    packages(DIST)
}

/// What a clean Debian needs beside that.
pub(crate) fn dist_debian() -> Result<()> {
    packages(DIST_DEBIAN)
}

/// Builds the `braid` command as users get it; not if the environment variable
/// `BRAID` names one.
pub(crate) fn build_braid() -> Result<()> {
    if std::env::var_os("BRAID").is_some() {
        return Ok(());
    }
    cmd("cargo").args(["build", "--release", "--locked", "--package", "braid-cli"]).dir(&paths::root()).run()
}

/// Where a test program is.
pub(crate) fn tool((name, version): (&str, &str)) -> Result<PathBuf> {
    match paths::tool(name, version) {
        Some(path) => Ok(path),
        None => fail(format!("{name} {version} is not installed: `cargo xtask setup` does it")),
    }
}

fn packages(wanted: &[Package]) -> Result<()> {
    let missing: Vec<_> =
        wanted.iter().filter(|Package(_, program)| !exists(program)).map(|Package(name, _)| *name).collect();
    if missing.is_empty() {
        return Ok(());
    }
    println!("installing {}", missing.join(" "));
    if !exists("apt-get") {
        return fail(format!("no apt-get here; install these by other means: {}", missing.join(" ")));
    }
    if !is_root() && cmd("sudo").args(["--non-interactive", "true"]).quiet().is_err() {
        return fail(format!("not root, and no sudo: run `apt-get install {}` as root", missing.join(" ")));
    }
    root_cmd("apt-get").args(["-qq", "update"]).quiet()?;
    let install =
        ["DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq", "-y", "--no-install-recommends", "install"];
    root_cmd("env").args(install).args(&missing).quiet()
}

fn install_crate(name: &str, version: &str) -> Result<()> {
    if paths::tool(name, version).is_some() {
        return Ok(());
    }
    println!("installing {name} {version} below {}", paths::tools().display());
    let version = format!("={version}");
    cmd("cargo")
        .args(["install", "--quiet", "--locked", "--root"])
        .arg(paths::tools())
        .args(["--version", &version, name])
        .env("CARGO_TARGET_DIR", paths::target().join("tools/build"))
        // They wait for the file system: to build them takes longer than to run.
        .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1")
        .run()
}
