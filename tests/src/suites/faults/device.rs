//! Tiers whose file system or device goes away, and comes back.

use super::bench::{BAD, Bench, wait_until};
use super::sample::{Sample, expect_error};
use crate::arena;
use crate::trial::Case;
use braid_tests_support::error::{Context, Result, ensure};
use braid_tests_support::lab::{Kind, Lab, Stack, Tier};
use braid_tests_support::sh::root_cmd;
use rustix::io::Errno;
use std::path::{Path, PathBuf};

/// The cases.
pub(super) const CASES: &[Case] = &[
    ("a tier is unmounted lazily, and mounted again: nothing was noticed", unmounted_lazily),
    ("a tier's file system shuts down, and is mounted again", || {
        comes_back("shutdown", shut_down, mount_again)
    }),
    ("a tier's device loses its contents, and has them again", emptied),
    ("a tier's device is detached, and attached as another one", detached),
    ("a tier is missing at the mount, and left out", left_out),
    ("a tier in memory is volatile, and so are the files on it", volatile),
];

/// Open files of a lazily unmounted file system stay usable.
fn unmounted_lazily() -> Result<()> {
    let mut bench = Bench::new("lazy")?;
    let dir = bench.tier_dir(BAD);
    let device = device_of(&dir)?;
    root_cmd("umount").arg("--lazy").arg(&dir).quiet()?;
    bench.check(None)?;
    bench.all_is_well()?;
    root_cmd("mount").arg(&device).arg(&dir).quiet()?;
    bench.all_is_well()?;
    bench.finish()
}

/// The tier goes, and comes back at the same place.
fn comes_back(
    name: &str,
    go: impl FnOnce(&Path) -> Result<()>,
    come: impl FnOnce(&Path) -> Result<()>,
) -> Result<()> {
    let mut bench = Bench::new(name)?;
    let dir = bench.tier_dir(BAD);
    // Written, but not synced: it may be lost, but not silently.
    let at = bench.samples.iter().rposition(|sample| sample.is_on(BAD)).unwrap_or(0);
    let range = bench.samples[at].ranges_on(BAD).next().unwrap_or(0);
    bench.samples[at].rewrite(range).context("a write")?;
    go(&dir)?;
    bench.check(Some(BAD))?;
    bench.wait_for_state("failing")?;
    bench.expect_log("takes no new ranges tier=slow")?;
    bench.expect_affected("failing")?;
    bench.others_go_on()?;
    expect_error(bench.samples[at].sync(), Errno::IO, "fsync while the tier is away")?;
    come(&dir)?;
    bench.wait_for_state("online")?;
    bench.expect_log("tier answers again tier=slow")?;
    bench.samples[at].rewrite(range).context("a write after the tier is back")?;
    // It may still report the loss of earlier writes.
    let _ = bench.samples[at].sync();
    bench.all_is_well()?;
    bench.finish()
}

/// Stops the file system at once, losing all data that is not in its journal.
pub(super) fn shut_down(dir: &Path) -> Result<()> {
    root_cmd("xfs_io").args(["-x", "-c", "shutdown"]).arg(dir).quiet()
}

fn mount_again(dir: &Path) -> Result<()> {
    let device = device_of(dir)?;
    root_cmd("umount").arg("--lazy").arg(dir).quiet()?;
    // Mounted again while it is still in use, it would be the one that was shut
    // down.
    let held = Path::new("/sys/fs/ext4").join(device.file_name().unwrap_or_default());
    wait_until("the dead file system is not in use", || {
        Ok(if held.exists() { Err(format!("{} exists", held.display())) } else { Ok(()) })
    })?;
    root_cmd("mount").arg(&device).arg(dir).quiet()
}

/// The image behind the loop device is truncated to nothing: reads answer
/// `EIO`. It comes back with the old contents.
fn emptied() -> Result<()> {
    let mut bench = Bench::new("emptied")?;
    let image = bench.lab.path().join(format!("{BAD}.image"));
    let kept = bench.lab.path().join("kept.image");
    root_cmd("cp").arg("--sparse=always").args([&image, &kept]).quiet()?;
    std::fs::OpenOptions::new().write(true).open(&image).at(&image)?.set_len(0).at(&image)?;
    bench.check(Some(BAD))?;
    bench.wait_for_state("failing")?;
    bench.expect_log("takes no new ranges tier=slow")?;
    bench.expect_affected("failing")?;
    bench.others_go_on()?;
    copy_back(&kept, &image)?;
    bench.all_is_well()?;
    bench.finish()
}

