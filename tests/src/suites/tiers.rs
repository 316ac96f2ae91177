//! Every kind of file system as home and as the other tier; a tier that is
//! full; a tier that turns read-only under load.

use crate::arena::{Arena, RANGE, Shape, WEIGHTED, expect_spread, policy_name};
use crate::trial::{Suite, Trial, Turn};
use braid_testkit::{SplitMix, write_random};
use braid_tests_support::error::{Context, Failure, Result, ensure, fail};
use braid_tests_support::lab::{Kind, Lab, Mount, Stack, Tier, free_space};
use braid_tests_support::options::Options;
use braid_tests_support::sh::{cmd, root_cmd};
use std::fs::File;
use std::io::{BufWriter, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

/// Named in the list of suites.
pub(super) const SUITE: Suite = Suite {
    name: "tiers",
    about: "ext4, XFS, btrfs and tmpfs in all roles; full and read-only tiers",
    on_request: false,
    on_directories: true,
    turn: Turn::Machine,
    trials,
};

const MIB: u64 = 1 << 20;

fn trials(options: &Options) -> Vec<Trial> {
    if options.on.is_some() {
        let options = options.clone();
        let shape = Shape::spread(Kind::Ext4, Kind::Ext4);
        return vec![Trial::case("files of many sizes", move || write_and_read(shape, &options)).by_root()];
    }
    let mut trials = Vec::new();
    for (at, home) in Kind::ALL.into_iter().enumerate() {
        // Among all tests, half of the pairs, in which each kind has each role twice.
        let beside = Kind::ALL.into_iter().enumerate();
        let is_wanted = |other: usize| !options.suites.is_empty() || (at + other) % 2 == 1;
        for (_, other) in beside.filter(|(other, _)| is_wanted(*other)) {
            let title = format!("home {}, other {}", home.name(), other.name());
            let shape = Shape::spread(home, other).mib(384);
            trials.push(Trial::case(&title, move || write_and_read(shape, &Options::default())));
        }
    }
    for kind in [Kind::Ext4, Kind::Btrfs, Kind::Tmpfs] {
        let name = kind.name();
        let other = format!("the other tier, {name}, is full: files go home");
        trials.push(Trial::case(&other, move || full_tier((Kind::Ext4, 512), (kind, 128))));
        let home = format!("home, {name}, is full: files go to the other tier");
        trials.push(Trial::case(&home, move || full_tier((kind, 128), (Kind::Ext4, 512))));
    }
    for (home, other, policy, range) in FILLED {
        let kinds = format!("home {}, other {}", home.name(), other.name());
        let title = format!("what df promises can be written: {kinds}, {}, {range}", policy_name(policy));
        trials.push(Trial::case(&title, move || all_that_was_promised((home, other), policy, range)));
    }
    trials.push(Trial::case("all tiers are full: ENOSPC, and space comes back", all_full));
    trials.push(Trial::case("a tier turns read-only under load: the other takes over", read_only_tier));
    trials.into_iter().map(Trial::by_root).collect()
}

/// Pairs of file systems that are filled to the end, with policy and range.
/// 300 MiB is as small as XFS can be.
const FILLED: [(Kind, Kind, &str, &str); 6] = [
    (Kind::Xfs, Kind::Xfs, "{ home-first: { } }", "2MiB"),
    (Kind::Xfs, Kind::Xfs, WEIGHTED, "2MiB"),
    (Kind::Xfs, Kind::Ext4, "{ home-first: { } }", "64KiB"),
    (Kind::Ext4, Kind::Xfs, WEIGHTED, "2MiB"),
    (Kind::Btrfs, Kind::Xfs, "{ adaptive: { } }", "64KiB"),
    (Kind::Ext4, Kind::Btrfs, WEIGHTED, "2MiB"),
];

/// Files until there is no room, with the usual reserve.
fn all_that_was_promised((home, other): (Kind, Kind), policy: &str, range: &str) -> Result<()> {
    let mut lab = Lab::for_suite("promised")?;
    let [home, other] = [lab.file_system("home", home, 300)?, lab.file_system("other", other, 300)?];
    let tiers = vec![Tier::new("home", &home, 100), Tier::new("other", &other, 100)];
    let mount = lab.volume("mnt", &Stack::new(policy, range, tiers))?;
    let promised = free_space(&mount.point)?;
    let piece = vec![0x5a; 1 << 20];
    let (mut written, mut number) = (0, 0);
    'files: loop {
        let path = mount.point.join(format!("file{number}"));
        number += 1;
        let mut file = File::create(&path).at(&path)?;
        // Of no whole number of ranges.
        for _ in 0..27 {
            match file.write(&piece[..1_000_000]).and_then(|count| file.sync_data().map(|()| count)) {
                Ok(count) => written += count as u64,
                Err(error) if error.kind() == ErrorKind::StorageFull => break 'files,
                Err(error) => return Err(error).at(&path),
            }
        }
    }
    ensure(written * 100 >= promised * 97, || format!("{written} of {promised} bytes could be written"))?;
    lab.unmount(&mount)?;
    lab.fsck(&mount).map(drop)
}

