//! Block devices without zones that are cut into units.

use super::model::id;
use super::{LABEL, SETTINGS, fill, read_all};
use braid_contract::{Errno, Error, Result, Store, StreamId, ZoneKind, ZoneReport, ZoneState, ZonedDevice};
use braid_format::{UNIT_HEAD_ROOM, UnitHead};
use braid_stores::zoned::{RawDisk, UnitDevice, ZonedStore};
use braid_sys::AlignedBuf;
use braid_testkit::sim::{SimClock, SimEnvironment};
use std::collections::{BTreeMap, BTreeSet};
use std::io::IoSlice;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, Mutex, MutexGuard};

const UNIT: u64 = 128 << 10;
const UNITS: u64 = 20;

/// A device in memory that places data.
#[derive(Debug)]
struct MemoryDisk {
    bytes: Mutex<Vec<u8>>,
    placements: Vec<u16>,
    /// Where it was written under which placement.
    placed: Mutex<BTreeMap<u64, Option<u16>>>,
    discarded: Mutex<BTreeSet<u64>>,
    /// The next flush fails.
    fails: AtomicBool,
    /// The device is away.
    away: AtomicBool,
    /// The next write waits at its end, until it was met there and met again.
    gate: Mutex<Option<Arc<Barrier>>>,
}

impl MemoryDisk {
    fn new(units: u64, placements: &[u16]) -> Arc<Self> {
        Arc::new(Self {
            bytes: Mutex::new(vec![0; (UNIT_HEAD_ROOM + units * UNIT) as usize]),
            placements: placements.to_vec(),
            placed: Mutex::default(),
            discarded: Mutex::default(),
            fails: AtomicBool::new(false),
            away: AtomicBool::new(false),
            gate: Mutex::default(),
        })
    }

    fn bytes(&self) -> MutexGuard<'_, Vec<u8>> {
        self.bytes.lock().unwrap()
    }

    fn check(&self) -> Result<()> {
        match self.away.load(Ordering::Relaxed) {
            true => Err(Error::new(Errno::ENODEV, "the device is gone")),
            false => Ok(()),
        }
    }

    /// The placements of what was written to these bytes.
    fn placed(&self, from: u64, len: u64) -> BTreeSet<Option<u16>> {
        self.placed.lock().unwrap().range(from..from + len).map(|(_, placement)| *placement).collect()
    }
}

impl RawDisk for MemoryDisk {
    fn size(&self) -> u64 {
        self.bytes().len() as u64
    }

    fn block(&self) -> u64 {
        4096
    }

    fn read(&self, at: u64, buf: &mut [u8]) -> Result<()> {
        self.check()?;
        buf.copy_from_slice(&self.bytes()[at as usize..][..buf.len()]);
        Ok(())
    }

