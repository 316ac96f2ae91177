//! Zones are emptied in time: a device is written again and again while nine tenths of
//! it are of use.

use crate::model::id;
use crate::{LABEL, SETTINGS, SHAPE, fill, io, new_store, open, read_all};
use braid_contract::{Environment, Errno, ObjectId, SplitMix, Store, ZonedDevice};
use braid_stores::zoned::{ZonedSettings, ZonedStore};
use braid_testkit::sim::{AllLost, SimClock, SimEnvironment, SimZoned, SimZones, ZoneEffect};
use std::io::{IoSlice, IoSliceMut};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const MANY: SimZones = SimZones { zones: 130, conventional: 0, capacity: 256 << 10, active_max: 6 };
/// What a write has moved at most for each of its own bytes, and a piece more.
const SHARE: u64 = 16;
const PIECE: u64 = 1 << 20;

/// Zones that are to be free, with those that are kept back.
const ENOUGH: u32 = 6;

/// Until a test that hangs fails.
const PATIENCE: Duration = Duration::from_secs(30);

struct Churn {
    store: ZonedStore,
    random: SplitMix,
    objects: Vec<(ObjectId, u64)>,
    made: u64,
}

impl Churn {
    fn new(shape: SimZones, settings: ZonedSettings, environment: Arc<dyn Environment>) -> Self {
        let device: Arc<dyn ZonedDevice> = Arc::new(SimZoned::new(shape));
        let store = ZonedStore::open(device, settings, environment).unwrap();
        store.set_label(LABEL).unwrap();
        Self { store, random: SplitMix::new(5), objects: Vec::new(), made: 0 }
    }

    /// Writes a new object and syncs it; answers its length, and how much was moved.
    fn write(&mut self) -> (u64, u64) {
        self.made += 1;
        let id = ObjectId(u128::from(self.made).to_be_bytes());
        let len = 4096 * (1 + self.random.below(40));
        let data = vec![self.made as u8; len as usize];
        let moved = |store: &ZonedStore| store.zones().unwrap().moved_bytes;
        let before = moved(&self.store);
        self.store.create(id).unwrap();
        let stream = io(self.random.below(3));
        assert_eq!(self.store.write_at(id, 0, &[IoSlice::new(&data)], stream).unwrap() as u64, len);
        self.store.sync(&[id], true).unwrap();
        self.objects.push((id, len));
        (len, moved(&self.store) - before)
    }

    /// Removes any object.
    fn remove(&mut self) {
        let at = self.random.below(self.objects.len() as u64) as usize;
        let (id, _) = self.objects.swap_remove(at);
        self.store.remove(&[id]).unwrap();
    }

    fn used(&self) -> f64 {
        let usage = self.store.usage().unwrap();
        (usage.total - usage.available) as f64 / usage.total as f64
    }
}

#[test]
fn a_write_moves_no_more_than_its_share_on_a_device_that_is_nearly_full() {
    let environment = Arc::new(SimEnvironment::new(Arc::new(SimClock::new()), 1));
    let mut churn = Churn::new(MANY, SETTINGS, environment);
    let device = u64::from(MANY.zones) * MANY.capacity;
    let (mut written, mut most) = (0, 0);
    while written < 25 * device {
        while churn.used() > 0.9 {
            churn.remove();
        }
        let (len, moved) = churn.write();
        written += len;
        most = most.max(moved.saturating_sub(SHARE * len));
    }
    let status = churn.store.zones().unwrap();
    assert!(most <= PIECE, "a write had {most} bytes moved beyond its share: {status:?}");
    assert!(status.moved_bytes > device, "little had to be moved: {status:?}");
    assert_eq!(status.mixed, 0);
}

/// A simulated machine on which threads may be started.
#[derive(Debug)]
struct Threads(SimEnvironment);

impl Environment for Threads {
    fn wall_ns(&self) -> i64 {
        self.0.wall_ns()
    }