/// Into the same file: the device is still attached to it.
fn copy_back(kept: &Path, image: &Path) -> Result<()> {
    root_cmd("dd")
        .arg(format!("if={}", kept.display()))
        .arg(format!("of={}", image.display()))
        .args(["bs=1M", "conv=sparse,notrunc"])
        .quiet()?;
    let len = std::fs::metadata(kept).at(kept)?.len();
    std::fs::OpenOptions::new().write(true).open(image).at(image)?.set_len(len).at(image)
}

/// The device that comes back is another one with the same contents, as after a
/// cable was unplugged and plugged in.
fn detached() -> Result<()> {
    let mut bench = Bench::new("detached")?;
    let dir = bench.tier_dir(BAD);
    let device = device_of(&dir)?;
    let image = bench.lab.path().join(format!("{BAD}.image"));
    shut_down(&dir)?;
    bench.check(Some(BAD))?;
    bench.wait_for_state("failing")?;
    bench.expect_affected("failing")?;
    root_cmd("umount").arg("--lazy").arg(&dir).quiet()?;
    bench.lab.detach(&device)?;
    bench.check(Some(BAD))?;
    bench.others_go_on()?;
    // Open descriptors keep the old one alive, and it would be in the way.
    let plugged = bench.lab.path().join("plugged.image");
    root_cmd("cp").arg("--sparse=always").args([&image, &plugged]).quiet()?;
    let other = bench.lab.attach(&plugged)?;
    root_cmd("mount").arg(&other).arg(&dir).quiet()?;
    bench.all_is_well()?;
    bench.expect_log("tier answers again tier=slow")?;
    bench.finish()
}

fn left_out() -> Result<()> {
    let mut bench = Bench::new("left-out")?;
    let dir = bench.tier_dir(BAD);
    let mount = bench.mount.clone();
    bench.lab.unmount(&mount)?;
    let device = device_of(&dir)?;
    root_cmd("umount").arg(&dir).quiet()?;
    let refused = bench.lab.braid().arg("mount").args([&mount.stack, &mount.point]).output()?;
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    ensure(!refused.status.success() && said.contains(&format!("--without {BAD}")), || said.clone())?;
    bench.lab.mount_with(&mount, &["--without", BAD])?;
    bench.wait_for_state("absent")?;
    bench.check(Some(BAD))?;
    bench.expect_affected("absent")?;
    bench.others_go_on()?;
    bench.lab.unmount(&mount)?;
    root_cmd("mount").arg(&device).arg(&dir).quiet()?;
    bench.lab.mount(&mount)?;
    bench.all_is_well()?;
    bench.finish()
}

fn volatile() -> Result<()> {
    let mut lab = Lab::for_suite("faults-volatile")?;
    let home = lab.file_system("home", Kind::Ext4, 64)?;
    let memory = lab.file_system("memory", Kind::Tmpfs, 64)?;
    let tiers = vec![Tier::new("home", &home, 100), Tier::new("memory", &memory, 100)];
    let stack = Stack::new(arena::WEIGHTED, arena::RANGE, tiers);
    let mount = lab.volume("mnt", &stack)?;
    let (spread, plain) = (mount.point.join("spread"), mount.point.join("plain"));
    Sample::write(spread.clone(), 1, 4)?;
    std::fs::write(&plain, "plain").at(&plain)?;
    let told = |words: &[&str], path: &Path| lab.braid().args(words).arg(path).read();
    let explained = told(&["explain"], &spread)?;
    ensure(explained.contains("volatile: nothing on memory survives power loss"), || explained.clone())?;
    let explained = told(&["explain"], &plain)?;
    ensure(explained.contains("what is synced survives power loss"), || explained.clone())?;
    let status = told(&["status"], &mount.point)?;
    ensure(status.contains("memory: volatile: nothing on it survives power loss"), || status.clone())?;
    let status: serde_json::Value =
        serde_json::from_str(&told(&["status", "--json"], &mount.point)?).context("status")?;
    let durable = [&status["tiers"][0]["durable"], &status["tiers"][1]["durable"]];
    ensure(durable == [true, false], || status.to_string())?;
    lab.unmount(&mount)
}

fn device_of(dir: &Path) -> Result<PathBuf> {
    let find = root_cmd("findmnt").args(["--noheadings", "--output", "SOURCE", "--mountpoint"]).arg(dir);
    Ok(PathBuf::from(find.read()?.trim()))
}