    fn write(
        &self,
        at: u64,
        bufs: &[IoSlice<'_>],
        placement: Option<u16>,
        wrote: &mut dyn FnMut(u64),
    ) -> Result<()> {
        self.check()?;
        self.placed.lock().unwrap().insert(at, placement);
        let mut done = at;
        for buf in bufs {
            self.bytes()[done as usize..][..buf.len()].copy_from_slice(buf);
            done += buf.len() as u64;
        }
        let gate = self.gate.lock().unwrap().take();
        gate.iter().for_each(|gate| (0..2).for_each(|_| _ = gate.wait()));
        wrote(done - at);
        Ok(())
    }

    fn discard(&self, at: u64, len: u64) {
        self.discarded.lock().unwrap().insert(at);
        self.bytes()[at as usize..][..len as usize].fill(0xdd);
    }

    fn flush(&self) -> Result<()> {
        self.check()?;
        match self.fails.swap(false, Ordering::Relaxed) {
            true => Err(Error::new(Errno::EIO, "the flush failed")),
            false => Ok(()),
        }
    }

    fn device(&self) -> u64 {
        5
    }

    fn placements(&self) -> &[u16] {
        &self.placements
    }

    fn reclaim_unit(&self) -> Option<u64> {
        (!self.placements.is_empty()).then_some(UNIT)
    }
}

fn device(disk: &Arc<MemoryDisk>, unit: Option<u64>) -> Result<UnitDevice> {
    UnitDevice::open(Arc::clone(disk) as _, unit)
}

fn refused(disk: &Arc<MemoryDisk>, unit: Option<u64>) -> (Errno, String) {
    let error = device(disk, unit).unwrap_err();
    (error.errno(), error.to_string())
}

fn store(disk: &Arc<MemoryDisk>) -> ZonedStore {
    let environment = Arc::new(SimEnvironment::new(Arc::new(SimClock::new()), 7));
    ZonedStore::open(Arc::new(device(disk, Some(UNIT)).unwrap()), SETTINGS, environment).unwrap()
}

fn new_store(disk: &Arc<MemoryDisk>) -> ZonedStore {
    let store = store(disk);
    store.set_label(LABEL).unwrap();
    store
}

fn put(device: &UnitDevice, zone: u32, at: u64, blocks: u64) -> std::result::Result<(), Errno> {
    let mut buf = AlignedBuf::new();
    let bytes = buf.bytes((blocks * 4096) as usize);
    bytes.fill(7);
    device.write(zone, at, &[IoSlice::new(bytes)]).map_err(|error| error.errno())
}

#[test]
fn a_device_says_how_it_is_cut() {
    let disk = MemoryDisk::new(UNITS, &[]);
    let opened = device(&disk, Some(UNIT)).unwrap();
    assert_eq!((opened.unit(), opened.geometry().zones), (UNIT, UNITS as u32));
    assert!(disk.bytes().iter().all(|byte| *byte == 0), "opening it writes nothing");
    put(&opened, 0, 0, 1).unwrap();
    drop(opened);
    assert_eq!(device(&disk, None).unwrap().unit(), UNIT);
    let (errno, what) = refused(&disk, Some(2 * UNIT));
    assert!(errno == Errno::EINVAL && what.contains("cut into units of 131072 bytes"), "{what}");
    let all = disk.bytes().len();
    disk.bytes().truncate(all - 1);
    let (errno, what) = refused(&disk, None);
    assert!(errno == Errno::EINVAL && what.contains("shorter than its units"), "{what}");
    disk.bytes().resize(all, 0);
    // By a newer Braid.
    let mut head = UnitHead { unit: UNIT, index: UNIT, units: 18, block: 4096 }.encode();
    assert_eq!(head, disk.bytes()[..4096]);
    head[8] = 9;
    disk.bytes()[..4096].copy_from_slice(&head);
    assert_eq!(refused(&disk, None).0, Errno::EUCLEAN);
}

#[test]
fn a_device_that_can_not_be_cut_is_refused() {
    let (errno, what) = refused(&MemoryDisk::new(UNITS, &[]), None);
    assert!(errno == Errno::EINVAL && what.contains("nothing says how large"), "{what}");
    let (errno, what) = refused(&MemoryDisk::new(7, &[]), Some(UNIT));
    assert!(errno == Errno::EINVAL && what.contains("has 7 units") && what.contains("at least 8"), "{what}");
    assert!(device(&MemoryDisk::new(8, &[]), Some(UNIT)).is_ok());
    assert!(device(&MemoryDisk::new(8, &[1, 2]), None).is_ok(), "the device itself says how large");
    // Something else is on it: in its first block, behind it, or where the index is to be.
    for at in [0, 1080, UNIT_HEAD_ROOM - 1, UNIT_HEAD_ROOM + 5, UNIT_HEAD_ROOM + 2 * UNIT - 1] {
        let disk = MemoryDisk::new(UNITS, &[]);
        disk.bytes()[at as usize] = 1;
        assert_eq!(refused(&disk, Some(UNIT)).0, Errno::ENOTEMPTY, "{at}");
    }
    let behind = MemoryDisk::new(UNITS, &[]);
    behind.bytes()[(UNIT_HEAD_ROOM + 2 * UNIT) as usize] = 1;
    assert!(device(&behind, Some(UNIT)).is_ok());
}

#[test]
fn a_head_that_was_torn_is_written_anew() {
    let disk = MemoryDisk::new(UNITS, &[]);
    let head = UnitHead { unit: UNIT, index: UNIT, units: 18, block: 4096 }.encode();
    disk.bytes()[..20].copy_from_slice(&head[..20]);
    put(&device(&disk, Some(UNIT)).unwrap(), 0, 0, 1).unwrap();
    assert_eq!(head, disk.bytes()[..4096]);
    // With an index, it is damaged.
    disk.bytes()[20] ^= 1;
    assert_eq!(refused(&disk, Some(UNIT)).0, Errno::ENOTEMPTY);
}

#[test]
fn the_rules_of_zones_hold() {
    let disk = MemoryDisk::new(UNITS, &[]);
    let device = device(&disk, Some(UNIT)).unwrap();
    let report = |zone| {
        let ZoneReport { kind, state, write_pointer, .. } = device.report(zone).unwrap();
        (kind, state, write_pointer)
    };
    assert_eq!(report(1), (ZoneKind::Conventional, ZoneState::Full, UNIT));
    assert_eq!(report(2), (ZoneKind::Sequential, ZoneState::Full, UNIT), "it is not known yet");
    assert_eq!(put(&device, 2, 0, 1), Err(Errno::EIO));
    device.set_write_pointer(2, 8192);
    assert_eq!(report(2), (ZoneKind::Sequential, ZoneState::Closed, 8192));
    assert_eq!(put(&device, 2, 4096, 1), Err(Errno::EIO), "elsewhere than at the write pointer");
    put(&device, 2, 8192, 2).unwrap();
    assert_eq!(put(&device, 2, 16384, 40), Err(Errno::EIO), "beyond its end");
    let mut buf = AlignedBuf::new();
    let mut read = |at, len| device.read(2, at, buf.bytes(len)).map_err(|error| error.errno());
    assert_eq!((read(8192, 8192), read(8192, 12288)), (Ok(()), Err(Errno::EIO)));
    device.finish(2).unwrap();
    assert_eq!(report(2).1, ZoneState::Full);
    device.reset(2).unwrap();
    assert_eq!(report(2), (ZoneKind::Sequential, ZoneState::Empty, 0));
    assert!(disk.discarded.lock().unwrap().contains(&(UNIT_HEAD_ROOM + 2 * UNIT)));
    put(&device, 2, 0, 1).unwrap();
    // What a process before this one has left there goes when it is written first.
    device.set_write_pointer(3, 0);
    put(&device, 3, 0, 1).unwrap();
    assert_eq!(disk.discarded.lock().unwrap().len(), 2);
    assert_eq!(device.report(UNITS as u32).unwrap_err().errno(), Errno::EINVAL);
    assert!(device.reset(0).is_err() && device.finish(1).is_err());
}

#[test]
fn a_flush_that_fails_takes_back_what_was_not_durable() {
    let disk = MemoryDisk::new(UNITS, &[]);
    let device = device(&disk, Some(UNIT)).unwrap();
    let written = |zone| device.report(zone).unwrap().write_pointer;
    (2..5).for_each(|zone| device.set_write_pointer(zone, 0));
    put(&device, 2, 0, 1).unwrap();
    device.flush().unwrap();
    put(&device, 2, 4096, 1).unwrap();
    put(&device, 3, 0, 3).unwrap();
    disk.fails.store(true, Ordering::Relaxed);
    assert!(device.flush().is_err());
    assert_eq!([2, 3, 4].map(written), [4096, 0, 0]);
    // It is not durable by another flush.
    device.flush().unwrap();
    put(&device, 2, 4096, 2).unwrap();
    device.flush().unwrap();
    device.reset(2).unwrap();
    disk.fails.store(true, Ordering::Relaxed);
    assert!(device.flush().is_err());
    assert_eq!(written(2), 0);
}

#[test]
fn a_write_under_way_while_a_flush_fails_does_not_count() {
    let disk = MemoryDisk::new(UNITS, &[]);
    let device = device(&disk, Some(UNIT)).unwrap();
    let written = |zone| device.report(zone).unwrap().write_pointer;
    (2..4).for_each(|zone| device.set_write_pointer(zone, 0));
    put(&device, 2, 0, 1).unwrap();
    device.flush().unwrap();
    // One goes on behind that, and one begins a unit.
    for (zone, at) in [(2, 4096), (3, 0)] {
        let gate = Arc::new(Barrier::new(2));
        *disk.gate.lock().unwrap() = Some(Arc::clone(&gate));
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| put(&device, zone, at, 2));
            gate.wait();
            disk.fails.store(true, Ordering::Relaxed);
            assert!(device.flush().is_err());
            gate.wait();
            assert_eq!(writer.join().unwrap(), Err(Errno::EIO));
        });
        device.flush().unwrap();
        assert_eq!(written(zone), at);
        put(&device, zone, at, 1).unwrap();
    }
}

