//! Ten faults of a device, each planted in a store that has data: what it costs is
//! recovered or told, by an error that names the place, and never silently wrong.

use super::model::{id, write};
use super::{LABEL, SETTINGS, SHAPE, check_space, fill, io, new_store, open};
use braid_contract::{Errno, Error, Store, ZoneState};
use braid_stores::zoned::ZonedStore;
use braid_testkit::sim::{AllKept, AllLost, SimClock, SimEnvironment, SimZoned, SimZones};
use std::io::IoSliceMut;
use std::sync::Arc;

/// Objects of the scene, each in a zone of its own.
const OBJECTS: u8 = 4;
const LEN: usize = 30_000;

/// A store with synced objects, and the first zone for data.
fn scene(conventional: u32) -> (Arc<SimZoned>, ZonedStore, u32) {
    let (device, store) = new_store(SimZones { conventional, ..SHAPE });
    for number in 1..=OBJECTS {
        fill(&store, number, LEN, number.into()).unwrap();
        store.sync(&[id(number)], true).unwrap();
    }
    (device, store, if conventional == 0 { 2 } else { conventional })
}

fn try_open(device: &Arc<SimZoned>) -> Result<ZonedStore, Error> {
    let environment = Arc::new(SimEnvironment::new(Arc::new(SimClock::new()), 1));
    ZonedStore::open(Arc::clone(device) as _, SETTINGS, environment)
}

/// An object, as [`fill`] writes it.
fn read(store: &ZonedStore, number: u8) -> Result<(), Error> {
    let mut bytes = vec![0; LEN];
    let done = store.read_at(id(number), 0, &mut [IoSliceMut::new(&mut bytes)], io(0))?;
    assert_eq!(done, LEN);
    let is_it = |(at, byte): (usize, &u8)| *byte == number.wrapping_add((at / 100) as u8);
    assert!(bytes.iter().enumerate().all(is_it), "object {number}");
    Ok(())
}

/// All objects but one are as they were.
fn has_all_but(store: &ZonedStore, missing: Option<u8>) {
    assert_eq!(store.label().unwrap().as_deref(), Some(LABEL));
    (1..=OBJECTS).filter(|number| Some(*number) != missing).for_each(|number| read(store, number).unwrap());
}

/// It takes more, durably, whatever is left of the rest.
fn goes_on(device: &Arc<SimZoned>, store: ZonedStore, missing: Option<u8>) {
    for number in 20..26 {
        fill(&store, number, LEN, number.into()).unwrap();
        store.sync(&[id(number)], true).unwrap();
    }
    drop(store);
    let store = open(&Arc::new(device.after_power_loss(&mut AllLost)));
    has_all_but(&store, missing);
    (20..26).for_each(|number| read(&store, number).unwrap());
    check_space(&store);
}

/// The error that a read has to end with.
fn is_told(store: &ZonedStore, number: u8) {
    let error = read(store, number).unwrap_err();
    assert_eq!(error.errno(), Errno::EIO);
    assert!(error.to_string().contains(&format!("object {}", id(number))), "{error}");
}

#[test]
fn a_write_pointer_that_is_ahead_costs_nothing() {
    for conventional in [0, 1, 2] {
        let (device, store, first) = scene(conventional);
        drop(store);
        // Also of the log, if it is in a sequential zone.
        (first..first + 2).chain([0]).for_each(|zone| device.advance(zone, 8192));
        let store = open(&device);
        has_all_but(&store, None);
        goes_on(&device, store, None);
    }
}

#[test]
fn a_write_pointer_that_is_behind_is_told() {
    for conventional in [0, 1, 2] {
        let (device, store, first) = scene(conventional);
        drop(store);
        device.lose_from(first, 8192);
        let store = open(&device);
        has_all_but(&store, Some(1));
        is_told(&store, 1);
        goes_on(&device, store, Some(1));
        is_told(&open(&device), 1);
    }
}

#[test]
fn a_zone_that_is_read_only_costs_nothing() {
    for conventional in [0, 1, 2] {
        let (device, store, first) = scene(conventional);
        device.fail_zone(first, ZoneState::ReadOnly);
        // While it is open, and when it is found so.
        assert_eq!(write(&store, 1, LEN, &[1; 5000], io(1)), Ok(5000));
        store.sync(&[id(1)], true).unwrap();
        assert_eq!(store.zones().unwrap().failed, 1);
        store.truncate(id(1), LEN as u64).unwrap();
        drop(store);
        let store = open(&device);
        assert_eq!(store.zones().unwrap().failed, 1);
        has_all_but(&store, None);
        goes_on(&device, store, None);
    }
}

#[test]
fn a_zone_that_is_offline_is_told() {
    for conventional in [0, 1, 2] {
        let (device, store, first) = scene(conventional);
        device.fail_zone(first, ZoneState::Offline);
        is_told(&store, 1);
        drop(store);
        let store = open(&device);
        assert_eq!(store.zones().unwrap().failed, 1);
        has_all_but(&store, Some(1));
        is_told(&store, 1);
        goes_on(&device, store, Some(1));
        device.fail_zone(0, ZoneState::Offline);
        let error = try_open(&device).err().unwrap();
        assert_eq!(error.errno(), Errno::EIO);
        assert!(error.to_string().contains("zone 0"), "{error}");
    }
}

