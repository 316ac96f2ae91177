//! What a device holds already, by the marks that file systems and others leave.

use crate::device::Device;
use crate::layout::Superblock;
use crate::scan::superblock_offsets;

/// Bytes from the beginning that are looked at.
const HEAD: usize = 72 << 10;

/// Marks: at which byte, which bytes, of what.
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

/// What a device holds; `None` if its beginning is empty.
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

/// Whether a log file system is on a device, sound or not.
///
/// # Errors
/// Those of reading it.
pub fn is_log(device: &dyn Device) -> braid_contract::Result<bool> {
    let mut mark = [0; 8];
    for offset in superblock_offsets(device.size()) {
        if offset + mark.len() as u64 <= device.size() {
            device.read_at(offset, &mut mark)?;
            if Superblock::is_one(&mark) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}
