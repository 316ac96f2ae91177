//! The zoned store on a simulated device: power loss at any moment, zones that run
//! short, zones that fail.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod again;
mod flush;
mod found;
mod hostile;
mod losses;
mod model;
mod pace;
mod planted;
mod reserved;
mod units;

use braid_contract::{Errno, Hint, SplitMix, Store, StoreIo, StreamId, ZoneKind, ZoneState, ZonedDevice};
use braid_stores::zoned::{ZonedSettings, ZonedStore};
use braid_sys::AlignedBuf;
use braid_testkit::sim::{AllLost, Seeded, SimClock, SimEnvironment, SimZoned, SimZones};
use model::{Model, id, write};
use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const SETTINGS: ZonedSettings =
    ZonedSettings { extent: 16 << 10, memory: 96 << 10, write_through: false, gc: 0 };
const SHAPE: SimZones = SimZones { zones: 24, conventional: 0, capacity: 128 << 10, active_max: 6 };
const LABEL: &[u8] = b"label";

fn open(device: &Arc<SimZoned>) -> ZonedStore {
    static OPENED: AtomicU64 = AtomicU64::new(0);
    let chance = OPENED.fetch_add(1, Ordering::Relaxed);
    let environment = Arc::new(SimEnvironment::new(Arc::new(SimClock::new()), chance));
    let device: Arc<dyn ZonedDevice> = Arc::clone(device) as _;
    ZonedStore::open(device, SETTINGS, environment).unwrap()
}

fn new_store(shape: SimZones) -> (Arc<SimZoned>, ZonedStore) {
    let device = Arc::new(SimZoned::new(shape));
    let store = open(&device);
    store.set_label(LABEL).unwrap();
    (device, store)
}

fn io(stream: u64) -> StoreIo {
    let stream = (stream < 8).then_some(StreamId(stream as u32));
    StoreIo { direct: false, hint: Hint { stream, ..Hint::default() } }
}

/// One operation, on the store and on the model; whether the power is still on.
fn step(store: &ZonedStore, model: &mut Model, random: &mut SplitMix) -> bool {
    const OBJECTS: u64 = 12;
    let number = random.below(OBJECTS) as u8;
    let power = |errno: Errno| assert_eq!(errno, Errno::ENODEV, "what goes wrong is the power");
    if !model.exists(number) {
        model.created(number);
        return store.create(id(number)).is_ok();
    }
    let size = model.size(number);
    let done = match random.below(21) {
        20 => {
            let (offset, len) = (random.below(100_000), 1 + random.below(30_000));
            let reserved = store.allocate(id(number), offset, len, true).map_err(|error| error.errno());
            reserved.or_else(|errno| if errno == Errno::ENOSPC { Ok(()) } else { Err(errno) })
        }
        0..12 => {
            let len = 1 + random.below(20_000) as usize;
            let offset = if random.below(3) > 0 { size } else { random.below(size as u64 + 5000) as usize };
            if offset + len > 150_000 {
                return true;
            }
            let data: Vec<u8> = (0..len).map(|_| 1 + random.below(255) as u8).collect();
            let stream = random.below(9);
            let written = model.is_written(number, offset, len);
            match write(store, number, offset, &data, io(stream)) {
                // Short where there is no room for more.
                Ok(done) => {
                    assert!(!written && done > 0);
                    model.wrote(number, offset, &data[..done]);
                    Ok(())
                }
                Err(Errno::EOPNOTSUPP) if written => Ok(()),
                Err(Errno::ENOSPC) => Ok(()),
                Err(errno) => {
                    model.wrote(number, offset, &data);
                    Err(errno)
                }
            }
        }
        12 => {
            let to = random.below(size as u64 + 10_000) as usize;
            model.resized(number, to);
            store.truncate(id(number), to as u64).map_err(|error| error.errno())
        }
        13 => {
            let (offset, len) = (random.below(size as u64 + 1), 1 + random.below(30_000));
            model.cut(number, offset as usize, len as usize);
            store.punch(id(number), offset, len).map_err(|error| error.errno())
        }
        14..17 => {
            let synced = store.sync(&[id(number)], random.below(2) == 0).map_err(|error| error.errno());
            synced.inspect(|()| model.synced(number))
        }
        17 => store.sync_all().map_err(|error| error.errno()).inspect(|()| model.all_synced()),
        18 => {
            model.removed(number);
            store.remove(&[id(number)]).map_err(|error| error.errno())
        }
        // A write that failed may not have been told yet.
        _ => store.probe(LABEL).map_err(|error| error.errno()).inspect(|()| model.compare(store)),
    };
    match done {
        Ok(()) => true,
        Err(errno) => {
            power(errno);
            false
        }
    }
}

