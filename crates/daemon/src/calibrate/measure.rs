//! One measurement, for a point of a curve: threads that read or write for a
//! while, and their throughput.

use crate::profile::Point;
use crate::scratch::ScratchFile;
use braid_contract::SplitMix;
use braid_sys::AlignedBuf;
use rustix::io::Errno;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Bounds of the initial part of a measurement that is ignored: throttles and
/// device caches let the first moments pass too fast.
const WARM_UP: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(1));

/// Direction of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the tier.
    Read,
    /// To the tier.
    Write,
}

impl Direction {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}

/// How to measure one point.
#[derive(Clone, Copy)]
pub(super) struct Run {
    pub(super) direction: Direction,
    pub(super) threads: usize,
    /// Bytes of one operation.
    pub(super) block: usize,
    /// Time that is counted.
    pub(super) time: Duration,
}

/// The current phase of the threads.
#[derive(Default)]
struct Phase {
    counting: AtomicBool,
    stopped: AtomicBool,
}

/// The counted throughput of one thread.
#[derive(Clone, Copy, Default)]
struct Count {
    ops: u64,
    bytes: u64,
    nanos: u64,
}

impl Run {
    /// Measures. Each thread uses files of its own, in order.
    pub(super) fn measure(&self, files: &[ScratchFile]) -> io::Result<Point> {
        let phase = Phase::default();
        let (counts, seconds) = thread::scope(|scope| {
            let threads: Vec<_> = (0..self.threads)
                .map(|number| {
                    let mine: Vec<&ScratchFile> = files.iter().skip(number).step_by(self.threads).collect();
                    let phase = &phase;
                    thread::Builder::new().spawn_scoped(scope, move || self.work(&mine, number, phase))
                })
                .collect::<io::Result<_>>()
                .inspect_err(|_| phase.stopped.store(true, Ordering::Relaxed))?;
            thread::sleep((self.time / 4).clamp(WARM_UP.0, WARM_UP.1));
            phase.counting.store(true, Ordering::Relaxed);
            let began = Instant::now();
            thread::sleep(self.time);
            phase.counting.store(false, Ordering::Relaxed);
            let seconds = began.elapsed().as_secs_f64();
            phase.stopped.store(true, Ordering::Relaxed);
            let gone = || io::Error::other("a measuring thread panicked");
            let join = |thread: thread::ScopedJoinHandle<'_, Result<Count, Errno>>| {
                Ok(thread.join().map_err(|_| gone())??)
            };
            let counts: Vec<Count> = threads.into_iter().map(join).collect::<io::Result<_>>()?;
            io::Result::Ok((counts, seconds))
        })?;
        Ok(self.point(&counts, seconds))
    }

    fn point(&self, counts: &[Count], seconds: f64) -> Point {
        let sum = |of: fn(&Count) -> u64| counts.iter().map(of).sum::<u64>();
        Point {
            threads: self.threads as u32,
            bandwidth: (sum(|count| count.bytes) as f64 / seconds) as u64,
            latency_ns: sum(|count| count.nanos) / sum(|count| count.ops).max(1),
        }
    }

    fn work(&self, files: &[&ScratchFile], number: usize, phase: &Phase) -> Result<Count, Errno> {
        let mut buf = AlignedBuf::new();
        let bytes = buf.bytes(self.block);
        SplitMix::new(number as u64).fill(bytes);
        let mut count = Count::default();
        loop {
            for file in files {
                for offset in (0..file.size).step_by(self.block) {
                    if phase.stopped.load(Ordering::Relaxed) {
                        return Ok(count);
                    }
                    let began = Instant::now();
                    let done = match self.direction {
                        Direction::Read => rustix::io::pread(file, &mut *bytes, offset),
                        Direction::Write => rustix::io::pwrite(file, &*bytes, offset),
                    };
                    let done = match done {
                        Err(Errno::INTR) => continue,
                        done => done?,
                    };
                    if phase.counting.load(Ordering::Relaxed) {
                        count.ops += 1;
                        count.bytes += done as u64;
                        count.nanos += u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
                    }
                }
            }
        }
    }
}