/// Files of many sizes, verified at once and after a remount.
fn write_and_read(shape: Shape, options: &Options) -> Result<()> {
    let mut arena = Arena::new("tiers", shape, options)?;
    let sizes = [0, 1, 4095, 65_536, 65_537, 300_000, 2 * MIB, 2 * MIB + 1, 9 * MIB + 123];
    let files: Vec<_> =
        sizes.iter().zip(1..).map(|(size, seed)| Sample::new(&arena.dir, seed, *size)).collect();
    files.iter().try_for_each(Sample::write)?;
    files.iter().try_for_each(Sample::verify)?;
    arena.remount()?;
    files.iter().try_for_each(Sample::verify)?;
    if let Some(largest) = files.last() {
        expect_spread(&arena, &largest.path)?;
    }
    arena.finish()
}

/// A file whose bytes follow from a seed.
struct Sample {
    path: PathBuf,
    seed: u64,
    size: u64,
}

impl Sample {
    fn new(dir: &Path, seed: u64, size: u64) -> Self {
        Self { path: dir.join(format!("sample{seed}")), seed, size }
    }

    fn write(&self) -> Result<()> {
        let mut out = BufWriter::with_capacity(1 << 20, File::create(&self.path).at(&self.path)?);
        write_random(&mut SplitMix::new(self.seed), &mut out, self.size).at(&self.path)?;
        out.flush().at(&self.path)?;
        out.get_ref().sync_all().at(&self.path)
    }

    fn verify(&self) -> Result<()> {
        let mut file = File::open(&self.path).at(&self.path)?;
        let size = file.metadata().at(&self.path)?.len();
        ensure(size == self.size, || format!("{}: {size} bytes, not {}", self.path.display(), self.size))?;
        let mut expected = SplitMix::new(self.seed);
        let (mut want, mut have) = (vec![0; 1 << 20], vec![0; 1 << 20]);
        let mut at = 0;
        while at < size {
            let count = usize::try_from((size - at).min(MIB)).unwrap_or(usize::MAX);
            expected.fill(&mut want[..count]);
            file.read_exact(&mut have[..count]).at(&self.path)?;
            let differs = want[..count].iter().zip(&have[..count]).position(|(a, b)| a != b);
            if let Some(offset) = differs {
                return fail(format!("{} differs at byte {}", self.path.display(), at + offset as u64));
            }
            at += count as u64;
        }
        Ok(())
    }
}

/// A volume over two tiers of different sizes, with nothing held in reserve.
fn volume(lab: &mut Lab, home: (Kind, u64), other: (Kind, u64)) -> Result<Mount> {
    let home = lab.file_system("home", home.0, home.1)?;
    let other = lab.file_system("other", other.0, other.1)?;
    let tiers =
        vec![Tier::new("home", &home, 100).reserve("4MiB"), Tier::new("other", &other, 100).reserve("4MiB")];
    lab.volume("mnt", &Stack::new(WEIGHTED, RANGE, tiers))
}

/// A file larger than the smaller tier.
fn full_tier(home: (Kind, u64), other: (Kind, u64)) -> Result<()> {
    let mut lab = Lab::for_suite("full")?;
    let mount = volume(&mut lab, home, other)?;
    let large = Sample::new(&mount.point, 1, 320 * MIB);
    large.write()?;
    large.verify()?;
    let small = Sample::new(&mount.point, 2, 5000);
    small.write()?;
    lab.unmount(&mount)?;
    lab.fsck(&mount)?;
    lab.mount(&mount)?;
    large.verify()?;
    small.verify()
}

/// Writes files until none fits; synced data stays, and removals free their
/// space, at once and after a remount.
fn all_full() -> Result<()> {
    let mut lab = Lab::for_suite("all-full")?;
    let mount = volume(&mut lab, (Kind::Ext4, 128), (Kind::Ext4, 64))?;
    let before = free_space(&mount.point)?;
    let files = fill(&lab, &mount)?;
    ensure(files >= 14, || format!("only {files} files of 10 MiB fit"))?;
    let again = fill(&lab, &mount).context("after a removal of all files")?;
    ensure(again + 1 >= files, || format!("{files} files fit at first, {again} after their removal"))?;
    lab.unmount(&mount)?;
    lab.fsck(&mount)?;
    lab.mount(&mount)?;
    let after = free_space(&mount.point)?;
    ensure(after + 4 * MIB >= before, || format!("{before} bytes were free, {after} are"))
}

