//! Zones of a block device: the kernel's calls that report and change them
//! (`linux/blkzoned.h`).

use rustix::path::Arg;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// `_IOWR(0x12, 130, struct blk_zone_report)`, Linux 4.10.
const BLKREPORTZONE: u32 = 0xc010_1282;
/// `_IOW(0x12, 131, struct blk_zone_range)`.
const BLKRESETZONE: u32 = 0x4010_1283;
/// `_IOR(0x12, 132, __u32)`, Linux 4.20.
const BLKGETZONESZ: u32 = 0x8004_1284;
/// `_IOR(0x12, 133, __u32)`.
const BLKGETNRZONES: u32 = 0x8004_1285;
/// `_IOW(0x12, 136, struct blk_zone_range)`, Linux 5.5.
const BLKFINISHZONE: u32 = 0x4010_1288;

/// `BLK_ZONE_REP_CAPACITY`: the report has the zones' capacities, since Linux 5.9.
const HAS_CAPACITY: u32 = 1;
/// Zones that are asked for at a time.
const AT_A_TIME: usize = 128;

/// A zone as the kernel reports it (`struct blk_zone`). Places and lengths are in
/// sectors of 512 bytes.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct KernelZone {
    /// Where it begins.
    pub start: u64,
    /// Sectors to the next one.
    pub len: u64,
    /// The place of the next write, if its condition has one.
    pub write_pointer: u64,
    /// `enum blk_zone_type`: 1 conventional, 2 sequential, 3 sequential by
    /// preference.
    pub kind: u8,
    /// `enum blk_zone_cond`.
    pub condition: u8,
    advice: [u8; 2],
    reserved: [u8; 4],
    /// Sectors that can be written.
    pub capacity: u64,
    rest: [u8; 24],
}

/// The kernel's `struct blk_zone_report`, with room for some zones.
#[repr(C)]
struct Report {
    sector: u64,
    zones: u32,
    flags: u32,
    found: [KernelZone; AT_A_TIME],
}

/// The kernel's `struct blk_zone_range`.
#[repr(C)]
struct Range {
    sector: u64,
    sectors: u64,
}

/// A change of a zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ZoneCall {
    /// It is emptied.
    Reset,
    /// It is full as it is.
    Finish,
}

/// The sectors of 512 bytes from one zone of a block device to the next, and the
/// number of zones; `None` if it has no zones.
///
/// # Errors
/// Those of `ioctl(2)`; `ENOTTY` if it is no block device.
pub fn zones_of(device: impl AsFd) -> io::Result<Option<(u32, u32)>> {
    let ask = |request: u32| {
        let mut figure = 0u32;
        // SAFETY: the request writes one `__u32`, which lives across the call.
        let status = unsafe {
            libc::ioctl(device.as_fd().as_raw_fd(), request as libc::Ioctl, (&raw mut figure).cast::<u32>())
        };
        if status == 0 { Ok(figure) } else { Err(io::Error::last_os_error()) }
    };
    let (sectors, zones) = (ask(BLKGETZONESZ)?, ask(BLKGETNRZONES)?);
    Ok((sectors > 0 && zones > 0).then_some((sectors, zones)))
}

/// Reports at most `zones` zones, from the one with this sector on.
///
/// # Errors
/// Those of `ioctl(2)`.
pub fn report_zones(device: impl AsFd, sector: u64, zones: u32) -> io::Result<Vec<KernelZone>> {
    let zones = zones.min(AT_A_TIME as u32);
    let mut report = Box::new(Report { sector, zones, flags: 0, found: [KernelZone::default(); AT_A_TIME] });
    // SAFETY: `report` has the kernel's layout, with room for at least the `zones` that
    // it announces, all of whose bytes may have any value; it lives across the call.
    let status = unsafe {
        libc::ioctl(
            device.as_fd().as_raw_fd(),
            BLKREPORTZONE as libc::Ioctl,
            (&raw mut *report).cast::<Report>(),
        )
    };
    if status != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(report.reported(zones))
}

