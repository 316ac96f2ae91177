//! Applying a changed stack file to a mounted volume: it is checked first, and
//! then applied completely or not at all. `control` calls this.

use crate::advice::Asked;
use crate::cache::{self, CacheSettings};
use crate::config::{TierSettings, VolumeSettings};
use crate::handle::VolumeHandle;
use crate::paths::real;
use crate::placement::placement;
use crate::places::TierPlace;
use crate::refusal::Refusal;
use crate::reply::invalid;
use crate::running::Running;
use crate::stack_changes::Files;
use crate::tiers::{self, Joining, Read};
use braid_contract::Shown;
use braid_ipc::protocol::{ErrorReply, Reloaded};
use braid_placement::Reserve;
use braid_volume::{MoverScope, MoversConfig, PlacementConfig, TierChange, TierConfig};
use std::path::Path;

/// Keys of the volume that only a mount sets.
const FIXED: &[&str] = &["epoch", "profile", "jobs", "heat", "monitor", "measure"];

/// The changes to apply.
struct Plan {
    placement: PlacementConfig,
    /// Other settings of the cache, or its removal.
    cache: Option<Option<CacheSettings>>,
    /// Tiers with changed settings.
    set: Vec<(String, TierChange)>,
    /// Tiers with changed faults.
    drills: Vec<(String, Vec<String>)>,
    /// New tiers.
    add: Vec<New>,
    /// Whether modules changed.
    modules: bool,
    /// A description of all changes, for people.
    changes: Vec<String>,
}

/// A new tier.
struct New {
    joining: Joining,
    config: TierConfig,
    change: TierChange,
    faults: Vec<String>,
}

/// The parts of a mount that may change.
pub(crate) struct Mounted<'a> {
    pub(crate) handle: &'a VolumeHandle,
    pub(crate) running: &'a Running,
    pub(crate) mountpoint: &'a Path,
}

/// Reads the stack file again, and applies its changes. The caller keeps other
/// changes of tiers away.
pub(crate) fn reload(mounted: &Mounted<'_>, dry_run: bool) -> Result<Reloaded, ErrorReply> {
    let files = Files::read(mounted.running)?;
    let plan = plan(mounted, &files)?;
    let changes = plan.changes.clone();
    if !dry_run {
        if !changes.is_empty() {
            let prepared =
                || mounted.handle.modules.prepare(&files.new.stack, &files.file()).map_err(invalid);
            let modules = plan.modules.then(prepared).transpose()?;
            apply(mounted.handle, plan)?;
            if let Some(modules) = modules {
                mounted.handle.modules.exchange(modules).map_err(ErrorReply::new)?;
            }
            tracing::info!(file = files.shown, changes = changes.join("; "), "the stack file was read anew");
        }
        mounted.running.is_now(files.new.source.root);
    }
    Ok(Reloaded { file: files.shown, changes })
}

/// Refuses impossible changes, and plans the others.
fn plan(mounted: &Mounted<'_>, files: &Files) -> Result<Plan, ErrorReply> {
    files.refuse_modules().map_err(invalid)?;
    let old = files.old.stack.need_volume().map_err(invalid)?;
    let new = files.new.stack.need_volume().map_err(invalid)?;
    let range_size = mounted.handle.volume.status().range_size;
    refuse_fixed(old, new, range_size).map_err(invalid)?;
    files.refuse_bottom(FIXED, &new.place).map_err(invalid)?;
    files.refuse_mount().map_err(invalid)?;
    let placement = placement(new);
    let mut changes = placement_changes(&mounted.handle.volume.placement(), &placement, old, new);
    cache::refuse_range(mounted.handle.cache.range(), new.cache.as_ref(), &new.place).map_err(invalid)?;
    let cached = cache::change(old.cache.as_ref(), new.cache.as_ref());
    let cache = cached.as_ref().map(|_| new.cache.clone());
    changes.extend(cached);
    let modules = files.module_changes();
    let exchange = !modules.is_empty();
    changes.extend(modules);
    let mut plan = Plan {
        placement,
        cache,
        set: Vec::new(),
        drills: Vec::new(),
        add: Vec::new(),
        modules: exchange,
        changes,
    };
    for tier in &new.tiers {
        match old.tier(&tier.name) {
            Some(before) => plan_tier(mounted, before, tier, &mut plan).map_err(invalid)?,
            None => plan_new(mounted, tier, new, &mut plan)?,
        }
    }
    Ok(plan)
}

