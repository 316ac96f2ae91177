//! Tiers in memory. They do not outlive the mount, so that each mount has new
//! ones: they join before anything is mounted, and are emptied to the others
//! and removed after the last use. Their data at a crash of the daemon or the
//! machine is lost, as on a lost tier that is replaced: its ranges answer
//! `EIO`.

use crate::config::{MemoryTier, VolumeSettings};
use crate::placement::placement;
use crate::refusal::Refusal;
use crate::section::{Field, Section};
use crate::values;
use crate::yaml::Value;
use braid_contract::{Errno, Error, JobKind, JobState, RefusalKind};
use braid_placement::{PolicyConfig, Reserve};
use braid_stores::memory::MemoryStore;
use braid_volume::{MoversConfig, OpenError, PlacementConfig, TierConfig, Volume, VolumeConfig};
use std::sync::Arc;

/// The key that makes a tier one in memory.
pub(crate) const KEY: &str = "memory";

/// The name of its place.
const LOCATION: &str = "memory";

/// Longest single wait for progress of an evacuation.
const PATIENCE_NS: u64 = 1_000_000_000;

/// Whether these settings are those of a tier in memory.
pub(crate) fn is_memory(tier: &Field) -> bool {
    matches!(&tier.node.value, Value::Map(keys) if keys.iter().any(|entry| entry.key == KEY))
}

/// `NAME: { memory: { size: SIZE } }`
pub(crate) fn from_file(tier: &Field) -> Result<MemoryTier, Refusal> {
    let mut section = Section::of(tier, &[KEY, "weight", "reserve"])?;
    let example = "memory: { size: 4GiB }";
    let memory = section.require(KEY, example)?;
    let size = Section::of(&memory, &["size"])?.require("size", example)?.size()?;
    if size.value == 0 {
        return Err(size
            .place
            .refuse("there is nothing in a memory of this size", format!("write {example}")));
    }
    Ok(MemoryTier {
        name: tier.name.clone(),
        place: section.place().clone(),
        size,
        weight: section.take("weight").map(|field| values::weight(&field)).transpose()?,
        reserve: section.take("reserve").map(|field| values::reserve(&field)).transpose()?,
    })
}

impl MemoryTier {
    fn config(&self, store: Option<MemoryStore>) -> TierConfig {
        TierConfig {
            name: self.name.clone(),
            store: store.map(|store| Arc::new(store) as _),
            location: LOCATION.to_owned(),
            weight: self.weight.as_ref().map(|weight| weight.value),
            profile: None,
            // Only the volume uses this space.
            reserve: self.reserve.as_ref().map_or(Reserve::Bytes(0), |reserve| reserve.value),
        }
    }

    /// Whether the settings that can't change while it exists are the same.
    pub(crate) fn is_as(&self, other: &Self) -> bool {
        let values = |tier: &Self| {
            let weight = tier.weight.as_ref().map(|weight| weight.value);
            (tier.size.value, weight, tier.reserve.as_ref().map(|reserve| reserve.value))
        };
        self.name == other.name && values(self) == values(other)
    }
}

/// The placement without these tiers. Nothing is moved meanwhile.
fn without(names: &[String], mut placement: PlacementConfig) -> PlacementConfig {
    let leads_there =
        |policy: &PolicyConfig| policy.tiers().any(|tier| names.iter().any(|name| name == tier));
    placement.rules.retain(|rule| {
        !rule.tiers.iter().any(|tier| names.contains(tier)) && !rule.policy.as_ref().is_some_and(leads_there)
    });
    if leads_there(&placement.policy)
        && let Some(weighted) = PolicyConfig::named("weighted")
    {
        placement.policy = weighted;
    }
    placement.movers = MoversConfig::NONE;
    placement
}

/// The names of all tiers in memory.
pub(crate) fn names(settings: &VolumeSettings) -> Vec<String> {
    settings.memory.iter().map(|tier| tier.name.clone()).collect()
}

