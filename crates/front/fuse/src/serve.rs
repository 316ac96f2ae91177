//! The threads that serve a session.
//!
//! Requests come through io_uring, where the kernel has it for FUSE: by a queue
//! for each processor, to a thread that stays on the caller's, so that neither
//! the request nor the reply wakes another processor. Else, and for the few
//! kinds that never come so, they come by the device.
//!
//! Few threads wait for requests, so that those at work stay in the
//! processor's caches; as the last one gets something to do, one more begins.

use crate::front::Front;
use crate::init::REQUEST_MAX_BYTES;
use braid_sys::{AlignedBuf, DIRECT_ALIGNMENT, FuseRing, RingEnd, RingReply};
use fuser::{Answer, Dispatcher};
use rustix::io::Errno as Os;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::fs;
use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, PoisonError};
use std::thread::JoinHandle;

/// Threads that wait at each source at first.
const WAITING: usize = 2;

/// Bytes before the data of a write that comes by the device: two headers.
const BEFORE_DATA: usize = 80;

/// What a request by the device takes at most, beside its data.
const HEADERS_MAX: usize = 2 * DIRECT_ALIGNMENT;

/// Where requests come from.
#[derive(Clone, Copy, Debug)]
enum Source {
    Device,
    /// The queue of a processor.
    Ring(u16),
}

/// One source, and the threads that take requests from it.
struct Queue {
    source: Source,
    threads: AtomicUsize,
    idle: AtomicUsize,
}

/// All threads of a session.
struct Pool {
    dispatcher: Dispatcher<Front>,
    queues: Vec<Queue>,
    /// Most threads of one queue.
    threads_max: usize,
    handles: Mutex<Vec<JoinHandle<io::Result<()>>>>,
    /// The first rings are made, or can't be.
    begun: Barrier,
    ring_failed: AtomicBool,
}

#[derive(Debug)]
struct ToRing(Arc<RingReply>);

impl Answer for ToRing {
    fn answer(&self, parts: &[IoSlice<'_>]) -> io::Result<()> {
        self.0.fill(parts)
    }
}

/// Whether requests can come through io_uring, as far as this process can tell.
/// As root, lets the kernel offer that.
pub(crate) fn prepare_rings() -> bool {
    const ALLOWED: &str = "/sys/module/fuse/parameters/enable_uring";
    let is_allowed = || fs::read_to_string(ALLOWED).is_ok_and(|text| text.starts_with('Y'));
    if !FuseRing::can_be_made() || processors().is_none() {
        return false;
    }
    if !is_allowed() && fs::write(ALLOWED, "Y").is_ok() {
        tracing::info!("allowed FUSE through io_uring on this system ({ALLOWED})");
    }
    is_allowed()
}

/// How many processors the system may have.
fn processors() -> Option<u16> {
    let list = fs::read_to_string("/sys/devices/system/cpu/possible").ok()?;
    let count = |part: &str| -> Option<u16> {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        (last.parse::<u16>().ok()? + 1).checked_sub(first.parse().ok()?)
    };
    list.trim().split(',').map(count).sum()
}

/// Serves until the session is over; by rings if the kernel agreed to that.
///
/// # Errors
/// The first error that ended a thread before that.
pub(crate) fn serve(dispatcher: Dispatcher<Front>, threads_max: usize, by_ring: bool) -> io::Result<()> {
    let rings = by_ring.then(processors).flatten().unwrap_or(0);
    let sources = std::iter::once(Source::Device).chain((0..rings).map(Source::Ring));
    let queue = |source| Queue { source, threads: AtomicUsize::new(0), idle: AtomicUsize::new(0) };
    let begin = if threads_max > 1 { WAITING } else { 1 };
    let pool = Arc::new(Pool {
        dispatcher,
        queues: sources.map(queue).collect(),
        threads_max,
        handles: Mutex::default(),
        begun: Barrier::new(usize::from(rings) * begin),
        ring_failed: AtomicBool::new(false),
    });
    for queue in 0..pool.queues.len() {
        (0..begin).try_for_each(|_| pool.begin(queue, true))?;
    }
    let mut result = Ok(());
    let next = || pool.handles.lock().unwrap_or_else(PoisonError::into_inner).pop();
    while let Some(thread) = next() {
        let ended = thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked")));
        result = result.and(ended);
    }
    result
}

impl Pool {
    /// Begins one more thread of a queue.
    fn begin(self: &Arc<Self>, queue: usize, is_first: bool) -> io::Result<()> {
        let count = self.queues[queue].threads.fetch_add(1, Ordering::Relaxed);
        self.queues[queue].idle.fetch_add(1, Ordering::Relaxed);
        let name = match self.queues[queue].source {
            Source::Device => format!("fuse-{count}"),
            Source::Ring(processor) => format!("fuse-{processor}-{count}"),
        };
        let pool = Arc::clone(self);
        let run = move || match pool.queues[queue].source {
            Source::Device => pool.read_device(queue),
            Source::Ring(processor) => pool.take_from_ring(queue, processor, is_first),
        };
        let handle = std::thread::Builder::new().name(name).spawn(run)?;
        self.handles.lock().unwrap_or_else(PoisonError::into_inner).push(handle);
        Ok(())
    }

