//! Data that is being written or moved when the device loses something.

use super::flush::{is_as_filled, sync};
use super::model::{id, write};
use super::{LABEL, SHAPE, check_space, fill, io, new_store, open, read_all};
use braid_contract::{Errno, Store, StoreIo, ZoneState, ZonedDevice};
use braid_stores::zoned::ZonedStore;
use braid_testkit::sim::{AllKept, AllLost, SimZoned, SimZones, ZoneEffect};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Bytes of an extent, which nothing of stays in memory.
const WHOLE: usize = 16 << 10;
/// So many of them fill a zone.
const IN_ZONE: u8 = 8;
/// So many of them fill all zones, but those that are kept back.
const IN_ALL: u8 = 160;
/// Until a test that hangs fails.
const PATIENCE: Duration = Duration::from_secs(30);

/// A store with so many objects, one after the other in its zones, all of them synced.
fn packed(objects: u8, len: usize, conventional: u32) -> (Arc<SimZoned>, ZonedStore) {
    let (device, store) = new_store(SimZones { conventional, ..SHAPE });
    for number in 0..objects {
        fill(&store, number, len, 1).unwrap();
        assert_eq!(sync(&store, number), Ok(()));
    }
    (device, store)
}

/// Its data is not left in memory alone.
fn at_once() -> StoreIo {
    StoreIo { direct: true, ..io(1) }
}

fn wait_until(is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "it never comes");
        std::thread::yield_now();
    }
}

/// An error may be told once, and once more.
fn is_synced(store: &ZonedStore, number: u8) {
    assert!((0..3).any(|_| sync(store, number).is_ok()));
}

/// The beginnings of objects are as [`fill`] wrote them, also after a power loss.
fn have_their_data(
    device: &SimZoned,
    store: ZonedStore,
    len: usize,
    numbers: impl Iterator<Item = u8> + Clone,
) {
    let check = |store: &ZonedStore| {
        for number in numbers.clone() {
            let found = read_all(store, number, len);
            assert!(found.as_ref().is_ok_and(|found| is_as_filled(number, found)), "{number}: {found:?}");
        }
        check_space(store);
    };
    assert!((0..3).any(|_| store.sync_all().is_ok()));
    check(&store);
    drop(store);
    let store = open(&Arc::new(device.after_power_loss(&mut AllLost)));
    assert_eq!(store.label().unwrap().as_deref(), Some(LABEL));
    check(&store);
}

#[test]
fn a_zone_stays_when_another_flush_has_lost_what_was_moved_out_of_it() {
    for conventional in [0, 2] {
        let (device, store) = packed(IN_ALL, WHOLE, conventional);
        // One in the first zone is left.
        store.remove(&(1..IN_ZONE).map(id).collect::<Vec<_>>()).unwrap();
        store.sync_all().unwrap();
        store.create(id(200)).unwrap();
        store.create(id(201)).unwrap();
        let moved = || store.zones().unwrap().moved_bytes;
        let before = moved();
        let (reached, is_reached) = channel();
        let (go_on, may_go_on) = channel::<()>();
        // The first flush waits, and fails.
        let gate = Mutex::new(Some((reached, may_go_on)));
        device.lose_with_flush(0, None);
        device.set_observer(Some(Arc::new(move |effect| {
            let first = if *effect == ZoneEffect::Flush { gate.lock().unwrap().take() } else { None };
            if let Some((reached, may_go_on)) = first {
                reached.send(()).unwrap();
                _ = may_go_on.recv_timeout(PATIENCE);
            }
        })));
        std::thread::scope(|scope| {
            let other = scope.spawn(|| sync(&store, 200));
            is_reached.recv_timeout(PATIENCE).unwrap();
            let writer = scope.spawn(|| write(&store, 201, 0, &[7; WHOLE], io(1)));
            wait_until(|| moved() > before);
            // It comes as far as the log, which the other thread has.
            std::thread::sleep(Duration::from_millis(50));
            go_on.send(()).unwrap();
            assert_eq!(other.join().unwrap(), Err(Errno::EIO));
            assert_eq!(writer.join().unwrap(), Ok(WHOLE));
        });
        have_their_data(&device, store, WHOLE, [0].into_iter().chain(IN_ZONE..IN_ALL));
    }
}

