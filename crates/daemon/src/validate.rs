//! Checks the directories of a configuration and refuses impossible ones.
//! Creates and changes nothing.

use crate::config::{BottomNode, Config, MountSettings, TierSettings, VolumeSettings, ZonedTier};
use crate::logfs;
use crate::refusal::{Place, Refusal};
use crate::require;
use crate::tier_store::{self, Kind};
use crate::view;
use braid_contract::Shown;
use braid_ipc::mounts::{self, Mount};
use braid_stores::zoned::{UnitDevice, UnitsAt, ZonedBlockDevice, Zonefs};
use rustix::fs::{Access, AtFlags, CWD, StatVfsMountFlags, StatxAttributes, StatxFlags};
use rustix::io::Errno;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// A suitable mount point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountPoint {
    /// As written.
    pub given: PathBuf,
    /// Absolute, without symbolic links.
    pub path: PathBuf,
}

impl MountPoint {
    /// A mount point that is in use already.
    pub(crate) fn of(path: &Path) -> Self {
        Self { given: path.to_owned(), path: path.to_owned() }
    }
}

/// Refuses a configuration that can't be mounted at `mountpoint`.
///
/// # Errors
/// The first obstacle.
pub fn mount(config: &Config, mountpoint: &Path, nonempty: bool) -> Result<MountPoint, Refusal> {
    config.refuse_direct()?;
    let mut tiers = Vec::new();
    if let Some(volume) = config.stack.volume() {
        tiers = look_at_tiers(volume)?;
        if config.create {
            nothing_inside(volume)?;
        }
    }
    let found = front(config, mountpoint, nonempty)?;
    if let Some(view) = config.stack.view() {
        view::look::keep_apart(view, (&found.given, &found.path))?;
    }
    without_tiers(config)?;
    for tier in &tiers {
        keep_apart(tier, &found)?;
    }
    Ok(found)
}

/// Refuses a mount point, or how it is to be mounted there.
pub(crate) fn front(config: &Config, mountpoint: &Path, nonempty: bool) -> Result<MountPoint, Refusal> {
    front_end(&config.mount)?;
    look_at_mount_point(mountpoint, nonempty)
}

/// Refuses a stack whose devices can't be used.
///
/// # Errors
/// The first obstacle.
pub fn stack(config: &Config) -> Result<(), Refusal> {
    config.stack.volume().map_or(Ok(()), tiers)?;
    without_tiers(config)
}

/// Refuses a file system at the bottom that is no volume, if it can't be mounted like this.
fn without_tiers(config: &Config) -> Result<(), Refusal> {
    match config.stack.bottom() {
        BottomNode::Volume(_) => Ok(()),
        BottomNode::Log(log) => logfs::look::look(log, config),
        BottomNode::View(view) => view::look::look(view, config),
    }
}

/// Refuses a configuration that no volume can be created from.
///
/// # Errors
/// The first obstacle.
pub fn create(volume: &VolumeSettings) -> Result<(), Refusal> {
    look_at_tiers(volume)?;
    nothing_inside(volume)
}

/// Refuses tiers that can't be used.
///
/// # Errors
/// The first obstacle.
pub fn tiers(volume: &VolumeSettings) -> Result<(), Refusal> {
    look_at_tiers(volume).map(|_| ())
}

/// A tier's directory, as found.
struct Looked<'a> {
    tier: &'a TierSettings,
    spot: Spot,
}

/// The location of a directory.
struct Spot {
    /// Absolute, without symbolic links.
    real: PathBuf,
    /// Device and number of its inode; `None` if it was not asked for them,
    /// since it may hang.
    inode: Option<(u64, u64)>,
    /// Its path on its own file system, independent of mounts.
    on_device: Option<(u64, PathBuf)>,
}

/// The overlap of two directories.
enum Overlap {
    /// They are the same.
    Same,
    /// The second is in the first.
    SecondInside,
    /// The first is in the second.
    FirstInside,
}