    /// Does the work for a request that was taken from the queue.
    fn at_work<T>(self: &Arc<Self>, queue: usize, work: impl FnOnce() -> T) -> T {
        let of = &self.queues[queue];
        let was_last = of.idle.fetch_sub(1, Ordering::Relaxed) == 1;
        if was_last
            && of.threads.load(Ordering::Relaxed) < self.threads_max
            && let Err(error) = self.begin(queue, false)
        {
            tracing::warn!(%error, "could not begin one more thread to serve requests");
        }
        let done = work();
        of.idle.fetch_add(1, Ordering::Relaxed);
        done
    }

    fn read_device(self: &Arc<Self>, queue: usize) -> io::Result<()> {
        // A queue of its own for each thread's requests in progress. It needs
        // to open the device again, which a helper may have opened for this
        // process.
        let dispatcher = self.dispatcher.with_own_queue().unwrap_or_else(|_| self.dispatcher.clone());
        let mut buffer = AlignedBuf::new();
        let buffer = buffer.bytes(DIRECT_ALIGNMENT + REQUEST_MAX_BYTES as usize + HEADERS_MAX);
        // The data of writes is aligned for direct I/O.
        let buffer = &mut buffer[DIRECT_ALIGNMENT - BEFORE_DATA..];
        loop {
            let size = match dispatcher.receive(buffer) {
                Ok(Some(size)) => size,
                Ok(None) => return Ok(()),
                // The mount went away as it was about to take a request.
                Err(error) if error.raw_os_error() == Some(Os::CONNABORTED.raw_os_error()) => return Ok(()),
                Err(error) => return Err(error),
            };
            if !self.at_work(queue, || dispatcher.serve(&buffer[..size], None))? {
                return Ok(());
            }
        }
    }

    fn take_from_ring(self: &Arc<Self>, queue: usize, processor: u16, is_first: bool) -> io::Result<()> {
        let ring = FuseRing::new(&self.dispatcher, processor, REQUEST_MAX_BYTES as usize);
        if is_first {
            self.ring_failed.fetch_or(ring.is_err(), Ordering::AcqRel);
            self.begun.wait();
        }
        let mut ring = ring?;
        if self.ring_failed.load(Ordering::Acquire) {
            ring.refuse();
            return self.read_device(queue);
        }
        let mut here = CpuSet::new();
        here.set(usize::from(processor));
        // A processor that is not there, or not for this process, has no
        // requests either.
        let _ = sched_setaffinity(None, &here);
        let answer: Arc<dyn Answer> = Arc::new(ToRing(ring.reply()));
        loop {
            let request = match ring.next() {
                Ok(request) => request,
                Err(RingEnd::Over) => return Ok(()),
                Err(RingEnd::Refused(error)) => {
                    tracing::debug!(%error, processor, "the kernel takes no ring, requests come by the device");
                    return self.read_device(queue);
                }
            };
            let goes_on = self.at_work(queue, || self.dispatcher.serve(request, Some(Arc::clone(&answer))));
            if !goes_on? {
                return Ok(());
            }
        }
    }
}
