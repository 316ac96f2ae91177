//! Requirements on a tier's directory, and descriptions of one that is not the
//! tier: whether it is a mount point, and which device belongs there.
//!
//! The kernel answers the UUID of a file system; where it does not (before
//! Linux 6.9, and for some file systems), the links that udev creates in
//! `/dev/disk/by-uuid` lead to it.

use crate::config::{Require, TierSettings, VolumeSettings};
use crate::paths;
use crate::refusal::{Located, Place, Refusal};
use crate::section::Field;
use braid_contract::Shown;
use braid_ipc::mounts::{self, Mount};
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const FSTAB: &str = "/etc/fstab";
const BY_UUID: &str = "/dev/disk/by-uuid";

/// `mountpoint` or `uuid=UUID`.
pub(crate) fn read(field: &Field) -> Result<Located<Require>, Refusal> {
    field.parse("mountpoint or uuid=UUID", parse)
}

/// Parses a requirement.
pub(crate) fn parse(text: &str) -> Result<Require, String> {
    match text.split_once('=') {
        None if text == "mountpoint" => Ok(Require::MountPoint),
        Some(("uuid", uuid)) if is_uuid(uuid) => Ok(Require::Uuid(uuid.to_owned())),
        Some(("uuid", _)) => Err("write the UUID as blkid or lsblk -o UUID tell it".into()),
        _ => Err("write mountpoint, or uuid= and the UUID of the file system".into()),
    }
}

fn is_uuid(text: &str) -> bool {
    text.len() >= 4 && text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
}

/// Refuses a directory that does not meet its tier's requirement. `real` has no
/// symbolic links.
pub(crate) fn check(require: &Located<Require>, real: &Path, mounts: &[Mount]) -> Result<(), Refusal> {
    let shown = real.shown();
    match &require.value {
        Require::MountPoint if mounts::at(mounts, real).is_some() => Ok(()),
        Require::MountPoint => {
            let (what, device) = (place_of(real, mounts), from_fstab(real, mounts));
            let which = device.as_ref().map_or_else(String::new, |device| format!(" ({device})"));
            let found = format!("{shown} {what}, and is required to be a mount point");
            Err(require
                .place
                .refuse(found, format!("mount the tier's device{which} there, then mount again")))
        }
        Require::Uuid(uuid) if is_on(real, uuid, mounts) => Ok(()),
        Require::Uuid(uuid) => {
            let found =
                format!("{shown} is not on the file system UUID={uuid}: {}", whereabouts(uuid, mounts));
            Err(require.place.refuse(found, format!("mount it: mount UUID={uuid} {shown}")))
        }
    }
}

/// The same for a directory that takes part in a mounted volume.
pub(crate) fn check_now(require: &Located<Require>, dir: &Path) -> Result<(), Refusal> {
    check(require, &paths::real(dir), &mounts::list().unwrap_or_default())
}

/// Whether a directory meets a requirement.
pub(crate) fn is_met(require: &Require, dir: &Path) -> bool {
    check_now(&Located::new(require.clone(), Place::flag("")), dir).is_ok()
}

/// Describes the tiers without a label: the state of each directory, and the
/// device that belongs there.
pub(crate) fn unlabelled(volume: &VolumeSettings) -> String {
    let mounts = mounts::list().unwrap_or_default();
    let bare = |tier: &&TierSettings| tier.absent.is_none() && !has_label(&tier.dir.value);
    let line = |tier: &TierSettings| {
        let real = std::fs::canonicalize(&tier.dir.value).unwrap_or_else(|_| tier.dir.value.clone());
        let device = match from_fstab(&real, &mounts) {
            Some(device) => format!("; {FSTAB} has {device}, which is not mounted"),
            None => String::new(),
        };
        format!("\n  {}: no label in {}, which {}{device}", tier.name, real.shown(), place_of(&real, &mounts))
    };
    volume.tiers.iter().filter(bare).map(line).collect()
}

