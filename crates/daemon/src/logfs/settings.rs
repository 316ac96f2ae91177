//! The settings of a log file system at the bottom of a stack.

use crate::paths::join;
use crate::refusal::{Located, Place, Refusal};
use crate::section::{Field, Section};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

/// How many workers there can be.
pub const WORKERS: RangeInclusive<usize> = 1..=braid_log::WORKERS_MAX;

/// Most workers by default: one for each processor.
const WORKERS_DEFAULT_MAX: usize = 8;

/// The keys of `log` in a stack file.
pub(crate) const KEYS: [&str; 3] = ["device", "workers", "salvage"];

/// A log file system, and how it is used.
#[derive(Debug)]
pub struct LogSettings {
    /// The place of its settings.
    pub place: Place,
    /// The block device or file that it is on.
    pub device: Located<PathBuf>,
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
            device: Located::new(join(base, &device.value), device.place),
            workers: section.take("workers").map(|field| field.count(WORKERS)).transpose()?,
            salvage: section.take("salvage").map(|field| field.truth()).transpose()?,
        })
    }

    /// Reads them from the arguments of `braid log mount`.
    ///
    /// # Errors
    /// If there can't be that many workers.
    pub(crate) fn from_flags(device: &Path, workers: Option<usize>, salvage: bool) -> Result<Self, Refusal> {
        let place = Place::flag(device.to_string_lossy());
        let of_workers = |count: usize| Located::new(count, Place::flag(format!("--workers {count}")));
        let workers = workers.map(of_workers);
        if let Some(Located { place, .. }) = workers.as_ref().filter(|count| !WORKERS.contains(&count.value))
        {
            let advice = format!("write a whole number from {} to {}", WORKERS.start(), WORKERS.end());
            return Err(place.refuse("out of bounds", advice));
        }
        let salvage = salvage.then(|| Located::new(true, Place::flag("--salvage")));
        Ok(Self { device: Located::new(device.to_owned(), place.clone()), place, workers, salvage })
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