/// What is counted of space is what objects have.
fn check_space(store: &ZonedStore) {
    let mut allocated = 0;
    store.list(&mut |id| allocated += store.stat(id).unwrap().allocated).unwrap();
    let usage = store.usage().unwrap();
    assert_eq!(usage.total - usage.available, allocated, "{usage:?}");
}

/// Runs until the power goes, again and again.
fn survive(seed: u64, shape: SimZones, lives: u32) {
    let mut random = SplitMix::new(seed);
    let (mut device, mut store) = new_store(shape);
    let mut model = Model::default();
    for life in 0..lives {
        device.cut_after(random.below(120));
        for _ in 0..400 {
            if !step(&store, &mut model, &mut random) {
                break;
            }
        }
        drop(store);
        device = Arc::new(device.after_power_loss(&mut Seeded::new(seed ^ u64::from(life) << 32)));
        store = open(&device);
        assert_eq!(store.label().unwrap().as_deref(), Some(LABEL));
        model.recover(&store);
        model.compare(&store);
        check_space(&store);
    }
}

/// The seeds, `FROM..TO`, are those of `BRAID_ZONED_SEEDS` if it is set.
#[test]
fn power_loss_takes_nothing_that_was_synced() {
    let seeds = std::env::var("BRAID_ZONED_SEEDS").unwrap_or_else(|_| "0..5".to_owned());
    let (from, to) = seeds.split_once("..").unwrap();
    for seed in from.parse::<u64>().unwrap()..to.parse().unwrap() {
        for conventional in [0, 1, 2] {
            survive(seed, SimZones { conventional, ..SHAPE }, 20);
        }
    }
}

fn fill(store: &dyn Store, number: u8, len: usize, stream: u64) -> Result<(), Errno> {
    store.create(id(number)).unwrap();
    let data: Vec<u8> = (0..len).map(|at| number.wrapping_add((at / 100) as u8)).collect();
    match write(store, number, 0, &data, io(stream))? {
        done if done == len => Ok(()),
        _ => Err(Errno::ENOSPC),
    }
}

#[test]
fn there_is_room_for_as_much_as_is_said_to_be_available() {
    let (_device, store) = new_store(SHAPE);
    let before = store.usage().unwrap().available;
    let mut numbers = Vec::new();
    for number in 0..=255 {
        match fill(&store, number, 40_000, u64::from(number % 11)) {
            Ok(()) => numbers.push(number),
            Err(errno) => {
                assert_eq!(errno, Errno::ENOSPC);
                store.remove(&[id(number)]).unwrap();
                break;
            }
        }
    }
    let each = 40_960;
    assert_eq!(numbers.len() as u64, before / each, "{before} available");
    store.sync_all().unwrap();
    // Some go, and as many fit again, for long.
    let mut random = SplitMix::new(9);
    for _ in 0..400 {
        let at = random.below(numbers.len() as u64) as usize;
        store.remove(&[id(numbers[at])]).unwrap();
        fill(&store, numbers[at], 40_000, random.below(11)).unwrap();
        if random.below(8) == 0 {
            store.sync_all().unwrap();
        }
    }
    check_space(&store);
    assert!(store.zones().unwrap().moved_bytes > 0, "nothing had to be moved");
}

