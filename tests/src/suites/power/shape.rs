//! Which file systems a volume has as tiers, and how it spreads. All pairs of
//! a role and a kind, all policies and several range sizes come up within ten
//! volumes.

use crate::arena::{ADAPTIVE, DYNAMIC, HOME_FIRST, SIZE, STATIC, WEIGHTED, policy_name};
use braid_tests_support::error::{Context, Result};
use braid_tests_support::lab::{Stack, Tier};
use braid_tests_support::sh::cmd;
use serde_json::{Value, json};
use std::path::Path;

/// A native file system in the guest.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Native {
    Ext4,
    Xfs,
    Btrfs,
    /// ext4 with `-o dax` on persistent memory.
    Dax,
}

use Native::{Btrfs, Dax, Ext4, Xfs};

/// Tiers, home first; policy; range size.
type Row = (&'static [Native], &'static str, &'static str);

const ROWS: [Row; 10] = [
    (&[Ext4, Xfs], WEIGHTED, "64KiB"),
    (&[Xfs, Btrfs, Ext4], HOME_FIRST, "256KiB"),
    (&[Btrfs, Ext4], SIZE, "128KiB"),
    (&[Ext4, Dax, Xfs], ADAPTIVE, "64KiB"),
    (&[Xfs, Ext4], SIZE, "512KiB"),
    (&[Btrfs, Xfs, Ext4], STATIC, "64KiB"),
    (&[Ext4, Btrfs], HOME_FIRST, "64KiB"),
    (&[Dax, Xfs, Btrfs], DYNAMIC, "128KiB"),
    (&[Xfs, Btrfs], ADAPTIVE, "64KiB"),
    (&[Btrfs, Dax], WEIGHTED, "256KiB"),
];

/// Native file systems without Braid on them.
const NATIVE_ROWS: [Row; 4] =
    [(&[Ext4], NATIVE, ""), (&[Xfs], NATIVE, ""), (&[Btrfs], NATIVE, ""), (&[Dax], NATIVE, "")];

/// Instead of a policy: there is no volume.
const NATIVE: &str = "native";
/// Instead of a policy: the device has a log file system.
const LOG: &str = "log file system";

/// Size of a disk.
const MIB: u64 = 384;

/// A volume's tiers and how it spreads.
#[derive(Clone, Copy)]
pub(super) struct Shape(Row);

impl Shape {
    /// Those of all volumes.
    pub(super) fn volumes() -> Vec<Self> {
        ROWS.map(Self).into()
    }

    /// Native file systems, to be loaded by themselves.
    pub(super) fn natives() -> Vec<Self> {
        NATIVE_ROWS.map(Self).into()
    }

    /// A log file system.
    pub(super) fn log() -> Self {
        Self((&[], LOG, ""))
    }

    /// Whether there is a volume.
    pub(super) fn is_volume(&self) -> bool {
        ![NATIVE, LOG].contains(&self.0.1)
    }

    /// The device in the guest that has a log file system, if there is one.
    pub(super) fn log_device(&self) -> Option<&'static str> {
        (self.0.1 == LOG).then_some("/dev/vdc")
    }

    /// As it is named in reports.
    pub(super) fn name(&self) -> String {
        let (natives, policy, range) = self.0;
        if natives.is_empty() {
            return policy.into();
        }
        let natives: Vec<_> = natives.iter().map(|native| native.name()).collect();
        let range = if range.is_empty() { String::new() } else { format!(", {range}") };
        format!("{}, {}{range}", natives.join(" + "), policy_name(policy))
    }

    /// The stack file in the guest, if there is a volume.
    pub(super) fn stack(&self) -> Option<String> {
        let (natives, policy, range) = self.0;
        if !self.is_volume() {
            return None;
        }
        let tiers =
            (0..natives.len()).map(|at| Tier::new(&name(at), Path::new(&format!("/mnt/{}", name(at))), 100));
        // The images are nearly empty.
        let policy = policy.replace("50%", "1%");
        Some(Stack::new(&policy, range, tiers.collect()).yaml())
    }

    /// The tiers for the guest to mount, in JSON.
    pub(super) fn tiers(&self) -> Value {
        let (mut disks, mut memories) = ('c'..='z', 0..);
        let tiers = self.0.0.iter().enumerate().map(|(at, native)| {
            let device = match native {
                Dax => format!("/dev/pmem{}", memories.next().unwrap_or(0)),
                _ => format!("/dev/vd{}", disks.next().unwrap_or('z')),
            };
            let options = if *native == Dax { "dax" } else { "defaults" };
            json!({
                "name": name(at), "device": device, "options": options,
                "kind": native.kind(), "make": *native == Dax,
            })
        });
        Value::Array(tiers.collect())
    }

    /// An image of each tier's device. Persistent memory is for the guest to
    /// make a file system on.
    pub(super) fn make_images(&self, dir: &Path) -> Result<()> {
        if self.log_device().is_some() {
            let image = dir.join("log.disk");
            return std::fs::File::create(&image).and_then(|file| file.set_len(MIB << 20)).at(&image);
        }
        for (at, native) in self.0.0.iter().enumerate() {
            let image = dir.join(format!("{}.{}", name(at), if *native == Dax { "pmem" } else { "disk" }));
            let mib = if *native == Dax { 256 } else { MIB };
            std::fs::File::create(&image).and_then(|file| file.set_len(mib << 20)).at(&image)?;
            let make = match native {
                Ext4 => cmd("mkfs.ext4").args(["-q", "-F", "-m", "0", "-E", "lazy_itable_init=0"]),
                Xfs => cmd("mkfs.xfs").args(["-q", "-f"]),
                Btrfs => cmd("mkfs.btrfs").arg("-q"),
                Dax => continue,
            };
            make.arg(&image).quiet()?;
        }
        Ok(())
    }
}

impl Native {
    fn name(self) -> &'static str {
        if self == Dax { "dax" } else { self.kind() }
    }

    fn kind(self) -> &'static str {
        match self {
            Ext4 | Dax => "ext4",
            Xfs => "xfs",
            Btrfs => "btrfs",
        }
    }
}

/// A tier's name by its place.
fn name(at: usize) -> String {
    if at == 0 { "home".into() } else { format!("other{at}") }
}

/// Copies images, holes as holes.
pub(super) fn copy_images(from: &Path, to: &Path) -> Result<()> {
    cmd("cp").args(["-rT", "--sparse=always"]).arg(from).arg(to).quiet()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_home_and_other_and_every_policy_is_used() {
        for kind in [Ext4, Xfs, Btrfs, Dax] {
            assert!(ROWS.iter().any(|row| row.0[0] == kind));
            assert!(ROWS.iter().any(|row| row.0[1..].contains(&kind)));
        }
        for policy in [WEIGHTED, ADAPTIVE, STATIC, DYNAMIC, SIZE, HOME_FIRST] {
            assert!(ROWS.iter().any(|row| row.1 == policy));
        }
    }

    #[test]
    fn devices_are_counted_by_kind() {
        let tiers = Shape::volumes()[3].tiers();
        let devices: Vec<_> = (0..3).filter_map(|at| tiers[at]["device"].as_str()).collect();
        assert_eq!(devices, ["/dev/vdc", "/dev/pmem0", "/dev/vdd"]);
    }
}
