//! What a stream will read soon is read from its tiers before.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[allow(dead_code, reason = "other tests need more of it")]
mod common;

use braid_contract::{FileSystem, HandleId, InodeId, ObjectId, PlacedRun, Result, Store, StoreLayer};
use braid_volume::Volume;
use common::{Bed, Open, RANGE, caller, pattern};
use std::collections::BTreeSet;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

const RANGES: u64 = 512;

/// The ranges that were to be read ahead, and whether that hangs.
#[derive(Default)]
struct Asked {
    ranges: Mutex<BTreeSet<u64>>,
    changed: Condvar,
    hangs: Mutex<bool>,
    released: Condvar,
}

struct Watched {
    inner: Arc<dyn Store>,
    asked: Arc<Asked>,
}

impl StoreLayer for Watched {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    fn start_read(&self, id: ObjectId, offset: u64, len: u64) -> Result<()> {
        assert_eq!((offset % RANGE, len), (0, RANGE));
        self.asked.ranges.lock().unwrap().insert(offset / RANGE);
        self.asked.changed.notify_all();
        let hangs = self.asked.hangs.lock().unwrap();
        drop(self.asked.released.wait_while(hangs, |hangs| *hangs).unwrap());
        self.inner.start_read(id, offset, len)
    }
}

/// A spread file, of which some ranges are on a watched tier.
struct Scene {
    open: Open,
    asked: Arc<Asked>,
    ino: InodeId,
    handle: HandleId,
    data: Vec<u8>,
    _bed: Bed,
}

impl Scene {
    fn new() -> Self {
        let bed = Bed::new();
        let asked = Arc::<Asked>::default();
        let mut config = bed.config();
        let inner = config.tiers[0].store.take().unwrap();
        config.tiers[0].store = Some(Arc::new(Watched { inner, asked: Arc::clone(&asked) }));
        let open = Open { volume: Volume::open(config).unwrap() };
        let (ino, handle) = open.create("f");
        let data = pattern(1, (RANGES * RANGE) as usize);
        open.write_ranges(handle, &data);
        Self { open, asked, ino, handle, data, _bed: bed }
    }

    /// The ranges on the watched tier.
    fn watched(&self) -> BTreeSet<u64> {
        let runs = self.open.volume.explain(self.ino).unwrap().runs;
        let is_on = |run: &&PlacedRun| run.tier.as_ref().is_some_and(|on| on.name == "slow");
        runs.iter()
            .filter(is_on)
            .flat_map(|run| run.offset / RANGE..run.offset / RANGE + run.ranges)
            .collect()
    }

    /// Reads a range in two steps.
    fn read(&self, range: u64, direct: bool) {
        for half in [0, 1] {
            let at = range * RANGE + half * RANGE / 2;
            let mut buf = vec![0; RANGE as usize / 2];
            let read = self.open.volume.read(&caller(), self.handle, at, &mut buf, direct).unwrap();
            assert!(read == buf.len() && buf == self.data[at as usize..][..read]);
        }
    }

    fn end(self) {
        self.open.volume.release(self.handle).unwrap();
        self.open.close();
    }
}

#[test]
fn a_stream_is_read_ahead_beyond_what_the_kernel_reads() {
    let scene = Scene::new();
    let (watched, home) = (scene.watched(), |watched: &BTreeSet<u64>, range: &u64| !watched.contains(range));
    assert!(watched.len() > 100 && watched.len() < 400, "{watched:?}");
    // Neither past the cache, nor at random.
    (0..RANGES).for_each(|range| scene.read(range, true));
    (0..RANGES).for_each(|at| scene.read(at * 307 % RANGES, false));
    assert_eq!(*scene.asked.ranges.lock().unwrap(), BTreeSet::new());
    (0..RANGES).for_each(|range| scene.read(range, false));
    // Beyond the beginning of the stream, those that follow a range on home, and
    // those that are later than what the kernel reads after one on their tier.
    let is_due = |range: &&u64| home(&watched, &(**range - 1)) || !home(&watched, &(**range - 3));
    let due = watched.iter().filter(|range| **range > 5).filter(is_due);
    let due: BTreeSet<u64> = due.copied().collect();
    let asked = scene.asked.ranges.lock().unwrap();
    let wait = Duration::from_secs(60);
    let (asked, waited) =
        scene.asked.changed.wait_timeout_while(asked, wait, |asked| !due.is_subset(asked)).unwrap();
    assert!(!waited.timed_out(), "{due:?} {asked:?}");
    assert!(asked.is_subset(&watched), "{watched:?} {asked:?}");
    drop(asked);
    scene.end();
}

#[test]
fn a_tier_that_can_not_read_ahead_holds_no_reader_up() {
    let scene = Scene::new();
    *scene.asked.hangs.lock().unwrap() = true;
    for _ in 0..3 {
        (0..RANGES).for_each(|range| scene.read(range, false));
    }
    let asked = scene.asked.ranges.lock().unwrap();
    let wait = Duration::from_secs(60);
    let none = |asked: &mut BTreeSet<u64>| asked.is_empty();
    let (asked, waited) = scene.asked.changed.wait_timeout_while(asked, wait, none).unwrap();
    assert!(!waited.timed_out() && asked.len() == 1, "one hangs, and the others wait for it: {asked:?}");
    drop(asked);
    *scene.asked.hangs.lock().unwrap() = false;
    scene.asked.released.notify_all();
    scene.end();
}