#[test]
fn data_that_dies_together_is_not_moved() {
    let (_device, store) = new_store(SHAPE);
    // Two streams: one is written and removed again and again, the other stays.
    for round in 0..60 {
        if round < 12 {
            fill(&store, 100 + round, 100_000, 1).unwrap();
        }
        fill(&store, round % 4, 60_000, 2).unwrap();
        store.sync_all().unwrap();
        store.remove(&[id(round % 4)]).unwrap();
    }
    let status = store.zones().unwrap();
    assert_eq!((status.moved_bytes, status.mixed), (0, 0), "{status:?}");
}

#[test]
fn streams_beyond_the_limit_share_zones() {
    let (_device, store) = new_store(SHAPE);
    for number in 0..4 {
        fill(&store, number, 20_000, u64::from(number)).unwrap();
    }
    store.sync_all().unwrap();
    assert_eq!(store.zones().unwrap().mixed, 0);
    for number in 4..6 {
        fill(&store, number, 20_000, u64::from(number)).unwrap();
    }
    store.sync_all().unwrap();
    let status = store.zones().unwrap();
    assert_eq!((status.mixed, status.open), (2, 4), "{status:?}");
}

#[test]
fn a_write_that_fails_half_way_is_repeated_elsewhere() {
    let (device, store) = new_store(SHAPE);
    let mut model = Model::default();
    model.created(1);
    store.create(id(1)).unwrap();
    for (round, zone) in (2..6).enumerate() {
        device.tear_next_write(zone, 1);
        let data = vec![round as u8 + 1; 30_000];
        assert_eq!(write(&store, 1, round * 30_000, &data, io(0)), Ok(30_000));
        model.wrote(1, round * 30_000, &data);
        store.sync(&[id(1)], true).unwrap();
        model.synced(1);
    }
    model.compare(&store);
    drop(store);
    let store = open(&Arc::new(device.after_power_loss(&mut Seeded::new(1))));
    model.recover(&store);
}

#[test]
fn zones_that_fail_are_worked_around_or_told() {
    let (device, store) = new_store(SHAPE);
    for number in 0..8 {
        fill(&store, number, 100_000, 1).unwrap();
    }
    store.sync_all().unwrap();
    device.fail_zone(3, ZoneState::ReadOnly);
    device.fail_zone(4, ZoneState::Offline);
    drop(store);
    let store = open(&device);
    assert_eq!(store.zones().unwrap().failed, 2);
    // What is in the zone that is offline is lost; all else is there.
    let lost = (0..8).filter(|number| {
        let mut bytes = vec![0; 100_000];
        let read = store.read_at(id(*number), 0, &mut [std::io::IoSliceMut::new(&mut bytes)], io(0));
        match read {
            Ok(done) => assert_eq!(done, 100_000),
            Err(ref error) => assert_eq!(error.errno(), Errno::EIO),
        }
        read.is_err()
    });
    let lost = lost.count();
    assert!((1..=3).contains(&lost), "{lost}");
    for number in 10..14 {
        fill(&store, number, 100_000, 1).unwrap();
    }
    store.sync_all().unwrap();
}

#[test]
fn a_write_pointer_that_is_not_where_it_was_is_noticed() {
    let (device, store) = new_store(SHAPE);
    fill(&store, 1, 100_000, 1).unwrap();
    store.sync_all().unwrap();
    fill(&store, 2, 10_000, 2).unwrap();
    store.sync_all().unwrap();
    drop(store);
    // Behind: what was durable is lost, and nothing else is taken for it.
    device.lose_from(2, 32 << 10);
    let store = open(&device);
    let mut bytes = vec![0; 100_000];
    let read = store.read_at(id(1), 0, &mut [std::io::IoSliceMut::new(&mut bytes)], io(0));
    assert_eq!(read.unwrap_err().errno(), Errno::EIO);
    let mut bytes = vec![0; 10_000];
    store.read_at(id(2), 0, &mut [std::io::IoSliceMut::new(&mut bytes)], io(0)).unwrap();
    fill(&store, 3, 60_000, 1).unwrap();
    store.sync_all().unwrap();
    let still_lost = |store: &ZonedStore| {
        let mut bytes = vec![0; 10_000];
        let read = store.read_at(id(1), 40_000, &mut [std::io::IoSliceMut::new(&mut bytes)], io(0));
        assert_eq!(read.unwrap_err().errno(), Errno::EIO);
    };
    still_lost(&store);
    // Nor after what was written there since.
    for number in 10..13 {
        fill(&store, number, 60_000, 1).unwrap();
        store.sync_all().unwrap();
        still_lost(&open(&device));
    }
}

