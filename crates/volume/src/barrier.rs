//! The barrier that every operation on the volume goes through: closing it waits
//! for those under way and holds new ones up, so that what they all rest on can
//! be exchanged.
//!
//! To go through costs two changes of a counter that few threads share.

#[cfg(all(test, loom))]
mod model;

use crate::sync::checked::{AtomicBool, AtomicU64, Condvar, Mutex, Ordering};

/// Counters; more than there are processors that matter, or as few as make a
/// difference to the model checker.
const SHARDS: usize = if cfg!(loom) { 2 } else { 64 };

/// A counter in cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
struct Count(AtomicU64);

#[derive(Debug)]
pub(crate) struct Barrier {
    inside: [Count; SHARDS],
    frozen: AtomicBool,
    lock: Mutex<()>,
    changed: Condvar,
}

/// An operation under way. One that has a pass must not ask for another: whoever
/// closes the barrier in between would wait for it, and it for them.
#[derive(Debug)]
pub(crate) struct Entered<'a> {
    barrier: &'a Barrier,
    at: usize,
}

/// Nothing is under way while this lives.
#[derive(Debug)]
pub(crate) struct Frozen<'a>(&'a Barrier);

/// How often it is looked whether everybody is out, at least.
const LOOK_NS: u64 = 5_000_000;

impl Barrier {
    pub(crate) fn new() -> Self {
        Self {
            inside: std::array::from_fn(|_| Count(AtomicU64::new(0))),
            frozen: AtomicBool::new(false),
            lock: Mutex::new(()),
            changed: Condvar::new(),
        }
    }

