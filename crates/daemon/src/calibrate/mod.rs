//! Calibration of the tiers of a stack: bandwidth and latency of direct I/O
//! against the number of threads, measured on scratch files, and the profile
//! that policies use. `braid bench calibrate` is the only caller.
//!
//! `scratch` makes the files, `measure` measures one point, `curve` reads the
//! points, and [`output`] writes profile and plot.

pub mod output;

mod curve;
mod measure;
mod plot;

use crate::config::{TierSettings, VolumeSettings, no_such_tier};
use crate::profile::{Figures, Point, Profile, TierFigures, VERSION};
use crate::refusal::{Place, Refusal};
use crate::scratch::{self, ScratchFile};
use crate::tier_store::{self, Kind};
use crate::validate;
use braid_contract::Errno;
use braid_contract::units::{show_size, write_size};
use braid_stores::native::{open_dir, open_tier_dir};
pub use measure::Direction;
use measure::Run;
use std::io;
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

/// Bounds of the largest number of threads.
pub const THREADS_MAX: RangeInclusive<usize> = 1..=256;
/// Bounds of the counted seconds for each point.
pub const SECONDS: RangeInclusive<f64> = 0.1..=600.0;
/// Bounds of the size of an operation.
pub const BLOCK: RangeInclusive<u64> = 4096..=16 << 20;

/// What to measure, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// The tiers, by name; all of them if there are none.
    pub tiers: Vec<String>,
    /// Counted time for each point.
    pub time: Duration,
    /// The largest number of threads.
    pub threads_max: usize,
    /// Bytes of one operation, a multiple of 4096.
    pub block: u64,
    /// Bytes to read and write on each tier.
    pub size: u64,
}