impl Report {
    /// The zones that were filled in, of `asked` that there is room for.
    fn reported(&self, asked: u32) -> Vec<KernelZone> {
        let mut found = self.found[..self.zones.min(asked) as usize].to_vec();
        if self.flags & HAS_CAPACITY == 0 {
            found.iter_mut().for_each(|zone| zone.capacity = zone.len);
        }
        found
    }
}

/// Changes the zone that begins at `sector` and has `sectors` sectors.
///
/// # Errors
/// Those of `ioctl(2)`.
pub fn change_zone(device: impl AsFd, call: ZoneCall, sector: u64, sectors: u64) -> io::Result<()> {
    let request = match call {
        ZoneCall::Reset => BLKRESETZONE,
        ZoneCall::Finish => BLKFINISHZONE,
    };
    let range = Range { sector, sectors };
    // SAFETY: the kernel reads `range`, which has its layout and lives across the call.
    let status = unsafe {
        libc::ioctl(
            device.as_fd().as_raw_fd(),
            request as libc::Ioctl,
            (&raw const range).cast_mut().cast::<Range>(),
        )
    };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sets the size of the file at a path, without opening it: opening the file of a
/// zone may open the zone.
///
/// # Errors
/// Those of `truncate(2)`; `EINVAL` for a path with a NUL.
pub fn set_size(path: impl Arg, size: u64) -> io::Result<()> {
    let size = i64::try_from(size).map_err(|_| io::Error::from(rustix::io::Errno::FBIG))?;
    let truncate = |path: &std::ffi::CStr| {
        // SAFETY: the path ends with a NUL, and lives across the call.
        match unsafe { libc::truncate64(path.as_ptr(), size) } {
            0 => Ok(()),
            _ => Err(rustix::io::Errno::from_io_error(&io::Error::last_os_error())
                .unwrap_or(rustix::io::Errno::IO)),
        }
    };
    Ok(path.into_with_c_str(truncate)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn the_layouts_are_the_kernels() {
        let size = |request: u32| (request >> 16 & 0x3fff) as usize;
        assert_eq!(size(BLKREPORTZONE), size_of::<Report>() - AT_A_TIME * size_of::<KernelZone>());
        assert_eq!(size(BLKRESETZONE), size_of::<Range>());
        assert_eq!(size(BLKFINISHZONE), size_of::<Range>());
        assert_eq!([BLKGETZONESZ, BLKGETNRZONES].map(size), [4; 2]);
        assert_eq!(size_of::<KernelZone>(), 64);
        assert_eq!(std::mem::offset_of!(KernelZone, kind), 24);
        assert_eq!(std::mem::offset_of!(KernelZone, capacity), 32);
        assert_eq!(std::mem::offset_of!(Report, found), 16);
    }

    #[test]
    fn only_what_the_kernel_filled_in_is_reported() {
        let zone = KernelZone { start: 8, len: 64, capacity: 48, ..KernelZone::default() };
        let mut report = Report { sector: 0, zones: 2, flags: HAS_CAPACITY, found: [zone; AT_A_TIME] };
        assert_eq!(report.reported(3), [zone; 2]);
        assert_eq!(report.reported(1), [zone]);
        // The report of an older kernel has no capacities, and a wrong count is not believed.
        (report.flags, report.zones) = (0, u32::MAX);
        assert_eq!(report.reported(1), [KernelZone { capacity: 64, ..zone }]);
    }

    #[test]
    fn what_is_no_zoned_device_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let refused = |error: io::Error| assert_eq!(error.raw_os_error(), Some(libc::ENOTTY));
        refused(zones_of(&file).unwrap_err());
        refused(report_zones(&file, 0, 1).unwrap_err());
        refused(change_zone(&file, ZoneCall::Reset, 0, 8).unwrap_err());
        set_size(file.path(), 5).unwrap();
        assert_eq!(File::open(file.path()).unwrap().metadata().unwrap().len(), 5);
        let missing = set_size("/nowhere/at/all", 5).unwrap_err();
        assert_eq!(missing.raw_os_error(), Some(libc::ENOENT));
    }
}