impl Spot {
    /// The directory `real`, judged by its name and the mount table: its device
    /// is not touched.
    fn named(real: PathBuf, mounts: &[Mount]) -> Self {
        let mount = mounts::containing(mounts, &real);
        let on_device = mount.and_then(|mount| Some((mount.dev, mount.path_within(&real)?)));
        Self { real, inode: None, on_device }
    }

    /// Whether the other one is this one or inside it, by their names.
    fn holds(&self, other: &Self) -> bool {
        let on_device = match (&self.on_device, &other.on_device) {
            (Some((outer, outer_path)), Some((inner, inner_path))) => {
                outer == inner && inner_path.starts_with(outer_path)
            }
            _ => false,
        };
        on_device || other.real.starts_with(&self.real)
    }

    fn overlap(&self, second: &Self) -> Option<Overlap> {
        let same = self.inode.is_some() && self.inode == second.inode;
        match (same, self.holds(second), second.holds(self)) {
            (true, ..) => Some(Overlap::Same),
            (_, true, _) => Some(Overlap::SecondInside),
            (_, _, true) => Some(Overlap::FirstInside),
            _ => None,
        }
    }
}

fn look_at_tiers(volume: &VolumeSettings) -> Result<Vec<Looked<'_>>, Refusal> {
    // Without the table, only the names can be compared.
    let mounts = mounts::list().unwrap_or_default();
    let home = volume.tier(&volume.home.value);
    let is_made = home.is_some_and(|home| require::has_label(&home.dir.value));
    let mut looked: Vec<Looked<'_>> = Vec::new();
    for tier in volume.tiers.iter().filter(|tier| tier.absent.is_none()) {
        let next = look_at(tier, &mounts).map_err(|refusal| {
            let can_do_without = is_made && tier.name != volume.home.value;
            if can_do_without { or_without(refusal, &tier.name) } else { refusal }
        })?;
        if tier.name == volume.home.value {
            has_names(tier)?;
        }
        for other in &looked {
            compare(other, &next)?;
        }
        looked.push(next);
    }
    Ok(looked)
}

fn look_at<'a>(tier: &'a TierSettings, mounts: &[Mount]) -> Result<Looked<'a>, Refusal> {
    let (real, found) = usable(&tier.dir.value, &tier.dir.place, mounts)?;
    units(&real, tier.zoned.as_ref().map(|zoned| zoned.value), tier.zoned_place())?;
    if let Some(required) = &tier.require {
        require::check(required, &real, mounts)?;
    }
    let inode = Some((found.dev(), found.ino()));
    Ok(Looked { tier, spot: Spot { inode, ..Spot::named(real, mounts) } })
}

/// Checks that a directory can be a tier; returns its location.
fn usable(dir: &Path, place: &Place, mounts: &[Mount]) -> Result<(PathBuf, Metadata), Refusal> {
    let shown = dir.shown();
    let found = std::fs::metadata(dir).map_err(|error| unreachable_dir(dir, place, &error))?;
    let real = std::fs::canonicalize(dir).map_err(|error| unreachable_dir(dir, place, &error))?;
    if found.file_type().is_block_device() {
        usable_device(dir, place, found.rdev(), mounts)?;
        return Ok((real, found));
    }
    if braid_log::is_log_at(&real) {
        usable_log(dir, place)?;
        return Ok((real, found));
    }
    if !found.is_dir() {
        let advice = "a tier is a directory, a device, or a log file system (braid log create); name one";
        return Err(place.refuse(format!("{shown} is not a directory"), advice));
    }
    check_writable(dir, place)?;
    if mounts::containing(mounts, &real).is_some_and(Mount::is_braid) {
        let found = format!("{shown} is in a mounted Braid file system");
        return Err(place.refuse(found, "a tier is a directory of a native file system; name that"));
    }
    if Zonefs::is_at(&real) && mounts::at(mounts, &real).is_none() {
        let root =
            mounts::containing(mounts, &real).map_or(Path::new("its mount point"), |mount| &mount.point);
        let advice = format!("name where it is mounted: {}", root.shown());
        return Err(place.refuse(format!("{shown} is inside a zonefs"), advice));
    }
    if let Some(home) = real.ancestors().skip(1).find(|above| is_home(above)) {
        let found = format!("{shown} is inside {}, the home tier of a volume", home.shown());
        let advice = "its files would be in that volume too; name a directory elsewhere";
        return Err(place.refuse(found, advice));
    }
    Ok((real, found))
}

