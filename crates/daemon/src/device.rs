//! Kernel information about the block devices below tiers, and the path of an
//! open file. `wire` needs it for `status`.

use braid_contract::{DeviceCounters, NativeFd};
use braid_ipc::protocol::Device;
use braid_stores::native::{device_counters, device_dir};
use std::collections::HashMap;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Shortest time for new rates: before that, the previous ones are reported
/// again.
const INTERVAL_MIN: Duration = Duration::from_millis(200);

/// Time that rates cover at least, if requests are frequent.
const INTERVAL: Duration = Duration::from_secs(1);

/// The block devices below tiers. Their rates cover the time since the last
/// request.
#[derive(Debug, Default)]
pub(crate) struct Devices {
    seen: Mutex<HashMap<u64, Seen>>,
}

/// A device as it was last read.
#[derive(Debug)]
struct Seen {
    at: Instant,
    counters: DeviceCounters,
    told: Device,
}

impl Devices {
    /// Starts with these devices, by their numbers.
    pub(crate) fn new(numbers: impl Iterator<Item = u64>) -> Self {
        let devices = Self::default();
        numbers.for_each(|number| drop(devices.look(number)));
        devices
    }

    /// The figures of a device; `None` if it is no block device, as for a file
    /// system in memory or over several devices.
    pub(crate) fn look(&self, number: u64) -> Option<Device> {
        let (dir, counters) = (device_dir(number), device_counters(number)?);
        let now = Instant::now();
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let before = seen.entry(number).or_insert_with(|| {
            let name = std::fs::read_link(&dir).ok();
            let name = name.as_deref().and_then(Path::file_name).unwrap_or(dir.as_os_str());
            let name = name.to_string_lossy().into_owned();
            let told = Device { name, read_rate: 0.0, write_rate: 0.0, in_flight: 0, busy: 0.0 };
            Seen { at: now, counters, told }
        });
        let since = now.duration_since(before.at);
        if since >= INTERVAL_MIN {
            before.told = figures(&before.told.name, before.counters, counters, since);
        }
        before.told.in_flight = counters.in_flight;
        let told = before.told.clone();
        if since >= INTERVAL {
            (before.at, before.counters) = (now, counters);
        }
        Some(told)
    }
}

fn figures(name: &str, then: DeviceCounters, now: DeviceCounters, since: Duration) -> Device {
    let rate = |now: u64, then: u64| now.saturating_sub(then) as f64 / since.as_secs_f64();
    Device {
        name: name.to_owned(),
        read_rate: rate(now.bytes[0], then.bytes[0]),
        write_rate: rate(now.bytes[1], then.bytes[1]),
        in_flight: now.in_flight,
        busy: (rate(now.busy_ms, then.busy_ms) / 1000.0).min(1.0),
    }
}

/// The path of an open file below `dir`, if its current name is there.
pub(crate) fn path_below(file: &dyn NativeFd, dir: &Path) -> Option<String> {
    let fd = file.kernel_fd()?;
    let path = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())).ok()?;
    let below = path.strip_prefix(dir).ok()?;
    // It may have been renamed or removed; a wrong path must not be reported.
    let (mine, there) = (rustix::fs::fstat(&*fd).ok()?, rustix::fs::lstat(&path).ok()?);
    let same = (mine.st_dev, mine.st_ino) == (there.st_dev, there.st_ino);
    same.then(|| below.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_counts_comes_to_rates() {
        let then = DeviceCounters { bytes: [512_000, 1_024_000], busy_ms: 400, ..Default::default() };
        let now = DeviceCounters { bytes: [1_536_000, 1_024_000], busy_ms: 1400, in_flight: 1, ..then };
        let figures = figures("x", then, now, Duration::from_secs(2));
        assert_eq!((figures.read_rate, figures.write_rate), (512_000.0, 0.0));
        assert_eq!((figures.busy, figures.in_flight), (0.5, 1));
    }

    #[test]
    fn what_is_no_block_device_is_not_told_of() {
        assert_eq!(Devices::default().look(0), None);
    }
}