fn read_all(store: &ZonedStore, number: u8, len: usize) -> Result<Vec<u8>, Errno> {
    let mut bytes = vec![0; len];
    let done = store.read_at(id(number), 0, &mut [std::io::IoSliceMut::new(&mut bytes)], io(0));
    done.map(|done| assert_eq!(done, len)).map_err(|error| error.errno())?;
    Ok(bytes)
}

#[test]
fn a_write_pointer_that_goes_back_meanwhile_is_not_written_over() {
    let (device, store) = new_store(SHAPE);
    fill(&store, 1, 60_000, 1).unwrap();
    store.sync_all().unwrap();
    let before = read_all(&store, 1, 60_000).unwrap();
    // The device is away, and lost something when it is back.
    device.cut_after(0);
    fill(&store, 9, 20_000, 1).unwrap();
    assert!(store.sync_all().is_err());
    device.cut_after(u64::MAX);
    device.lose_from(2, 16 << 10);
    // That is told once.
    assert_eq!(store.sync_all().unwrap_err().errno(), Errno::EIO);
    for number in 2..6 {
        fill(&store, number, 40_000, 1).unwrap();
        store.sync_all().unwrap();
    }
    assert_eq!(read_all(&store, 1, 60_000), Err(Errno::EIO));
    // Also when the zone was emptied and written anew, and after a power loss.
    for seed in 0..6 {
        churn(&store, seed).unwrap();
    }
    let still_lost = |store: &ZonedStore| {
        assert_eq!(read_all(store, 1, 60_000), Err(Errno::EIO));
        assert_eq!(read_all(store, 1, 16 << 10).unwrap(), before[..16 << 10]);
    };
    still_lost(&store);
    drop(store);
    still_lost(&open(&Arc::new(device.after_power_loss(&mut AllLost))));
}

#[test]
fn a_zone_that_can_not_be_read_for_a_while_is_emptied_later() {
    let (device, store) = new_store(SHAPE);
    churn(&store, 1).unwrap();
    for zone in 2..SHAPE.zones {
        device.fail_reads(zone, 2);
    }
    // No zone at all can be emptied at first.
    let failed = (2..8).filter(|seed| churn(&store, *seed).is_err()).count();
    assert!(failed < 6, "no zone was tried again");
    churn(&store, 8).unwrap();
    let status = store.zones().unwrap();
    assert_eq!(status.failed, 0, "{status:?}");
    check_space(&store);
}

#[test]
fn a_reset_that_is_done_counts_whatever_it_answers() {
    let (device, store) = new_store(SHAPE);
    for zone in 2..SHAPE.zones {
        device.fail_after_next_reset(zone);
    }
    for seed in 0..4 {
        churn(&store, seed).unwrap();
    }
    assert_eq!(store.zones().unwrap().failed, 0);
    check_space(&store);
}

#[test]
fn a_zone_that_was_reset_has_no_stream_when_the_store_is_opened_anew() {
    let (device, store) = new_store(SHAPE);
    for seed in 0..2 {
        churn(&store, seed).unwrap();
    }
    let before = store.zones().unwrap();
    drop(store);
    let after = open(&device).zones().unwrap();
    assert_eq!(after.free, before.free);
    let zones = |status: &braid_contract::ZoneStatus| -> u32 { status.streams.iter().map(|s| s.zones).sum() };
    assert!(zones(&after) <= after.zones - after.free, "{after:?}");
}

