//! An empty directory takes the place of a tier that is lost.

use crate::advice::Asked;
use crate::config::{TierSettings, VolumeSettings, no_such_tier};
use crate::drill;
use crate::refusal::Place;
use crate::validate;
use crate::wire::{VolumeHandle, reserve};
use braid_contract::{Errno, Error, Shown};
use braid_ipc::protocol::{ErrorReply, NamedTier, Replaced, Saved};
use braid_stores::dir::DirStore;
use braid_volume::{TierChange, TierConfig};
use std::path::{Path, PathBuf};
use std::sync::{MutexGuard, PoisonError};

/// A tier as it was set at the mount.
#[derive(Clone)]
pub(crate) struct TierPlace {
    name: String,
    /// Where the directory was set, and how it was written.
    place: Place,
    written: PathBuf,
    /// The mount was told to go without it.
    absent: bool,
    weight: Option<f64>,
    reserve: braid_placement::Reserve,
}

/// The tiers as they were set. Called while the working directory is still
/// that of the command.
pub(crate) fn places(settings: &VolumeSettings) -> Vec<TierPlace> {
    let place = |tier: &TierSettings| TierPlace {
        name: tier.name.clone(),
        place: tier.dir.place.absolute(),
        written: tier.dir.value.clone(),
        absent: tier.absent.is_some(),
        weight: tier.weight.as_ref().map(|weight| weight.value),
        reserve: reserve(tier),
    };
    settings.tiers.iter().map(place).collect()
}

/// A directory as the daemon and those who ask it can find it.
pub(crate) fn real(dir: &Path) -> PathBuf {
    let absolute = || std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
    std::fs::canonicalize(dir).unwrap_or_else(|_| absolute())
}

impl VolumeHandle {
    /// Puts `dir` in the place of the tier `name`.
    pub(crate) fn replace_tier(
        &self,
        name: &str,
        dir: &Path,
        mountpoint: &Path,
    ) -> Result<Replaced, ErrorReply> {
        let old = self.known_tier(name)?;
        // As they are now: others may have been replaced since the mount.
        let tiers = self.volume.status().tiers.into_iter();
        let (before, others): (Vec<_>, Vec<_>) = tiers.partition(|tier| tier.name == name);
        let before = before.into_iter().next().ok_or_else(|| ErrorReply::from(Error::from(Errno::ENOENT)))?;
        // Said by the volume too, but before a directory is looked at.
        if before.home {
            let what = format!("tier {name} is the home tier");
            return Err(refused(Errno::EBUSY, &what, "it is replaced by a copy of it: ask for that"));
        }
        let others = others.iter().map(|tier| (tier.name.as_str(), Path::new(&tier.location)));
        let dir = validate::replacement(dir, others, mountpoint)
            .map_err(|refusal| ErrorReply { errno: Some(Errno::EINVAL.0), message: refusal.to_string() })?;
        let store = DirStore::open(&dir).map_err(|error| cant_open(&dir, &error))?;
        let (store, control) = drill::put_before(store, &[]);
        let config = TierConfig {
            name: name.to_owned(),
            store: Some(store),
            location: dir.to_string_lossy().into_owned(),
            weight: old.weight,
            // Another device may stand in its place.
            profile: None,
            reserve: old.reserve,
        };
        let replaced = self.volume.replace_tier(config);
        replaced.map_err(|error| Asked::ReplaceLost { dir: &dir }.failed(&error))?;
        self.drills.enter(name, control);
        Ok(Replaced {
            lost: NamedTier { id: before.id, name: name.to_owned() },
            lost_location: before.location,
            lost_ranges: before.ranges,
            next_mount: old.next_mount(&dir),
            location: dir.to_string_lossy().into_owned(),
            saved: Saved::default(),
        })
    }

