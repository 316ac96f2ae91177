//! A short measurement of tiers of unknown speed, at the mount, and when a tier is
//! added or put in the place of a lost one: before it places anything, a volume knows roughly the
//! speed of its tiers. Use corrects the figures, and the next mount remembers them.

use crate::handle::VolumeHandle;
use crate::scratch;
use braid_contract::{SpeedBasis, SplitMix};
use braid_stores::native::{device_counters, usual_rates};
use braid_sys::AlignedBuf;
use braid_volume::{TierOfUnknownSpeed, Volume};
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Parallel operations: they saturate most devices.
const THREADS: usize = 4;
/// Bytes of one operation.
const BLOCK: u64 = 1 << 20;
/// The most bytes that all threads write to a tier, and then read back.
const BYTES_MAX: u64 = 64 << 20;
/// The first moments do not count, if there is more: throttles and caches of
/// devices let them pass too fast.
const WARM_UP: Duration = Duration::from_millis(80);
/// The part of a tier's room that may be used for a moment.
const ROOM_SHARE: u64 = 8;

/// The limits of a part of a measurement: the first one reached ends it.
struct Bounds {
    /// Passes over the blocks.
    passes: u64,
    /// Time within which operations begin.
    time: Duration,
}

const WRITE: Bounds = Bounds { passes: 1, time: Duration::from_millis(400) };
const READ: Bounds = Bounds { passes: 4, time: Duration::from_millis(400) };
/// A single thread does the same, to see whether that is enough.
const WRITE_ALONE: Bounds = Bounds { passes: 2, time: Duration::from_millis(250) };
const READ_ALONE: Bounds = Bounds { passes: 8, time: Duration::from_millis(250) };
/// The part of the rate of all threads that is enough.
const NEARLY: f64 = 0.8;

/// Bytes a second, written and read, and the parallel operations that reach them.
#[derive(Clone, Copy, Debug)]
struct Rates {
    read: (f64, u32),
    write: (f64, u32),
}

/// How long a device is watched to see whether others use it.
const WATCHED: Duration = Duration::from_millis(40);

/// Finds out the speed of the volume's tiers of unknown speed whose directory `dir_of` has: by a
/// measurement, or else by the kinds of their devices. Tiers on one device follow one another;
/// speeds that can't be found are learned later.
pub(crate) fn find_out(handle: &VolumeHandle, dir_of: impl Fn(&str) -> Option<PathBuf> + Sync) {
    let unknown = handle.volume.tiers_of_unknown_speed();
    let mut devices: Vec<u64> = unknown.iter().map(|tier| tier.device).collect();
    devices.sort_unstable();
    devices.dedup();
    std::thread::scope(|scope| {
        for device in devices {
            let tiers = unknown.iter().filter(move |tier| tier.device == device);
            let dir_of = &dir_of;
            scope.spawn(move || {
                let measures = handle.measures && !is_in_use(device);
                for tier in tiers {
                    let dir = if measures { dir_of(&tier.name) } else { None };
                    if !dir.is_some_and(|dir| measure_tier(&handle.volume, tier, &dir)) {
                        assume(&handle.volume, tier);
                    }
                }
            });
        }
    });
}

/// Whether others work with a device, which is not to be disturbed then, and
/// would be found slow.
fn is_in_use(device: u64) -> bool {
    let Some(then) = device_counters(device) else { return false };
    std::thread::sleep(WATCHED);
    let now = device_counters(device).unwrap_or(then);
    let busy = Duration::from_millis(now.busy_ms.saturating_sub(then.busy_ms)) > WATCHED / 2;
    if busy {
        tracing::info!(device, "others use a device: the tiers on it are not measured");
    }
    busy
}

/// Measures a tier; returns whether that was possible.
fn measure_tier(volume: &Volume, tier: &TierOfUnknownSpeed, dir: &Path) -> bool {
    match measure(dir, (tier.room / ROOM_SHARE).min(BYTES_MAX)) {
        Ok(Rates { read, write }) => {
            tracing::info!(tier = %tier.name, ?read, ?write, "measured how fast a tier is");
            volume.believe_speed(&tier.name, [read, write], SpeedBasis::Measured);
            true
        }
        Err(error) => {
            tracing::debug!(tier = %tier.name, %error, "its speed can't be measured");
            false
        }
    }
}

