//! The settings of tiers as of the mount, and changes since. A replacement uses
//! them, and names the changes for the next mount.

use crate::config::{TierSettings, VolumeSettings, no_such_tier};
use crate::refusal::Place;
use crate::reply::refused;
use braid_contract::Errno;
use braid_ipc::protocol::ErrorReply;
use braid_placement::Reserve;
use braid_volume::TierChange;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The settings of a tier.
#[derive(Clone)]
pub(crate) struct TierPlace {
    name: String,
    /// The place of its directory's setting, and the text there.
    place: Place,
    written: PathBuf,
    /// The mount was to go without it.
    absent: bool,
    pub(crate) weight: Option<f64>,
    pub(crate) reserve: Reserve,
}

/// All tiers.
pub(crate) struct Places {
    list: Mutex<Vec<TierPlace>>,
}

impl Places {
    /// The tiers of these settings. To be called in the working directory of
    /// the command.
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

    /// The settings of the tier `name`; suggests a name for a misspelling.
    pub(crate) fn known(&self, name: &str) -> Result<TierPlace, ErrorReply> {
        let places = self.list();
        if let Some(tier) = places.iter().find(|tier| tier.name == name) {
            return Ok(tier.clone());
        }
        let (what, advice) = no_such_tier(name, places.iter().map(|tier| tier.name.as_str()));
        Err(refused(Errno::ENOENT, &what, &advice))
    }

    /// Adds a tier.
    pub(crate) fn enter(&self, tier: TierPlace) {
        self.leave(&tier.name);
        self.list().push(tier);
    }

    /// Removes a tier.
    pub(crate) fn leave(&self, name: &str) {
        self.list().retain(|tier| tier.name != name);
    }

    /// Changes the settings of a tier.
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

    /// Advice on the change by which the next mount finds the tier at `dir`.
    pub(crate) fn next_mount(&self, dir: &Path) -> String {
        let absent = if self.absent { format!(", and no --without {}", self.name) } else { String::new() };
        format!("{}{absent}", self.place.instead(&self.written, dir))
    }
}