/// Whether a directory has the label of a tier.
pub(crate) fn has_label(dir: &Path) -> bool {
    let found = std::fs::symlink_metadata(dir.join(".braid/label"));
    !found.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// Describes a directory's position in the tree of mounts.
fn place_of(real: &Path, mounts: &[Mount]) -> String {
    match mounts::containing(mounts, real) {
        Some(mount) if mount.point == real => {
            format!("is a mount point ({}, {})", mount.fs_type, mount.source)
        }
        Some(mount) => {
            format!("is no mount point but on {} ({}, {})", mount.point.shown(), mount.fs_type, mount.source)
        }
        None => "is no mount point".into(),
    }
}

/// The device that belongs at a directory or above it by `/etc/fstab`, and is
/// not mounted there.
pub(crate) fn from_fstab(real: &Path, mounts: &[Mount]) -> Option<String> {
    missing(&std::fs::read(FSTAB).ok()?, real, mounts)
}

/// The same, by a file with this text.
fn missing(text: &[u8], real: &Path, mounts: &[Mount]) -> Option<String> {
    let entries = text.split(|byte| *byte == b'\n').filter_map(|line| {
        let mut fields = line.split(u8::is_ascii_whitespace).filter(|field| !field.is_empty());
        let device = fields.next().filter(|device| device[0] != b'#')?;
        let point = PathBuf::from(OsString::from_vec(mounts::unescape(fields.next()?)));
        Some((String::from_utf8_lossy(device).into_owned(), point))
    });
    let above = entries.filter(|(_, point)| point.is_absolute() && real.starts_with(point));
    let (device, point) = above.max_by_key(|(_, point)| point.components().count())?;
    let at = if point == real { String::new() } else { format!(" for {}", point.shown()) };
    mounts::at(mounts, &point).is_none().then(|| device + &at)
}

/// Whether a directory is on the file system with this UUID.
fn is_on(real: &Path, uuid: &str, mounts: &[Mount]) -> bool {
    if let Some(found) = File::open(real).ok().and_then(braid_sys::fs_uuid) {
        let hex: String = found.iter().map(|byte| format!("{byte:02x}")).collect();
        if hex == uuid.replace('-', "").to_ascii_lowercase() {
            return true;
        }
    }
    let Some(device) = by_uuid(uuid).and_then(|device| std::fs::metadata(device).ok()) else { return false };
    let Ok(found) = std::fs::metadata(real) else { return false };
    // A file system with several devices has a device number of its own.
    let source = mounts::containing(mounts, real).and_then(|mount| std::fs::metadata(&mount.source).ok());
    device.rdev() == found.dev() || source.is_some_and(|source| source.rdev() == device.rdev())
}

/// The device of the file system with this UUID.
fn by_uuid(uuid: &str) -> Option<PathBuf> {
    let mut links = std::fs::read_dir(BY_UUID).ok()?.flatten();
    let link = links.find(|link| link.file_name().to_string_lossy().eq_ignore_ascii_case(uuid))?;
    std::fs::canonicalize(link.path()).ok()
}

/// Describes where the file system with this UUID is.
fn whereabouts(uuid: &str, mounts: &[Mount]) -> String {
    let Some(device) = by_uuid(uuid) else {
        return "no device that has it is known on this machine".into();
    };
    let number = std::fs::metadata(&device).map(|found| found.rdev()).ok();
    match mounts.iter().find(|mount| Some(mount.dev) == number) {
        Some(mount) => format!("that is {}, mounted at {}", device.shown(), mount.point.shown()),
        None => format!("that is {}, which is not mounted", device.shown()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_device_that_belongs_at_a_directory_is_found() {
        let mount = |point: &str| Mount {
            dev: 1,
            root: "/".into(),
            point: point.into(),
            fs_type: "ext4".into(),
            source: "/dev/x".into(),
            options: String::new(),
        };
        let text =
            b"# /dev/no /mnt/nvme\n/dev/root / ext4 defaults 0 1\nUUID=ab\t/mnt/nvme  xfs  nofail 0 0\n\
            /dev/d /mnt/my\\040disk ext4\n/dev/swap none swap\nbroken\n";
        let mounts = [mount("/")];
        let device = |dir: &str, mounts: &[Mount]| missing(text, Path::new(dir), mounts);
        assert_eq!(device("/mnt/nvme", &mounts).unwrap(), "UUID=ab");
        assert_eq!(device("/mnt/nvme/tier", &mounts).unwrap(), "UUID=ab for /mnt/nvme");
        assert_eq!(device("/mnt/my disk", &mounts).unwrap(), "/dev/d");
        assert_eq!(device("/mnt/nvme", &[mount("/"), mount("/mnt/nvme")]), None);
        assert_eq!(device("/mnt/other", &mounts), None);
    }

    #[test]
    fn what_is_required_is_mountpoint_or_a_uuid() {
        let parse = |text: &str| {
            let node = crate::yaml::Node::new(crate::yaml::Value::Scalar(text.into()));
            read(&Field { name: "require".into(), place: Place::flag("x"), node }).map(|found| found.value)
        };
        assert_eq!(parse("mountpoint").unwrap(), Require::MountPoint);
        assert_eq!(parse("uuid=12ab-34CD").unwrap(), Require::Uuid("12ab-34CD".into()));
        for wrong in ["uuid", "uuid=", "uuid=/dev/sda", "mountpoint=true", "yes"] {
            assert!(parse(wrong).unwrap_err().found.contains("expected mountpoint or uuid=UUID"), "{wrong}");
        }
    }
}
