//! Flushes that fail, and lose what was written before them.

use super::model::{id, write};
use super::{LABEL, SHAPE, check_space, churn, fill, io, new_store, open, read_all};
use braid_contract::{Errno, SplitMix, Store};
use braid_stores::zoned::ZonedStore;
use braid_testkit::sim::{AllLost, SimZones, ZoneEffect};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

pub(super) fn is_as_filled(number: u8, bytes: &[u8]) -> bool {
    bytes.iter().enumerate().all(|(at, byte)| *byte == number.wrapping_add((at / 100) as u8))
}

pub(super) fn sync(store: &ZonedStore, number: u8) -> Result<(), Errno> {
    store.sync(&[id(number)], true).map_err(|error| error.errno())
}

#[test]
fn what_is_in_memory_is_written_anew() {
    let (device, store) = new_store(SHAPE);
    fill(&store, 1, 6000, 1).unwrap();
    device.lose_with_flush(0, None);
    assert_eq!(sync(&store, 1), Err(Errno::EIO));
    assert_eq!(sync(&store, 1), Ok(()));
    check_space(&store);
    drop(store);
    let store = open(&Arc::new(device.after_power_loss(&mut AllLost)));
    assert!(is_as_filled(1, &read_all(&store, 1, 6000).unwrap()));
    check_space(&store);
}

#[test]
fn what_is_not_in_memory_is_told_once_and_can_not_be_read() {
    let (device, store) = new_store(SHAPE);
    // Whole extents: nothing of them stays in memory.
    for number in 1..4 {
        fill(&store, number, 32 << 10, number.into()).unwrap();
    }
    assert_eq!(sync(&store, 3), Ok(()));
    fill(&store, 4, 32 << 10, 1).unwrap();
    fill(&store, 5, 32 << 10, 2).unwrap();
    fill(&store, 6, 6000, 3).unwrap();
    device.lose_with_flush(0, None);
    // Another one's sync fails.
    assert_eq!(sync(&store, 6), Err(Errno::EIO));
    let before = read_all(&store, 4, 32 << 10);
    assert_eq!(before, Err(Errno::EIO), "what is lost is read");
    // Nor is the device asked for what is behind its write pointers: it may have zeros.
    assert_eq!(write(&store, 5, 0, &[5; 100], io(1)), Err(Errno::EIO));
    assert_eq!(device.broken_rules(), [""; 0]);
    assert_eq!(sync(&store, 4), Err(Errno::EIO));
    assert_eq!(sync(&store, 4), Ok(()));
    // Everything, and each by itself.
    assert_eq!(store.sync_all().unwrap_err().errno(), Errno::EIO);
    store.sync_all().unwrap();
    assert_eq!(sync(&store, 5), Err(Errno::EIO));
    for number in [1, 2, 3, 6] {
        assert_eq!(sync(&store, number), Ok(()));
    }
    check_space(&store);
    drop(store);
    let store = open(&Arc::new(device.after_power_loss(&mut AllLost)));
    for number in [1, 2, 3] {
        assert!(is_as_filled(number, &read_all(&store, number, 32 << 10).unwrap()));
    }
    assert!(is_as_filled(6, &read_all(&store, 6, 6000).unwrap()));
    for number in [4, 5] {
        assert_eq!(read_all(&store, number, 32 << 10), Err(Errno::EIO));
        store.remove(&[id(number)]).unwrap();
    }
    check_space(&store);
}

#[test]
fn a_flush_that_fails_beneath_a_sync_is_told() {
    let (device, store) = new_store(SHAPE);
    store.create(id(1)).unwrap();
    // Of two streams, each in memory.
    for (offset, stream) in [(0, 1), (16 << 10, 2)] {
        assert_eq!(write(&store, 1, offset, &[9; 5000], io(stream)), Ok(5000));
    }
    // The second write fails, and its zone is finished: a flush comes first.
    device.tear_next_write(3, 0);
    device.lose_with_flush(0, None);
    assert_eq!(sync(&store, 1), Err(Errno::EIO));
    assert_eq!(sync(&store, 1), Ok(()));
    drop(store);
    let store = open(&Arc::new(device.after_power_loss(&mut AllLost)));
    let mut wanted = vec![9; (16 << 10) + 5000];
    wanted[5000..16 << 10].fill(0);
    assert!(read_all(&store, 1, wanted.len()).unwrap() == wanted);
    check_space(&store);
}

/// Objects, and which of them a sync said to be durable, while a flush fails.
#[derive(Default)]
struct Scene {
    /// The number of the first one.
    first: u8,
    /// Those that were written and not synced.
    fresh: BTreeSet<u8>,
    safe: BTreeSet<u8>,
}

impl Scene {
    const LEN: usize = 50_000;