/// Checks that a file with a log file system can be a tier.
fn usable_log(path: &Path, place: &Place) -> Result<(), Refusal> {
    if rustix::fs::access(path, Access::READ_OK | Access::WRITE_OK).is_err() {
        let found = format!("this user may not read and write {}", path.shown());
        return Err(place.refuse(found, "mount as root, or let this user use the file"));
    }
    Ok(())
}

/// Checks that a block device can be a tier.
fn usable_device(path: &Path, place: &Place, number: u64, mounts: &[Mount]) -> Result<(), Refusal> {
    let shown = path.shown();
    if rustix::fs::access(path, Access::READ_OK | Access::WRITE_OK).is_err() {
        let found = format!("this user may not read and write the device {shown}");
        return Err(place.refuse(found, "mount as root, or let this user use the device"));
    }
    let of_device = |mount: &&Mount| {
        let source = || std::fs::metadata(&mount.source).is_ok_and(|found| found.rdev() == number);
        mount.dev == number || (mount.source.starts_with("/dev/") && source())
    };
    if let Some(Mount { fs_type, point, .. }) = mounts.iter().find(of_device) {
        let point = point.shown();
        let instead = if fs_type == "zonefs" { format!("name {point} instead, or ") } else { String::new() };
        let found = format!("{shown} is mounted at {point} ({fs_type})");
        return Err(place.refuse(found, format!("{instead}unmount it: umount {point}")));
    }
    Ok(())
}

/// Checks that a path has zones where a tier in zones is to be, or can be cut into units.
fn units(path: &Path, zoned: Option<ZonedTier>, place: &Place) -> Result<(), Refusal> {
    let unit = zoned.and_then(|zoned| zoned.unit);
    let what = match tier_store::kind_of(path) {
        Ok(Kind::Device) if ZonedBlockDevice::is_at(path) => "has zones of its own",
        Ok(Kind::Device) if unit.is_some() || UnitDevice::look_at(path) != UnitsAt::Unknown => return Ok(()),
        Ok(Kind::Device) => {
            let advice = "make a file system on it, mount that, and name a directory there; or have it cut into \
                units, in the stack file: zoned: { unit: SIZE }; without that, a block device is a tier only \
                if it is zoned (lsblk -z) or has data placement (FDP)";
            return Err(place.refuse(format!("{} is a block device without zones", path.shown()), advice));
        }
        Ok(Kind::Zonefs) => "is a zonefs",
        Ok(Kind::Emulated) => "is an emulated zoned device",
        Ok(Kind::Log) if zoned.is_some() => {
            let found = format!("{} is a log file system, and has no zones", path.shown());
            return Err(place.refuse(found, "take `zoned` out"));
        }
        Ok(Kind::Log) => "is a log file system",
        // Its errors are found where it is opened.
        Ok(Kind::Directory) | Err(_) => "is a directory",
    };
    match unit {
        None => Ok(()),
        Some(_) => {
            let found =
                format!("{} {what}, and only a block device without zones is cut into units", path.shown());
            Err(place.refuse(found, "take `unit` out"))
        }
    }
}

/// Refuses a home tier that has no names of files.
fn has_names(home: &TierSettings) -> Result<(), Refusal> {
    match tier_store::kind_of(&home.dir.value) {
        Ok(Kind::Device | Kind::Zonefs) => {
            let advice = "name another tier as home: a zoned device has no names";
            Err(home.dir.place.refuse("the home tier can't be kept in zones", advice))
        }
        Ok(Kind::Log) => {
            let advice = "name another tier as home; or mount it by itself: stack: { log: { device: … } }";
            Err(home.dir.place.refuse("the home tier can't be a log file system", advice))
        }
        _ => Ok(()),
    }
}

/// Whether a directory is the home tier of a volume, mounted or not.
fn is_home(dir: &Path) -> bool {
    let found = std::fs::symlink_metadata(dir.join(".braid/volume"));
    // A label that can't be read exists.
    !found.is_err_and(|error| matches!(Errno::from_io_error(&error), Some(Errno::NOENT | Errno::NOTDIR)))
}

