//! The settings of a log file system at the bottom of a stack.

use crate::paths::join;
use crate::refusal::{Located, Place, Refusal};
use crate::section::{Field, Section};
use braid_log::Driver;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

/// How many workers there can be.
pub const WORKERS: RangeInclusive<usize> = 1..=braid_log::WORKERS_MAX;

/// Most workers by default: one for each processor.
const WORKERS_DEFAULT_MAX: usize = 8;

/// The keys of `log` in a stack file.
pub(crate) const KEYS: [&str; 4] = ["device", "driver", "workers", "salvage"];

/// The values of `driver`.
const DRIVERS: &str = "auto or io_uring";

fn parse_driver(name: &str) -> Result<Driver, String> {
    match name {
        "auto" => Ok(Driver::Auto),
        "io_uring" => Ok(Driver::IoUring),
        _ => Err(format!("write {DRIVERS}")),
    }
}

/// The arguments of `braid log mount` that are about the file system.
#[derive(Debug)]
pub struct LogFlags {
    /// The block device or file that it is on.
    pub device: PathBuf,
    /// The name of the driver.
    pub driver: Option<String>,
    /// How many workers there are to be.
    pub workers: Option<usize>,
    /// Whether it is to be salvaged.
    pub salvage: bool,
}

/// A log file system, and how it is used.
#[derive(Debug)]
pub struct LogSettings {
    /// The place of its settings.
    pub place: Place,
    /// The block device or file that it is on.
    pub device: Located<PathBuf>,
    /// The way to it.
    pub driver: Driver,
    /// Workers, each with a log and a share of the blocks; by the processors if it is not set.
    pub workers: Option<Located<usize>>,
    /// What can be read of it is to be read, and nothing is to be written.
    pub salvage: Option<Located<bool>>,
}

impl LogSettings {
    /// Reads them from a stack file; relative paths begin at `base`.
    pub(crate) fn from_file(field: &Field, base: &Path) -> Result<Self, Refusal> {
        let mut section = Section::of(field, &KEYS)?;
        let device = section.require("device", "device: /dev/nvme1n1")?.text("a block device or a file")?;
        Ok(Self {
            place: field.place.clone(),
            driver: section
                .take("driver")
                .map(|field| field.parse("a driver", parse_driver))
                .transpose()?
                .map_or_else(Driver::default, |driver| driver.value),
            device: Located::new(join(base, &device.value), device.place),
            workers: section.take("workers").map(|field| field.count(WORKERS)).transpose()?,
            salvage: section.take("salvage").map(|field| field.truth()).transpose()?,
        })
    }

    /// Reads them from the arguments of `braid log mount`.
    ///
    /// # Errors
    /// If there can't be that many workers, or there is no such driver.
    pub(crate) fn from_flags(flags: &LogFlags) -> Result<Self, Refusal> {
        let LogFlags { device, driver, workers, salvage } = flags;
        let place = Place::flag(device.to_string_lossy());
        let of_driver = |name: &String| {
            let refuse =
                |advice| Place::flag(format!("--driver {name}")).refuse("there is no such driver", advice);
            parse_driver(name).map_err(refuse)
        };
        let driver = driver.as_ref().map(of_driver).transpose()?.unwrap_or_default();
        let of_workers = |count: usize| Located::new(count, Place::flag(format!("--workers {count}")));
        let workers = (*workers).map(of_workers);
        if let Some(Located { place, .. }) = workers.as_ref().filter(|count| !WORKERS.contains(&count.value))
        {
            let advice = format!("write a whole number from {} to {}", WORKERS.start(), WORKERS.end());
            return Err(place.refuse("out of bounds", advice));
        }
        let salvage = salvage.then(|| Located::new(true, Place::flag("--salvage")));
        let device = Located::new(device.clone(), place.clone());
        Ok(Self { device, driver, place, workers, salvage })
    }

    /// Whether it is only read, damaged or not.
    pub(crate) fn is_salvaged(&self) -> bool {
        self.salvage.as_ref().is_some_and(|salvage| salvage.value)
    }

    /// The number of workers.
    pub(crate) fn workers_or_default(&self) -> usize {
        self.workers.as_ref().map_or_else(workers_by_processors, |workers| workers.value)
    }
}

/// The default number of workers.
pub(crate) fn workers_by_processors() -> usize {
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    processors.min(WORKERS_DEFAULT_MAX)
}