fn plan_tier(
    mounted: &Mounted<'_>,
    old: &TierSettings,
    new: &TierSettings,
    plan: &mut Plan,
) -> Result<(), Refusal> {
    let status = mounted.handle.volume.status();
    let name = &new.name;
    if real(&old.dir.value) != real(&new.dir.value) {
        let advice = format!("put it back, and replace the tier: braid tier replace {name} DIR");
        return Err(new.dir.place.refuse(
            format!("tier '{name}' is at {}, and its directory can't be another one", old.dir.value.shown()),
            advice,
        ));
    }
    let zoned = |tier: &TierSettings| tier.zoned.as_ref().map(|zoned| zoned.value).unwrap_or_default();
    if zoned(old) != zoned(new) {
        let place = new.zoned.as_ref().map_or(&new.place, |zoned| &zoned.place);
        let found = format!("how the zones of tier '{name}' are kept can't change while it is mounted");
        return Err(place.refuse(found, "put it back, or unmount and mount again"));
    }
    let (before, after) = (change_of(old), change_of(new));
    // A tier that was removed from the volume, and is still in the file.
    if !status.tiers.iter().any(|tier| tier.name == *name) {
        return Ok(());
    }
    if before != after {
        plan.changes.push(format!("tier {name}: {}", tier_change(before, after)));
        plan.set.push((name.clone(), after));
    }
    let (armed, faults) = (faults(old), faults(new));
    if armed != faults {
        if mounted.running.is_without(name) {
            let place = new.faults.first().map_or(&new.place, |fault| &fault.place);
            return Err(place.refuse(
                format!("tier '{name}' is absent: no faults can be armed on it"),
                "take them out, or mount with the tier",
            ));
        }
        plan.changes.push(format!("tier {name}: faults"));
        plan.drills.push((name.clone(), faults));
    }
    Ok(())
}

fn plan_new(
    mounted: &Mounted<'_>,
    tier: &TierSettings,
    all: &VolumeSettings,
    plan: &mut Plan,
) -> Result<(), ErrorReply> {
    let change = change_of(tier);
    let zoned = tier.zoned.as_ref().map(|zoned| zoned.value);
    let read = Read { change, zoned, ..Read::default() };
    let others: Vec<(&str, &Path)> =
        plan.add.iter().map(|new| (new.config.name.as_str(), new.joining.dir.as_path())).collect();
    let looked_at =
        tiers::looked_at(mounted.handle, (&tier.name, &tier.dir.value, read), &others, mounted.mountpoint);
    let (joining, config) = looked_at
        .map_err(|error| ErrorReply { message: format!("{}: {}", tier.dir.place, error.message), ..error })?;
    let profile = all.profile.as_ref().and_then(|profile| profile.value.tier(&tier.name));
    let config = TierConfig { profile, ..config };
    plan.changes.push(format!("tier {}: added, at {}", tier.name, joining.dir.shown()));
    plan.add.push(New { joining, config, change, faults: faults(tier) });
    Ok(())
}

/// Applies a plan. Steps that can fail come first, and are undone if one does.
fn apply(handle: &VolumeHandle, plan: Plan) -> Result<(), ErrorReply> {
    let mut added: Vec<String> = Vec::new();
    let take_back = |added: &[String]| {
        for name in added {
            if let Err(error) = handle.volume.take_back_tier(name) {
                tracing::error!(tier = name, %error, "a tier that was added can't be taken back; remove it");
            }
        }
    };
    for new in &plan.add {
        if let Err(error) = handle.volume.add_tier_closed(new.config.clone()) {
            take_back(&added);
            return Err(Asked::Add { dir: &new.joining.dir }.failed(&error));
        }
        added.push(new.config.name.clone());
    }
    if let Err(error) = handle.volume.set_placement(plan.placement) {
        take_back(&added);
        return Err(error.into());
    }
    for New { joining, config, change, faults } in plan.add {
        let name = config.name;
        handle.drills.enter(&name, joining.control);
        let (weight, reserve) = (change.weight.flatten(), change.reserve.unwrap_or_default());
        handle.places.enter(TierPlace::added(&name, &joining.dir, weight, reserve));
        set(handle, &name, change);
        if !faults.is_empty() {
            arm(handle, &name, &faults);
        }
    }
    for (name, change) in plan.set {
        set(handle, &name, change);
        handle.places.change(&name, change);
    }
    if let Some(cache) = plan.cache {
        handle.cache.set(cache.as_ref());
    }
    plan.drills.iter().for_each(|(name, faults)| arm(handle, name, faults));
    Ok(())
}

/// Changes settings of a tier. Refusals were checked for before, except that a
/// job may just have removed it.
fn set(handle: &VolumeHandle, name: &str, change: TierChange) {
    if let Err(error) = handle.volume.set_tier(name, change) {
        tracing::warn!(tier = name, %error, "the tier could not be set");
    }
}

fn arm(handle: &VolumeHandle, name: &str, faults: &[String]) {
    if let Err(error) = handle.drills.arm(name, faults) {
        tracing::warn!(tier = name, %error, "the faults could not be armed");
    }
}

