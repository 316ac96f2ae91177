//! Damage to the structures of a volume: labels, volume table, counts, intents,
//! permissions, temporary files.

use super::format::{LABEL_LEN, TABLE_LEN, counts};
use super::scene::{self, Scene};
use super::{Applied, Error, Finding, Kind, Repair};
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};

const REFUSED: &str = "the volume may refuse to be mounted; if it does not, all is the same";
const SAME: &str = "all is the same";

pub(super) const KINDS: &[Kind] = &[
    Kind {
        name: "label-missing",
        does: "removes the label of a tier other than home",
        finding: Finding::Refused,
        repair: Repair::Lossless,
        answer: REFUSED,
        inflict: label_missing,
    },
    Kind {
        name: "label-damaged",
        does: "flips a bit of the label of a tier other than home",
        finding: Finding::Refused,
        repair: Repair::Lossless,
        answer: REFUSED,
        inflict: label_damaged,
    },
    Kind {
        name: "label-of-another-volume",
        does: "lets the label of a tier other than home name another volume, with a right CRC",
        finding: Finding::Refused,
        repair: Repair::Impossible,
        answer: REFUSED,
        inflict: label_of_another_volume,
    },
    Kind {
        name: "label-of-home-damaged",
        does: "flips a bit of the home tier's label",
        finding: Finding::Refused,
        repair: Repair::Lossless,
        answer: REFUSED,
        inflict: label_of_home_damaged,
    },
    Kind {
        name: "label-of-home-missing",
        does: "removes the home tier's label, as if the volume had never been made to the end",
        finding: Finding::Refused,
        repair: Repair::Lossless,
        answer: REFUSED,
        inflict: label_of_home_missing,
    },
    Kind {
        name: "table-missing",
        does: "removes the volume table",
        finding: Finding::Refused,
        repair: Repair::Lossless,
        answer: REFUSED,
        inflict: table_missing,
    },
    Kind {
        name: "table-damaged",
        does: "flips a bit of the volume table",
        finding: Finding::Refused,
        repair: Repair::Lossless,
        answer: REFUSED,
        inflict: table_damaged,
    },
    Kind {
        name: "temporary-table",
        does: "leaves half a volume table under its temporary name",
        finding: Finding::Either,
        repair: Repair::NotNeeded,
        answer: SAME,
        inflict: temporary_table,
    },
    Kind {
        name: "temporary-label",
        does: "leaves half a label under its temporary name",
        finding: Finding::Either,
        repair: Repair::NotNeeded,
        answer: SAME,
        inflict: temporary_label,
    },
    Kind {
        name: "counts-wrong",
        does: "stores saved counts of ranges that are wrong, with a right CRC",
        finding: Finding::Reported,
        repair: Repair::Lossless,
        answer: SAME,
        inflict: counts_wrong,
    },
    Kind {
        name: "counts-damaged",
        does: "stores nonsense as saved counts, which are then counted anew",
        finding: Finding::Either,
        repair: Repair::NotNeeded,
        answer: SAME,
        inflict: counts_damaged,
    },
    Kind {
        name: "ballast-missing",
        does: "removes the space set aside for indexes",
        finding: Finding::Either,
        repair: Repair::NotNeeded,
        answer: SAME,
        inflict: ballast_missing,
    },
    Kind {
        name: "intent-damaged",
        does: "stores nonsense as a record of an operation of several steps",
        finding: Finding::Reported,
        repair: Repair::Impossible,
        answer: SAME,
        inflict: intent_damaged,
    },
    Kind {
        name: "open-to-all",
        does: "lets everybody into .braid of the home tier",
        finding: Finding::Reported,
        repair: Repair::Lossless,
        answer: SAME,
        inflict: open_to_all,
    },
    Kind {
        name: "object-open-to-all",
        does: "lets everybody write to .braid of another tier and to an object in it",
        finding: Finding::Reported,
        repair: Repair::Lossless,
        answer: SAME,
        inflict: object_open_to_all,
    },
    Kind {
        name: "index-of-another-owner",
        does: "gives an index to another user",
        finding: Finding::Reported,
        repair: Repair::Lossless,
        answer: SAME,
        inflict: index_of_another_owner,
    },
];

fn other_label(scene: &Scene) -> Result<PathBuf, Error> {
    Ok(scene.other_tier()?.dir.join(".braid/label"))
}