/// The placement before the tiers in memory have joined.
pub(crate) fn first_placement(settings: &VolumeSettings) -> PlacementConfig {
    match names(settings) {
        none if none.is_empty() => placement(settings),
        names => without(&names, placement(settings)),
    }
}

/// Opens or checks a volume without its tiers in memory: those left by an
/// earlier mount that crashed are absent.
pub(crate) fn absent<T>(
    settings: &VolumeSettings,
    config: &VolumeConfig,
    mut open: impl FnMut(VolumeConfig) -> Result<T, OpenError>,
) -> Result<T, OpenError> {
    let mut absent: Vec<&MemoryTier> = settings.memory.iter().collect();
    loop {
        let mut config = config.clone();
        config.tiers.extend(absent.iter().map(|tier| tier.config(None)));
        match open(config) {
            Err(OpenError::NotLabelled { tier }) if absent.iter().any(|memory| memory.name == tier) => {
                // The volume has no tier of that name.
                absent.retain(|memory| memory.name != tier);
            }
            result => return result,
        }
    }
}

/// Adds the tiers in memory, replacing lost ones, and then switches to the full
/// placement.
pub(crate) fn join(volume: &Arc<Volume>, settings: &VolumeSettings) -> Result<(), Refusal> {
    let Some(last) = settings.memory.last() else { return Ok(()) };
    for tier in &settings.memory {
        let config = tier.config(Some(MemoryStore::new(tier.size.value)));
        join_one(volume, config).map_err(|error| {
            tier.place.refuse(error.to_string(), "take the tier out, or see what the log says")
        })?;
    }
    let placed = volume.set_placement(placement(settings));
    placed.map_err(|error| last.place.refuse(error.to_string(), "the log may say more"))
}

fn join_one(volume: &Volume, config: TierConfig) -> Result<(), Error> {
    // Left by an interrupted unmount.
    for job in volume.jobs() {
        if let JobKind::Evacuate { tier, .. } = &job.record.what
            && *tier == config.name
            && !job.record.state.is_final()
        {
            volume.cancel_job(job.record.id)?;
        }
    }
    match volume.replace_tier(config.clone()) {
        Err(error) if is_no_such_tier(&error) => volume.add_tier(config).map(drop),
        result => result,
    }
}

/// Moves the data of tiers in memory to the others, and removes them, so that
/// an unmount loses nothing.
pub(crate) fn empty(volume: &Arc<Volume>, names: &[String]) {
    if names.is_empty() {
        return;
    }
    if let Err(error) = volume.set_placement(without(names, volume.placement())) {
        tracing::error!(%error, "rules that name a tier in memory are still in force");
    }
    for tier in names {
        if let Err(error) = empty_one(volume, tier) {
            tracing::error!(tier, %error, "what is left on a tier in memory is lost: its ranges answer EIO from now on");
        }
    }
}

fn empty_one(volume: &Volume, tier: &str) -> Result<(), Error> {
    match volume.remove_tier(tier) {
        Err(error) if error.refusal() == Some(RefusalKind::Occupied) => {}
        // It was removed while the volume was mounted.
        Err(error) if is_no_such_tier(&error) => return Ok(()),
        result => return result.map(drop),
    }
    tracing::info!(tier, "moving what is in memory to the other tiers");
    let what = JobKind::Evacuate { tier: tier.to_owned(), then_remove: true };
    let id = volume.start_job(what, None)?.record.id;
    loop {
        let job = volume.job(id)?;
        match job.record.state {
            JobState::Done => return Ok(()),
            state if state.is_final() => {
                let why = job.record.message.unwrap_or_else(|| state.name().to_owned());
                return Err(Error::new(Errno::EIO, why));
            }
            _ => volume.wait_for_jobs(PATIENCE_NS),
        }
    }
}

/// Whether the volume refused something since it has no tier of that name.
fn is_no_such_tier(error: &Error) -> bool {
    error.errno() == Errno::ENOENT && error.refusal() == Some(RefusalKind::Request)
}