/// A flush of another thread fails, and what it loses is by a seed, while a checkpoint is
/// written and data is moved.
fn lose_beneath_a_checkpoint(seed: u64) {
    let (device, store) = packed(IN_ALL - 1, WHOLE, 0);
    store.remove(&[id(2), id(3)]).unwrap();
    store.sync_all().unwrap();
    store.create(id(200)).unwrap();
    store.create(id(201)).unwrap();
    // The log is torn there: a checkpoint in the other zone comes next.
    device.tear_next_write(1, 0);
    assert_eq!(sync(&store, 200), Err(Errno::EIO));
    // A write moves its share, to the zone that it is in and to another one.
    assert_eq!(write(&store, 200, 0, &[7; 4096], at_once()), Ok(4096));
    assert_eq!(store.zones().unwrap().moved_bytes, WHOLE as u64);
    // That one takes no write, so that it is finished, after a flush, which fails.
    let open = |zone: &u32| device.report(*zone).unwrap().state == ZoneState::Closed;
    let opened = (2..SHAPE.zones).find(open).unwrap();
    device.tear_next_write(opened, 0);
    device.lose_with_flush(0, Some(seed));
    let (begin, may_begin) = channel();
    let (reached, is_reached) = channel();
    let (go_on, may_go_on) = channel::<()>();
    let (is_reached, may_go_on) = (Mutex::new(is_reached), Mutex::new(may_go_on));
    let is_other = || std::thread::current().name() == Some("other");
    let has_flushed = AtomicBool::new(false);
    device.set_observer(Some(Arc::new(move |effect| match effect {
        ZoneEffect::Reset(0..2) if !is_other() && begin.send(()).is_ok() => {
            is_reached.lock().unwrap().recv_timeout(PATIENCE).unwrap();
        }
        ZoneEffect::Flush if is_other() && !has_flushed.swap(true, Ordering::Relaxed) => {
            reached.send(()).unwrap();
            // The checkpoint comes as far as its flush.
            std::thread::sleep(Duration::from_millis(50));
        }
        // It does nothing more until the power has gone.
        _ if is_other() && has_flushed.load(Ordering::Relaxed) => {
            _ = may_go_on.lock().unwrap().recv_timeout(PATIENCE);
        }
        _ => {}
    })));
    std::thread::scope(|scope| {
        let store = &store;
        let other = move || {
            may_begin.recv_timeout(PATIENCE).unwrap();
            write(store, 201, 0, &[7; 4096], at_once())
        };
        let other = std::thread::Builder::new().name("other".into()).spawn_scoped(scope, other).unwrap();
        assert_eq!(sync(store, 200), Err(Errno::EIO));
        let left = super::open(&Arc::new(device.after_power_loss(&mut AllLost)));
        for number in (0..2).chain(4..IN_ALL - 1) {
            let found = read_all(&left, number, WHOLE);
            assert!(found.as_ref().is_ok_and(|found| is_as_filled(number, found)), "{number}: {found:?}");
        }
        drop(go_on);
        assert_eq!(other.join().unwrap(), Ok(4096));
    });
    have_their_data(&device, store, WHOLE, (0..2).chain(4..IN_ALL - 1));
}

#[test]
fn a_checkpoint_does_not_lead_to_what_another_flush_has_lost_meanwhile() {
    (0..12).for_each(lose_beneath_a_checkpoint);
}

#[test]
fn what_was_moved_to_a_zone_that_goes_offline_is_where_it_was() {
    for writes in 0..4 {
        let (device, store) = packed(IN_ALL, WHOLE, 0);
        // Four in the first zone are left, each of which is moved by a write; of others,
        // so many go that all fits into one zone less.
        let stays = |number: &u8| *number < 4 || (number / IN_ZONE > 0 && !number.is_multiple_of(IN_ZONE));
        let gone: Vec<_> = (0..IN_ALL).filter(|number| !stays(number)).map(id).collect();
        store.remove(&gone).unwrap();
        store.sync_all().unwrap();
        store.create(id(201)).unwrap();
        let (failing, left) = (Arc::downgrade(&device), AtomicU64::new(writes));
        device.set_observer(Some(Arc::new(move |effect| {
            if let ZoneEffect::Write(zone @ 2.., ..) = effect
                && left.fetch_sub(1, Ordering::Relaxed) == 0
            {
                failing.upgrade().unwrap().fail_zone(*zone, ZoneState::Offline);
            }
        })));
        assert_eq!(write(&store, 201, 0, &[7; WHOLE], io(1)), Ok(WHOLE));
        let status = store.zones().unwrap();
        assert!((status.failed, status.moved_bytes > 0) == (1, true), "{status:?}");
        have_their_data(&device, store, WHOLE, (0..IN_ALL).filter(stays));
    }
}

#[test]
fn what_a_zone_that_goes_offline_had_is_told_once() {
    let (device, store) = new_store(SHAPE);
    fill(&store, 1, 2 * WHOLE, 1).unwrap();
    device.fail_zone(2, ZoneState::Offline);
    fill(&store, 2, 2 * WHOLE, 1).unwrap();
    assert_eq!(sync(&store, 1), Err(Errno::EIO));
    assert_eq!(sync(&store, 1), Ok(()));
    assert_eq!(sync(&store, 2), Ok(()));
    assert_eq!(read_all(&store, 1, 2 * WHOLE), Err(Errno::EIO));
    // It is none of those that may be open.
    for stream in 2..5 {
        fill(&store, 10 + stream, WHOLE, stream.into()).unwrap();
    }
    let status = store.zones().unwrap();
    assert_eq!((status.failed, status.open, status.mixed), (1, 4, 0), "{status:?}");
    have_their_data(&device, store, WHOLE, [2].into_iter().chain(12..15));
}

