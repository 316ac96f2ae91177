//! Facts of btrfs that its `statfs(2)` leaves out.

use braid_sys::fs_uuid;
use std::os::fd::AsFd;

/// Its type, as `statfs(2)` has it.
pub(super) const BTRFS_SUPER_MAGIC: i64 = 0x9123_683e;

/// Bytes of data that the file system took, and did not allocate yet: they are
/// free by `statfs(2)`. 0 where the kernel does not report it.
pub(super) fn delayed(fd: impl AsFd) -> u64 {
    let Some(uuid) = fs_uuid(fd) else { return 0 };
    let hex: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    let (a, b, c, d, e) = (&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]);
    let figure = |name: &str| -> u64 {
        let path = format!("/sys/fs/btrfs/{a}-{b}-{c}-{d}-{e}/allocation/data/{name}");
        std::fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
    };
    // Data that waits to be written back, and data on its way.
    figure("bytes_may_use") + figure("bytes_reserved")
}