#[test]
fn what_a_process_left_unflushed_is_flushed_before_anything_is_told_durable() {
    // It ends at any moment, another one goes on, and then the power goes.
    for effects in 0..40 {
        let (device, store) = new_store(SHAPE);
        fill(&store, 1, 10_000, 1).unwrap();
        store.sync_all().unwrap();
        device.cut_after(effects);
        for number in 2..6 {
            if fill(&store, number, 9000, 1)
                .and_then(|()| store.sync_all().map_err(|error| error.errno()))
                .is_err()
            {
                break;
            }
        }
        drop(store);
        device.cut_after(u64::MAX);
        let store = open(&device);
        let mut there = Vec::new();
        store.list(&mut |id| there.push((id, store.stat(id).unwrap().size))).unwrap();
        store.sync_all().unwrap();
        drop(store);
        let store = open(&Arc::new(device.after_power_loss(&mut AllLost)));
        for (id, size) in there {
            assert_eq!(store.stat(id).unwrap().size, size, "after {effects}");
            let mut bytes = vec![0; size as usize];
            let done = store.read_at(id, 0, &mut [std::io::IoSliceMut::new(&mut bytes)], io(0)).unwrap();
            assert_eq!(done, bytes.len());
            assert!(
                bytes.iter().enumerate().all(|(at, byte)| *byte == id.0[0].wrapping_add((at / 100) as u8))
            );
        }
    }
}

#[test]
fn a_lost_checkpoint_is_told() {
    for conventional in [0, 2] {
        let (device, store) = new_store(SimZones { conventional, ..SHAPE });
        // Until the log has gone to the other region and further.
        for round in 0..80 {
            fill(&store, 1, 5000 + round, 1).unwrap();
            store.sync_all().unwrap();
            store.remove(&[id(1)]).unwrap();
        }
        drop(store);
        let newest = (0..2).find(|zone| {
            device.damage(*zone, 0);
            let environment = Arc::new(SimEnvironment::new(Arc::new(SimClock::new()), 1));
            let opened = ZonedStore::open(Arc::clone(&device) as _, SETTINGS, environment);
            let is_newest = opened.as_ref().is_err_and(|error| error.errno() == Errno::EUCLEAN);
            device.damage(*zone, 0);
            is_newest
        });
        assert!(newest.is_some(), "neither region was missed");
        open(&device);
    }
}

#[test]
fn a_damaged_frame_before_whole_ones_is_told() {
    for conventional in [0, 1] {
        let (device, store) = new_store(SimZones { conventional, ..SHAPE });
        for number in 0..5 {
            fill(&store, number, 5000, 1).unwrap();
            store.sync_all().unwrap();
        }
        drop(store);
        // The checkpoint is one frame, and each sync one more.
        device.damage(0, 3 * 4096);
        let environment = Arc::new(SimEnvironment::new(Arc::new(SimClock::new()), 1));
        let Err(error) = ZonedStore::open(Arc::clone(&device) as _, SETTINGS, environment) else {
            panic!("it is not noticed");
        };
        assert_eq!(error.errno(), Errno::EUCLEAN);
        assert!(error.to_string().contains("zone 0, at 12288"), "{error}");
        device.damage(0, 3 * 4096);
        assert_eq!(open(&device).stat(id(4)).unwrap().size, 5000);
    }
}

/// Objects are written and removed until zones had to be emptied.
fn churn(store: &ZonedStore, seed: u64) -> Result<(), Errno> {
    let mut random = SplitMix::new(seed);
    for round in 0..80 {
        let number = 10 + random.below(24) as u8;
        store.remove(&[id(number)]).unwrap();
        fill(store, number, 60_000, random.below(5))?;
        if round % 4 == 0 {
            store.sync_all().map_err(|error| error.errno())?;
        }
    }
    store.sync_all().map_err(|error| error.errno())
}

