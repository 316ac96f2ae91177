//! Applying a changed stack file to a mounted volume: it is checked first, and
//! then applied completely or not at all. `control` calls this.

use crate::advice::Asked;
use crate::cache::{self, CacheSettings};
use crate::config::{Config, TierSettings, VolumeSettings};
use crate::handle::VolumeHandle;
use crate::paths::real;
use crate::placement::placement;
use crate::places::TierPlace;
use crate::refusal::{Place, Refusal};
use crate::reply::{invalid, refused};
use crate::running::Running;
use crate::source::Reading;
use crate::stack_file;
use crate::stack_text::{self, get, same, volume_mut};
use crate::tiers::{self, Joining, Read};
use crate::yaml::{Node, Value};
use braid_contract::{Errno, Shown};
use braid_ipc::protocol::{ErrorReply, Reloaded};
use braid_placement::Reserve;
use braid_volume::{MoverScope, MoversConfig, PlacementConfig, TierChange, TierConfig};
use std::path::Path;

/// Keys of the volume that only a mount sets.
const FIXED: &[&str] = &["epoch", "profile", "jobs", "heat", "monitor", "measure"];

/// The changes to apply.
struct Plan {
    placement: PlacementConfig,
    /// Other settings of the cache, or that there is to be none.
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

/// The old and the new stack file.
struct Files<'a> {
    old: &'a Config,
    new: &'a Config,
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
    let Some(file) = mounted.running.file() else {
        let advice =
            "change tiers by braid tier; or write a stack file (braid stack dump), and mount with that";
        return Err(refused(
            Errno::EINVAL,
            "the volume was mounted by flags: there is no stack file to be read",
            advice,
        ));
    };
    let (shown, base) = (file.to_string_lossy().into_owned(), mounted.running.base());
    let reading = Reading { base, profile: true, registry: &mounted.running.registry() };
    let new = stack_file::read_at(file, &reading).map_err(invalid)?;
    let old = stack_file::of_document(mounted.running.stack(), &shown, &reading).map_err(invalid)?;
    let plan = plan(mounted, &Files { old: &old, new: &new })?;
    let changes = plan.changes.clone();
    if !dry_run {
        if !changes.is_empty() {
            let place = new.stack.volume().place.whole_file();
            let prepared = || mounted.handle.modules.prepare(&new.stack, &place).map_err(invalid);
            let modules = plan.modules.then(prepared).transpose()?;
            apply(mounted.handle, plan)?;
            if let Some(modules) = modules {
                mounted.handle.modules.exchange(modules).map_err(ErrorReply::new)?;
            }
            tracing::info!(file = shown, changes = changes.join("; "), "the stack file was read anew");
        }
        mounted.running.is_now(new.source.root);
    }
    Ok(Reloaded { file: shown, changes })
}

/// Refuses impossible changes, and plans the others.
fn plan(mounted: &Mounted<'_>, files: &Files<'_>) -> Result<Plan, ErrorReply> {
    let (old, new) = (files.old.stack.volume(), files.new.stack.volume());
    let range_size = mounted.handle.volume.status().range_size;
    files.refuse_fixed(range_size).map_err(invalid)?;
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

impl Files<'_> {
    /// Refuses changes that only a mount can make, or another command.
    fn refuse_fixed(&self, range_size: u32) -> Result<(), Refusal> {
        let (old, new) = (self.old.stack.volume(), self.new.stack.volume());
        let file = self.file();
        let (were, are) = (self.old.stack.modules(), self.new.stack.modules());
        if were != are {
            let found = format!("the modules were {}", were.join(", "));
            let advice = "put them back, or bring others into force by: braid stack modify MOUNT FILE";
            return Err(file.key("stack").refuse(found, advice));
        }
        if let Some(name) = self.fixed_module() {
            let found = format!("settings of modules can't change while the stack has '{name}'");
            return Err(file.key("stack").refuse(found, anew("put them back")));
        }
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
        let (mut old_root, mut new_root) = (self.old.source.root.clone(), self.new.source.root.clone());
        if let (Some(old), Some(found)) = (volume_mut(&mut old_root), volume_mut(&mut new_root)) {
            refuse_changed((old, found), &new.place, FIXED)?;
        }
        let nothing = Node::new(Value::Null);
        let mounts = [&old_root, &new_root].map(|root| get(root, "mount").unwrap_or(&nothing));
        let keys: Vec<&str> = mounts.into_iter().flat_map(keys_of).collect();
        refuse_changed((mounts[0], mounts[1]), &file.key("mount"), &keys)
    }

    /// The module that keeps those of others from being changed: open files are in it.
    fn fixed_module(&self) -> Option<&str> {
        self.new.stack.fixed_module().filter(|_| !self.module_changes().is_empty())
    }

    /// The modules whose settings changed.
    fn module_changes(&self) -> Vec<String> {
        let [old, new] = [self.old, self.new].map(|config| stack_text::modules(&config.source.root));
        let changed = old.iter().zip(&new).filter(|((_, old), (_, new))| !same(old, new));
        changed.map(|((name, _), _)| format!("module {name}: other settings")).collect()
    }

    fn file(&self) -> Place {
        self.new.stack.volume().place.whole_file()
    }
}

/// Refuses changed keys. `place` is theirs.
fn refuse_changed((old, new): (&Node, &Node), place: &Place, keys: &[&str]) -> Result<(), Refusal> {
    for key in keys {
        let (before, now) = (get(old, key), get(new, key));
        let refuse = |line: Option<u64>, found: &str| {
            let place = line.map_or_else(|| place.clone(), |line| place.at_line(line)).key(key);
            Err(place.refuse(found, anew("put it back")))
        };
        match (before, now) {
            (Some(before), Some(now)) if same(before, now) => {}
            (None, None) => {}
            (_, Some(now)) => return refuse(Some(now.line), "this was changed since the mount"),
            (Some(_), None) => return refuse(None, "this was taken out since the mount"),
        }
    }
    Ok(())
}

fn anew(or: &str) -> String {
    format!("{or}, or unmount and mount anew: it counts for a mount as a whole")
}

fn keys_of(node: &Node) -> Vec<&str> {
    match &node.value {
        Value::Map(entries) => entries.iter().map(|entry| entry.key.as_str()).collect(),
        _ => Vec::new(),
    }
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