#[test]
fn a_checkpoint_that_is_lost_is_told() {
    for conventional in [0, 1, 2] {
        let (device, store, _) = scene(conventional);
        let region = if conventional == 1 { SHAPE.capacity / 2 } else { SHAPE.capacity };
        // Until the log is in the second region.
        while store.zones().unwrap().index_bytes < region {
            store.set_label(LABEL).unwrap();
        }
        drop(store);
        let (zone, offset) = if conventional == 1 { (0, region) } else { (1, 0) };
        device.damage(zone, offset);
        let error = try_open(&device).err().unwrap();
        assert_eq!(error.errno(), Errno::EUCLEAN);
        assert!(error.to_string().contains("newest checkpoint of the object index"), "{error}");
        device.damage(zone, offset);
        has_all_but(&open(&device), None);
    }
}

#[test]
fn a_newest_frame_that_is_damaged_is_as_one_that_was_torn() {
    for conventional in [0, 1, 2] {
        let (device, store, _) = scene(conventional);
        let end = store.zones().unwrap().index_bytes;
        fill(&store, 9, LEN, 1).unwrap();
        store.sync_all().unwrap();
        drop(store);
        device.damage(0, end);
        let store = open(&device);
        // What it said is not known, and nothing else is taken for it.
        assert_eq!(store.stat(id(9)).unwrap_err().errno(), Errno::ENOENT);
        has_all_but(&store, None);
        goes_on(&device, store, None);
    }
}

#[test]
fn an_append_that_is_torn_is_repeated() {
    for conventional in [0, 1, 2] {
        let (device, store, first) = scene(conventional);
        device.tear_next_write(first, 1);
        assert_eq!(write(&store, 1, LEN, &[7; 20_000], io(1)), Ok(20_000));
        store.sync(&[id(1)], true).unwrap();
        // In the log, it is told, and the next one makes good for it.
        device.tear_next_write(0, 0);
        store.allocate(id(1), 0, LEN as u64 + 40_000, true).unwrap();
        let error = store.sync(&[id(1)], true).unwrap_err();
        assert!(error.to_string().contains("writing the object index: zone 0"), "{error}");
        store.sync(&[id(1)], true).unwrap();
        has_all_but(&store, None);
        drop(store);
        let store = open(&Arc::new(device.after_power_loss(&mut AllLost)));
        assert_eq!(store.stat(id(1)).unwrap().size, LEN as u64 + 20_000);
        has_all_but(&store, None);
    }
}

#[test]
fn a_reset_that_fails_costs_the_zone() {
    for conventional in [0, 1, 2] {
        let (device, store, first) = scene(conventional);
        device.keep_from_reset(first);
        // The zone of the first object is of no use now.
        store.remove(&[id(1)]).unwrap();
        while store.zones().unwrap().failed == 0 {
            fill(&store, 10, 60_000, 1).unwrap();
            store.sync_all().unwrap();
            store.remove(&[id(10)]).unwrap();
        }
        check_space(&store);
        goes_on(&device, store, Some(1));
        // It is asked again after each time that the store is opened.
        let store = open(&device);
        assert_eq!(store.zones().unwrap().failed, 0);
        assert_eq!(store.stat(id(1)).unwrap_err().errno(), Errno::ENOENT);
    }
}

#[test]
fn a_flush_that_fails_is_told_and_made_good_for() {
    for conventional in [0, 1, 2] {
        let (device, store, _) = scene(conventional);
        fill(&store, 9, 6000, 1).unwrap();
        // The data, the index, the flush.
        device.fail_after(2, 0);
        let before = device.effects();
        let error = store.sync(&[id(9)], true).unwrap_err();
        assert_eq!(device.effects() - before, 3);
        assert!(error.to_string().contains("writing the object index: the flush failed"), "{error}");
        // Whatever is kept of it.
        for lost in [true, false] {
            let device = match lost {
                true => device.after_power_loss(&mut AllLost),
                false => device.after_power_loss(&mut AllKept),
            };
            has_all_but(&open(&Arc::new(device)), None);
        }
        store.sync(&[id(9)], true).unwrap();
        drop(store);
        let store = open(&Arc::new(device.after_power_loss(&mut AllLost)));
        assert_eq!(store.stat(id(9)).unwrap().size, 6000);
        has_all_but(&store, None);
    }
}

#[test]
fn a_conventional_zone_that_is_shorter_than_it_says_is_told() {
    for conventional in [1, 2] {
        let (device, store, _) = scene(conventional);
        // The log needs more of it, and does not get it.
        device.shorten(0, store.zones().unwrap().index_bytes);
        let error = store.set_label(b"another").unwrap_err();
        assert!(error.to_string().contains("zone 0"), "{error}");
        has_all_but(&store, None);
        drop(store);
        let error = try_open(&device).err().unwrap();
        assert_eq!(error.errno(), Errno::EIO);
        assert!(error.to_string().contains("zone 0"), "{error}");
    }
    // One that is too short for an index from the beginning.
    let shape = SimZones { conventional: 1, capacity: 8192, ..SHAPE };
    let store = try_open(&Arc::new(SimZoned::new(shape))).unwrap();
    let error = store.set_label(LABEL).unwrap_err();
    assert_eq!(error.errno(), Errno::ENOSPC);
    assert!(error.to_string().contains("too long for its region"), "{error}");
}