/// Refuses a new home with a tier of some other volume directly inside.
fn nothing_inside(volume: &VolumeSettings) -> Result<(), Refusal> {
    let Some(home) = volume.tier(&volume.home.value).filter(|home| !require::has_label(&home.dir.value))
    else {
        return Ok(());
    };
    // Errors here are reported where the directory is used.
    let below = std::fs::read_dir(&home.dir.value).into_iter().flatten().flatten();
    let mut below = below.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    match below.find(|entry| require::has_label(&entry.path())) {
        Some(tier) => {
            let found = format!("{} is in it, a tier of a volume", tier.path().shown());
            Err(home
                .dir
                .place
                .refuse(found, "its files would be in the new volume too; name a directory elsewhere"))
        }
        None => Ok(()),
    }
}

/// Refuses a directory that can't be a tier in any case.
pub(crate) fn directory(dir: &Path, place: &Place) -> Result<(), Refusal> {
    let (real, _) = usable(dir, place, &mounts::list().unwrap_or_default())?;
    units(&real, None, place)
}

/// Adds the advice that the mount can go without the tier, if it is lost.
pub(crate) fn or_without(mut refusal: Refusal, tier: &str) -> Refusal {
    refusal
        .advice
        .push_str(&format!("; or mount without it, if it is lost: --without {tier} (-o without={tier})"));
    refusal
}

/// Refuses a directory that can't take the place of a lost tier. `others` are
/// the names and directories of the other tiers, which are not touched: their
/// devices may hang. `zoned` has its settings of zones.
pub(crate) fn replacement<'a>(
    (dir, zoned): (&Path, Option<ZonedTier>),
    others: impl Iterator<Item = (&'a str, &'a Path)>,
    mountpoint: &Path,
) -> Result<PathBuf, Refusal> {
    let place = Place::flag(dir.to_string_lossy());
    let mounts = mounts::list().unwrap_or_default();
    let (real, _) = usable(dir, &place, &mounts)?;
    units(&real, zoned, &place)?;
    let spot = Spot::named(real.clone(), &mounts);
    for (name, other) in others {
        if spot.overlap(&Spot::named(other.to_owned(), &mounts)).is_some() {
            let found = format!("tier '{name}' is at {}, and one would be inside the other", other.shown());
            return Err(place.refuse(found, "give each tier a directory of its own"));
        }
    }
    if real.starts_with(mountpoint) || mountpoint.starts_with(&real) {
        let found =
            format!("the volume is mounted at {}, and one would be inside the other", mountpoint.shown());
        return Err(place.refuse(found, "name a directory elsewhere"));
    }
    crate::ownership::check(&real, false).map_err(|(found, advice)| place.refuse(found, advice))?;
    Ok(real)
}

fn unreachable_dir(dir: &Path, place: &Place, error: &io::Error) -> Refusal {
    let shown = dir.shown();
    match Errno::from_io_error(error) {
        Some(Errno::NOENT) => {
            let path = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
            let device = require::from_fstab(&path, &mounts::list().unwrap_or_default());
            let device = device.map_or_else(String::new, |device| format!(" ({device})"));
            let advice = format!("mount the tier's device{device}, or make the directory: mkdir -p {shown}");
            place.refuse(format!("there is no directory {shown}"), advice)
        }
        Some(Errno::NOTDIR) => {
            place.refuse(format!("a part of {shown} is not a directory"), "check the path")
        }
        Some(Errno::ACCESS) => place
            .refuse(format!("this user may not enter {shown}"), "change the permissions on the way there"),
        Some(Errno::NOTCONN) => {
            let mounts = mounts::list().unwrap_or_default();
            let path = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
            let point = mounts::containing(&mounts, &path).map_or(path.as_path(), |mount| &mount.point);
            let point = point.shown();
            place.refuse(
                format!("{shown} is below {point}, a mount that has lost its daemon"),
                format!("clean it up: braid umount {point}, or umount -l {point}"),
            )
        }
        _ => place.refuse(format!("{shown} can't be used: {error}"), "check the device and its file system"),
    }
}

