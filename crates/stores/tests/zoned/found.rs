//! What the search for power losses (`zoned_crash`) found.

use super::model::{id, write};
use super::{LABEL, SHAPE, churn, fill, io, new_store, open};
use braid_contract::{Store, ZoneState, ZonedDevice};
use braid_testkit::sim::{AllLost, Scripted, ZoneEffect};
use std::sync::Arc;

#[test]
fn what_is_reserved_beyond_the_size_stays_so_after_a_checkpoint() {
    let (device, store) = new_store(SHAPE);
    store.create(id(1)).unwrap();
    store.allocate(id(1), 0, 200_000, true).unwrap();
    let written = store.zones().unwrap().index_bytes;
    // As many frames as a region has, and more.
    for _ in 0..40 {
        store.set_label(b"another").unwrap();
        store.set_label(LABEL).unwrap();
    }
    assert!(store.zones().unwrap().index_bytes - written > SHAPE.capacity);
    drop(store);
    let store = open(&Arc::new(device.after_power_loss(&mut AllLost)));
    assert_eq!(store.stat(id(1)).unwrap().allocated, 200_704);
}

#[test]
fn what_is_reserved_stays_so_where_the_size_ends() {
    let (device, store) = new_store(SHAPE);
    store.create(id(1)).unwrap();
    store.allocate(id(1), 40_960, 8192, true).unwrap();
    store.allocate(id(1), 0, 5000, false).unwrap();
    store.sync(&[id(1)], true).unwrap();
    drop(store);
    let store = open(&Arc::new(device.after_power_loss(&mut AllLost)));
    let stat = store.stat(id(1)).unwrap();
    assert_eq!((stat.size, stat.allocated), (5000, 16_384));
}

#[test]
fn a_size_is_durable_though_its_data_was_punched_before_it_was_written() {
    let (device, store) = new_store(SHAPE);
    store.create(id(1)).unwrap();
    assert_eq!(write(&store, 1, 0, &[1; 9000], io(1)), Ok(9000));
    store.punch(id(1), 4000, 6000).unwrap();
    store.sync(&[id(1)], true).unwrap();
    drop(store);
    let store = open(&Arc::new(device.after_power_loss(&mut AllLost)));
    assert_eq!(store.stat(id(1)).unwrap().size, 9000);
}

#[test]
fn data_that_is_lost_leaves_the_room_that_was_kept_for_it() {
    let (device, store) = new_store(SHAPE);
    store.create(id(1)).unwrap();
    store.allocate(id(1), 0, 12_288, true).unwrap();
    store.sync_all().unwrap();
    // With a gap in the block.
    for offset in [4096, 6000] {
        assert_eq!(write(&store, 1, offset, &[1; 100], io(1)), Ok(100));
    }
    device.record();
    store.sync_all().unwrap();
    for (_, moment) in device.recorded() {
        let mut outcomes = Scripted::new();
        loop {
            let store = open(&Arc::new(moment.after_power_loss(&mut outcomes)));
            assert_eq!(store.stat(id(1)).unwrap().allocated, 12_288);
            if !outcomes.advance() {
                break;
            }
        }
    }
}

#[test]
fn no_zone_is_begun_before_another_one_is_finished_durably() {
    let (device, store) = new_store(SHAPE);
    device.record();
    device.tear_next_write(2, 1);
    fill(&store, 1, 30_000, 1).unwrap();
    let (mut finished, mut unsure) = (0, false);
    for (effect, _) in device.recorded() {
        match effect {
            ZoneEffect::Finish(_) => (finished, unsure) = (finished + 1, true),
            ZoneEffect::Flush => unsure = false,
            ZoneEffect::Write(zone, offset, _) => {
                assert!(!unsure || offset > 0, "zone {zone} is begun");
            }
            ZoneEffect::Reset(_) => {}
        }
    }
    assert!(finished > 0, "no zone had to be finished");
}

#[test]
fn a_zone_that_can_not_be_finished_leaves_the_log_the_zones_that_it_needs() {
    let (device, store) = new_store(SHAPE);
    // Its write fails, and after a flush it can't be finished.
    device.tear_next_write(2, 1);
    device.fail_after(2, 0);
    for number in 0..5 {
        fill(&store, number, 20_000, number.into()).unwrap();
    }
    store.sync_all().unwrap();
    assert_eq!(device.report(2).unwrap().state, ZoneState::Closed);
    for _ in 0..40 {
        store.set_label(LABEL).unwrap();
    }
    assert!(store.zones().unwrap().index_bytes > SHAPE.capacity, "there was no checkpoint");
    assert_eq!(device.broken_rules(), [""; 0]);
}

#[test]
fn a_zone_is_written_only_after_its_reset_is_durable() {
    // Also if the reset answers an error.
    for unheard in [0, SHAPE.zones] {
        let (device, store) = new_store(SHAPE);
        (2..unheard).for_each(|zone| device.fail_after_next_reset(zone));
        device.record();
        (0..4).for_each(|seed| churn(&store, seed).unwrap());
        let effects: Vec<ZoneEffect> = device.recorded().into_iter().map(|(effect, _)| effect).collect();
        let is_reset = |at: &usize| matches!(effects[*at], ZoneEffect::Reset(zone) if zone > 1);
        let resets = (0..effects.len()).filter(is_reset);
        for reset in resets.clone() {
            assert_eq!(effects[reset + 1], ZoneEffect::Flush);
        }
        assert!(resets.count() > 0, "no zone had to be emptied");
    }
}

#[test]
fn a_log_that_was_torn_is_not_closed_elsewhere_than_at_its_end() {
    let (device, store) = new_store(SHAPE);
    device.tear_next_write(0, 1);
    store.set_label(b"another").unwrap_err();
    store.set_label(b"another").unwrap();
    assert_eq!(device.broken_rules(), [""; 0]);
    assert_eq!(device.report(1).unwrap().write_pointer, 4096);
}
