//! Common to the tests of tiers in zones, whether the device has zones or is cut into units.

use crate::common::{Bench, RANGE, pattern, read_anew, write_ranges};
use std::fs::{self, File};

/// Ranges of a file.
pub(crate) const RANGES: usize = 12;

/// Writes a file of [`RANGES`] ranges; answers its contents.
pub(crate) fn write(bench: &Bench, name: &str, seed: u64) -> Vec<u8> {
    let data = pattern(seed, RANGES * RANGE);
    write_ranges(&bench.path("m").join(name), &data);
    data
}

pub(crate) fn read(bench: &Bench, name: &str) -> Vec<u8> {
    read_anew(&bench.path("m").join(name))
}

/// Data that goes to this tier of the mounted volume is there after another mount; after a kill,
/// synced data is. Ends unmounted.
#[track_caller]
pub(crate) fn survives_a_mount_and_a_kill(bench: &Bench, tier: &str) {
    let files: Vec<(String, Vec<u8>)> =
        (0..6).map(|seed| (format!("f{seed}"), write(bench, &format!("f{seed}"), seed))).collect();
    assert!(bench.on("m/f0", tier) >= RANGES as u64 - 1, "{:?}", bench.runs("m/f0"));
    bench.unmount_clean();
    bench.ok(&["mount", "s.yaml", "m"]);
    assert!(files.iter().all(|(name, data)| read(bench, name) == *data));
    let last = write(bench, "last", 99);
    File::open(bench.path("m/last")).unwrap().sync_all().unwrap();
    fs::remove_file(bench.path("m/f0")).unwrap();
    bench.kill();
    bench.ok(&["mount", "s.yaml", "m"]);
    assert!(files[1..].iter().all(|(name, data)| read(bench, name) == *data));
    assert!(read(bench, "last") == last);
    assert!(bench.ok(&["fsck", "m"]).ends_with("no problems\n"));
    bench.unmount_clean();
    assert!(bench.ok(&["fsck", "s.yaml"]).ends_with("no problems\n"));
}
