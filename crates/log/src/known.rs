//! Recognises the contents of a device, by the marks that file systems and
//! others leave.

use crate::device::{BLOCK, Device};
use crate::layout::Superblock;
use crate::scan::superblock_offsets;

/// Bytes from the beginning that are looked at.
const HEAD: usize = 72 << 10;

/// Marks: their place, their bytes, and the name of their format.
const MARKS: [(usize, &[u8], &str); 19] = [
    (0x438, &[0x53, 0xef], "an ext2, ext3 or ext4 file system"),
    (0, b"XFSB", "an XFS file system"),
    (0x10040, b"_BHRfS_M", "a btrfs file system"),
    (0x400, &[0x10, 0x20, 0xf5, 0xf2], "an f2fs file system"),
    (0x1018, &[0xc6, 0x85, 0x73, 0xf6, 0x4e, 0x1a], "a bcachefs file system"),
    (0x400, &[0xe2, 0xe1, 0xf5, 0xe0], "an erofs file system"),
    (0, b"hsqs", "a squashfs file system"),
    (3, b"NTFS    ", "an NTFS file system"),
    (3, b"EXFAT   ", "an exFAT file system"),
    (54, b"FAT1", "a FAT file system"),
    (82, b"FAT32", "a FAT file system"),
    (0x8001, b"CD001", "an ISO 9660 file system"),
    (4086, b"SWAPSPACE2", "a swap area"),
    (0, b"LUKS\xba\xbe", "a LUKS volume"),
    (512, b"LABELONE", "an LVM physical volume"),
    (4096, &[0xfc, 0x4e, 0x2b, 0xa9], "a member of a RAID"),
    (512, b"EFI PART", "a partition table (GPT)"),
    (510, &[0x55, 0xaa], "a partition table or boot sector"),
    (0, b"zonefs", "a zonefs"),
];

/// The name of a device's contents; `None` if its beginning is empty.
///
/// # Errors
/// Those of reading it.
pub fn known(device: &dyn Device) -> braid_contract::Result<Option<&'static str>> {
    let mut head = vec![0; HEAD.min(usize::try_from(device.size()).unwrap_or(HEAD))];
    device.read_at(0, &mut head)?;
    if is_log(device)? {
        return Ok(Some("a log file system"));
    }
    let found = MARKS.iter().find(|(at, mark, _)| head.get(*at..).is_some_and(|rest| rest.starts_with(mark)));
    let other = || head.iter().any(|byte| *byte != 0).then_some("data of an unknown kind");
    Ok(found.map(|(_, _, what)| *what).or_else(other))
}

/// Whether a log file system is on a device, sound or not: by its beginning, since a later
/// user of the device may have left the copy of the superblock at its end. That one
/// counts if the beginning was zeroed.
///
/// # Errors
/// Those of reading it.
pub fn is_log(device: &dyn Device) -> braid_contract::Result<bool> {
    if device.size() < BLOCK {
        return Ok(false);
    }
    let [first, second] = superblock_offsets(device.size());
    let mut block = vec![0; BLOCK as usize];
    device.read_at(first, &mut block)?;
    if Superblock::is_one(&block) || block.iter().any(|byte| *byte != 0) {
        return Ok(Superblock::is_one(&block));
    }
    device.read_at(second, &mut block)?;
    Ok(Superblock::decode(&block).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Disk, Owner, Use, format, make_file};
    use braid_testkit::sim::{SimClock, SimEnvironment};
    use std::io::IoSlice;
    use std::sync::Arc;

    #[test]
    fn what_overwrote_the_beginning_is_no_log_though_the_end_is_left() {
        let environment = SimEnvironment::new(Arc::new(SimClock::default()), 1);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        make_file(&path, 16 << 20).unwrap();
        let disk: Arc<dyn Device> = Arc::new(Disk::open(&path, Use::Write).unwrap());
        assert!(!is_log(&*disk).unwrap(), "all zeros");
        format(&disk, Owner { uid: 0, gid: 0 }, &environment).unwrap();
        let mut sound = vec![0; BLOCK as usize];
        disk.read_at(0, &mut sound).unwrap();
        let mut damaged = sound.clone();
        damaged[100] ^= 1;
        let mut other = sound.clone();
        other[0] ^= 1;
        let zeros = vec![0; BLOCK as usize];
        for (first, is_one) in [(&sound, true), (&damaged, true), (&other, false), (&zeros, true)] {
            disk.write_at(0, &[IoSlice::new(first)]).unwrap();
            assert_eq!(is_log(&*disk).unwrap(), is_one);
            let what = known(&*disk).unwrap();
            assert_eq!(what, Some(if is_one { "a log file system" } else { "data of an unknown kind" }));
        }
        disk.write_at((16 << 20) - BLOCK, &[IoSlice::new(&damaged)]).unwrap();
        assert!(!is_log(&*disk).unwrap(), "neither copy is one");
    }
}
