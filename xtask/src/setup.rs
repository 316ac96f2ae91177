//! Installs the requirements of the tests: Debian packages with `apt-get`, and
//! the test programs that are Rust crates below `target/tools`.

use braid_tests_support::error::{Result, fail};
use braid_tests_support::paths;
use braid_tests_support::sh::{can_be_root, cmd, exists, root_cmd};
use braid_tests_support::tools::{FSX, PJDFSTEST, Tool};
use clap::Args;

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
    Package("keyutils", "keyctl"),
    // To build pjdfstest.
    Package("libacl1-dev", "/usr/include/sys/acl.h"),
    Package("nfs-ganesha-vfs", "ganesha.nfsd"),
    Package("python3", "python3"),
    Package("redis-server", "redis-server"),
    Package("rocksdb-tools", "db_bench"),
    Package("rsync", "rsync"),
    Package("sqlite3", "sqlite3"),
    Package("stress-ng", "stress-ng"),
    Package("xfsprogs", "mkfs.xfs"),
];

/// Packages for building and checking the package.
const DIST: &[Package] =
    &[Package("binutils", "strip"), Package("dpkg-dev", "dpkg-shlibdeps"), Package("man-db", "man")];

/// Packages for creating a clean Debian to try it in.
const DIST_DEBIAN: &[Package] = &[Package("mmdebstrap", "mmdebstrap")];

/// Packages for the virtual machine of the power suite.
const POWER: &[Package] = &[
    Package("binutils", "strip"),
    Package("busybox-static", "busybox"),
    Package("cpio", "cpio"),
    Package("mmdebstrap", "mmdebstrap"),
    Package("qemu-system-x86", "qemu-system-x86_64"),
    Package("xz-utils", "xz"),
];

/// The test programs that are crates.
const CRATES: &[Tool] = &[PJDFSTEST, FSX];

/// What to install.
#[derive(Args)]
pub(crate) struct Command {
    /// Only what the demonstration needs
    #[arg(long)]
    demo: bool,
    /// What the virtual machine of the power suite needs, too
    #[arg(long, conflicts_with = "demo")]
    power: bool,
}

/// `setup` with its options.
pub(crate) fn run(command: &Command) -> Result<()> {
    match command {
        Command { demo: true, .. } => demo(),
        Command { power: true, .. } => all().and_then(|()| power()),
        Command { .. } => all(),
    }
}

/// Everything that the tests need, but for the power suite.
pub(crate) fn all() -> Result<()> {
    [DEMO, TESTS, DIST].into_iter().try_for_each(packages)?;
    CRATES.iter().try_for_each(|tool| install_crate(*tool))
}

/// Installs the requirements of the demonstration.
pub(crate) fn demo() -> Result<()> {
    packages(DEMO)
}

/// Installs the additional requirements of the power suite.
pub(crate) fn power() -> Result<()> {
    packages(POWER)
}

/// Installs the requirements of the package.
pub(crate) fn dist() -> Result<()> {
    packages(DIST)
}

/// Installs the additional requirements of a clean Debian.
pub(crate) fn dist_debian() -> Result<()> {
    packages(DIST_DEBIAN)
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
    if !can_be_root() {
        return fail(format!("not root, and no sudo: run `apt-get install {}` as root", missing.join(" ")));
    }
    root_cmd("apt-get").args(["-qq", "update"]).quiet()?;
    let install =
        ["DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq", "-y", "--no-install-recommends", "install"];
    root_cmd("env").args(install).args(&missing).quiet()
}

fn install_crate(tool: Tool) -> Result<()> {
    if tool.find().is_some() {
        return Ok(());
    }
    let Tool { name, version } = tool;
    println!("installing {name} {version} below {}", paths::tools().display());
    cmd("cargo")
        .args(["install", "--quiet", "--locked", "--root"])
        .arg(paths::tools())
        .args(["--version", &format!("={version}"), name])
        .env("CARGO_TARGET_DIR", paths::target().join("tools/build"))
        // They wait for the file system: to build them takes longer than to run.
        .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1")
        .run()
}
