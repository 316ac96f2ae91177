//! The settings of a volume and its tiers, from a stack file, with parts that
//! flags share.

use crate::cache;
use crate::config::{EPOCH, PARALLEL, TierSettings, VolumeSettings, ZonedTier};
use crate::cross_check;
use crate::drill::{self, FaultRule};
use crate::hints;
use crate::memory;
use crate::movers;
use crate::paths::join;
use crate::policy;
use crate::profile::{self, Profile};
use crate::refusal::{Located, Refusal};
use crate::require;
use crate::rules;
use crate::section::{Field, Section};
use crate::source::Reading;
use crate::values::{check_name, range, reserve, weight};
use braid_contract::units::{self, show_size};
use braid_stores::zoned::{UnitDevice, ZonedSettings};
use std::path::Path;

/// The keys of a tier that a flag takes too.
pub(crate) const TIER_KEYS: &[&str] = &["dir", "weight", "reserve", "readonly", "require"];
/// The keys of a tier in a stack file.
const TIER_KEYS_IN_FILE: &[&str] =
    &["dir", memory::KEY, "weight", "reserve", "readonly", "require", "zoned", "faults"];

/// `volume: { … }`
pub(crate) fn from_file(field: &Field, reading: &Reading<'_>) -> Result<VolumeSettings, Refusal> {
    let base = reading.base;
    let known = [
        "home", "policy", "rules", "epoch", "profile", "range", "jobs", "tiers", "heat", "monitor", "movers",
        "measure", "hints", "cache",
    ];
    let mut section = Section::of(field, &known)?;
    let tiers = section.require("tiers", "tiers: { NAME: { dir: DIRECTORY }, … }")?;
    let (mut parsed, mut in_memory) = (Vec::new(), Vec::new());
    for tier in Section::open(&tiers)?.into_fields() {
        check_name(&tier.name, &tier.place)?;
        if memory::is_memory(&tier) {
            in_memory.push(memory::from_file(&tier)?);
            continue;
        }
        let settings = Section::of(&tier, TIER_KEYS_IN_FILE)?;
        parsed.push(tier_settings(&tier.name, settings, base)?);
    }
    if parsed.is_empty() {
        return Err(tiers.place.refuse("there are no tiers", "add at least one: NAME: { dir: DIRECTORY }"));
    }
    let first = &parsed[0].name;
    let home =
        section.require("home", &format!("home: {first}, or another tier that is to hold the names"))?;
    let policy = match section.take("policy") {
        Some(field) => policy::from_node(&field)?,
        None => policy::from_flag(policy::DEFAULT, section.place())?,
    };
    let hints = section.take("hints").map_or_else(hints::usual, |field| hints::from_file(&field, base))?;
    let settings = VolumeSettings {
        place: section.place().clone(),
        home: home.text("the name of a tier")?,
        policy,
        rules: section.take("rules").map(|field| rules::from_file(&field)).transpose()?.unwrap_or_default(),
        hints,
        epoch: section.take("epoch").map(|field| epoch(&field)).transpose()?,
        profile: section
            .take("profile")
            .filter(|_| reading.profile)
            .map(|field| profile(&field, base, &parsed))
            .transpose()?,
        range: section.take("range").map(|field| range(&field)).transpose()?,
        jobs: section.take("jobs").map(|field| field.count(PARALLEL)).transpose()?,
        tiers: parsed,
        memory: in_memory,
        heat_budget: section.take("heat").map(|field| movers::heat_budget(&field)).transpose()?.flatten(),
        monitor: section.take("monitor").map(|field| field.truth()).transpose()?,
        measure: section.take("measure").map(|field| field.truth()).transpose()?,
        cache: section.take("cache").map(|field| cache::from_file(&field)).transpose()?,
        movers: section.take("movers").map(|field| movers::from_file(&field)).transpose()?,
    };
    hints::check_names(&settings.rules, &settings.hints)?;
    cross_check::check(&settings)?;
    Ok(settings)
}

