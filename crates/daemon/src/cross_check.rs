//! Refuses inconsistent settings, before any directory is opened.

use crate::config::{PolicySettings, VolumeSettings, known};
use crate::movers;
use crate::refusal::{Located, Refusal};

/// Refuses inconsistent settings of a volume.
///
/// # Errors
/// If a named tier does not exist, exists twice, or there are too many tiers.
pub(crate) fn check(volume: &VolumeSettings) -> Result<(), Refusal> {
    let limit = usize::from(braid_contract::TierId::LIMIT);
    if let Some(extra) = volume.tiers.get(limit) {
        let found = format!("a volume has at most {limit} tiers; found {}", volume.tiers.len());
        return Err(extra
            .place
            .refuse(found, "join directories beneath with another file system, or make two volumes"));
    }
    for (index, tier) in volume.tiers.iter().enumerate() {
        if volume.tiers[..index].iter().any(|other| other.name == tier.name) {
            let found = format!("there is a tier '{}' already", tier.name);
            return Err(tier.place.refuse(found, "give each tier a name of its own"));
        }
    }
    if volume.memory.iter().any(|tier| tier.name == volume.home.value) {
        let advice = "name another tier: home keeps the names of all files, and memory keeps nothing";
        return Err(volume.home.place.refuse("the home tier can't be in memory", advice));
    }
    known(&volume.tiers, &volume.home)?;
    movers::check(volume)?;
    policy(volume, &volume.policy)?;
    for (tier, _) in volume.cache.iter().flat_map(|cache| &cache.tiers) {
        known(&volume.tiers, tier)?;
        if tier.value == volume.home.value {
            let advice = "take it out: the files of home are cached by the kernel";
            return Err(tier.place.refuse("the home tier has no part of the cache", advice));
        }
    }
    for rule in &volume.rules {
        rule.tiers.iter().try_for_each(|tier| known_in(volume, tier))?;
        rule.policy.iter().try_for_each(|set| policy(volume, set))?;
    }
    let home = volume.tier(&volume.home.value);
    if let Some(zoned) = home.and_then(|home| home.zoned.as_ref()) {
        let advice = "name another tier as home: a zoned device has no names";
        return Err(zoned.place.refuse("the home tier can't be kept in zones", advice));
    }
    if let Some(readonly) = home.and_then(|home| home.readonly.as_ref()).filter(|readonly| readonly.value) {
        let advice = "take this out; without home there are no files to be made";
        return Err(readonly.place.refuse("the home tier can't be read only", advice));
    }
    match home.and_then(|home| home.faults.first()) {
        Some(fault) => {
            let advice = "arm faults on the other tiers; without home there is no volume";
            Err(fault.place.refuse("the home tier is not drilled", advice))
        }
        None => Ok(()),
    }
}

/// Refuses a policy that names an unknown tier.
pub(crate) fn policy(volume: &VolumeSettings, policy: &PolicySettings) -> Result<(), Refusal> {
    policy.tiers.iter().try_for_each(|tier| known_in(volume, tier))
}

/// Refuses the name of an unknown tier, in memory or not.
fn known_in(volume: &VolumeSettings, named: &Located<String>) -> Result<(), Refusal> {
    match volume.memory.iter().any(|tier| tier.name == named.value) {
        true => Ok(()),
        false => known(&volume.tiers, named),
    }
}
