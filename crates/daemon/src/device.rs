//! Kernel information about the block devices below tiers, and the path of an
//! open file. `wire` needs it for `status`.

use braid_contract::NativeFd;
use braid_ipc::protocol::Device;
use rustix::fs::{major, minor};
use std::collections::HashMap;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The kernel counts in sectors of this size, whatever the device's are.
const SECTOR: u64 = 512;

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
    counters: Counters,
    told: Device,
}

/// The kernel's counters of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Counters {
    read_bytes: u64,
    write_bytes: u64,
    in_flight: u64,
    busy_ms: u64,
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
        let dir = PathBuf::from(format!("/sys/dev/block/{}:{}", major(number), minor(number)));
        let counters = parse(&std::fs::read_to_string(dir.join("stat")).ok()?)?;
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

/// The kernel's `stat` of a block device (`Documentation/block/stat.rst`).
fn parse(text: &str) -> Option<Counters> {
    let fields: Vec<u64> = text.split_whitespace().map_while(|field| field.parse().ok()).collect();
    match fields[..] {
        [_, _, read, _, _, _, written, _, in_flight, busy_ms, ..] => Some(Counters {
            read_bytes: read.saturating_mul(SECTOR),
            write_bytes: written.saturating_mul(SECTOR),
            in_flight,
            busy_ms,
        }),
        _ => None,
    }
}

fn figures(name: &str, then: Counters, now: Counters, since: Duration) -> Device {
    let rate = |now: u64, then: u64| now.saturating_sub(then) as f64 / since.as_secs_f64();
    Device {
        name: name.to_owned(),
        read_rate: rate(now.read_bytes, then.read_bytes),
        write_rate: rate(now.write_bytes, then.write_bytes),
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
        let then = parse("  10 0 1000 5 20 0 2000 9 3 400 14 0 0 0 0 1 2\n").unwrap();
        assert_eq!((then.read_bytes, then.write_bytes, then.in_flight), (512_000, 1_024_000, 3));
        let now = parse("11 0 3000 5 20 0 2000 9 1 1400 14").unwrap();
        let figures = figures("x", then, now, Duration::from_secs(2));
        assert_eq!((figures.read_rate, figures.write_rate), (512_000.0, 0.0));
        assert_eq!((figures.busy, figures.in_flight), (0.5, 1));
        assert_eq!((parse(""), parse("1 2 three")), (None, None));
    }

    #[test]
    fn what_is_no_block_device_is_not_told_of() {
        assert_eq!(Devices::default().look(0), None);
    }
}