#[test]
fn a_device_that_is_away_for_a_while_loses_nothing() {
    for effects in (0..200).step_by(7) {
        let (device, store) = new_store(SHAPE);
        fill(&store, 1, 100_000, 1).unwrap();
        store.sync_all().unwrap();
        device.cut_after(effects);
        let errno = churn(&store, effects).unwrap_err();
        assert!(matches!(errno, Errno::ENODEV | Errno::ENOSPC), "{errno:?}");
        for number in 50..55 {
            store.create(id(number)).unwrap();
            _ = write(&store, number, 0, &[3; 50_000], io(u64::from(number % 5)));
            assert!(store.sync_all().is_err());
        }
        device.cut_after(u64::MAX);
        churn(&store, effects).unwrap();
        let status = store.zones().unwrap();
        assert_eq!(status.failed, 0, "after {effects}: {status:?}");
        check_space(&store);
        drop(store);
        let store = open(&Arc::new(device.after_power_loss(&mut AllLost)));
        assert_eq!(store.stat(id(1)).unwrap().size, 100_000);
        check_space(&store);
    }
}

#[test]
fn a_zone_that_can_not_be_reset_is_left_out() {
    let (device, store) = new_store(SHAPE);
    device.keep_from_reset(4);
    for seed in 0..6 {
        churn(&store, seed).unwrap();
    }
    assert_eq!(store.zones().unwrap().failed, 1);
    check_space(&store);
}

#[test]
fn a_zone_that_takes_no_moved_data_costs_only_itself() {
    let (device, store) = new_store(SHAPE);
    churn(&store, 1).unwrap();
    // Whatever is written next, also to empty others.
    for zone in 2..SHAPE.zones {
        device.tear_next_write(zone, 0);
    }
    for seed in 2..8 {
        // Three zones at a time are tried.
        while churn(&store, seed).is_err() {}
    }
    let status = store.zones().unwrap();
    assert_eq!(status.failed, 0, "{status:?}");
    assert!(status.moved_bytes > 0);
    check_space(&store);
}

#[test]
fn threads_write_sync_and_remove_side_by_side() {
    const THREADS: u8 = 4;
    let mut moved_bytes = 0;
    for seed in 0..4 {
        let (device, store) = new_store(SimZones { zones: 14, ..SHAPE });
        let work = |thread: u8| {
            let mut random = SplitMix::new(seed << 8 | u64::from(thread));
            let mut models = Model::default();
            for _ in 0..400 {
                let number = thread * 8 + random.below(6) as u8;
                if !models.exists(number) {
                    models.created(number);
                    store.create(id(number)).unwrap();
                }
                let size = models.size(number);
                match random.below(10) {
                    0..6 if size < 60_000 => {
                        let data = vec![1 + random.below(255) as u8; 1 + random.below(20_000) as usize];
                        let done = write(&store, number, size, &data, io(random.below(3))).unwrap();
                        models.wrote(number, size, &data[..done]);
                    }
                    6 | 7 => {
                        store.sync(&[id(number)], true).unwrap();
                        models.synced(number);
                    }
                    8 => models.compare(&store),
                    _ => {
                        models.removed(number);
                        store.remove(&[id(number)]).unwrap();
                    }
                }
            }
            models
        };
        let models: Vec<Model> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || work(thread))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        models.iter().for_each(|model| model.compare(&store));
        check_space(&store);
        moved_bytes += store.zones().unwrap().moved_bytes;
        drop(store);
        let store = open(&Arc::new(device.after_power_loss(&mut Seeded::new(seed))));
        for mut model in models {
            model.recover(&store);
        }
        check_space(&store);
    }
    assert!(moved_bytes > 0, "nothing had to be moved");
}