/// Refuses changes of a volume that only a mount can make, or another command.
fn refuse_fixed(old: &VolumeSettings, new: &VolumeSettings, range_size: u32) -> Result<(), Refusal> {
    if old.home.value != new.home.value {
        let found = format!("home is '{}', and can't be another tier", old.home.value);
        return Err(new
            .home
            .place
            .refuse(found, "put it back; its directory is replaced by: braid tier replace HOME DIR"));
    }
    if let Some(range) = new.range.as_ref().filter(|range| range.value.get() != range_size) {
        let found = format!("the volume has ranges of {range_size} bytes, fixed when it was made");
        return Err(range.place.refuse(found, "leave the range size out"));
    }
    if let Some(gone) = old.tiers.iter().find(|tier| new.tier(&tier.name).is_none()) {
        let name = &gone.name;
        let advice = format!(
            "put it back, and let it be emptied and taken out, here too, by: braid tier remove {name}"
        );
        return Err(new.place.key("tiers").refuse(format!("tier '{name}' is not here any more"), advice));
    }
    let mut both = old.memory.iter().zip(&new.memory);
    if old.memory.len() != new.memory.len() || both.any(|(old, new)| !new.is_as(old)) {
        let advice = "put them back, and mount anew with the others";
        return Err(new.place.key("tiers").refuse("the tiers in memory are not as they were", advice));
    }
    Ok(())
}

/// All changeable settings of a tier, with their values.
fn change_of(tier: &TierSettings) -> TierChange {
    TierChange {
        weight: Some(tier.weight.as_ref().map(|weight| weight.value)),
        reserve: Some(tier.reserve_or_default()),
        readonly: Some(tier.readonly.as_ref().is_some_and(|readonly| readonly.value)),
    }
}

fn faults(tier: &TierSettings) -> Vec<String> {
    tier.faults.iter().map(|fault| fault.value.to_string()).collect()
}

fn tier_change(before: TierChange, after: TierChange) -> String {
    let mut parts = Vec::new();
    if before.weight != after.weight {
        let shown = after.weight.flatten().map_or("auto".into(), |weight| weight.to_string());
        parts.push(format!("weight {shown}"));
    }
    if before.reserve != after.reserve {
        parts.push(match after.reserve.unwrap_or_default() {
            Reserve::Bytes(bytes) => format!("reserve {bytes} bytes"),
            Reserve::Percent(percent) => format!("reserve {percent}%"),
            Reserve::Unset | Reserve::Names => "the usual reserve".into(),
        });
    }
    if before.readonly != after.readonly {
        parts.push(if after.readonly == Some(true) { "read only" } else { "not read only" }.into());
    }
    parts.join(", ")
}

/// The changes of policy, rules and movers.
fn placement_changes(
    before: &PlacementConfig,
    after: &PlacementConfig,
    old: &VolumeSettings,
    new: &VolumeSettings,
) -> Vec<String> {
    let mut changes = Vec::new();
    if before.policy != after.policy {
        let (was, is) = (old.policy.value.name(), new.policy.value.name());
        changes.push(if was == is {
            format!("policy: other settings of {is}")
        } else {
            format!("policy: {is}, was {was}")
        });
    }
    if before.rules != after.rules {
        changes.push(format!("rules: {}, were {}", after.rules.len(), before.rules.len()));
    }
    if before.hints != after.hints {
        changes.push(match (before.hints.on, after.hints.on) {
            (false, true) => "hints: on".to_owned(),
            (true, false) => "hints: off".to_owned(),
            _ if before.hints.profiles != after.hints.profiles => "hints: other profiles".to_owned(),
            _ => "hints: learned differently".to_owned(),
        });
    }
    let movers = mover_changes(&before.movers, &after.movers);
    if !movers.is_empty() {
        changes.push(format!("movers: {}", movers.join(", ")));
    }
    changes
}

fn mover_changes(before: &MoversConfig, after: &MoversConfig) -> Vec<String> {
    let rate = |rate: Option<u64>| rate.map_or("default".into(), |rate| format!("{rate} B/s"));
    let percent = |share: f64| format!("{}%", (share * 1000.0).round() / 10.0);
    let scope = |scope: MoverScope| {
        match scope {
            MoverScope::None => "false",
            MoverScope::OfPolicy => "by policy",
            MoverScope::All => "true",
        }
        .to_owned()
    };
    let changes = [
        ("promote", scope(before.promote), scope(after.promote)),
        ("demote", scope(before.demote), scope(after.demote)),
        ("balance", scope(before.balance), scope(after.balance)),
        ("bandwidth", rate(before.bandwidth), rate(after.bandwidth)),
        ("job_floor", rate(Some(before.job_floor)), rate(Some(after.job_floor))),
        ("watermark_high", percent(before.watermark_high), percent(after.watermark_high)),
        ("watermark_low", percent(before.watermark_low), percent(after.watermark_low)),
        ("heat_threshold", percent(before.heat_threshold), percent(after.heat_threshold)),
        ("latency_factor", before.latency_factor.to_string(), after.latency_factor.to_string()),
    ];
    let changed = changes.into_iter().filter(|(_, before, after)| before != after);
    changed.map(|(key, _, after)| format!("{key} {after}")).collect()
}
