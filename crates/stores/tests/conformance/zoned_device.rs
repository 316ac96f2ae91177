//! The zoned store on a device of the kernel's, which loses all that is on it. Only
//! if named: `lab/zoned conformance` runs these in a virtual machine. A loop device of
//! its own is cut into units where there is one.

use super::zoned_settings;
use braid_contract::{Result, ZoneKind, ZoneState, ZonedDevice};
use braid_stores::native::Machine;
use braid_stores::zoned::{UnitDevice, ZonedBlockDevice, ZonedStore, Zonefs};
use braid_sys::AlignedBuf;
use braid_testkit::conformance::store::{Fresh, run};
use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

fn path() -> PathBuf {
    std::env::var_os("BRAID_ZONED_DEVICE").expect("a path in BRAID_ZONED_DEVICE").into()
}

/// Leaves nothing on a device.
fn empty(device: &dyn ZonedDevice) {
    let block = device.geometry().block as usize;
    for zone in 0..device.geometry().zones {
        let report = device.report(zone).unwrap();
        match (report.kind, report.state) {
            (ZoneKind::Sequential, ZoneState::Empty) => {}
            (ZoneKind::Sequential, _) => device.reset(zone).unwrap(),
            (ZoneKind::Conventional, _) => {
                let mut buf = AlignedBuf::new();
                let bytes = buf.bytes(block);
                bytes.fill(0);
                for at in [0, report.capacity / 2 / block as u64 * block as u64] {
                    device.write(zone, at, &[IoSlice::new(bytes)]).unwrap();
                }
            }
        }
    }
    device.flush().unwrap();
}

fn conforms<D: ZonedDevice + 'static>(what: &str, open: impl Fn() -> Result<D>) {
    for settings in zoned_settings() {
        let fresh = || {
            let device = open().unwrap();
            empty(&device);
            let store = ZonedStore::open(Arc::new(device), settings, Arc::new(Machine)).unwrap();
            Fresh::new(Arc::new(store), ())
        };
        run(&format!("zoned on {what}, {settings:?}"), &fresh).conclude();
    }
}

/// What the trait promises of a sequential zone.
fn keeps_to_the_rules(device: &dyn ZonedDevice) {
    empty(device);
    let block = device.geometry().block;
    let zone = (0..device.geometry().zones)
        .find(|zone| device.report(*zone).unwrap().kind == ZoneKind::Sequential)
        .unwrap();
    let capacity = device.report(zone).unwrap().capacity;
    let mut buf = AlignedBuf::new();
    let mut write = |at: u64, len: u64| {
        let bytes = buf.bytes(len as usize);
        bytes.fill(7);
        device.write(zone, at, &[IoSlice::new(bytes)]).map_err(|error| error.errno())
    };
    let eio = Err(braid_contract::Errno::EIO);
    assert_eq!(write(block, block), eio, "not at the write pointer");
    assert_eq!(write(0, 3 * block), Ok(()));
    let longest = 2 << 20;
    assert_eq!(write(3 * block, longest), Ok(()), "several requests");
    let written = 3 * block + longest;
    let report = device.report(zone).unwrap();
    assert!(matches!(report.state, ZoneState::Open | ZoneState::Closed), "{report:?}");
    assert_eq!(report.write_pointer, written);
    assert_eq!(write(0, block), eio, "what was written stays");
    assert_eq!(write(written, capacity), eio, "beyond the zone");
    let mut found = AlignedBuf::new();
    let mut read = |at: u64, len: u64| {
        let bytes = found.bytes(len as usize);
        device
            .read(zone, at, bytes)
            .map_err(|error| error.errno())
            .map(|()| bytes.iter().all(|byte| *byte == 7))
    };
    assert_eq!(read(0, written), Ok(true));
    assert_eq!(read(written - block, 2 * block).err(), Some(braid_contract::Errno::EIO));
    device.flush().unwrap();
    device.finish(zone).unwrap();
    let report = device.report(zone).unwrap();
    assert_eq!((report.state, report.write_pointer), (ZoneState::Full, capacity));
    assert_eq!(write(written, block), eio, "it is full");
    device.reset(zone).unwrap();
    let report = device.report(zone).unwrap();
    assert_eq!((report.state, report.write_pointer), (ZoneState::Empty, 0));
    assert_eq!(read(0, block).err(), Some(braid_contract::Errno::EIO));
    // All active zones there may be, and one more.
    let Some(most) = device.geometry().active_max else { return };
    let sequential = |zone: &u32| device.report(*zone).unwrap().kind == ZoneKind::Sequential;
    let zones: Vec<u32> = (0..device.geometry().zones).filter(sequential).take(most as usize + 1).collect();
    let bytes = buf.bytes(block as usize);
    let results: Vec<_> = (zones.iter())
        .map(|zone| device.write(*zone, 0, &[IoSlice::new(bytes)]).map_err(|error| error.errno()))
        .collect();
    let (last, others) = results.split_last().unwrap();
    // With `explicit-open`, zonefs lets no more be written than may be open.
    let open = device.geometry().open_max.map_or(others.len(), |open| others.len().min(open as usize));
    assert!(others[..open].iter().all(|result| result.is_ok()), "{results:?}");
    assert_eq!(*last, Err(braid_contract::Errno::EOVERFLOW), "{results:?}");
    empty(device);
}

#[test]
#[ignore = "needs a zoned block device of its own in BRAID_ZONED_DEVICE"]
fn zoned_block_device() {
    let open = || ZonedBlockDevice::open(&path());
    keeps_to_the_rules(&open().unwrap());
    {
        let held = open().unwrap();
        assert_eq!(open().unwrap_err().errno(), braid_contract::Errno::EBUSY);
        drop(held);
    }
    conforms("a block device", open);
}

#[test]
#[ignore = "needs a mounted zonefs of its own in BRAID_ZONED_DEVICE"]
fn zonefs() {
    let open = || Zonefs::open(&path());
    keeps_to_the_rules(&open().unwrap());
    {
        let held = open().unwrap();
        assert_eq!(open().unwrap_err().errno(), braid_contract::Errno::EBUSY);
        drop(held);
    }
    conforms("zonefs", open);
}

/// The store in units of a block device without zones, as large as the device says.
fn in_units(path: &Path, unit: Option<u64>) {
    let open = || UnitDevice::open_at(path, unit);
    keeps_to_the_rules(&open().unwrap());
    let held = open().unwrap();
    assert_eq!(open().unwrap_err().errno(), braid_contract::Errno::EBUSY);
    drop(held);
    conforms("units of a block device", open);
}

#[test]
#[ignore = "needs a block device of its own with data placement in BRAID_ZONED_DEVICE"]
fn units_as_the_device_has_them() {
    in_units(&path(), None);
}

#[test]
fn units_of_a_loop_device() {
    if !braid_sys::is_privileged() || !Path::new("/dev/loop-control").exists() {
        return braid_testkit::skipped("root and loop devices");
    }
    let image = tempfile::NamedTempFile::new_in("/var/tmp").unwrap();
    image.as_file().set_len((1 << 20) + 40 * (4 << 20)).unwrap();
    let made = Command::new("losetup").args(["--find", "--show"]).arg(image.path()).output().unwrap();
    if !made.status.success() {
        return braid_testkit::skipped("loop devices");
    }
    let device = Loop(String::from_utf8(made.stdout).unwrap().trim().to_owned());
    in_units(Path::new(&device.0), Some(4 << 20));
}

/// A loop device, until this is dropped.
struct Loop(String);

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}