#[test]
fn the_end_of_a_file_may_come_in_whole_pages_again() {
    // As the kernel's cache writes back what is appended.
    for write_through in [false, true] {
        let device = Arc::new(SimZoned::new(SHAPE));
        let environment = Arc::new(SimEnvironment::new(Arc::new(SimClock::new()), 1));
        let settings = ZonedSettings { write_through, ..SETTINGS };
        let store = ZonedStore::open(Arc::clone(&device) as _, settings, environment).unwrap();
        store.set_label(LABEL).unwrap();
        store.create(id(1)).unwrap();
        let data: Vec<u8> = (0..50_000).map(|at| 1 + (at % 251) as u8).collect();
        let mut end = 0;
        for size in [1000, 5000, 17_000, 17_001, 40_000, 50_000] {
            let from = end / 4096 * 4096;
            assert_eq!(write(&store, 1, from, &data[from..size], io(1)), Ok(size - from));
            end = size;
            if size % 2 == 0 {
                store.sync(&[id(1)], true).unwrap();
            }
        }
        let mut other = data[8192..12_288].to_vec();
        other[4095] ^= 1;
        assert_eq!(write(&store, 1, 8192, &other, io(1)), Err(Errno::EOPNOTSUPP));
        let mut there = vec![0; end];
        store.read_at(id(1), 0, &mut [std::io::IoSliceMut::new(&mut there)], io(0)).unwrap();
        assert!(there == data);
        store.sync_all().unwrap();
        check_space(&store);
        drop(store);
        let store = open(&Arc::new(device.after_power_loss(&mut AllLost)));
        store.read_at(id(1), 0, &mut [std::io::IoSliceMut::new(&mut there)], io(0)).unwrap();
        assert!(there == data);
    }
}

#[test]
fn what_was_reserved_can_be_written_when_the_zones_are_full() {
    let (device, store) = new_store(SHAPE);
    store.create(id(1)).unwrap();
    store.allocate(id(1), 0, 200_000, true).unwrap();
    assert_eq!((store.stat(id(1)).unwrap().size, store.stat(id(1)).unwrap().allocated), (0, 200_704));
    let mut number = 10;
    while fill(&store, number, 40_000, 1).is_ok() {
        number += 1;
    }
    store.sync_all().unwrap();
    assert_eq!(store.allocate(id(number), 0, 300_000, true).unwrap_err().errno(), Errno::ENOSPC);
    check_space(&store);
    // Also after a power loss.
    drop(store);
    let store = open(&Arc::new(device.after_power_loss(&mut AllLost)));
    check_space(&store);
    assert_eq!(store.stat(id(1)).unwrap().allocated, 200_704);
    assert_eq!(write(&store, 1, 0, &[7; 200_000], io(2)), Ok(200_000));
    store.sync_all().unwrap();
    assert_eq!(store.stat(id(1)).unwrap().allocated, 200_704);
    // What is cut off is not kept.
    store.remove(&[id(10)]).unwrap();
    let before = store.usage().unwrap().available;
    store.allocate(id(1), 200_704, 20_480, true).unwrap();
    assert_eq!(store.usage().unwrap().available, before - 20_480);
    store.truncate(id(1), 200_000).unwrap();
    assert_eq!(store.usage().unwrap().available, before);
    check_space(&store);
}

#[test]
fn what_is_not_braids_is_not_written_over() {
    let foreign = |zone, conventional| {
        let device = Arc::new(SimZoned::new(SimZones { conventional, ..SHAPE }));
        let mut buf = AlignedBuf::new();
        let block = buf.bytes(4096);
        block.fill(0xf2);
        device.write(zone, 0, &[IoSlice::new(block)]).unwrap();
        device
    };
    for (zone, conventional) in [(0, 0), (1, 0), (2, 0), (0, 1), (0, 3), (1, 3), (5, 3)] {
        let device = foreign(zone, conventional);
        let refused = open(&device).set_label(LABEL).unwrap_err();
        assert_eq!(refused.errno(), Errno::ENOTEMPTY, "{zone} of {conventional}: {refused}");
        assert!(open(&device).label().unwrap().is_none());
        if device.report(zone).unwrap().kind == ZoneKind::Sequential {
            device.reset(zone).unwrap();
            open(&device).set_label(LABEL).unwrap();
        }
    }
    // Where no log would be.
    open(&foreign(2, 3)).set_label(LABEL).unwrap();
}

#[test]
fn a_device_that_was_given_up_can_be_taken_again() {
    for conventional in [0, 1, 2] {
        let (device, store) = new_store(SimZones { conventional, ..SHAPE });
        fill(&store, 1, 100_000, 0).unwrap();
        store.sync_all().unwrap();
        store.clear().unwrap();
        drop(store);
        open(&device).set_label(LABEL).unwrap();
    }
}