#[test]
fn what_a_zone_that_goes_offline_had_is_written_anew_from_memory() {
    let (device, store) = new_store(SHAPE);
    store.create(id(1)).unwrap();
    let data: Vec<u8> = (0..WHOLE + 5000).map(|at| 1_u8.wrapping_add((at / 100) as u8)).collect();
    let (first, second) = (&data[..5000], &data[WHOLE..]);
    assert_eq!(write(&store, 1, 0, first, at_once()), Ok(5000));
    // The sync itself finds that, after it has written the first part.
    device.fail_zone(2, ZoneState::Offline);
    assert_eq!(write(&store, 1, WHOLE, second, io(1)), Ok(5000));
    is_synced(&store, 1);
    drop(store);
    let store = open(&Arc::new(device.after_power_loss(&mut AllLost)));
    let found = read_all(&store, 1, data.len()).unwrap();
    assert!(found[..5000] == *first && found[WHOLE..] == *second);
    check_space(&store);
}

#[test]
fn a_zone_that_is_filled_while_another_flush_fails_has_what_it_says() {
    for seed in 0..16 {
        let (device, store) = new_store(SHAPE);
        let end = WHOLE * usize::from(IN_ZONE - 1);
        fill(&store, 1, end, 1).unwrap();
        assert_eq!(sync(&store, 1), Ok(()));
        store.create(id(3)).unwrap();
        let (begin, may_begin) = channel();
        let (reached, is_reached) = channel();
        let (may_begin, is_reached) = (Mutex::new(may_begin), Mutex::new(is_reached));
        let (observed, is_next) = (Arc::downgrade(&device), AtomicBool::new(false));
        let reached = Mutex::new(Some(reached));
        // Another flush begins before the zone is filled, and ends, in vain, afterwards.
        device.set_observer(Some(Arc::new(move |effect| match effect {
            ZoneEffect::Write(2, ..) if !is_next.swap(true, Ordering::Relaxed) => {
                begin.send(()).unwrap();
                is_reached.lock().unwrap().recv_timeout(PATIENCE).unwrap();
            }
            ZoneEffect::Flush if is_next.load(Ordering::Relaxed) => {
                let first = reached.lock().unwrap().take();
                if let Some(reached) = first {
                    reached.send(()).unwrap();
                    let device = observed.upgrade().unwrap();
                    wait_until(|| device.report(2).unwrap().state != ZoneState::Closed);
                }
            }
            _ => {}
        })));
        std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                may_begin.lock().unwrap().recv_timeout(PATIENCE).unwrap();
                device.lose_with_flush(0, Some(seed));
                sync(&store, 3)
            });
            assert_eq!(fill(&store, 2, WHOLE, 1), Ok(()));
            assert_eq!(other.join().unwrap(), Err(Errno::EIO));
        });
        device.set_observer(None);
        is_synced(&store, 2);
        have_their_data(&device, store, WHOLE, 1..3);
    }
}

#[test]
fn what_was_moved_and_changed_is_where_it_was_but_for_the_change() {
    const LEN: usize = 15_000;
    let change = [
        |store: &ZonedStore| {
            assert_eq!(write(store, 0, LEN, &[9], at_once()), Ok(1));
        },
        |store: &ZonedStore| store.truncate(id(0), 14_000).unwrap(),
        |store: &ZonedStore| store.punch(id(0), 14_000, 10).unwrap(),
    ];
    for change in change {
        // There is room in an open zone, and nothing is moved yet.
        let (device, store) = packed(IN_ALL - 1, LEN, 0);
        store.remove(&[id(2), id(3)]).unwrap();
        store.sync_all().unwrap();
        // A write moves its share, which is the first one.
        store.create(id(200)).unwrap();
        assert_eq!(write(&store, 200, 0, &[7; 4096], at_once()), Ok(4096));
        assert_eq!(store.zones().unwrap().moved_bytes, WHOLE as u64);
        change(&store);
        device.lose_with_flush(0, None);
        assert_eq!(sync(&store, 200), Err(Errno::EIO));
        have_their_data(&device, store, 14_000, (0..2).chain(4..IN_ALL - 1));
    }
}

#[test]
fn an_end_that_was_cut_off_and_lost_is_not_what_is_written_there_next() {
    const LEN: usize = 5 * WHOLE;
    let (device, store) = new_store(SHAPE);
    fill(&store, 1, LEN, 1).unwrap();
    // The index has it, and may be durable.
    device.fail_after(1, 0);
    assert_eq!(sync(&store, 1), Err(Errno::EIO));
    device.lose_from(2, LEN as u64 / 2);
    store.truncate(id(1), LEN as u64 / 2).unwrap();
    fill(&store, 2, LEN, 1).unwrap();
    drop(store);
    let store = open(&Arc::new(device.after_power_loss(&mut AllKept)));
    let size = store.stat(id(1)).unwrap().size as usize;
    let found = read_all(&store, 1, size);
    assert!(found.is_err() || is_as_filled(1, &found.unwrap()), "it has another one's bytes");
}