/// The settings of the tier `name`, whose section has only
/// [`TIER_KEYS_IN_FILE`].
pub(crate) fn tier_settings(name: &str, mut section: Section, base: &Path) -> Result<TierSettings, Refusal> {
    let dir = section.require("dir", "dir: DIRECTORY")?.text("a directory")?;
    Ok(TierSettings {
        name: name.to_owned(),
        place: section.place().clone(),
        dir: Located::new(join(base, &dir.value), dir.place),
        weight: section.take("weight").map(|field| weight(&field)).transpose()?,
        reserve: section.take("reserve").map(|field| reserve(&field)).transpose()?,
        readonly: section.take("readonly").map(|field| field.truth()).transpose()?,
        require: section.take("require").map(|field| require::read(&field)).transpose()?,
        zoned: section.take("zoned").map(|field| zoned(&field)).transpose()?,
        faults: section.take("faults").map(|field| faults(&field)).transpose()?.unwrap_or_default(),
        absent: None,
    })
}

/// How a zoned device is kept.
fn zoned(field: &Field) -> Result<Located<ZonedTier>, Refusal> {
    let mut section = Section::of(field, &["extent", "memory", "write-through", "gc", "unit"])?;
    let mut settings = ZonedSettings::default();
    if let Some(extent) = section.take("extent").map(|field| field.size()).transpose()? {
        if !ZonedSettings::is_extent(extent.value) {
            let found = format!("an extent of {}", show_size(extent.value));
            let advice = "write a power of two from 4KiB to 512MiB: what is gathered before it is written";
            return Err(extent.place.refuse(found, advice));
        }
        settings.extent = extent.value;
    }
    match section.take("memory").map(|field| field.size()).transpose()? {
        Some(memory) if memory.value < settings.extent => {
            let found = format!("{} of memory is less than an extent", show_size(memory.value));
            let advice = format!("write {} at least, or a shorter extent", show_size(settings.extent));
            return Err(memory.place.refuse(found, advice));
        }
        Some(memory) => settings.memory = memory.value,
        None => settings.memory = settings.memory.max(settings.extent),
    }
    if let Some(at_once) = section.take("write-through").map(|field| field.truth()).transpose()? {
        settings.write_through = at_once.value;
    }
    if let Some(rate) =
        section.take("gc").map(|field| field.parse("a rate", units::parse_rate)).transpose()?
    {
        settings.gc = rate.value;
    }
    let unit = section.take("unit").map(|field| unit(&field)).transpose()?;
    Ok(Located::new(ZonedTier { settings, unit }, field.place.clone()))
}

/// The units that a device without zones is cut into.
fn unit(field: &Field) -> Result<u64, Refusal> {
    let unit = field.size()?;
    if UnitDevice::is_unit(unit.value) {
        return Ok(unit.value);
    }
    let advice =
        "write 1MiB to 64GiB, a multiple of 4KiB: what the device empties at a time, if that is known";
    Err(unit.place.refuse(format!("a unit of {}", show_size(unit.value)), advice))
}

/// Faults for a drill.
fn faults(field: &Field) -> Result<Vec<Located<FaultRule>>, Refusal> {
    let one = |item: Field| {
        let Located { value, place } = item.text("a fault")?;
        match value.parse::<FaultRule>() {
            Ok(rule) => Ok(Located::new(rule, place)),
            Err(error) => Err(place.refuse(format!("not a fault: {error}"), drill::FORM)),
        }
    };
    field.items("faults: [ \"read:EIO,after=10\", \"sync:EIO,once\" ]")?.into_iter().map(one).collect()
}

/// The length of an epoch.
fn epoch(field: &Field) -> Result<Located<u64>, Refusal> {
    let epoch = field.parse("a duration", units::parse_duration)?;
    if EPOCH.contains(&epoch.value) {
        return Ok(epoch);
    }
    Err(epoch.place.refuse("an epoch is 10ms to 60s long", "write 200ms, or leave it out"))
}

/// The profile in the named file, which is relative to `base`. It may have
/// tiers that were removed since, and lack others.
fn profile(field: &Field, base: &Path, tiers: &[TierSettings]) -> Result<Located<Profile>, Refusal> {
    let path = field.text("the path of a profile")?;
    let profile = profile::load(&join(base, &path.value), &path.place)?;
    if tiers.iter().any(|tier| profile.tiers.contains_key(&tier.name)) {
        return Ok(Located::new(profile, path.place));
    }
    let names = |names: Vec<&str>| if names.is_empty() { "none".into() } else { names.join(", ") };
    let found = format!(
        "{} is of other tiers ({}) than these ({})",
        path.value,
        names(profile.tiers.keys().map(String::as_str).collect()),
        names(tiers.iter().map(|tier| tier.name.as_str()).collect())
    );
    let advice = "leave the key out until there is one of these: braid bench calibrate STACK.yaml writes it";
    Err(path.place.refuse(found, advice))
}