    /// One operation, on some of so many objects.
    fn step(&mut self, store: &ZonedStore, objects: u8, random: &mut SplitMix) {
        let number = self.first + random.below(objects.into()) as u8;
        match random.below(8) {
            0 => match self.sync(store, random.below(2) == 0) {
                Ok(()) => self.safe.append(&mut self.fresh),
                // Any of them may have lost something.
                Err(_) => self.fresh.clear(),
            },
            1 if self.fresh.contains(&number) => {
                self.fresh.remove(&number);
                if sync(store, number).is_ok() {
                    self.safe.insert(number);
                }
            }
            _ => {
                store.remove(&[id(number)]).unwrap();
                self.safe.remove(&number);
                self.fresh.remove(&number);
                if fill(store, number, Self::LEN, random.below(4)).is_ok() {
                    self.fresh.insert(number);
                }
            }
        }
    }

    /// Syncs everything, or what is not synced. A loss is told once by a sync of
    /// everything, to one thread.
    fn sync(&self, store: &ZonedStore, all: bool) -> Result<(), braid_contract::Error> {
        match all && self.first == 0 {
            true => store.sync_all(),
            false => store.sync(&self.fresh.iter().copied().map(id).collect::<Vec<_>>(), true),
        }
    }

    fn has_what_is_safe(&self, store: &ZonedStore) {
        for number in &self.safe {
            let found = read_all(store, *number, Self::LEN);
            assert!(found.as_ref().is_ok_and(|found| is_as_filled(*number, found)), "{number}: {found:?}");
        }
    }
}

/// Nothing of what a sync acknowledged is lost by a flush that fails, be it moved or
/// not: zones are emptied all the time.
#[test]
fn a_flush_that_fails_takes_nothing_that_was_durable() {
    let mut moved = 0;
    for seed in 0..100 {
        let mut random = SplitMix::of(5, seed);
        let conventional = random.pick(&[0, 1, 2]);
        let (device, store) = new_store(SimZones { zones: 17 + conventional, conventional, ..SHAPE });
        let mut scene = Scene::default();
        for _ in 0..4 {
            for _ in 0..60 {
                scene.step(&store, 24, &mut random);
            }
            // A zone that takes no write is finished, with a flush whose failure is passed over.
            let (at, seed) = (random.below(60), random.next_u64());
            device.fail_after(at, random.below(4));
            device.lose_with_flush(at + seed % 2, Some(seed).filter(|seed| seed % 3 > 0));
            for _ in 0..40 {
                scene.step(&store, 24, &mut random);
                if random.below(8) == 0 {
                    scene.has_what_is_safe(&open(&Arc::new(device.after_power_loss(&mut AllLost))));
                }
            }
            scene.has_what_is_safe(&store);
            check_space(&store);
            // A read or a write may find that its zone's write pointer went back.
            let went_back = |rule: &String| rule.contains("its write pointer") || rule.contains("nothing at");
            let broken = device.broken_rules().into_iter().find(|rule| !went_back(rule));
            assert_eq!(broken, None, "seed {seed}");
        }
        moved += store.zones().unwrap().moved_bytes;
        drop(store);
        let store = open(&Arc::new(device.after_power_loss(&mut AllLost)));
        assert_eq!(store.label().unwrap().as_deref(), Some(LABEL));
        scene.has_what_is_safe(&store);
        check_space(&store);
    }
    assert!(moved > 0, "nothing had to be moved");
}

#[test]
fn flushes_that_fail_take_nothing_that_was_durable_from_threads() {
    const THREADS: u8 = 4;
    const OBJECTS: u8 = 7;
    let mut moved = 0;
    for seed in 0..30 {
        let (device, store) = new_store(SimZones { zones: 17, ..SHAPE });
        // Others go on, and come as far as the log, before a flush ends.
        device.set_observer(Some(Arc::new(|effect| {
            if *effect == ZoneEffect::Flush {
                std::thread::sleep(Duration::from_micros(100));
            }
        })));
        let work = |thread: u8| {
            let mut random = SplitMix::of(seed, thread.into());
            let mut scene = Scene { first: 1 + thread * OBJECTS, ..Scene::default() };
            for _ in 0..120 {
                if random.below(40) == 0 {
                    device.lose_with_flush(random.below(20), Some(random.next_u64()));
                }
                scene.step(&store, OBJECTS, &mut random);
            }
            scene
        };
        let scenes: Vec<Scene> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || work(thread))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        scenes.iter().for_each(|scene| scene.has_what_is_safe(&store));
        check_space(&store);
        moved += store.zones().unwrap().moved_bytes;
        drop(store);
        let store = open(&Arc::new(device.after_power_loss(&mut AllLost)));
        scenes.iter().for_each(|scene| scene.has_what_is_safe(&store));
        check_space(&store);
    }
    assert!(moved > 0, "nothing had to be moved");
}

#[test]
fn what_can_be_read_is_what_was_written_whatever_flush_fails() {
    for effects in 0..60 {
        let (device, store) = new_store(SHAPE);
        device.lose_with_flush(effects, Some(effects));
        _ = churn(&store, effects);
        (0..2).for_each(|_| _ = store.sync_all());
        store.sync_all().unwrap();
        for number in 10..34 {
            if store.stat(id(number)).is_ok_and(|stat| stat.size == 60_000) {
                let found = read_all(&store, number, 60_000);
                assert!(found.is_err() || is_as_filled(number, &found.unwrap()), "{number}, after {effects}");
            }
        }
    }
}
