//! Tests of operations passing the barrier, and of the memory that a file
//! leaves behind.

use crate::{Volume, VolumeConfig};
use braid_contract::{Caller, Environment, Errno, FileSystem, InodeId, JobKind, OpenFlags, Result};
use braid_placement::{EPOCH_NS_DEFAULT, PolicyConfig, Reserve};
use braid_stores::dir::DirStore;
use braid_stores::native::Machine;
use braid_stores::native::open_tier_dir;
use std::ffi::OsStr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

/// The machine without threads; notes whether an operation was inside the
/// barrier when the clock was read.
#[derive(Debug, Default)]
struct Watch {
    volume: OnceLock<Weak<Volume>>,
    inside: AtomicBool,
}

impl Watch {
    fn look(&self) {
        let volume = self.volume.get().and_then(Weak::upgrade);
        if volume.is_some_and(|volume| volume.core.barrier.is_entered()) {
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

/// A volume of which only home takes new ranges.
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
fn volume(dir: &Path, environment: Arc<dyn Environment>) -> Arc<Volume> {
    let place = |name: &str| {
        std::fs::create_dir(dir.join(name)).unwrap();
        dir.join(name)
    };
    let (home, slow) = (place("home"), place("slow"));
    let config = VolumeConfig {
        home: braid_tiers::HomeConfig {
            name: "home".into(),
            root: open_tier_dir(&home).unwrap(),
            location: String::new(),
            weight: None,
            profile: None,
            reserve: Reserve::Bytes(0),
        },
        tiers: vec![braid_tiers::TierConfig {
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
        hints: Default::default(),
        epoch_ns: EPOCH_NS_DEFAULT,
        heat_budget: crate::HEAT_BUDGET_DEFAULT,
        monitor: true,
        movers: braid_tiers::MoversConfig::NONE,
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
        .create(&Caller::root(), InodeId::ROOT, OsStr::new("f"), 0o100_644, 0, true, flags.into())
        .unwrap();
    let inode = volume.core.inodes.get(entry.attr.ino).unwrap();
    assert!(!inode.file.lock().is_free());
    volume.release(opened.handle).unwrap();
    assert!(inode.file.lock().is_free());
}

#[test]
fn one_that_enters_an_inode_from_outside_passes_the_barrier() {
    let (dir, watch) = (tempfile::tempdir_in("/var/tmp").unwrap(), Arc::new(Watch::default()));
    let volume = volume(dir.path(), Arc::<Watch>::clone(&watch));
    watch.volume.set(Arc::downgrade(&volume)).unwrap();
    let (caller, flags) = (Caller::root(), OpenFlags { write: true, ..OpenFlags::default() });
    let made = volume.create(&caller, InodeId::ROOT, OsStr::new("f"), 0o100_644, 0, true, flags.into());
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