fn label_missing(scene: &mut Scene) -> Result<Applied, Error> {
    let label = other_label(scene)?;
    scene::remove(&label)?;
    Applied::volume(label)
}

/// Behind the version, which may not be a damaged but a later one.
fn flip(scene: &mut Scene, path: PathBuf, len: usize) -> Result<Applied, Error> {
    scene.flip(&path, 12..len as u64)?;
    Applied::volume(path)
}

fn label_damaged(scene: &mut Scene) -> Result<Applied, Error> {
    let label = other_label(scene)?;
    flip(scene, label, LABEL_LEN)
}

fn label_of_another_volume(scene: &mut Scene) -> Result<Applied, Error> {
    let (place, mut label) = (other_label(scene)?, scene.other_tier()?.label.clone());
    label.volume.0 = scene.new_id().0;
    scene::write(&place, &label.encode())?;
    Applied::volume(place)
}

fn label_of_home_damaged(scene: &mut Scene) -> Result<Applied, Error> {
    let label = scene.braid("label");
    flip(scene, label, LABEL_LEN)
}

fn label_of_home_missing(scene: &mut Scene) -> Result<Applied, Error> {
    let label = scene.braid("label");
    scene::remove(&label)?;
    Applied::volume(label)
}

fn table_missing(scene: &mut Scene) -> Result<Applied, Error> {
    let table = scene.braid("volume");
    scene::remove(&table)?;
    Applied::volume(table)
}

fn table_damaged(scene: &mut Scene) -> Result<Applied, Error> {
    let table = scene.braid("volume");
    flip(scene, table, TABLE_LEN)
}

/// Stores the first half of a file under its temporary name.
fn half_written(path: &Path) -> Result<Applied, Error> {
    let bytes = fs::read(path).map_err(|error| Error::io(path, error))?;
    let place = path.with_extension("new");
    scene::write(&place, &bytes[..bytes.len() / 2])?;
    Applied::volume(place)
}

fn temporary_table(scene: &mut Scene) -> Result<Applied, Error> {
    half_written(&scene.braid("volume"))
}

fn temporary_label(scene: &mut Scene) -> Result<Applied, Error> {
    half_written(&other_label(scene)?)
}

fn counts_wrong(scene: &mut Scene) -> Result<Applied, Error> {
    let place = scene.braid("counts");
    scene::write(&place, &counts(&[1_000_000; 63]))?;
    Applied::volume(place)
}

fn counts_damaged(scene: &mut Scene) -> Result<Applied, Error> {
    let place = scene.braid("counts");
    scene::write(&place, &[0x77; 520])?;
    Applied::volume(place)
}

fn ballast_missing(scene: &mut Scene) -> Result<Applied, Error> {
    let place = scene.braid("ballast");
    if !place.exists() {
        return Err(Error::Unsuited("the volume has no space set aside"));
    }
    scene::remove(&place)?;
    Applied::volume(place)
}

fn intent_damaged(scene: &mut Scene) -> Result<Applied, Error> {
    let place = scene.braid("intent/stale");
    scene::write(&place, &[0x77; 64])?;
    Applied::volume(place)
}

fn set_mode(path: &Path, mode: u32) -> Result<(), Error> {
    fs::set_permissions(path, Permissions::from_mode(mode)).map_err(|error| Error::io(path, error))
}

fn open_to_all(scene: &mut Scene) -> Result<Applied, Error> {
    let place = scene.braid("");
    set_mode(&place, 0o755)?;
    Applied::volume(place)
}

fn object_open_to_all(scene: &mut Scene) -> Result<Applied, Error> {
    let owner = scene.owner()?;
    let object = scene.object(owner, scene.file.id)?;
    set_mode(&object, 0o666)?;
    let braid = object.ancestors().nth(3).unwrap_or(&object);
    set_mode(braid, 0o777)?;
    Applied::volume(object)
}

fn index_of_another_owner(scene: &mut Scene) -> Result<Applied, Error> {
    if !rustix::process::geteuid().is_root() {
        return Err(Error::Unsuited("only the superuser can give files away"));
    }
    let place = scene.index(scene.file.id);
    chown(&place, Some(12_345), Some(12_345)).map_err(|error| Error::io(&place, error))?;
    Applied::volume(place)
}