#[test]
fn what_a_failed_flush_may_have_lost_is_told_and_not_read() {
    let disk = MemoryDisk::new(UNITS, &[]);
    let store = new_store(&disk);
    fill(&store, 1, 32 << 10, 1).unwrap();
    store.sync(&[id(1)], true).unwrap();
    // Whole extents: nothing of them stays in memory.
    fill(&store, 2, 32 << 10, 1).unwrap();
    disk.fails.store(true, Ordering::Relaxed);
    assert!(store.sync(&[id(1)], true).is_err());
    assert!(store.sync(&[id(2)], true).is_err());
    assert_eq!(read_all(&store, 2, 32 << 10), Err(Errno::EIO));
    assert!(read_all(&store, 1, 32 << 10).is_ok());
    fill(&store, 3, 32 << 10, 1).unwrap();
    store.sync(&[id(3)], true).unwrap();
    assert_eq!(read_all(&store, 2, 32 << 10), Err(Errno::EIO));
}

#[test]
fn another_process_goes_on_in_the_unit_of_a_stream() {
    let disk = MemoryDisk::new(UNITS, &[]);
    let zones_of = |store: &ZonedStore| {
        let zones = store.zones().unwrap();
        (zones.free, zones.open, zones.streams.iter().map(|stream| stream.zones).sum::<u32>())
    };
    let mut opened = new_store(&disk);
    for number in 0..3 {
        fill(&opened, number, 16 << 10, 1).unwrap();
        opened.sync(&[id(number)], true).unwrap();
        assert_eq!(zones_of(&opened), (UNITS as u32 - 3, 1, 1), "{number}");
        opened = store(&disk);
    }
    // What is behind the last one that is of use is written anew.
    opened.remove(&[id(1), id(2)]).unwrap();
    opened.sync_all().unwrap();
    opened = store(&disk);
    fill(&opened, 4, 16 << 10, 1).unwrap();
    opened.sync(&[id(4)], true).unwrap();
    let second = (UNIT_HEAD_ROOM + 2 * UNIT + (16 << 10)) as usize;
    let found = disk.bytes()[second..][..16 << 10].to_vec();
    assert_eq!(found, read_all(&opened, 4, 16 << 10).unwrap());
    assert!(read_all(&opened, 0, 16 << 10).is_ok());
}

