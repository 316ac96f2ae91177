//! Adding, changing and removing tiers while the volume is in use, for the
//! control socket. The volume does the work; this parses and checks requests,
//! and describes the results for people.

use crate::advice::Asked;
use crate::config::{Require, ZonedTier, no_such_tier};
use crate::handle::VolumeHandle;
use crate::places::TierPlace;
use crate::refusal::{Located, Place};
use crate::reply::{cant_open, invalid, refused};
use crate::section::Section;
use crate::stack_text::Edit;
use crate::values::{self, check_name};
use crate::{drill, job_reply, require, speed, tier_store, validate};
use braid_contract::{Errno, TierId};
use braid_ipc::protocol::{ErrorReply, Job, NamedTier};
use braid_stores::fault::FaultControl;
use braid_volume::{RemovedTier, TierChange, TierConfig};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Settings as written, by key.
pub(crate) type Settings = BTreeMap<String, String>;

/// The keys that may be set of a tier in use.
const KEYS: &[&str] = &["weight", "reserve", "readonly", "require"];

/// The parsed settings of a request.
#[derive(Default)]
pub(crate) struct Read {
    pub(crate) change: TierChange,
    pub(crate) require: Option<Located<Require>>,
    /// How it is kept in zones; only a stack file sets that.
    pub(crate) zoned: Option<ZonedTier>,
    /// As in the stack file; `None` for unset ones.
    pub(crate) keys: Vec<(&'static str, Option<String>)>,
}

/// A tier about to join.
pub(crate) struct Joining {
    pub(crate) dir: PathBuf,
    read: Read,
    /// The faults that may be armed on it.
    pub(crate) control: FaultControl,
}

/// Adds the directory `dir` as a tier.
pub(crate) fn add(
    handle: &VolumeHandle,
    name: &str,
    dir: &Path,
    settings: &Settings,
    mountpoint: &Path,
) -> Result<(NamedTier, Edit), ErrorReply> {
    let (joining, config) = joining(handle, (name, dir, settings), mountpoint)?;
    let added = handle.volume.add_tier(config);
    let id = added.map_err(|error| Asked::Add { dir: &joining.dir }.failed(&error))?;
    speed::find_out(handle, |added| (added == name).then(|| joining.dir.clone()));
    joined(handle, name, id, joining)
}

/// Adds a directory as a tier with this name and these settings, and starts a
/// job that replaces the tier `old` by it.
pub(crate) fn replace_by(
    handle: &VolumeHandle,
    old: &str,
    new: (&str, &Path, &Settings),
    bandwidth: Option<u64>,
    mountpoint: &Path,
) -> Result<(NamedTier, Edit, Job), ErrorReply> {
    handle.places.known(old)?;
    let (joining, config) = joining(handle, new, mountpoint)?;
    if joining.read.change.readonly == Some(true) {
        let what = format!("tier {} can't be read only: it is to take what {old} has", new.0);
        return Err(refused(Errno::EINVAL, &what, "set it to read-only when that is done"));
    }
    let replaced = handle.volume.replace_tier_by(old, config, bandwidth);
    let asked = Asked::ReplaceBy { old, dir: &joining.dir };
    let (id, job) = replaced.map_err(|error| asked.failed(&error))?;
    let (tier, edit) = joined(handle, new.0, id, joining)?;
    Ok((tier, edit, job_reply::job(&handle.volume, job)))
}

/// Checks a tier that is about to join.
fn joining(
    handle: &VolumeHandle,
    (name, dir, settings): (&str, &Path, &Settings),
    mountpoint: &Path,
) -> Result<(Joining, TierConfig), ErrorReply> {
    let place = Place::flag(format!("tier {name}"));
    check_name(name, &place).map_err(invalid)?;
    if handle.volume.status().tiers.iter().any(|tier| tier.name == name) {
        let what = format!("there is a tier '{name}' already");
        return Err(refused(Errno::EEXIST, &what, "give each tier a name of its own"));
    }
    looked_at(handle, (name, dir, read(name, settings)?), &[], mountpoint)
}

/// Checks the directory of a tier that is about to join these `others`, given
/// by name and directory.
pub(crate) fn looked_at(
    handle: &VolumeHandle,
    (name, dir, read): (&str, &Path, Read),
    others: &[(&str, &Path)],
    mountpoint: &Path,
) -> Result<(Joining, TierConfig), ErrorReply> {
    let status = handle.volume.status();
    let there = status.tiers.iter().map(|tier| (tier.name.as_str(), Path::new(&tier.location)));
    let there = there.chain(others.iter().copied());
    let dir = validate::replacement((dir, read.zoned), there, mountpoint).map_err(invalid)?;
    if let Some(required) = &read.require {
        require::check_now(required, &dir).map_err(invalid)?;
    }
    let store = tier_store::open(&dir, read.zoned).map_err(|error| cant_open(&dir, &error))?;
    let (store, control) = drill::put_before(handle.cache.put_on(name, store), &[]);
    let config = TierConfig {
        name: name.to_owned(),
        store: Some(store),
        location: dir.to_string_lossy().into_owned(),
        weight: read.change.weight.flatten(),
        profile: None,
        reserve: read.change.reserve.unwrap_or_default(),
    };
    Ok((Joining { dir, read, control }, config))
}

/// Notes that it joined. Returns it, and its entry for the stack file.
fn joined(
    handle: &VolumeHandle,
    name: &str,
    id: TierId,
    joining: Joining,
) -> Result<(NamedTier, Edit), ErrorReply> {
    let Joining { dir, read, control } = joining;
    handle.drills.enter(name, control);
    let (weight, reserve) = (read.change.weight.flatten(), read.change.reserve.unwrap_or_default());
    handle.places.enter(TierPlace::added(name, &dir, weight, reserve));
    // Only home could be refused here.
    handle.volume.set_tier(name, read.change)?;
    let keys = read.keys.into_iter().filter_map(|(key, value)| Some((key, value?)));
    let keys = [("dir", dir.to_string_lossy().into_owned())].into_iter().chain(keys).collect();
    Ok((NamedTier { id, name: name.to_owned() }, Edit::Add(name.to_owned(), keys)))
}

/// Changes settings of a tier.
pub(crate) fn set(handle: &VolumeHandle, name: &str, settings: &Settings) -> Result<Vec<Edit>, ErrorReply> {
    handle.places.known(name)?;
    if settings.is_empty() {
        let advice = format!(
            "write weight=NUMBER, reserve=AMOUNT, require=WHAT or readonly: braid tier set {name} weight=400"
        );
        return Err(refused(Errno::EINVAL, "there is nothing to be set", &advice));
    }
    let read = read(name, settings)?;
    if let Some(required) = &read.require {
        let tiers = handle.volume.status().tiers;
        let dir = tiers.iter().find(|tier| tier.name == name).map_or("", |tier| &tier.location);
        require::check_now(required, Path::new(dir)).map_err(invalid)?;
    }
    handle.volume.set_tier(name, read.change).map_err(|error| Asked::Set.failed(&error))?;
    handle.places.change(name, read.change);
    let edit = |(key, value): (&'static str, Option<String>)| match value {
        Some(value) => Edit::Set(name.to_owned(), key, value),
        None => Edit::Unset(name.to_owned(), key),
    };
    Ok(read.keys.into_iter().map(edit).collect())
}

/// Removes an empty tier; with `evacuate`, advises how to empty it.
pub(crate) fn remove(handle: &VolumeHandle, name: &str, evacuate: bool) -> Result<RemovedTier, ErrorReply> {
    let status = handle.volume.status();
    if !status.tiers.iter().any(|tier| tier.name == name) {
        let (what, advice) = no_such_tier(name, status.tiers.iter().map(|tier| tier.name.as_str()));
        return Err(refused(Errno::ENOENT, &what, &advice));
    }
    let asked = Asked::Remove { tier: name, evacuate };
    let removed = handle.volume.remove_tier(name).map_err(|error| asked.failed(&error))?;
    let_go(handle, name);
    Ok(removed)
}

/// Notes that the tier is not part of the volume any more.
pub(crate) fn let_go(handle: &VolumeHandle, name: &str) {
    handle.drills.leave(name);
    handle.places.leave(name);
}

/// Parses settings of a tier. `auto`, `default` and `nothing` unset them.
fn read(name: &str, settings: &Settings) -> Result<Read, ErrorReply> {
    let place = Place::flag(format!("tier {name}"));
    let parts: Vec<(&str, &str)> =
        settings.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    let mut section = Section::from_parts(place, &parts, KEYS).map_err(invalid)?;
    let mut read = Read::default();
    if let Some(field) = section.take("weight") {
        let text = settings.get("weight").filter(|text| *text != "auto").cloned();
        let weight = text.as_ref().map(|_| values::weight(&field)).transpose().map_err(invalid)?;
        read.change.weight = Some(weight.map(|weight| weight.value));
        read.keys.push(("weight", text));
    }
    if let Some(field) = section.take("reserve") {
        let text = settings.get("reserve").filter(|text| *text != "default").cloned();
        let reserve = text.as_ref().map(|_| values::reserve(&field)).transpose().map_err(invalid)?;
        read.change.reserve = Some(reserve.map(|reserve| reserve.value).unwrap_or_default());
        read.keys.push(("reserve", text));
    }
    if let Some(field) = section.take("readonly") {
        let readonly = field.truth().map_err(invalid)?.value;
        read.change.readonly = Some(readonly);
        read.keys.push(("readonly", readonly.then(|| "true".to_owned())));
    }
    if let Some(field) = section.take("require") {
        let text = settings.get("require").filter(|text| *text != "nothing").cloned();
        read.require = text.as_ref().map(|_| require::read(&field)).transpose().map_err(invalid)?;
        read.keys.push(("require", text));
    }
    Ok(read)
}
