//! The tiers as they were set at the mount, and since. A replacement goes by
//! that, and says what to change for the next mount.

use crate::config::{TierSettings, VolumeSettings, no_such_tier};
use crate::refusal::Place;
use crate::reply::refused;
use braid_contract::Errno;
use braid_ipc::protocol::ErrorReply;
use braid_placement::Reserve;
use braid_volume::TierChange;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A tier as it was set at the mount, or since.
#[derive(Clone)]
pub(crate) struct TierPlace {
    name: String,
    /// Where the directory was set, and how it was written.
    place: Place,
    written: PathBuf,
    /// The mount was told to go without it.
    absent: bool,
    pub(crate) weight: Option<f64>,
    pub(crate) reserve: Reserve,
}

/// All of them.
pub(crate) struct Places {
    list: Mutex<Vec<TierPlace>>,
}

impl Places {
    /// The tiers as they are set. Called while the working directory is still
    /// that of the command.
    pub(crate) fn of(settings: &VolumeSettings) -> Self {
        let place = |tier: &TierSettings| TierPlace {
            name: tier.name.clone(),
            place: tier.dir.place.absolute(),
            written: tier.dir.value.clone(),
            absent: tier.absent.is_some(),
            weight: tier.weight.as_ref().map(|weight| weight.value),
            reserve: tier.reserve_or_default(),
        };
        Self { list: Mutex::new(settings.tiers.iter().map(place).collect()) }
    }

    /// How the tier `name` was set; a misspelling is pointed out.
    pub(crate) fn known(&self, name: &str) -> Result<TierPlace, ErrorReply> {
        let places = self.list();
        if let Some(tier) = places.iter().find(|tier| tier.name == name) {
            return Ok(tier.clone());
        }
        let (what, advice) = no_such_tier(name, places.iter().map(|tier| tier.name.as_str()));
        Err(refused(Errno::ENOENT, &what, &advice))
    }

    /// The tier was added.
    pub(crate) fn enter(&self, tier: TierPlace) {
        self.leave(&tier.name);
        self.list().push(tier);
    }

    /// The tier was removed.
    pub(crate) fn leave(&self, name: &str) {
        self.list().retain(|tier| tier.name != name);
    }

    /// What was set of the tier is this now.
    pub(crate) fn change(&self, name: &str, change: TierChange) {
        for tier in self.list().iter_mut().filter(|tier| tier.name == name) {
            tier.weight = change.weight.unwrap_or(tier.weight);
            tier.reserve = change.reserve.unwrap_or(tier.reserve);
        }
    }

    fn list(&self) -> MutexGuard<'_, Vec<TierPlace>> {
        // Each change is a single call.
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TierPlace {
    /// A tier that was added at `dir` while the volume was mounted.
    pub(crate) fn added(name: &str, dir: &Path, weight: Option<f64>, reserve: Reserve) -> Self {
        let place = Place::flag(format!("--tier {name}={}", dir.to_string_lossy()));
        Self { name: name.to_owned(), place, written: dir.to_owned(), absent: false, weight, reserve }
    }

    /// What to change so that the next mount finds the tier at `dir`.
    pub(crate) fn next_mount(&self, dir: &Path) -> String {
        let absent = if self.absent { format!(", and no --without {}", self.name) } else { String::new() };
        format!("{}{absent}", self.place.instead(&self.written, dir))
    }
}