    /// Goes in; waits while the barrier is frozen.
    pub(crate) fn enter(&self) -> Entered<'_> {
        self.enter_at(crate::migrate::place_of_this_thread() % SHARDS)
    }

    fn enter_at(&self, at: usize) -> Entered<'_> {
        loop {
            // Whoever closes the barrier exchanges the count too (`is_entered`),
            // and the second of the two at it knows what the first did before:
            // either this thread sees that the barrier is frozen, or whoever
            // closes it sees the count.
            self.inside[at].0.fetch_add(1, Ordering::AcqRel);
            if !self.frozen.load(Ordering::Acquire) {
                return Entered { barrier: self, at };
            }
            self.leave(at);
            let mut guard = self.lock.lock();
            while self.frozen.load(Ordering::Acquire) {
                guard = self.changed.wait_for(guard, LOOK_NS);
            }
        }
    }

    fn leave(&self, at: usize) {
        self.inside[at].0.fetch_sub(1, Ordering::AcqRel);
        if self.frozen.load(Ordering::Acquire) {
            // Whoever closes the barrier has looked and waits, or looks anew.
            drop(self.lock.lock());
            self.changed.notify_all();
        }
    }

    /// Closes the barrier when everybody is out; gives up when `give_up` says so,
    /// which is asked every now and then. One at a time.
    pub(crate) fn freeze(&self, mut give_up: impl FnMut() -> bool) -> Option<Frozen<'_>> {
        self.frozen.store(true, Ordering::Release);
        let frozen = Frozen(self);
        let mut guard = self.lock.lock();
        while self.is_entered() {
            if give_up() {
                drop(guard);
                return None;
            }
            guard = self.changed.wait_for(guard, LOOK_NS);
        }
        drop(guard);
        Some(frozen)
    }

    /// Whether somebody is inside. To exchange the counts, rather than to load
    /// them, puts this and all who come and go in one order.
    fn is_entered(&self) -> bool {
        self.inside.iter().any(|count| count.0.fetch_add(0, Ordering::AcqRel) > 0)
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.barrier.leave(self.at);
    }
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        self.0.frozen.store(false, Ordering::Release);
        drop(self.0.lock.lock());
        self.0.changed.notify_all();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::{Machine, Volume, VolumeConfig, config};
    use braid_contract::{Caller, Environment, Errno, FileSystem, InodeId, JobKind, OpenFlags, Result};
    use braid_placement::{EPOCH_NS_DEFAULT, PolicyConfig, Reserve};
    use braid_stores::dir::DirStore;
    use braid_stores::native::open_tier_dir;
    use std::ffi::OsStr;
    use std::path::Path;
    use std::sync::atomic::AtomicU32;
    use std::sync::{Arc, OnceLock, Weak};

    /// The machine without threads; notes whether somebody was inside when the
    /// clock was looked at.
    #[derive(Debug, Default)]
    struct Watch {
        volume: OnceLock<Weak<Volume>>,
        inside: AtomicBool,
    }

    impl Watch {
        fn look(&self) {
            let volume = self.volume.get().and_then(Weak::upgrade);
            if volume.is_some_and(|volume| volume.barrier.is_entered()) {
                self.inside.store(true, Ordering::Relaxed);
            }
        }
    }

    impl Environment for Watch {
        fn wall_ns(&self) -> i64 {
            self.look();
            Machine.wall_ns()
        }

        fn monotonic_ns(&self) -> u64 {
            self.look();
            Machine.monotonic_ns()
        }

        fn fill_random(&self, bytes: &mut [u8]) -> Result<()> {
            Machine.fill_random(bytes)
        }

        fn threads(&self) -> bool {
            false
        }
    }

    /// A volume of which all but home takes nothing.
    #[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    fn volume(dir: &Path, environment: Arc<dyn Environment>) -> Arc<Volume> {
        let place = |name: &str| {
            std::fs::create_dir(dir.join(name)).unwrap();
            dir.join(name)
        };
        let (home, slow) = (place("home"), place("slow"));
        let config = VolumeConfig {
            home: config::HomeConfig {
                name: "home".into(),
                root: open_tier_dir(&home).unwrap(),
                location: String::new(),
                weight: None,
                profile: None,
                reserve: Reserve::Bytes(0),
            },
            tiers: vec![config::TierConfig {
                name: "slow".into(),
                store: Some(Arc::new(DirStore::open(&slow).unwrap())),
                location: String::new(),
                weight: None,
                profile: None,
                reserve: Reserve::Percent(100.0),
            }],
            range_size: None,
            policy: PolicyConfig::named("weighted").unwrap(),
            rules: Vec::new(),
            epoch_ns: EPOCH_NS_DEFAULT,
            heat_budget: crate::HEAT_BUDGET_DEFAULT,
            monitor: true,
            movers: config::MoversConfig::NONE,
            create: true,
            environment,
        };
        Volume::open(config).unwrap()
    }

    #[test]
    #[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    fn a_file_that_is_closed_leaves_nothing_in_memory_but_its_inode() {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let volume = volume(dir.path(), Arc::new(Watch::default()));
        let flags = OpenFlags { read: true, write: true, ..OpenFlags::default() };
        let (entry, opened) = volume
            .create(&Caller::root(), InodeId::ROOT, OsStr::new("f"), 0o100_644, 0, true, flags)
            .unwrap();
        let inode = volume.inodes.get(entry.attr.ino).unwrap();
        assert!(!inode.file.lock().ptr_eq(&Weak::new()));
        volume.release(opened.handle).unwrap();
        assert!(inode.file.lock().ptr_eq(&Weak::new()));
    }

    #[test]
    fn whoever_enters_an_inode_from_outside_goes_through() {
        let (dir, watch) = (tempfile::tempdir_in("/var/tmp").unwrap(), Arc::new(Watch::default()));
        let volume = volume(dir.path(), Arc::<Watch>::clone(&watch));
        watch.volume.set(Arc::downgrade(&volume)).unwrap();
        let (caller, flags) = (Caller::root(), OpenFlags { write: true, ..OpenFlags::default() });
        let made = volume.create(&caller, InodeId::ROOT, OsStr::new("f"), 0o100_644, 0, true, flags);
        let (entry, opened) = made.unwrap();
        volume.write(&caller, opened.handle, 0, b"f", Default::default()).unwrap();
        volume.release(opened.handle).unwrap();

        let was_inside = || watch.inside.swap(false, Ordering::Relaxed);
        was_inside();
        volume.explain(entry.attr.ino).unwrap();
        assert!(was_inside(), "explain");
        let refused = volume.start_job(JobKind::Move { path: "f".into(), to: "slow".into() }, None);
        assert_eq!(refused.unwrap_err().errno(), Errno::ENOSPC);
        assert!(was_inside(), "the look at a file that is to be moved");
        volume.shutdown().unwrap();
    }

    #[test]
    fn who_closes_waits_for_those_inside_and_holds_others_up() {
        let barrier = Barrier::new();
        let inside = barrier.enter();
        let mut asked = 0;
        let given_up = barrier.freeze(|| {
            asked += 1;
            asked > 2
        });
        assert!(given_up.is_none());
        drop(barrier.enter());
        drop(inside);
        assert!(barrier.freeze(|| true).is_some());
        drop(barrier.enter());
    }

    #[test]
    fn nobody_is_inside_while_the_door_is_closed() {
        let (barrier, inside, end) = (Barrier::new(), AtomicU32::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while !end.load(Ordering::Relaxed) {
                        let _entered = barrier.enter();
                        inside.fetch_add(1, Ordering::Relaxed);
                        std::hint::spin_loop();
                        inside.fetch_sub(1, Ordering::Relaxed);
                    }
                });
            }
            for _ in 0..300 {
                let frozen = barrier.freeze(|| false).unwrap();
                for _ in 0..10 {
                    assert_eq!(inside.load(Ordering::Relaxed), 0);
                }
                drop(frozen);
            }
            end.store(true, Ordering::Relaxed);
        });
    }
}
