//! A tier directory's own files. On home they are the volume's plain files; on
//! other tiers they are invisible until an import, so they are reported. The
//! command line calls this.

use crate::config::VolumeSettings;
use crate::tier_store;
use std::path::Path;

/// Names of Braid and of file systems at the root of a tier.
const NOT_OWN: [&str; 2] = [".braid", "lost+found"];

/// The tiers other than home whose directories have files of their own.
#[must_use]
pub fn tiers(volume: &VolumeSettings) -> Vec<&str> {
    let others = volume.tiers.iter().filter(|tier| tier.name != volume.home.value && tier.absent.is_none());
    others.filter(|tier| dir(&tier.dir.value)).map(|tier| tier.name.as_str()).collect()
}

/// Whether a directory has own files; `false` if it can't be read. Those of an
/// emulated device are its zones.
#[must_use]
pub fn dir(dir: &Path) -> bool {
    if tier_store::is_zoned(dir) {
        return false;
    }
    let Ok(entries) = std::fs::read_dir(dir) else { return false };
    let mut names = entries.flatten().map(|entry| entry.file_name());
    names.any(|name| NOT_OWN.iter().all(|not| name != *not))
}

/// The notice about such a tier.
#[must_use]
pub fn notice(tier: &str) -> String {
    format!(
        "tier {tier}: its directory has files of its own, which the volume does not show\n  \
         help: bring them in, where they are: braid import {tier} (look first: --dry-run)"
    )
}
