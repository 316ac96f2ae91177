//! An empty directory takes the place of a tier that is lost.

use crate::config::{TierSettings, VolumeSettings};
use crate::drill;
use crate::refusal::Place;
use crate::section::nearest;
use crate::validate;
use crate::wire::{VolumeHandle, reserve};
use braid_contract::{Errno, Error};
use braid_ipc::protocol::{ErrorReply, Replaced, RunTier};
use braid_stores::dir::DirStore;
use braid_volume::TierConfig;
use std::path::{Path, PathBuf};

/// A tier as it was set at the mount.
pub(crate) struct TierPlace {
    name: String,
    /// Its directory, absolute and without symbolic links if it was there.
    dir: PathBuf,
    /// Where the directory was set, and how it was written.
    place: Place,
    written: PathBuf,
    /// The mount was told to go without it.
    absent: bool,
    weight: Option<f64>,
    reserve: braid_volume::Reserve,
}

/// The tiers as they were set. Called while the working directory is still
/// that of the command.
pub(crate) fn places(settings: &VolumeSettings) -> Vec<TierPlace> {
    let place = |tier: &TierSettings| TierPlace {
        name: tier.name.clone(),
        dir: real(&tier.dir.value),
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
        let status = self.volume.status();
        let before = status.tiers.into_iter().find(|tier| tier.name == name);
        let before = before.ok_or_else(|| ErrorReply::from(Error::from(Errno::ENOENT)))?;
        // Said by the volume too, but before a directory is looked at.
        if before.home {
            let what = format!("tier {name} is the home tier, which can't be replaced");
            return Err(refused(Errno::EBUSY, &what, "it holds the names of all files"));
        }
        let others = self.places.iter().filter(|tier| tier.name != name);
        let others: Vec<(&str, &Path)> = others.map(|tier| (tier.name.as_str(), &*tier.dir)).collect();
        let dir = validate::replacement(dir, &others, mountpoint)
            .map_err(|refusal| ErrorReply { errno: Some(Errno::EINVAL.0), message: refusal.to_string() })?;
        let store = DirStore::open(&dir).map_err(|error| cant_open(&dir, &error))?;
        let (store, control) = drill::put_before(store, &[]);
        let config = TierConfig {
            name: name.to_owned(),
            store: Some(store),
            location: dir.display().to_string(),
            weight: old.weight,
            reserve: old.reserve,
        };
        self.volume.replace_tier(config).map_err(|error| cant_replace(&dir, &error))?;
        self.drills.enter(name, control);
        Ok(Replaced {
            lost: RunTier { id: before.id.0, name: name.to_owned() },
            lost_location: before.location,
            lost_ranges: before.ranges,
            next_mount: old.next_mount(&dir),
            location: dir.display().to_string(),
        })
    }

    /// How the tier `name` was set; a misspelling is pointed out.
    pub(crate) fn known_tier(&self, name: &str) -> Result<&TierPlace, ErrorReply> {
        if let Some(tier) = self.places.iter().find(|tier| tier.name == name) {
            return Ok(tier);
        }
        let names: Vec<&str> = self.places.iter().map(|tier| tier.name.as_str()).collect();
        let advice = match nearest(name, &names) {
            Some(nearest) => format!("did you mean '{nearest}'? The tiers are {}", names.join(", ")),
            None => format!("the tiers are {}", names.join(", ")),
        };
        Err(refused(Errno::ENOENT, &format!("there is no tier '{name}'"), &advice))
    }
}

impl TierPlace {
    /// What to change so that the next mount finds the tier at `dir`.
    fn next_mount(&self, dir: &Path) -> String {
        let absent = if self.absent { format!(", and no --without {}", self.name) } else { String::new() };
        format!("{}{absent}", self.place.instead(&self.written, dir))
    }
}

fn cant_open(dir: &Path, error: &Error) -> ErrorReply {
    match error.errno() {
        Errno::EBUSY => {
            let what = format!("{}: the directory is a tier of a volume that is mounted now", dir.display());
            refused(Errno::EBUSY, &what, "name an empty directory of its own")
        }
        errno => refused(errno, &error.to_string(), "check the directory and its file system"),
    }
}

fn cant_replace(dir: &Path, error: &Error) -> ErrorReply {
    let text = error.to_string();
    match error.errno() {
        Errno::EBUSY => {
            refused(Errno::EBUSY, &text, "only a tier that is failing, hangs or is absent is replaced")
        }
        Errno::EEXIST => refused(
            Errno::EEXIST,
            &format!("{}: {text}", dir.display()),
            "name an empty directory; a tier that is only elsewhere is given there at the next mount",
        ),
        errno => refused(errno, &text, "check the directory and its file system; the log may say more"),
    }
}

fn refused(errno: Errno, what: &str, advice: &str) -> ErrorReply {
    ErrorReply { errno: Some(errno.0), message: format!("{what}\n  help: {advice}") }
}