/// How far a calibration has come.
#[derive(Clone, Debug)]
pub enum Step<'a> {
    /// The tier is used by a mounted volume: the figures are those of the
    /// remaining bandwidth.
    Shared(&'a str),
    /// The tier's files are being written.
    Filling(&'a str),
    /// This point is being measured.
    Measuring(&'a str, Direction, usize),
}

/// Measures the tiers. Leaves nothing on them in any case.
///
/// # Errors
/// If a tier is unknown, has no room, takes no direct I/O or fails.
pub fn run(
    volume: &VolumeSettings,
    options: &Options,
    tell: &mut dyn FnMut(&Step<'_>),
) -> Result<Profile, Refusal> {
    check(options)?;
    let tiers = chosen(volume, &options.tiers)?;
    for tier in &tiers {
        look_at(tier, options, tell)?;
    }
    let mut profile = Profile { version: VERSION, tiers: Default::default() };
    for tier in tiers {
        profile.tiers.insert(tier.name.clone(), calibrate(tier, options, tell)?);
    }
    Ok(profile)
}

/// Refuses impossible options.
fn check(options: &Options) -> Result<(), Refusal> {
    if !THREADS_MAX.contains(&options.threads_max) {
        let advice = format!("write a whole number from {} to {}", THREADS_MAX.start(), THREADS_MAX.end());
        return Err(
            Place::flag(format!("--threads-max {}", options.threads_max)).refuse("out of bounds", advice)
        );
    }
    if !SECONDS.contains(&options.time.as_secs_f64()) {
        let advice = format!("write a number from {} to {}", SECONDS.start(), SECONDS.end());
        return Err(
            Place::flag(format!("--seconds {}", options.time.as_secs_f64())).refuse("out of bounds", advice)
        );
    }
    let block = options.block;
    if !BLOCK.contains(&block) || !block.is_multiple_of(*BLOCK.start()) {
        let advice = "direct I/O takes multiples of 4KiB, up to 16MiB here; write 64KiB, for example";
        return Err(Place::flag(format!("--block {}", write_size(block))).refuse("can't be used", advice));
    }
    let least = block * options.threads_max as u64;
    if options.size < least {
        let found = format!("too small: each of {} threads has files of its own", options.threads_max);
        let place = Place::flag(format!("--size {}", write_size(options.size)));
        return Err(place.refuse(found, format!("write {} or more", write_size(least))));
    }
    Ok(())
}

/// The tiers of these names, or all.
fn chosen<'a>(volume: &'a VolumeSettings, names: &[String]) -> Result<Vec<&'a TierSettings>, Refusal> {
    if names.is_empty() {
        return Ok(volume.tiers.iter().collect());
    }
    let one = |name: &String| {
        volume.tier(name).ok_or_else(|| {
            let all = volume.tiers.iter().map(|tier| tier.name.as_str());
            let (found, advice) = no_such_tier(name, all);
            Place::flag(format!("--tiers {}", names.join(","))).refuse(found, advice)
        })
    };
    names.iter().map(one).collect()
}

/// Refuses a tier that can't be measured, and reports one that is in use.
fn look_at(tier: &TierSettings, options: &Options, tell: &mut dyn FnMut(&Step<'_>)) -> Result<(), Refusal> {
    let (dir, place) = (&tier.dir.value, &tier.dir.place);
    validate::directory(dir, place)?;
    let kind = match tier_store::kind_of(dir) {
        Ok(Kind::Device | Kind::Zonefs) => Some("a zoned device"),
        Ok(Kind::Log) => Some("a log file system"),
        _ => None,
    };
    if let Some(kind) = kind {
        let found = format!("tier '{}' is {kind}, on which nothing can be tried", tier.name);
        return Err(place.refuse(found, "leave the tier out: name the others with --tiers"));
    }
    let failed = |error: braid_contract::Error| place.refuse(error.to_string(), "check the directory");
    let usage = open_dir(dir).and_then(|dir| dir.usage()).map_err(failed)?;
    let spare = usage.space.available.saturating_sub(tier.reserve_or_default().bytes(usage.space.total));
    if spare < options.size {
        let found = format!(
            "tier '{}' has no room: {} are needed for a while, {} can be used",
            tier.name,
            show_size(options.size),
            show_size(spare)
        );
        let advice = "make room, measure with less (--size) or leave the tier out (--tiers)";
        return Err(place.refuse(found, advice));
    }
    // The lock is released at once: it only answers whether the tier is in use.
    if open_tier_dir(dir).is_err_and(|error| error.errno() == Errno::EBUSY) {
        tell(&Step::Shared(&tier.name));
    }
    Ok(())
}

fn calibrate(
    tier: &TierSettings,
    options: &Options,
    tell: &mut dyn FnMut(&Step<'_>),
) -> Result<TierFigures, Refusal> {
    tell(&Step::Filling(&tier.name));
    let files = make_files(&tier.dir.value, options).map_err(|error| refuse(tier, &error))?;
    let mut curve = |direction| {
        let mut points: Vec<Point> = Vec::new();
        for threads in curve::threads(options.threads_max) {
            tell(&Step::Measuring(&tier.name, direction, threads));
            // The options were checked, so that it fits.
            let run = Run { direction, threads, block: options.block as usize, time: options.time };
            points.push(run.measure(&files).map_err(|error| refuse(tier, &error))?);
        }
        Ok::<Figures, Refusal>(curve::through(points))
    };
    Ok(TierFigures { read: curve(Direction::Read)?, write: curve(Direction::Write)? })
}

/// A file for each thread.
fn make_files(dir: &Path, options: &Options) -> io::Result<Vec<ScratchFile>> {
    let each = options.size / options.threads_max as u64;
    scratch::make(dir, options.threads_max, each / options.block * options.block)
}

fn refuse(tier: &TierSettings, error: &io::Error) -> Refusal {
    let (place, name) = (&tier.dir.place, &tier.name);
    match error.raw_os_error().map(Errno) {
        Some(Errno::EINVAL) => place.refuse(
            format!("tier '{name}' can't be measured: its file system takes no direct I/O"),
            "leave the tier out: name the others with --tiers",
        ),
        Some(Errno::ENOSPC | Errno::EDQUOT) => place.refuse(
            format!("tier '{name}' has no room for what is measured: {error}"),
            "make room, or measure with less (--size)",
        ),
        _ => place.refuse(
            format!("tier '{name}' can't be measured: {error}"),
            "check the device; the kernel's log may say more",
        ),
    }
}
