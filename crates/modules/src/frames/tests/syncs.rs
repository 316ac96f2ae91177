//! Syncs that fail: what they may have lost is not taken for durable.

use super::bed::{Bed, checked};
use crate::sync::Mutex;
use braid_contract::{Caller, Errno, FallocateMode, FileSystem, HandleId, Layer, Result};
use braid_testkit::dir_fs::{Choice, DirFs};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A directory whose next syncs fail. Those after that succeed, as in Linux.
struct Failing {
    dir: DirFs,
    fsyncs: AtomicU32,
    syncs: AtomicU32,
    /// Done once while a sync is under way.
    meanwhile: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Failing {
    fn of(bed: &Bed, syncs: u32) -> Arc<Self> {
        let dir = DirFs::new(bed.dir.path(), Choice::Cached);
        Arc::new(Self {
            dir,
            fsyncs: AtomicU32::new(0),
            syncs: AtomicU32::new(syncs),
            meanwhile: Mutex::default(),
        })
    }

    /// One whose syncs succeed for now, and what is above it.
    fn below() -> (Bed, Arc<Self>) {
        let mut bed = Bed::new(checked());
        let failing = Self::of(&bed, 0);
        bed.kill_over(Arc::clone(&failing) as _);
        (bed, failing)
    }

    fn next(left: &AtomicU32) -> Result<()> {
        let failed = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        if failed.is_ok() { Err(Errno::EIO.into()) } else { Ok(()) }
    }
}

impl Layer for Failing {
    fn child(&self) -> &dyn FileSystem {
        &self.dir
    }

    fn fsync(&self, caller: &Caller, handle: HandleId, data_only: bool) -> Result<()> {
        Self::next(&self.fsyncs)?;
        self.dir.fsync(caller, handle, data_only)
    }

    fn sync(&self) -> Result<()> {
        Self::next(&self.syncs)?;
        let synced = self.dir.sync();
        if let Some(meanwhile) = self.meanwhile.lock().take() {
            meanwhile();
        }
        synced
    }
}

/// Writes later versions of the first frame, which don't reach the device, nor does any from `lost`
/// on, and has the daemon killed.
fn lose(bed: &mut Bed, handle: HandleId, lost: u8) {
    (3..6).for_each(|version| bed.write(handle, 0, &[version; 4096]));
    assert_eq!(bed.read(handle, 0, 4096).unwrap(), [5; 4096]);
    bed.tear("a", lost..6);
    bed.kill();
}

#[test]
fn after_a_failed_sync_the_older_version_stays_until_another_is_durable() {
    for (of_file, again) in [(true, false), (true, true), (false, false)] {
        let (mut bed, failing) = Failing::below();
        let (_, handle) = bed.create("a");
        bed.write(handle, 0, &[1; 4096]);
        bed.fs.settle().unwrap();
        bed.write(handle, 0, &[2; 4096]);
        let failed = if of_file {
            failing.fsyncs.store(1, Ordering::Relaxed);
            bed.door().fsync(&Caller::root(), handle, false)
        } else {
            failing.syncs.store(1, Ordering::Relaxed);
            bed.fs.settle()
        };
        assert_eq!(failed.unwrap_err().errno(), Errno::EIO);
        if again {
            bed.fsync(handle);
        }
        bed.fs.settle().unwrap();
        // That is not tried again and again.
        assert!(!bed.fs.engine.is_unsettled());
        lose(&mut bed, handle, 2);
        assert_eq!(bed.content("a").unwrap(), [1; 4096], "{of_file} {again}");
        // Another version is durable by its own sync.
        let (_, handle) = bed.open("a", true).unwrap();
        bed.write(handle, 0, &[6; 4096]);
        bed.fs.settle().unwrap();
        bed.close(handle);
        assert_eq!(bed.space("a"), 8192);
    }
}

#[test]
fn what_was_synced_before_a_failed_sync_stays_durable() {
    let (mut bed, failing) = Failing::below();
    let (_, handle) = bed.create("a");
    bed.write(handle, 0, &[1; 4096]);
    bed.fs.settle().unwrap();
    bed.write(handle, 0, &[2; 4096]);
    bed.fsync(handle);
    let (_, other) = bed.create("b");
    bed.write(other, 0, &[1; 4096]);
    failing.fsyncs.store(1, Ordering::Relaxed);
    assert!(bed.door().fsync(&Caller::root(), other, false).is_err());
    lose(&mut bed, handle, 3);
    assert_eq!(bed.content("a").unwrap(), [2; 4096]);
}

#[test]
fn what_was_synced_stays_durable_when_the_file_is_opened_again() {
    let mut bed = Bed::new(checked());
    let (_, handle) = bed.create("a");
    bed.write(handle, 0, &[1; 4096]);
    bed.fsync(handle);
    bed.close(handle);
    let (_, handle) = bed.open("a", true).unwrap();
    bed.write(handle, 0, &[2; 4096]);
    lose(&mut bed, handle, 2);
    assert_eq!(bed.content("a").unwrap(), [1; 4096]);
    bed.fs.settle().unwrap();
}

#[test]
fn without_the_sync_at_the_mount_the_versions_of_the_one_before_are_not_durable() {
    let mut bed = Bed::new(checked());
    let (_, handle) = bed.create("a");
    bed.write(handle, 0, &[1; 4096]);
    bed.fs.settle().unwrap();
    bed.write(handle, 0, &[2; 4096]);
    let failing = Failing::of(&bed, 1);
    bed.kill_over(failing);
    let (_, handle) = bed.open("a", true).unwrap();
    assert_eq!(bed.read(handle, 0, 4096).unwrap(), [2; 4096]);
    bed.fs.settle().unwrap();
    lose(&mut bed, handle, 2);
    assert_eq!(bed.content("a").unwrap(), [1; 4096]);
}

#[test]
fn the_header_of_a_hole_goes_after_a_sync_since_the_older_one_went() {
    let (bed, child) = Failing::below();
    let (_, handle) = bed.create("a");
    bed.write(handle, 0, &[1; 8192]);
    bed.fs.settle().unwrap();
    bed.fallocate(handle, 0, 4096, FallocateMode::PunchHole).unwrap();
    let engine = Arc::clone(&bed.fs.engine);
    let fsync = move || engine.fsync(&Caller::root(), handle, true).unwrap();
    *child.meanwhile.lock() = Some(Box::new(fsync));
    let headers = || {
        let trio = bed.pipeline.geometry().trio_at(0) as usize;
        let below = std::fs::read(bed.below("a")).unwrap();
        below[trio..trio + 3 * 64].chunks(64).filter(|header| header.iter().any(|byte| *byte != 0)).count()
    };
    assert_eq!(headers(), 2);
    // The older one goes with the fsync, which the sync of the settling does not cover.
    bed.fs.settle().unwrap();
    assert_eq!(headers(), 1);
    bed.fs.settle().unwrap();
    assert_eq!(headers(), 0);
    bed.close(handle);
}
