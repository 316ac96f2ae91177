//! `cargo xtask demo`: a volume over two small file systems, filled with a
//! real tree and with a file that the fast one alone could not hold; verified,
//! mounted again, verified again, explained, and removed without a trace.

use crate::setup;
use braid_tests_support::error::{Context, Result, ensure, fail};
use braid_tests_support::lab::{Kind, Lab, Mount, Stack, Tier, free_space};
use braid_tests_support::paths;
use braid_tests_support::sh::{can_be_root, cmd};
use braid_tests_support::tools::build_braid;
use std::path::{Path, PathBuf};

const MIB: u64 = 1 << 20;
const FAST_MIB: u64 = 256;
const SLOW_MIB: u64 = 1024;
const LARGE_MIB: u64 = 600;

/// The tree that is copied is at most this large: its small files stay on the
/// fast tier.
const TREE_MIB: u64 = 48;

/// Trees that a Debian has.
const TREES: &[&str] =
    &["/usr/share/zoneinfo", "/usr/share/perl", "/usr/share/i18n", "/usr/lib/python3", "/usr/share/doc"];

/// From nothing to nothing.
pub(crate) fn run() -> Result<()> {
    say("Installing what is missing");
    setup::demo()?;
    say("Building");
    build_braid()?;
    ensure(Path::new("/dev/fuse").exists(), || "there is no /dev/fuse here: load the module fuse".into())?;
    let absent: Vec<_> = socket_directories().into_iter().filter(|dir| !dir.exists()).collect();
    let mut lab = Lab::new("demo")?;
    let root = lab.path().to_path_buf();
    let shown = show(&mut lab);
    drop(lab);
    // Those of other daemons are not empty.
    absent.iter().for_each(|dir| _ = std::fs::remove_dir(dir));
    shown?;
    ensure(!root.exists(), || format!("{} is left behind", root.display()))?;
    say("Done: unmounted, devices detached, nothing left behind");
    Ok(())
}

/// Where daemons of this user may keep their control sockets.
fn socket_directories() -> Vec<PathBuf> {
    let uid = rustix::process::geteuid().as_raw();
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(|dir| Path::new(&dir).join("braid"));
    let usual = ["/run/braid".into(), format!("/run/user/{uid}/braid"), format!("/tmp/braid-{uid}")];
    usual.map(PathBuf::from).into_iter().chain(runtime).collect()
}

fn show(lab: &mut Lab) -> Result<()> {
    let (fast, slow) = make_tiers(lab)?;
    let stack = Stack::new("{ weighted: { } }", "2MiB", vec![fast, slow]);
    say(&format!("Mounting this stack:\n{}", stack.yaml().trim_end()));
    let mount = lab.volume("mnt", &stack)?;
    let sums = fill(lab, &mount)?;
    verify(&mount, &sums)?;
    say("Mounting again");
    lab.unmount(&mount)?;
    lab.mount(&mount)?;
    verify(&mount, &sums)?;
    say("braid status");
    lab.braid().arg("status").arg(&mount.point).run()?;
    say("braid explain large");
    explain(lab, &mount.point.join("large"))?;
    say("Unmounting and checking");
    lab.unmount(&mount)?;
    lab.braid().arg("fsck").arg(&mount.stack).run()
}

fn say(text: &str) {
    println!("\n==> {text}");
}

/// Two loop devices; without the right to make them, two directories, the fast
/// one with a reserve that leaves little of its space.
fn make_tiers(lab: &mut Lab) -> Result<(Tier, Tier)> {
    if can_be_root() {
        say(&format!(
            "Making an ext4 file system of {FAST_MIB} MiB and one of {SLOW_MIB} MiB on loop devices"
        ));
        let fast = lab.file_system("fast", Kind::Ext4, FAST_MIB)?;
        let slow = lab.file_system("slow", Kind::Ext4, SLOW_MIB)?;
        return Ok((Tier::new("fast", &fast, 400), Tier::new("slow", &slow, 120)));
    }
    say("Neither root nor sudo: two plain directories take the place of two devices");
    let (fast, slow) = (lab.dir("fast")?, lab.dir("slow")?);
    let free = free_space(lab.path())?;
    let needed = (LARGE_MIB + 2 * TREE_MIB) * MIB;
    ensure(free > needed, || format!("{} has less than {} MiB free", lab.path().display(), needed / MIB))?;
    let reserve = (free / MIB).saturating_sub(FAST_MIB);
    Ok((Tier::new("fast", &fast, 400).reserve(format!("{reserve}MiB")), Tier::new("slow", &slow, 120)))
}