/// Writes files of 10 MiB until one is refused for lack of space; verifies and
/// removes them. Answers how many there were.
fn fill(lab: &Lab, mount: &Mount) -> Result<u64> {
    let mut written = Vec::new();
    let (refused, partial) = loop {
        let file = Sample::new(&mount.point, 1 + written.len() as u64, 10 * MIB);
        match file.write() {
            Ok(()) => written.push(file),
            Err(failure) => break (failure, file.path),
        }
    };
    ensure(refused.0.contains("No space left"), || format!("refused by {refused}"))?;
    written.iter().try_for_each(Sample::verify)?;
    written.iter().try_for_each(|file| std::fs::remove_file(&file.path).at(&file.path))?;
    std::fs::remove_file(&partial).at(&partial)?;
    wait_for_removals(lab, mount)?;
    Ok(written.len() as u64)
}

/// Objects go a moment after their names, when the removal of those is durable.
/// Nothing announces it, so it is asked for.
fn wait_for_removals(lab: &Lab, mount: &Mount) -> Result<()> {
    for _ in 0..300 {
        let status = lab.braid().args(["status", "--json"]).arg(&mount.point).read()?;
        let status: serde_json::Value = serde_json::from_str(&status).context("status")?;
        let pending = status["pending_removals"].as_u64();
        match pending {
            Some(0) => return Ok(()),
            Some(_) => std::thread::sleep(std::time::Duration::from_millis(100)),
            None => return fail("status does not tell the pending removals"),
        }
    }
    fail("removals are still pending after 30 s")
}

/// Files are written and synced while the other tier's file system turns
/// read-only, as ext4 does when it meets an error.
fn read_only_tier() -> Result<()> {
    let mut lab = Lab::for_suite("read-only")?;
    let mount = volume(&mut lab, (Kind::Xfs, 512), (Kind::Ext4, 512))?;
    let sample = |seed| Sample::new(&mount.point, seed, 3 * MIB);
    let mut synced = Vec::new();
    let (mut refused, mut after) = (0, 0);
    for seed in 1..=40 {
        if seed == 11 {
            break_ext4(&lab.path().join("other"))?;
        }
        let file = sample(seed);
        match file.write() {
            Ok(()) => {
                after += u64::from(seed > 10);
                synced.push(file);
            }
            Err(failure) if seed <= 10 => return Err(failure),
            Err(_) => refused += 1,
        }
    }
    ensure(after >= 20, || format!("{refused} of 30 files were refused afterwards"))?;
    synced.iter().try_for_each(Sample::verify)?;
    lab.unmount(&mount)?;
    repair_ext4(&lab.path().join("other"))?;
    lab.mount(&mount)?;
    synced.iter().try_for_each(Sample::verify)?;
    lab.unmount(&mount)?;
    lab.fsck(&mount).map(drop)
}

fn device_of(dir: &Path) -> Result<PathBuf> {
    let source = cmd("findmnt").args(["--noheadings", "--output", "SOURCE", "--target"]).arg(dir).read()?;
    Ok(PathBuf::from(source.trim()))
}

/// Lets ext4 meet an error, upon which it turns read-only.
fn break_ext4(dir: &Path) -> Result<()> {
    let device = device_of(dir)?;
    let name = device.file_name().ok_or_else(|| Failure(format!("no device below {}", dir.display())))?;
    let trigger = Path::new("/sys/fs/ext4").join(name).join("trigger_fs_error");
    std::fs::write(&trigger, "injected by a test\n").at(&trigger)?;
    let refused = File::create(dir.join("probe"));
    ensure(refused.is_err(), || "the tier did not turn read-only".into())
}

fn repair_ext4(dir: &Path) -> Result<()> {
    let device = device_of(dir)?;
    root_cmd("umount").arg(dir).quiet()?;
    let repaired = root_cmd("e2fsck").args(["-f", "-y"]).arg(&device).output()?;
    let text = String::from_utf8_lossy(&repaired.stdout);
    ensure(repaired.status.code().is_some_and(|code| code < 4), || format!("e2fsck: {text}"))?;
    root_cmd("mount").arg(&device).arg(dir).quiet()
}