    /// How the tier `name` was set; a misspelling is pointed out.
    pub(crate) fn known_tier(&self, name: &str) -> Result<TierPlace, ErrorReply> {
        let places = self.places();
        if let Some(tier) = places.iter().find(|tier| tier.name == name) {
            return Ok(tier.clone());
        }
        let (what, advice) = no_such_tier(name, places.iter().map(|tier| tier.name.as_str()));
        Err(refused(Errno::ENOENT, &what, &advice))
    }

    /// The tier was added.
    pub(crate) fn enter_place(&self, tier: TierPlace) {
        self.leave_place(&tier.name);
        self.places().push(tier);
    }

    /// The tier was removed.
    pub(crate) fn leave_place(&self, name: &str) {
        self.places().retain(|tier| tier.name != name);
    }

    /// What was set of the tier is this now.
    pub(crate) fn change_place(&self, name: &str, change: TierChange) {
        for tier in self.places().iter_mut().filter(|tier| tier.name == name) {
            tier.weight = change.weight.unwrap_or(tier.weight);
            tier.reserve = change.reserve.unwrap_or(tier.reserve);
        }
    }

    fn places(&self) -> MutexGuard<'_, Vec<TierPlace>> {
        // Each change is a single call.
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TierPlace {
    /// A tier that was added at `dir` while the volume was mounted.
    pub(crate) fn added(
        name: &str,
        dir: &Path,
        weight: Option<f64>,
        reserve: braid_placement::Reserve,
    ) -> Self {
        let place = Place::flag(format!("--tier {name}={}", dir.to_string_lossy()));
        Self { name: name.to_owned(), place, written: dir.to_owned(), absent: false, weight, reserve }
    }

    /// What to change so that the next mount finds the tier at `dir`.
    pub(crate) fn next_mount(&self, dir: &Path) -> String {
        let absent = if self.absent { format!(", and no --without {}", self.name) } else { String::new() };
        format!("{}{absent}", self.place.instead(&self.written, dir))
    }
}

pub(crate) fn cant_open(dir: &Path, error: &Error) -> ErrorReply {
    match error.errno() {
        Errno::EBUSY => {
            let what = format!("{}: the directory is a tier of a volume that is mounted now", dir.shown());
            refused(Errno::EBUSY, &what, "name an empty directory of its own")
        }
        errno => refused(errno, &error.to_string(), "check the directory and its file system"),
    }
}

pub(crate) fn refused(errno: Errno, what: &str, advice: &str) -> ErrorReply {
    ErrorReply { errno: Some(errno.0), message: format!("{what}\n  help: {advice}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::{StackFlags, parse};
    use crate::wire;

    /// A volume of three tiers that is open without all but home; each a
    /// directory of the one that is given.
    fn without_all_but_home(dir: &Path) -> VolumeHandle {
        let tier = |name: &str| {
            std::fs::create_dir(dir.join(name)).unwrap();
            format!("{name}={}", dir.join(name).shown())
        };
        let flags = StackFlags { tiers: ["home", "b", "c"].map(tier).to_vec(), ..StackFlags::default() };
        let mut config = parse(&flags).unwrap();
        wire::open(&config, true).unwrap().shutdown().unwrap();
        config.without(&["b".into(), "c".into()]).unwrap();
        wire::open(&config, true).unwrap()
    }

    #[test]
    fn a_replacement_is_kept_apart_from_where_the_others_are_now() {
        let dir = tempfile::tempdir().unwrap();
        let volume = without_all_but_home(dir.path());
        for name in ["new", "new/inside", "b/inside"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        let replace =
            |tier: &str, name: &str| volume.replace_tier(tier, &dir.path().join(name), Path::new("/nowhere"));
        replace("b", "new").unwrap();
        let said = replace("c", "new/inside").unwrap_err().message;
        assert!(said.contains("tier 'b' is at") && said.contains("one would be inside the other"), "{said}");
        // Nobody uses that any more.
        replace("c", "b/inside").unwrap();
        volume.shutdown().unwrap();
    }
}
