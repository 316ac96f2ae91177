//! The kernel's counters of a block device.

use braid_contract::DeviceCounters;
use rustix::fs::{major, minor};
use std::path::PathBuf;

/// The kernel counts in sectors of this size, whatever the device's are.
const SECTOR: u64 = 512;

/// The kernel's directory for the block device of this number, as in `stat`.
#[must_use]
pub fn device_dir(number: u64) -> PathBuf {
    PathBuf::from(format!("/sys/dev/block/{}:{}", major(number), minor(number)))
}

/// The counters of the block device of this number; `None` if it is none, as
/// below a file system in memory or over several devices.
#[must_use]
pub fn device_counters(number: u64) -> Option<DeviceCounters> {
    parse(&std::fs::read_to_string(device_dir(number).join("stat")).ok()?)
}

/// The kernel's `stat` of a block device (`Documentation/block/stat.rst`).
fn parse(text: &str) -> Option<DeviceCounters> {
    let fields: Vec<u64> = text.split_whitespace().map_while(|field| field.parse().ok()).collect();
    match fields[..] {
        [_, _, read, read_ms, _, _, written, write_ms, in_flight, busy_ms, ..] => Some(DeviceCounters {
            bytes: [read, written].map(|sectors| sectors.saturating_mul(SECTOR)),
            waited_ms: [read_ms, write_ms],
            in_flight,
            busy_ms,
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_s_counters_are_read_by_their_places() {
        let counters = parse("  10 0 1000 5 20 0 2000 9 3 400 14 0 0 0 0 1 2\n").unwrap();
        let expected =
            DeviceCounters { bytes: [512_000, 1_024_000], waited_ms: [5, 9], in_flight: 3, busy_ms: 400 };
        assert_eq!(counters, expected);
        assert_eq!((parse(""), parse("1 2 three"), device_counters(0)), (None, None, None));
    }
}