fn check_writable(dir: &Path, place: &Place) -> Result<(), Refusal> {
    let shown = dir.shown();
    let read_only = rustix::fs::statvfs(dir).is_ok_and(|fs| fs.f_flag.contains(StatVfsMountFlags::RDONLY));
    // Nothing can be made in a zonefs, and nothing is.
    let made = if Zonefs::is_at(dir) { Access::empty() } else { Access::WRITE_OK };
    let access = rustix::fs::access(dir, Access::READ_OK | made | Access::EXEC_OK);
    if read_only || access == Err(Errno::ROFS) {
        let advice = "remount it for writing (mount -o remount,rw), or leave the tier out";
        return Err(place.refuse(format!("{shown} is on a read-only file system"), advice));
    }
    let attributes = rustix::fs::statx(CWD, dir, AtFlags::empty(), StatxFlags::BASIC_STATS);
    if attributes.is_ok_and(|found| found.stx_attributes.contains(StatxAttributes::IMMUTABLE)) {
        let found = format!("{shown} is marked immutable, so nothing can be made in it");
        return Err(place.refuse(found, format!("remove the mark: chattr -i {shown}")));
    }
    if access.is_err() {
        let advice = format!("give this user read, write and search permission on {shown}");
        return Err(place.refuse(format!("{shown} is not writable for this user"), advice));
    }
    Ok(())
}

/// Refuses two tiers that share files.
fn compare(first: &Looked<'_>, second: &Looked<'_>) -> Result<(), Refusal> {
    let place = &second.tier.dir.place;
    let names = format!("tiers '{}' and '{}'", first.tier.name, second.tier.name);
    let (outer, inner) = match first.spot.overlap(&second.spot) {
        None => return Ok(()),
        Some(Overlap::Same) => {
            let by = if first.spot.real == second.spot.real { "" } else { ", by way of a bind mount" };
            let found = format!("{names} are the same directory, {}{by}", first.spot.real.shown());
            return Err(place.refuse(found, "give each tier a directory of its own"));
        }
        Some(Overlap::SecondInside) => (first, second),
        Some(Overlap::FirstInside) => (second, first),
    };
    let found = format!(
        "tier '{}' ({}) is inside tier '{}' ({})",
        inner.tier.name,
        inner.spot.real.shown(),
        outer.tier.name,
        outer.spot.real.shown()
    );
    Err(inner.tier.dir.place.refuse(found, "put the two beside each other, in directories of their own"))
}

fn look_at_mount_point(given: &Path, nonempty: bool) -> Result<MountPoint, Refusal> {
    let shown = given.shown();
    let place = Place::flag(format!("mount point {shown}"));
    let found = std::fs::metadata(given).map_err(|error| unreachable_mount_point(given, &place, &error))?;
    if !found.is_dir() {
        return Err(place.refuse("this is not a directory", "name an empty directory"));
    }
    let path =
        std::fs::canonicalize(given).map_err(|error| unreachable_mount_point(given, &place, &error))?;
    let mounts = mounts::list().unwrap_or_default();
    if let Some(mount) = mounts::at(&mounts, &path).filter(|mount| mount.is_braid()) {
        if mount.is_dead() {
            return Err(stale(given, &place, true));
        }
        let advice = format!("unmount it first: braid umount {shown}");
        return Err(place.refuse("a Braid file system is mounted here already", advice));
    }
    let occupied = std::fs::read_dir(&path).is_ok_and(|mut names| names.next().is_some());
    if occupied && !nonempty {
        let advice = "choose an empty directory, or pass --nonempty to hide what is there while mounted";
        return Err(place.refuse("the directory is not empty", advice));
    }
    Ok(MountPoint { given: given.to_owned(), path })
}

