//! Replacing a lost tier by an empty directory.

use crate::advice::Asked;
use crate::drill;
use crate::handle::VolumeHandle;
use crate::reply::{cant_open, invalid, refused};
use crate::{speed, tier_store, validate};
use braid_contract::{Errno, Error};
use braid_ipc::protocol::{ErrorReply, NamedTier, Replaced, Saved};
use braid_volume::TierConfig;
use std::path::Path;

/// Replaces the tier `name` by `dir`.
pub(crate) fn replace(
    handle: &VolumeHandle,
    name: &str,
    dir: &Path,
    mountpoint: &Path,
) -> Result<Replaced, ErrorReply> {
    let old = handle.places.known(name)?;
    // Their current directories: others may have been replaced since the mount.
    let tiers = handle.volume.status().tiers.into_iter();
    let (before, others): (Vec<_>, Vec<_>) = tiers.partition(|tier| tier.name == name);
    let before = before.into_iter().next().ok_or_else(|| ErrorReply::from(Error::from(Errno::ENOENT)))?;
    // The volume would refuse this too, but before that the directory would be
    // opened.
    if before.home {
        let what = format!("tier {name} is the home tier");
        return Err(refused(Errno::EBUSY, &what, "it is replaced by a copy of it: ask for that"));
    }
    let others = others.iter().map(|tier| (tier.name.as_str(), Path::new(&tier.location)));
    let dir = validate::replacement((dir, None), others, mountpoint).map_err(invalid)?;
    let store = tier_store::open(&dir, None).map_err(|error| cant_open(&dir, &error))?;
    let (store, control) = drill::put_before(handle.cache.put_on(name, store), &[]);
    let config = TierConfig {
        name: name.to_owned(),
        store: Some(store),
        location: dir.to_string_lossy().into_owned(),
        weight: old.weight,
        // Another device may be in its place.
        profile: None,
        reserve: old.reserve,
    };
    let replaced = handle.volume.replace_tier(config);
    replaced.map_err(|error| Asked::ReplaceLost { dir: &dir }.failed(&error))?;
    speed::find_out(handle, |put| (put == name).then(|| dir.clone()));
    handle.drills.enter(name, control);
    Ok(Replaced {
        lost: NamedTier { id: before.id, name: name.to_owned() },
        lost_location: before.location,
        lost_ranges: before.ranges,
        next_mount: old.next_mount(&dir),
        location: dir.to_string_lossy().into_owned(),
        saved: Saved::default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::{StackFlags, parse};
    use crate::wire;
    use braid_contract::Shown;

    /// A volume of three tiers that is open with home only; each is a directory
    /// below the given one.
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
        let put =
            |tier: &str, name: &str| replace(&volume, tier, &dir.path().join(name), Path::new("/nowhere"));
        put("b", "new").unwrap();
        let said = put("c", "new/inside").unwrap_err().message;
        assert!(said.contains("tier 'b' is at") && said.contains("one would be inside the other"), "{said}");
        // The old directory is not in use any more.
        put("c", "b/inside").unwrap();
        volume.shutdown().unwrap();
    }
}