    fn monotonic_ns(&self) -> u64 {
        self.0.monotonic_ns()
    }

    fn fill_random(&self, bytes: &mut [u8]) -> braid_contract::Result<()> {
        self.0.fill_random(bytes)
    }

    fn threads(&self) -> bool {
        true
    }
}

#[test]
fn zones_are_emptied_while_nothing_is_written() {
    let environment = Arc::new(Threads(SimEnvironment::new(Arc::new(SimClock::new()), 2)));
    let settings = ZonedSettings { gc: 1 << 30, ..SETTINGS };
    let mut churn = Churn::new(MANY, settings, environment);
    while churn.used() < 0.97 {
        churn.write();
    }
    assert!(churn.store.zones().unwrap().free < ENOUGH);
    // Nothing more is written, but every third object goes: no zone is empty.
    let gone: Vec<ObjectId> = churn.objects.iter().step_by(3).map(|(id, _)| *id).collect();
    for id in &gone {
        churn.store.remove(&[*id]).unwrap();
    }
    let began = Instant::now();
    while churn.store.zones().unwrap().free < ENOUGH {
        assert!(began.elapsed().as_secs() < 60, "{:?}", churn.store.zones());
        std::thread::yield_now();
    }
    assert!(churn.store.zones().unwrap().moved_bytes > 0);
}

#[test]
fn a_write_does_not_wait_for_a_reset_as_long_as_there_are_zones() {
    let environment = Arc::new(Threads(SimEnvironment::new(Arc::new(SimClock::new()), 4)));
    let device = Arc::new(SimZoned::new(MANY));
    let settings = ZonedSettings { gc: 1 << 30, ..SETTINGS };
    let store = ZonedStore::open(Arc::clone(&device) as _, settings, environment).unwrap();
    store.set_label(LABEL).unwrap();
    // As many zones are free as are to be; each object has one for itself.
    let whole = MANY.capacity as usize;
    let mut number = 0;
    while store.zones().unwrap().free > ENOUGH {
        fill(&store, number, whole, 1).unwrap();
        store.sync_all().unwrap();
        number += 1;
    }
    let (reached, is_reached) = channel();
    let (go_on, may_go_on) = channel::<()>();
    let may_go_on = Mutex::new(may_go_on);
    device.set_observer(Some(Arc::new(move |effect| {
        if matches!(effect, ZoneEffect::Reset(_)) {
            reached.send(()).unwrap();
            let _ = may_go_on.lock().unwrap().recv();
        }
    })));
    // Three zones need a reset, which is due with the next one that is opened.
    store.remove(&[id(0), id(1), id(2)]).unwrap();
    let (written, is_written) = channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for (number, len) in [(number, 4096), (number + 1, whole)] {
                fill(&store, number, len, 2).unwrap();
                store.sync_all().unwrap();
            }
            written.send(()).unwrap();
        });
        let results = (is_reached.recv_timeout(PATIENCE), is_written.recv_timeout(PATIENCE));
        drop(go_on);
        results.0.expect("a zone is reset");
        results.1.expect("writes go on while the zone is reset");
    });
    let began = Instant::now();
    while store.zones().unwrap().free < ENOUGH {
        assert!(began.elapsed() < PATIENCE, "{:?}", store.zones());
        std::thread::yield_now();
    }
    assert_eq!(store.zones().unwrap().moved_bytes, 0);
}