/// Assumes that a tier is as fast as its kind of device usually is.
fn assume(volume: &Volume, tier: &TierOfUnknownSpeed) {
    if let Some(rates) = usual_rates(tier.device) {
        volume.believe_speed(&tier.name, rates.map(|rate| (rate, 1)), SpeedBasis::DeviceKind);
    }
}

/// Writes at most `bytes` bytes to files without names in `dir`, and reads them
/// back.
fn measure(dir: &Path, bytes: u64) -> io::Result<Rates> {
    let each = bytes / THREADS as u64 / BLOCK;
    if each == 0 {
        return Err(Errno::NOSPC.into());
    }
    let files = scratch::open(dir, THREADS)?;
    let written = go_through(&files, &[each; THREADS], &WRITE, write_block)?;
    let lens: Vec<u64> = written.iter().map(|done| done.len() as u64).collect();
    let alone = &files[..1];
    Ok(Rates {
        write: combined(&written, &go_through(alone, &lens, &WRITE_ALONE, write_block)?)?,
        read: combined(
            &go_through(&files, &lens, &READ, read_block)?,
            &go_through(alone, &lens, &READ_ALONE, read_block)?,
        )?,
    })
}

/// Has one thread for each file carry out `op` on its first blocks, as many as in `lens`; returns
/// when each operation ended.
fn go_through(
    files: &[OwnedFd],
    lens: &[u64],
    bounds: &Bounds,
    op: impl Fn(&OwnedFd, &mut [u8], u64) -> rustix::io::Result<usize> + Sync,
) -> io::Result<Vec<Vec<Duration>>> {
    let began = Instant::now();
    in_parallel(files, |file, number| {
        let mut buf = AlignedBuf::new();
        let block = buf.bytes(BLOCK as usize);
        SplitMix::new(number as u64).fill(block);
        let blocks = (0..bounds.passes).flat_map(|_| 0..lens[number]);
        work((began, bounds.time), blocks, |offset| op(file, block, offset))
    })
}

fn write_block(file: &OwnedFd, block: &mut [u8], offset: u64) -> rustix::io::Result<usize> {
    rustix::io::pwrite(file, block, offset)
}

fn read_block(file: &OwnedFd, block: &mut [u8], offset: u64) -> rustix::io::Result<usize> {
    rustix::io::pread(file, block, offset)
}

/// Bytes a second of all threads, and whether one of them does nearly as much.
fn combined(all: &[Vec<Duration>], one: &[Vec<Duration>]) -> io::Result<(f64, u32)> {
    let all = rate(&all.concat()).ok_or(io::Error::from(Errno::IO))?;
    let is_enough = rate(&one.concat()).is_some_and(|one| one >= NEARLY * all);
    Ok((all, if is_enough { 1 } else { THREADS as u32 }))
}

/// Has one thread for each file work on it; returns what they return.
fn in_parallel<T: Send>(
    files: &[OwnedFd],
    work: impl Fn(&OwnedFd, usize) -> io::Result<T> + Sync,
) -> io::Result<Vec<T>> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = files
            .iter()
            .enumerate()
            .map(|(number, file)| {
                let work = &work;
                std::thread::Builder::new().spawn_scoped(scope, move || work(file, number))
            })
            .collect::<io::Result<_>>()?;
        let gone = |_| io::Error::other("a measuring thread panicked");
        threads.into_iter().map(|thread| thread.join().map_err(gone)?).collect()
    })
}

/// Carries out an operation on each of these blocks, until that much time is up;
/// returns when each ended, after `began`.
fn work(
    (began, time): (Instant, Duration),
    blocks: impl Iterator<Item = u64>,
    mut op: impl FnMut(u64) -> rustix::io::Result<usize>,
) -> io::Result<Vec<Duration>> {
    let mut ended = Vec::new();
    for at in blocks {
        loop {
            match op(at * BLOCK) {
                Err(Errno::INTR) => {}
                Ok(done) if done as u64 == BLOCK => break,
                Ok(_) => return Err(Errno::NOSPC.into()),
                Err(error) => return Err(error.into()),
            }
        }
        ended.push(began.elapsed());
        if began.elapsed() >= time {
            break;
        }
    }
    Ok(ended)
}

/// Operations after the first moments from which on only they count.
const LATE_MIN: usize = 8;

/// A pause that is as long as this ends a burst.
const PAUSE: Duration = Duration::from_millis(30);