#[test]
fn a_device_that_is_away_costs_no_units() {
    let disk = MemoryDisk::new(UNITS, &[]);
    let store = new_store(&disk);
    fill(&store, 1, 32 << 10, 1).unwrap();
    store.sync(&[id(1)], true).unwrap();
    let before = store.zones().unwrap();
    disk.away.store(true, Ordering::Relaxed);
    fill(&store, 2, 6000, 1).unwrap();
    for _ in 0..5 {
        assert!(store.sync(&[id(2)], true).is_err());
        assert_eq!(store.probe(LABEL).unwrap_err().errno(), Errno::ENODEV);
    }
    disk.away.store(false, Ordering::Relaxed);
    store.probe(LABEL).unwrap();
    store.sync(&[id(2)], true).unwrap();
    let zones = store.zones().unwrap();
    assert_eq!((zones.free, zones.open, zones.failed), (before.free, before.open, 0));
    drop(store);
    let store = self::store(&disk);
    assert!(read_all(&store, 2, 6000).is_ok() && read_all(&store, 1, 32 << 10).is_ok());
}

#[test]
fn each_stream_has_a_placement_and_the_index_one_of_its_own() {
    let disk = MemoryDisk::new(UNITS, &[3, 4, 5]);
    let store = new_store(&disk);
    for round in 0..3 {
        for number in 0..3u8 {
            fill(&store, 3 * round + number, 32 << 10, u64::from(number)).unwrap();
        }
        store.sync_all().unwrap();
    }
    assert_eq!(disk.placed(0, UNIT_HEAD_ROOM + 2 * UNIT), BTreeSet::from([Some(3)]), "head and index");
    let streams = store.zones().unwrap().streams;
    let placement = |number| {
        streams.iter().find(|stream| stream.id == Some(number)).and_then(|stream| stream.placement).unwrap()
    };
    let told = [placement(0), placement(1), placement(2)];
    // The third one shares the one that was written longest ago.
    assert_eq!(told, [4, 5, 4]);
    for (number, placement) in (0..3).zip(told) {
        let unit = UNIT_HEAD_ROOM + (2 + number) * UNIT;
        assert_eq!(disk.placed(unit, UNIT), BTreeSet::from([Some(placement)]), "stream {number}");
    }
    assert_eq!(device(&MemoryDisk::new(UNITS, &[]), Some(UNIT)).unwrap().placement(Some(StreamId(0))), None);
}
