//! git, tar, rsync, a compiler and shells.

use super::place::Place;
use braid_testkit::{SplitMix, write_random};
use braid_tests_support::error::{Context, Result, ensure, fail};
use braid_tests_support::paths;
use braid_tests_support::sh::{Cmd, cmd, is_root, root_cmd};
use std::fs::File;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// Clones this repository, commits a large file, packs, and checks.
pub(super) fn git(place: &Place<'_>) -> Result<()> {
    let clone = place.dir.join("clone");
    git_cmd(place.dir).args(["clone", "--quiet", "--no-hardlinks"]).arg(paths::root()).arg(&clone).quiet()?;
    let mut large = File::create(clone.join("large")).at(&clone)?;
    write_random(&mut SplitMix::new(1), &mut large, 3 << 20)?;
    for message in ["one", "two"] {
        std::fs::write(clone.join("small"), message)?;
        git_cmd(&clone).args(["add", "--all"]).quiet()?;
        git_cmd(&clone).args(["commit", "--quiet", "--message", message]).quiet()?;
    }
    git_cmd(&clone).args(["gc", "--quiet", "--prune=now"]).quiet()?;
    git_fsck(place)?;
    let second = place.dir.join("second");
    git_cmd(place.dir).args(["clone", "--quiet"]).arg(&clone).arg(&second).quiet()?;
    cmd("diff").args(["--recursive", "--exclude=.git"]).arg(&clone).arg(&second).quiet()
}

/// The clone is complete, and its working tree equals the commit.
pub(super) fn git_fsck(place: &Place<'_>) -> Result<()> {
    let clone = place.dir.join("clone");
    git_cmd(&clone).args(["fsck", "--full", "--strict"]).quiet()?;
    let changed = git_cmd(&clone).args(["status", "--porcelain"]).read()?;
    ensure(changed.is_empty(), || format!("the working tree differs:\n{changed}"))
}

/// git in a directory, without the user's configuration.
fn git_cmd(dir: &Path) -> Cmd {
    let identity = ["-c", "user.name=test", "-c", "user.email=test@localhost", "-c", "safe.directory=*"];
    cmd("git")
        .args(identity)
        .dir(dir)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_COUNT", "1")
        .env("GIT_CONFIG_KEY_0", "safe.directory")
        .env("GIT_CONFIG_VALUE_0", "*")
}

/// A tree that every Debian has.
const TREE: &str = "/usr/share/zoneinfo";

/// Packs a tree into the volume, unpacks it there, compares.
pub(super) fn tar(place: &Place<'_>) -> Result<()> {
    let archive = place.dir.join("tree.tar");
    cmd("tar").args(["--create", "--directory", TREE, "--file"]).arg(&archive).arg(".").quiet()?;
    let out = place.dir.join("out");
    std::fs::create_dir(&out).at(&out)?;
    let tar = |action: &str| cmd("tar").arg(action).arg("--file").arg(&archive).arg("--directory").arg(&out);
    tar("--extract").quiet()?;
    tar("--compare").quiet()?;
    cmd("diff").args(["--recursive", "--no-dereference", TREE]).arg(&out).quiet()
}

/// Copies a tree with everything that rsync knows, and lets rsync look for
/// differences.
pub(super) fn rsync(place: &Place<'_>) -> Result<()> {
    let source = place.arena.lab.dir("rsync-source")?;
    make_varied_tree(&source)?;
    let source = format!("{}/", source.display());
    let copy = || {
        let mut flags = vec!["-aHAXS", "--numeric-ids", "--delete"];
        if !is_root() {
            flags.push("--no-devices");
        }
        cmd("rsync").args(flags)
    };
    copy().arg(&source).arg(place.dir).quiet()?;
    let differences =
        copy().args(["--dry-run", "--checksum", "--itemize-changes"]).arg(&source).arg(place.dir).read()?;
    ensure(differences.is_empty(), || format!("rsync finds differences:\n{differences}"))?;
    ensure(hard_links(&place.dir.join("hard1"))? == 2, || "the hard link is lost".into())
}

fn hard_links(path: &Path) -> Result<u64> {
    use std::os::unix::fs::MetadataExt;
    Ok(std::fs::metadata(path).at(path)?.nlink())
}

fn make_varied_tree(dir: &Path) -> Result<()> {
    let file = |name: &str, len| -> Result<PathBuf> {
        let path = dir.join(name);
        write_random(&mut SplitMix::new(len), &mut File::create(&path).at(&path)?, len)?;
        Ok(path)
    };
    let hard = file("hard1", 2 << 20)?;
    std::fs::hard_link(&hard, dir.join("hard2"))?;
    symlink("hard1", dir.join("soft"))?;
    symlink("nowhere", dir.join("dangling"))?;
    File::create(dir.join("sparse"))?.set_len(64 << 20)?;
    let attributes = file("attributes", 300_000)?;
    cmd("setfattr").args(["-n", "user.colour", "-v", "blue"]).arg(&attributes).quiet()?;
    cmd("setfacl").args(["-m", "u:daemon:rw,g:daemon:r"]).arg(&attributes).quiet()?;
    let sub = dir.join("sub");
    std::fs::create_dir(&sub)?;
    cmd("setfacl").args(["-d", "-m", "u:daemon:rwx"]).arg(&sub).quiet()?;
    cmd("mkfifo").arg(sub.join("pipe")).quiet()?;
    for n in 0..200 {
        std::fs::write(sub.join(format!("file {n}")), n.to_string())?;
    }
    if is_root() {
        root_cmd("mknod").arg(sub.join("null")).args(["c", "1", "3"]).quiet()?;
        root_cmd("chown").arg("daemon:daemon").arg(&attributes).quiet()?;
        root_cmd("chmod").arg("6751").arg(&attributes).quiet()?;
    }
    cmd("touch").args(["--date", "2001-02-03 04:05:06.123456789"]).arg(&hard).arg(&sub).quiet()
}

/// Builds a crate of this workspace, and runs its tests, with the build
/// directory on the volume.
pub(super) fn rust(place: &Place<'_>) -> Result<()> {
    cmd("cargo")
        .args(["test", "--quiet", "--offline", "--locked", "--package", "braid-contract", "--target-dir"])
        .arg(place.dir)
        .dir(&paths::root())
        .without_env("CARGO_TARGET_DIR")
        .quiet()
}

/// Four shells append lines to one file: each line must be whole and there.
pub(super) fn appends(place: &Place<'_>) -> Result<()> {
    let file = place.dir.join("log");
    let lines = 400 * place.scale;
    let script = format!(
        "for w in 1 2 3 4; do (for n in $(seq {lines}); do \
         echo \"writer $w line $n ................................................\" >> \"$0\"; done) & done; wait"
    );
    cmd("sh").args(["-c", &script]).arg(&file).quiet()?;
    let text = std::fs::read_to_string(&file).at(&file)?;
    for writer in 1..=4 {
        let mut own = text.lines().filter_map(|line| line.strip_prefix(&format!("writer {writer} line ")));
        let in_order =
            (1..=lines).all(|n| own.next().is_some_and(|line| line.starts_with(&format!("{n} ..."))));
        ensure(in_order && own.next().is_none(), || format!("lines of writer {writer} are lost or torn"))?;
    }
    match text.lines().count() as u64 == 4 * lines {
        true => Ok(()),
        false => fail("there are lines that were not written"),
    }
}
