//! What a stream will read soon is read from its tiers before.

use crate::common::{Bed, Open, RANGE, caller, pattern};
use braid_contract::{FileSystem, HandleId, InodeId, ObjectId, PlacedRun, Result, Store, StoreLayer};
use braid_volume::Volume;
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
    /// Home has this weight, the watched tier 1.
    fn new(weight: f64) -> Self {
        let bed = Bed::new();
        let asked = Arc::<Asked>::default();
        let mut config = bed.config();
        let inner = config.tiers[0].store.take().unwrap();
        config.tiers[0].store = Some(Arc::new(Watched { inner, asked: Arc::clone(&asked) }));
        let open = Open { volume: Volume::open(config).unwrap() };
        for (tier, weight) in [("fast", weight), ("slow", 1.0)] {
            let weight = braid_volume::TierChange { weight: Some(Some(weight)), ..Default::default() };
            open.volume.set_tier(tier, weight).unwrap();
        }
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
    // In the latter, nearly all of it is on one tier.
    for weight in [1.0, 0.025] {
        let scene = Scene::new(weight);
        let watched = scene.watched();
        let home = |range: u64| !watched.contains(&range);
        assert!(watched.len() > 100 && watched.len() < 510, "{watched:?}");
        // Neither past the cache, nor at random.
        (0..RANGES).for_each(|range| scene.read(range, true));
        (0..RANGES).for_each(|at| scene.read(at * 307 % RANGES, false));
        assert_eq!(*scene.asked.ranges.lock().unwrap(), BTreeSet::new());
        // Beyond the beginning of the stream, those that follow a range on home, and
        // those that are later than what the kernel reads after one on their tier,
        // if there are any on home within reach.
        let has_home = |range: u64| (range..RANGES.min(range + 40)).any(home);
        let is_due = |range: &&u64| home(**range - 1) || !home(**range - 3) && has_home(**range);
        let due: BTreeSet<u64> = watched.iter().filter(|range| **range > 5).filter(is_due).copied().collect();
        for range in 0..RANGES {
            scene.read(range, false);
            let lacks = |asked: &mut BTreeSet<u64>| due.range(..=range + 1).any(|due| !asked.contains(due));
            let asked = scene.asked.ranges.lock().unwrap();
            let wait = Duration::from_secs(60);
            let (asked, waited) = scene.asked.changed.wait_timeout_while(asked, wait, lacks).unwrap();
            assert!(!waited.timed_out(), "{range} {due:?} {asked:?}");
        }
        assert!(scene.asked.ranges.lock().unwrap().is_subset(&watched));
        scene.end();
    }
}

#[test]
fn a_stream_over_one_tier_is_left_to_the_kernel() {
    let scene = Scene::new(1e-6);
    assert!(scene.watched().len() as u64 >= RANGES - 1);
    (0..RANGES).for_each(|range| scene.read(range, false));
    scene.open.volume.release(scene.handle).unwrap();
    let asked = Arc::clone(&scene.asked);
    scene.open.close();
    assert_eq!(*asked.ranges.lock().unwrap(), BTreeSet::new());
}

#[test]
fn a_tier_that_can_not_read_ahead_holds_no_reader_up() {
    let scene = Scene::new(1.0);
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