/// Copies a tree and makes a large file; answers the checksums of all, taken
/// from the sources.
fn fill(lab: &Lab, mount: &Mount) -> Result<PathBuf> {
    let sums = lab.path().join("sums");
    let mut text = String::new();
    for (tree, at) in trees()?.iter().zip(1..) {
        let target = mount.point.join(format!("tree{at}"));
        say(&format!("Copying {}", tree.display()));
        copy(tree, &target)?;
        text.push_str(&checksums(tree)?.replace("  ./", &format!("  ./tree{at}/")));
    }
    say(&format!("Writing a file of {LARGE_MIB} MiB; the fast tier has room for less than {FAST_MIB} MiB"));
    text.push_str(&write_large(&mount.point.join("large"))?);
    std::fs::write(&sums, text).at(&sums)?;
    Ok(sums)
}

/// This repository's sources, and trees of the system up to a limit.
fn trees() -> Result<Vec<PathBuf>> {
    let mut chosen = vec![paths::root()];
    let mut left = TREE_MIB * MIB;
    for tree in TREES.iter().map(PathBuf::from).filter(|tree| tree.is_dir()) {
        let size = cmd("du").args(["--summarize", "--bytes"]).arg(&tree).read()?;
        let size = size.split_whitespace().next().and_then(|size| size.parse().ok()).unwrap_or(u64::MAX);
        if size <= left {
            left -= size;
            chosen.push(tree);
        }
    }
    Ok(chosen)
}

/// Names at the root of the repository that are built or git's own.
const LEFT_OUT: [&str; 2] = ["target", ".git"];

fn copy(tree: &Path, target: &Path) -> Result<()> {
    std::fs::create_dir(target).at(target)?;
    let exclude = LEFT_OUT.map(|name| format!("--exclude=./{name}"));
    let pack =
        cmd("tar").args(["--create", "--directory"]).arg(tree).args(exclude).args(["--file", "-", "."]);
    pack.pipe_into(
        cmd("tar").args(["--extract", "--no-same-owner", "--file", "-", "--directory"]).arg(target),
    )
}

/// Lines for `sha256sum --check` of all files below a directory.
fn checksums(tree: &Path) -> Result<String> {
    let skip = LEFT_OUT.map(|name| format!("./{name}"));
    let find = "find . -path \"$0\" -prune -o -path \"$1\" -prune -o -type f -print0 | xargs -0 -r sha256sum";
    cmd("sh").args(["-c", find]).args(skip).dir(tree).read()
}

/// Writes random bytes to the volume and to `sha256sum` at once.
fn write_large(path: &Path) -> Result<String> {
    let write = format!("head -c {LARGE_MIB}M /dev/urandom | tee \"$0\" | sha256sum && sync \"$0\"");
    let sum = cmd("sh").args(["-c", &write]).arg(path).read()?;
    Ok(sum.replace("  -", "  ./large"))
}

fn verify(mount: &Mount, sums: &Path) -> Result<()> {
    let count = std::fs::read_to_string(sums).at(sums)?.lines().count();
    say(&format!("Verifying {count} checksums"));
    cmd("sha256sum").args(["--check", "--quiet", "--strict"]).arg(sums).dir(&mount.point).quiet()?;
    println!("all {count} are right");
    Ok(())
}

/// Shows the beginning: the file has hundreds of ranges.
fn explain(lab: &Lab, path: &Path) -> Result<()> {
    const SHOWN: usize = 24;
    let text = lab.braid().arg("explain").arg(path).read()?;
    let lines: Vec<_> = text.lines().collect();
    lines.iter().take(SHOWN).for_each(|line| println!("{line}"));
    if lines.len() > SHOWN {
        println!("… and {} more lines", lines.len() - SHOWN);
    }
    if lines.is_empty() { fail("explain printed nothing") } else { Ok(()) }
}
