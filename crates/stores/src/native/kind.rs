//! How fast a block device usually is, by its kind: the last resort where
//! nothing was seen of a tier.

use super::device::device_dir;
use std::fs;
use std::path::Path;

/// Rates of a kind of device in MB/s, read and written.
type Rates = [f64; 2];

/// Kinds by the beginning of the kernel's name for their devices.
const BY_NAME: &[(&str, Rates)] = &[
    ("pmem", [6000.0, 2000.0]),
    ("zram", [3000.0, 2000.0]),
    ("nvme", [2500.0, 1500.0]),
    ("mmcblk", [80.0, 30.0]),
];
const SOLID_STATE: Rates = [500.0, 400.0];
const DISK: Rates = [150.0, 150.0];

/// Bytes a second that the block device of this number usually reads and writes;
/// `None` if its kind is not known, as of virtual devices.
#[must_use]
pub fn usual_rates(number: u64) -> Option<[f64; 2]> {
    rates_of(&device_dir(number)).map(|rates| rates.map(|rate| rate * 1e6))
}

/// By the kernel's directory of a device, or of a part of one.
fn rates_of(dir: &Path) -> Option<Rates> {
    let part = fs::canonicalize(dir).ok()?;
    let whole = if part.join("partition").exists() { part.parent()? } else { &part };
    let name = whole.file_name()?.to_str()?;
    if let Some((_, rates)) = BY_NAME.iter().find(|(begin, _)| name.starts_with(begin)) {
        return Some(*rates);
    }
    // Device mapper and RAID pass on the kind of the devices beneath; that of
    // virtual devices may be anything.
    let is_told = ["sd", "dm-", "md"].iter().any(|begin| name.starts_with(begin));
    if !is_told {
        return None;
    }
    let rotational = fs::read_to_string(whole.join("queue/rotational")).ok()?;
    Some(if rotational.trim() == "0" { SOLID_STATE } else { DISK })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel's directory of a device, with a partition.
    fn device(root: &Path, name: &str, rotational: &str) {
        fs::create_dir_all(root.join(name).join("queue")).unwrap();
        fs::write(root.join(name).join("queue/rotational"), rotational).unwrap();
        fs::create_dir_all(root.join(name).join("part1")).unwrap();
        fs::write(root.join(name).join("part1/partition"), "1\n").unwrap();
    }

    #[test]
    fn a_device_and_its_parts_are_as_fast_as_their_kind() {
        let root = tempfile::tempdir().unwrap();
        for (name, rotational, expected) in [
            ("sda", "1\n", Some(DISK)),
            ("sdb", "0\n", Some(SOLID_STATE)),
            ("dm-3", "0\n", Some(SOLID_STATE)),
            ("nvme0n1", "0\n", Some([2500.0, 1500.0])),
            ("vda", "1\n", None),
            ("loop0", "0\n", None),
        ] {
            device(root.path(), name, rotational);
            let dir = root.path().join(name);
            assert_eq!([rates_of(&dir), rates_of(&dir.join("part1"))], [expected; 2], "{name}");
        }
        assert_eq!((rates_of(&root.path().join("none")), usual_rates(0)), (None, None));
    }
}