/// Bytes a second, by the times at which operations ended. Throttles pass them
/// in bursts: the first, for which budget may have been left, and the last,
/// which is cut short, do not count; nor do the first moments of others, if
/// enough operations ended later.
fn rate(ended: &[Duration]) -> Option<f64> {
    let mut ended = ended.to_vec();
    ended.sort_unstable();
    let (first, last) = (*ended.first()?, *ended.last()?);
    let pause = |at: usize| ended[at] - ended[at - 1];
    let mut bursts: Vec<usize> = (1..ended.len()).filter(|at| pause(*at) >= PAUSE).collect();
    // A device may pause too, but not most of the time.
    if bursts.iter().map(|at| pause(*at)).sum::<Duration>() < last / 2 {
        bursts.clear();
    }
    let (count, time) = match bursts[..] {
        [] => {
            let early = ended.partition_point(|at| *at <= WARM_UP);
            let late = ended.len() - early;
            if early > 0 && last > 2 * WARM_UP && late >= LATE_MIN {
                (late, last - ended[early - 1])
            } else {
                (ended.len(), last)
            }
        }
        // The budget of a burst is between the two, and the first had at most
        // that of two.
        [second] => ((ended.len() - second).max(second.div_ceil(2)), ended[second] - first),
        [second, .., final_one] => (final_one - second, ended[final_one] - ended[second]),
    };
    Some(count as f64 * BLOCK as f64 / time.as_secs_f64().max(1e-6))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_at_the_beginning_does_not_count() {
        let at = |ms: u64| Duration::from_millis(ms);
        let steady: Vec<Duration> = (1..=40).map(|op| at(10 * op)).collect();
        let expected = 100.0 * BLOCK as f64;
        assert!((rate(&steady).unwrap() / expected - 1.0).abs() < 0.05, "{:?}", rate(&steady));
        let burst: Vec<Duration> = (0..20).map(|_| at(1)).chain(steady).collect();
        assert!((rate(&burst).unwrap() / expected - 1.0).abs() < 0.05, "{:?}", rate(&burst));
        // A device that is done at once.
        let fast: Vec<Duration> = (1..=64).map(|op| at(op) / 2).collect();
        assert!((rate(&fast).unwrap() / (2000.0 * BLOCK as f64) - 1.0).abs() < 0.05);
        // A throttle that passes ten operations ten times a second.
        let throttled: Vec<Duration> = (0..35).map(|op| at(op / 10 * 100 + op % 10 / 5)).collect();
        assert!((rate(&throttled).unwrap() / expected - 1.0).abs() < 0.05, "{:?}", rate(&throttled));
        // The same, as one thread alone found 60 MB/s once.
        let mut alone = vec![at(1); 2];
        alone.extend([at(98); 6]);
        alone.push(at(206));
        assert!((rate(&alone).unwrap() / (55.6 * BLOCK as f64) - 1.0).abs() < 0.05, "{:?}", rate(&alone));
        // The first burst had budget left from before, and little came after it.
        let two = |first, second| rate(&[vec![at(2); first], vec![at(102); second]].concat()).unwrap();
        assert!((two(44, 20) / (220.0 * BLOCK as f64) - 1.0).abs() < 0.05, "{}", two(44, 20));
        assert!((two(20, 20) / (200.0 * BLOCK as f64) - 1.0).abs() < 0.05, "{}", two(20, 20));
        // One that takes long for each.
        let slow: Vec<Duration> = (1..=8).map(|op| at(50 * op)).collect();
        assert!((rate(&slow).unwrap() / (20.0 * BLOCK as f64) - 1.0).abs() < 0.05, "{:?}", rate(&slow));
        // One that pauses once.
        let stalled: Vec<Duration> = (1..=40).map(|op| at(10 * op + if op > 4 { 40 } else { 0 })).collect();
        assert!((rate(&stalled).unwrap() / (90.0 * BLOCK as f64) - 1.0).abs() < 0.12, "{:?}", rate(&stalled));
        assert_eq!(rate(&[]), None);
        assert_eq!(rate(&[at(10)]), Some(expected));
    }

    #[test]
    fn nothing_is_left_of_a_measurement() {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        match measure(dir.path(), 8 << 20) {
            Ok(Rates { read, write }) => assert!(read.0 > 0.0 && write.0 > 0.0),
            Err(error) => assert_eq!(error.raw_os_error(), Some(Errno::INVAL.raw_os_error()), "{error}"),
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        assert!(measure(dir.path(), 3 << 20).is_err(), "no room for a block each");
    }
}