fn unreachable_mount_point(given: &Path, place: &Place, error: &io::Error) -> Refusal {
    let shown = given.shown();
    match Errno::from_io_error(error) {
        Some(Errno::NOENT) => {
            place.refuse("there is no such directory", format!("make it: mkdir -p {shown}"))
        }
        Some(Errno::NOTCONN) => {
            let mounts = mounts::list().unwrap_or_default();
            let path = mounts::resolve(given).unwrap_or_else(|_| given.to_owned());
            stale(given, place, mounts::containing(&mounts, &path).is_some_and(Mount::is_braid))
        }
        Some(Errno::ACCESS) => place.refuse(
            "this user may not enter the directory",
            "choose another, or change the permissions on the way there",
        ),
        _ => place.refuse(format!("can't be used: {error}"), "choose another directory"),
    }
}

fn stale(given: &Path, place: &Place, is_braid: bool) -> Refusal {
    let command = if is_braid { "braid umount" } else { "umount -l" };
    place.refuse(
        "a file system is still mounted here, but its daemon is gone",
        format!("clean it up: {command} {}", given.shown()),
    )
}

/// Refuses a mount point and a tier of which one would hide the other.
fn keep_apart(tier: &Looked<'_>, point: &MountPoint) -> Result<(), Refusal> {
    let (name, real) = (&tier.tier.name, tier.spot.real.shown());
    let advice = "mount elsewhere: the mount would hide the tier, or the tier would hold the mount";
    if tier.spot.real == point.path {
        let found = format!("tier '{name}' and the mount point are the same directory, {real}");
        return Err(tier.tier.dir.place.refuse(found, advice));
    }
    if tier.spot.real.starts_with(&point.path) {
        let found = format!("tier '{name}' ({real}) is inside the mount point {}", point.path.shown());
        return Err(tier.tier.dir.place.refuse(found, advice));
    }
    if point.path.starts_with(&tier.spot.real) {
        let place = Place::flag(format!("mount point {}", point.given.to_string_lossy()));
        return Err(place.refuse(format!("it is inside tier '{name}' ({real})"), advice));
    }
    Ok(())
}

/// Refuses a mount that the kernel or `fusermount3` would.
fn front_end(mount: &MountSettings) -> Result<(), Refusal> {
    if !Path::new("/dev/fuse").exists() {
        let advice =
            "load the kernel's FUSE module: modprobe fuse (in a container: pass the device /dev/fuse)";
        return Err(Place::flag("/dev/fuse").refuse("there is no such device", advice));
    }
    let Some(allow) = mount.allow_other.as_ref().filter(|allow| allow.value) else { return Ok(()) };
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let allowed = std::fs::read_to_string("/etc/fuse.conf")
        .is_ok_and(|text| text.lines().any(|line| line.trim() == "user_allow_other"));
    if allowed {
        return Ok(());
    }
    let advice =
        "ask the administrator to add the line user_allow_other to /etc/fuse.conf, or leave this out";
    Err(allow.place.refuse("users of this machine may not let others use their mounts", advice))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(dev: u64, root: &str, point: &str) -> Mount {
        let [fs_type, source, options] = ["ext4", "/dev/x", "rw"].map(str::to_owned);
        Mount { dev, root: root.into(), point: point.into(), fs_type, source, options }
    }

    #[test]
    fn directories_are_kept_apart_by_name_and_through_bind_mounts_without_being_touched() {
        let mounts = [mount(1, "/", "/"), mount(2, "/", "/disk"), mount(2, "/a", "/bind")];
        let overlap = |first: &str, second: &str| {
            let [first, second] = [first, second].map(|dir| Spot::named(dir.into(), &mounts));
            first.overlap(&second).map(|overlap| matches!(overlap, Overlap::FirstInside))
        };
        assert_eq!(overlap("/srv/new", "/srv/new/in"), Some(false));
        assert_eq!(overlap("/srv/new/in", "/srv/new"), Some(true));
        assert_eq!(overlap("/bind/x", "/disk/a"), Some(true));
        assert_eq!(overlap("/disk", "/bind"), Some(false));
        assert!(overlap("/bind", "/disk/a").is_some());
        assert_eq!(overlap("/bind/x", "/disk/b"), None);
        // The same path on another device.
        assert_eq!(overlap("/bind", "/a"), None);
        assert_eq!(overlap("/srv/new", "/srv/newer"), None);
    }
}
