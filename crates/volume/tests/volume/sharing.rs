//! Moves between tiers on one file system.

use crate::common::{Bed, Open, RANGE, caller, pattern};
use braid_contract::{
    Errno, FallocateMode, FileSystem, NativeFd, ObjectId, Result, Store, StoreCapabilities, StoreIo,
    StoreLayer, Usage,
};
use braid_volume::{Volume, check};
use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What is done to a store, and what it is to say of itself.
#[derive(Default)]
struct Seen {
    /// Bytes that were read or written.
    copied: AtomicU64,
    /// Bytes that were shared.
    shared: AtomicU64,
    shares_nothing: AtomicBool,
    has_no_files: AtomicBool,
    is_elsewhere: AtomicBool,
}

struct Watched(Arc<dyn Store>, Arc<Seen>);

impl StoreLayer for Watched {
    fn inner(&self) -> &dyn Store {
        &*self.0
    }

    fn capabilities(&self) -> StoreCapabilities {
        let native_files = !self.1.has_no_files.load(Ordering::Relaxed);
        StoreCapabilities { native_files, ..self.0.capabilities() }
    }

    fn usage(&self) -> Result<Usage> {
        let usage = self.0.usage()?;
        let device = usage.device + u64::from(self.1.is_elsewhere.load(Ordering::Relaxed));
        Ok(Usage { device, ..usage })
    }

    fn read_at(&self, id: ObjectId, at: u64, bufs: &mut [IoSliceMut<'_>], io: StoreIo) -> Result<usize> {
        let done = self.0.read_at(id, at, bufs, io)?;
        self.1.copied.fetch_add(done as u64, Ordering::Relaxed);
        Ok(done)
    }

    fn write_at(&self, id: ObjectId, at: u64, bufs: &[IoSlice<'_>], io: StoreIo) -> Result<usize> {
        let done = self.0.write_at(id, at, bufs, io)?;
        self.1.copied.fetch_add(done as u64, Ordering::Relaxed);
        Ok(done)
    }

    fn share_range(&self, id: ObjectId, at: u64, from: &dyn NativeFd, from_at: u64, len: u64) -> Result<u64> {
        if self.1.shares_nothing.load(Ordering::Relaxed) {
            return Err(Errno::EXDEV.into());
        }
        // Less than all, as a file system may.
        let done = self.0.share_range(id, at, from, from_at, len.min(10_000))?;
        self.1.shared.fetch_add(done, Ordering::Relaxed);
        Ok(done)
    }
}

fn open(bed: &Bed, seen: &Arc<Seen>) -> Open {
    let mut config = bed.config();
    let store = Watched(config.tiers[0].store.take().unwrap(), Arc::clone(seen));
    config.tiers[0].store = Some(Arc::new(store));
    Open { volume: Volume::open(config).unwrap() }
}

/// Moves a range of a file, with a hole in it, to `slow` and back, and then all
/// of a small file; answers the bytes that were copied and shared each time.
fn moves(seen: &Arc<Seen>) -> Vec<(u64, u64)> {
    let (bed, mut all) = (Bed::new(), Vec::new());
    let open = open(&bed, seen);
    let ((ino, handle), (small, other)) = (open.create("f"), open.create("small"));
    let mut data = pattern(1, 3 * RANGE as usize);
    open.write_ranges(handle, &data);
    for range in 0..3 {
        open.volume.move_range(ino, range * RANGE, "fast", &mut || {}).unwrap();
    }
    let punch = FallocateMode::PunchHole;
    open.volume.fallocate(&caller(), handle, RANGE + 8192, 16384, punch).unwrap();
    data[RANGE as usize + 8192..][..16384].fill(0);
    let content = pattern(2, 10_000);
    open.write(other, 0, &content);
    let take = || (seen.copied.swap(0, Ordering::Relaxed), seen.shared.swap(0, Ordering::Relaxed));
    take();
    for (ino, offset, tier) in
        [(ino, RANGE, "slow"), (ino, RANGE, "fast"), (small, 0, "slow"), (small, 0, "fast")]
    {
        open.volume.move_range(ino, offset, tier, &mut || {}).unwrap();
        all.push(take());
        assert!(open.read(handle, 0, data.len()) == data && open.read(other, 0, 20_000) == content);
        take();
    }
    for handle in [handle, other] {
        open.volume.release(handle).unwrap();
    }
    open.kill();
    let open = crate::common::Open { volume: Volume::open(bed.config()).unwrap() };
    let handle = open.open(open.lookup("f").unwrap());
    assert!(open.read(handle, 0, data.len()) == data);
    open.volume.release(handle).unwrap();
    open.close();
    assert!(check(bed.config(), false, &mut |_| {}).unwrap().problems.is_empty());
    all
}

#[test]
fn what_stays_on_one_file_system_is_copied_by_it() {
    let data = RANGE - 16384;
    assert_eq!(moves(&Arc::default()), [(0, data), (0, 0), (0, 10_000), (0, 0)]);
}

#[test]
fn what_can_not_be_shared_is_copied() {
    let data = RANGE - 16384;
    for at in 0..3 {
        let seen = Seen::default();
        let flags = [&seen.shares_nothing, &seen.has_no_files, &seen.is_elsewhere];
        flags[at].store(true, Ordering::Relaxed);
        // A home file that refuses can't be made here.
        let back = if at == 0 { [0, 0] } else { [data, 10_000] };
        let wanted = [(data, 0), (back[0], 0), (10_000, 0), (back[1], 0)];
        assert_eq!(moves(&Arc::new(seen)), wanted, "{at}");
    }
}
