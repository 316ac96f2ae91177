//! Truncation of files on a tier that fails meanwhile.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[allow(dead_code, reason = "other tests need more of it")]
mod common;

use braid_contract::{Errno, FileSystem, SetAttr, TierState};
use braid_stores::dir::DirStore;
use braid_stores::fault::{FaultControl, FaultKind, FaultOp, FaultRule, FaultStore};
use braid_volume::Volume;
use common::{Bed, Open, RANGE, caller, pattern};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A volume whose other tier fails on request.
fn open(bed: &Bed) -> (Open, FaultControl) {
    let mut config = bed.config();
    config.tiers[0].store = None;
    let store = FaultStore::new(Arc::new(DirStore::open(&bed.path("slow")).unwrap()), Vec::new());
    let control = store.control();
    config.tiers[0].store = Some(Arc::new(store));
    (Open { volume: Volume::open(config).unwrap() }, control)
}

fn wait_until_online(open: &Open) {
    let began = Instant::now();
    while open.volume.status().tiers.iter().any(|tier| tier.state != TierState::Online) {
        assert!(began.elapsed().as_secs() < 60, "the tier does not come back");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn what_a_failing_tier_kept_of_a_truncated_file_does_not_come_back() {
    let bed = Bed::new();
    let (open, control) = open(&bed);
    let len = 8 * RANGE;
    let (ino, handle) = open.create("file");
    open.write_ranges(handle, &pattern(len, len as usize));
    let explained = open.volume.explain(ino).unwrap();
    let there =
        explained.runs.iter().find(|run| run.tier.as_ref().is_some_and(|tier| tier.id.0 == 1)).unwrap();
    let size = there.offset + 100;
    let set_size = |size| {
        let changes = SetAttr { size: Some(size), ..SetAttr::default() };
        open.volume.setattr(&caller(), ino, Some(handle), &changes)
    };

    control.set(vec![FaultRule::each(FaultOp::Truncate, FaultKind::Fail(Errno::EIO))]);
    assert_eq!(set_size(size).unwrap_err().errno(), Errno::EIO);
    // Until the tier is well, the file does not grow over what is left there.
    assert_eq!(set_size(len).unwrap_err().errno(), Errno::EIO);
    control.clear();
    wait_until_online(&open);
    assert_eq!(set_size(len).unwrap().size, len);
    let mut gap = vec![1; RANGE as usize - 100];
    let read = open.volume.read(&caller(), handle, size, &mut gap, true).unwrap();
    assert_eq!(read, gap.len());
    assert!(gap.iter().all(|byte| *byte == 0), "old bytes show");
    open.volume.release(handle).unwrap();
    open.close();
}
