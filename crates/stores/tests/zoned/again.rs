//! Writes of what is there already, and of what is between.

use super::model::{id, write};
use super::{LABEL, SETTINGS, SHAPE, check_space, io, new_store};
use braid_contract::{Errno, Result, Store, ZoneReport, ZonedDevice, ZonedGeometry};
use braid_stores::zoned::{ZonedSettings, ZonedStore};
use braid_testkit::sim::{SimClock, SimEnvironment, SimZoned, SimZones};
use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A device that counts the bytes that are read.
#[derive(Debug)]
struct Counted {
    device: SimZoned,
    read: AtomicU64,
}

impl ZonedDevice for Counted {
    fn geometry(&self) -> ZonedGeometry {
        self.device.geometry()
    }

    fn report(&self, zone: u32) -> Result<ZoneReport> {
        self.device.report(zone)
    }

    fn read(&self, zone: u32, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.read.fetch_add(buf.len() as u64, Ordering::Relaxed);
        self.device.read(zone, offset, buf)
    }

    fn write(&self, zone: u32, offset: u64, bufs: &[IoSlice<'_>]) -> Result<()> {
        self.device.write(zone, offset, bufs)
    }

    fn reset(&self, zone: u32) -> Result<()> {
        self.device.reset(zone)
    }

    fn finish(&self, zone: u32) -> Result<()> {
        self.device.finish(zone)
    }

    fn flush(&self) -> Result<()> {
        self.device.flush()
    }

    fn device(&self) -> u64 {
        self.device.device()
    }
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|at| 1 + (at % 251) as u8).collect()
}

#[test]
fn what_is_written_again_is_read_once() {
    const LEN: usize = 1 << 20;
    let device = SimZoned::new(SimZones { capacity: 1 << 20, ..SHAPE });
    let device = Arc::new(Counted { device, read: AtomicU64::new(0) });
    let environment = Arc::new(SimEnvironment::new(Arc::new(SimClock::new()), 1));
    let settings = ZonedSettings { extent: 128 << 10, ..SETTINGS };
    let store = ZonedStore::open(Arc::clone(&device) as _, settings, environment).unwrap();
    store.set_label(LABEL).unwrap();
    store.create(id(1)).unwrap();
    let mut data = bytes(LEN);
    assert_eq!(write(&store, 1, 0, &data, io(1)), Ok(LEN));
    store.sync_all().unwrap();
    let write_again = |data: &[u8]| {
        let before = device.read.load(Ordering::Relaxed);
        let written = write(&store, 1, 0, data, io(1));
        (written, device.read.load(Ordering::Relaxed) - before)
    };
    assert_eq!(write_again(&data), (Ok(LEN), LEN as u64));
    // No more than up to where it is another.
    data[100_000] ^= 1;
    let (refused, read) = write_again(&data);
    assert_eq!(refused, Err(Errno::EOPNOTSUPP));
    assert!(read <= 128 << 10, "{read} bytes were read");
}

#[test]
fn what_is_there_already_is_refused_where_it_can_not_be_compared() {
    let (device, store) = new_store(SHAPE);
    store.create(id(1)).unwrap();
    let data = bytes(16 << 10);
    assert_eq!(write(&store, 1, 0, &data, io(1)), Ok(data.len()));
    store.sync_all().unwrap();
    device.fail_reads(2, 1);
    assert_eq!(write(&store, 1, 0, &data, io(1)), Err(Errno::EIO));
    assert_eq!(write(&store, 1, 0, &data, io(1)), Ok(data.len()));
}

#[test]
fn a_write_that_fills_several_gaps_counts_those_before_the_one_that_has_no_room() {
    let (_device, store) = new_store(SHAPE);
    store.create(id(1)).unwrap();
    let data = bytes(16 << 10);
    assert_eq!(write(&store, 1, 8192, &data[8192..12_288], io(1)), Ok(4096));
    store.create(id(2)).unwrap();
    let available = store.usage().unwrap().available;
    store.allocate(id(2), 0, available - 8192, true).unwrap();
    // There is room for the two blocks before it, and none for that behind it.
    assert_eq!(write(&store, 1, 0, &data, io(1)), Ok(12_288));
    assert_eq!(write(&store, 1, 12_288, &data[12_288..], io(1)), Err(Errno::ENOSPC));
    let stat = store.stat(id(1)).unwrap();
    assert_eq!((stat.size, stat.allocated), (12_288, 12_288));
    let mut there = vec![0; 12_288];
    store.read_at(id(1), 0, &mut [IoSliceMut::new(&mut there)], io(1)).unwrap();
    assert!(there == data[..12_288]);
    store.sync_all().unwrap();
    check_space(&store);
    // What was there already counts too.
    assert_eq!(write(&store, 1, 8192, &data[8192..], io(1)), Ok(4096));
}