#[test]
fn an_index_that_is_full_takes_no_more_and_loses_nothing() {
    let environment = Arc::new(SimEnvironment::new(Arc::new(SimClock::new()), 3));
    let device: Arc<dyn ZonedDevice> =
        Arc::new(SimZoned::new(SimZones { zones: 40, conventional: 0, capacity: 128 << 10, active_max: 6 }));
    let open = || ZonedStore::open(Arc::clone(&device), SETTINGS, Arc::clone(&environment) as _).unwrap();
    let mut store = open();
    store.set_label(LABEL).unwrap();
    let mut there: Vec<ObjectId> = Vec::new();
    let mut number = 0_u128;
    for round in 0..4 {
        let before = there.len();
        let errno = loop {
            number += 1;
            let id = ObjectId(number.to_be_bytes());
            let made = store.create(id).and_then(|()| {
                there.push(id);
                store.write_at(id, 0, &[IoSlice::new(&number.to_be_bytes())], io(1))?;
                if number.is_multiple_of(7) { store.sync(&[id], false) } else { Ok(()) }
            });
            if let Err(error) = made {
                break error.errno();
            }
        };
        assert_eq!(errno, Errno::ENOSPC);
        assert!(there.len() > before + 20, "round {round}: {} objects, then none", there.len());
        let usage = store.usage().unwrap();
        assert!(usage.available > usage.total / 4, "the zones are full, not the index");
        store.sync_all().unwrap();
        drop(store);
        store = open();
        let has_its_data = |id: &&ObjectId| {
            let mut found = [0; 16];
            store.read_at(**id, 0, &mut [IoSliceMut::new(&mut found)], io(1)).unwrap() == 16 && found == id.0
        };
        // The last one of a round may have got none.
        assert!(there.iter().filter(has_its_data).count() + round + 1 >= there.len());
        // Where some go, others fit.
        let gone: Vec<ObjectId> = there.drain(..100).collect();
        store.remove(&gone).unwrap();
    }
}

#[test]
fn holes_that_the_index_has_no_room_for_are_refused() {
    const LEN: usize = 64 << 10;
    let (device, store) = new_store(SHAPE);
    fill(&store, 1, LEN, 1).unwrap();
    store.sync_all().unwrap();
    let mut holes = 0;
    while holes < 4000 {
        match store.punch(id(1), 2 * holes, 1) {
            Ok(()) => holes += 1,
            Err(error) => {
                assert_eq!(error.errno(), Errno::ENOSPC);
                break;
            }
        }
    }
    assert!(holes > 1000, "{holes} holes, then none");
    // Nothing is taken that no sync makes durable.
    let made = store.create(id(2)).map_err(|error| error.errno());
    assert!(matches!(made, Ok(()) | Err(Errno::ENOSPC)), "{made:?}");
    store.sync_all().unwrap();
    drop(store);
    let store = open(&Arc::new(device.after_power_loss(&mut AllLost)));
    assert_eq!(store.stat(id(2)).is_ok(), made.is_ok());
    for (at, byte) in (0..).zip(read_all(&store, 1, LEN).unwrap()) {
        let is_hole = at % 2 == 0 && at / 2 < holes;
        assert_eq!(byte, if is_hole { 0 } else { 1_u8.wrapping_add((at / 100) as u8) }, "{at}");
    }
    // Whole blocks may go all the same, and what is left of one.
    store.punch(id(1), 8192, 4096).unwrap();
    store.punch(id(1), 12_288, 3000).unwrap();
    store.punch(id(1), 20_000, LEN as u64).unwrap();
    store.sync_all().unwrap();
}

#[test]
fn an_open_zone_of_which_nothing_is_of_use_comes_before_what_has_to_be_moved() {
    let (_device, store) = new_store(SHAPE);
    for number in 0..36 {
        fill(&store, number, 64 << 10, 3).unwrap();
    }
    fill(&store, 100, 100_000, 1).unwrap();
    store.sync_all().unwrap();
    // Half of each full zone goes, and all of the one that is open.
    for number in (0..36).step_by(2) {
        store.remove(&[id(number)]).unwrap();
    }
    store.remove(&[id(100)]).unwrap();
    let free = store.zones().unwrap().free;
    fill(&store, 101, 4096, 2).unwrap();
    store.sync_all().unwrap();
    let status = store.zones().unwrap();
    assert_eq!((status.free, status.moved_bytes), (free, 0), "{status:?}");
}
