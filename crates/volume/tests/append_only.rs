//! A tier whose store writes each byte once, frees nothing but whole objects,
//! and may not know holes.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[allow(dead_code, reason = "other tests need more of it")]
mod common;

use braid_contract::{FileSystem, InodeId, PlacedRun, Store, TierState};
use braid_placement::{PolicyConfig, SettingValue};
use braid_testkit::conformance::store::AppendOnlyStore;
use braid_volume::{Volume, check};
use common::{Bed, Open, RANGE, pattern};
use std::sync::Arc;

/// The volume's configuration, with such a store as its tier `slow`, which gets
/// all that is not in the first range of a file.
fn config(bed: &Bed, seek_data: bool) -> braid_volume::VolumeConfig {
    let mut config = bed.config();
    let beneath = config.tiers[0].store.take().unwrap();
    config.tiers[0].store = Some(Arc::new(AppendOnlyStore::over(beneath, seek_data)) as Arc<dyn Store>);
    let nothing = SettingValue::Size(0);
    let settings = [("small", nothing.clone()), ("sync", nothing), ("large", SettingValue::tier("slow"))];
    config.policy = PolicyConfig::named("size").unwrap().with(settings).unwrap();
    config
}

fn open(bed: &Bed, seek_data: bool) -> Open {
    Open { volume: Volume::open(config(bed, seek_data)).unwrap() }
}

/// The tier of each range.
fn tiers_of(open: &Open, ino: InodeId) -> Vec<String> {
    let runs = open.volume.explain(ino).unwrap().runs.into_iter();
    let tier = |run: &PlacedRun| run.tier.as_ref().map_or_else(String::new, |tier| tier.name.clone());
    runs.flat_map(|run| vec![tier(&run); run.ranges as usize]).collect()
}

/// Neither trouble nor errors of the tier are remembered.
fn expect_no_trouble(open: &Open) {
    let status = open.volume.status();
    let slow = status.tiers.iter().find(|tier| tier.name == "slow").unwrap();
    assert_eq!(slow.state, TierState::Online);
    assert!(slow.errors.iter().all(|(_, count)| *count == 0), "{:?}", slow.errors);
}

#[test]
fn only_a_range_that_is_written_over_goes_elsewhere() {
    for seek_data in [true, false] {
        let bed = Bed::new();
        let open = open(&bed, seek_data);
        let (ino, handle) = open.create("f");
        let mut data = pattern(1, 8 * RANGE as usize);
        open.write_ranges(handle, &data);
        let mut tiers: Vec<String> = vec!["slow".into(); 8];
        tiers[0] = "fast".into();
        assert_eq!(tiers_of(&open, ino), tiers);
        // All of it new, some of it, and none.
        let old = pattern(2, 3 * RANGE as usize);
        let at = 3 * RANGE - 100;
        open.write(handle, at, &old[..300]);
        data[at as usize..at as usize + 300].copy_from_slice(&old[..300]);
        (tiers[2], tiers[3]) = ("fast".into(), "fast".into());
        assert_eq!(tiers_of(&open, ino), tiers);
        open.write(handle, data.len() as u64 - 10, &old[..RANGE as usize]);
        data.truncate(8 * RANGE as usize - 10);
        data.extend(&old[..RANGE as usize]);
        tiers[7] = "fast".into();
        tiers.push("slow".into());
        assert_eq!(tiers_of(&open, ino), tiers);
        assert!(open.read(handle, 0, data.len() + 1) == data);
        expect_no_trouble(&open);
        open.volume.release(handle).unwrap();
        open.close();
        let report = check(config(&bed, seek_data), false, &mut |_| {}).unwrap();
        assert!(report.problems.is_empty(), "{:?}", report.problems);
    }
}
