//! The threads that serve a session.
//!
//! Requests come through io_uring, where the kernel has it for FUSE: by a queue
//! for each processor, to a thread that stays on the caller's, so that a request
//! wakes no other processor. Else, and for the few kinds that never come so, they
//! come by the device.

use crate::front::Front;
use crate::init::{BACKGROUND_MAX, REQUEST_MAX_BYTES};
use crate::invalidate::Limits;
use braid_sys::{AlignedBuf, DIRECT_ALIGNMENT, FuseRing, RingEnd, RingReply};
use fuser::{Answer, Dispatcher};
use rustix::io::Errno as Os;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::fs;
use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Threads that read the device at first. Few, so that those at work stay in the
/// processor's caches; as the last one gets something to do, one more begins.
const READERS: usize = 2;

/// Rings of a session on a machine of many processors, of which each has at
/// least [`RINGS_MIN`], however many threads were asked for: some requests are
/// answered only after others. The kernel does not hand what waits for a ring to
/// one that is made later, so that all are made at first.
const RINGS: usize = 768;
const RINGS_MIN: usize = 8;

/// Threads by the device, or rings of each processor as far as [`RINGS`] go, where
/// requests are held up on purpose: each that waits has one.
const THREADS_HELD: usize = 384;
/// So many requests in the background are let in, whatever few rings a processor has.
const BACKGROUND_HELD_MIN: u16 = 64;

/// Bytes before the data of a write that comes by the device: two headers.
const BEFORE_DATA: usize = 80;

/// What a request by the device takes at most, beside its data.
const HEADERS_MAX: usize = 2 * DIRECT_ALIGNMENT;

/// All threads of a session.
struct Pool {
    dispatcher: Dispatcher<Front>,
    handles: Mutex<Vec<JoinHandle<io::Result<()>>>>,
    /// Threads that read the device, at most, now, and those that wait.
    readers_max: usize,
    readers: AtomicUsize,
    idle: AtomicUsize,
    rings: Mutex<Rings>,
    rings_changed: Condvar,
    uses_rings: Arc<AtomicBool>,
}

/// How requests are to come.
#[derive(Clone, Debug)]
pub(crate) struct RequestSource {
    /// Most threads that read the device.
    threads: usize,
    /// Queues of rings, and rings of each. None: all requests come by the
    /// device.
    queues: u16,
    rings_each: usize,
    /// Whether rings are used, as is known once the session runs.
    uses_rings: Arc<AtomicBool>,
}

impl RequestSource {
    /// So many threads at most; by rings, of each processor's queue so many, if
    /// the kernel agreed to that.
    pub(crate) fn new(threads: usize, by_ring: bool) -> Self {
        let queues = by_ring.then(processors).flatten().unwrap_or(0);
        let rings_each = rings_each(threads, queues);
        Self { threads, queues, rings_each, uses_rings: Arc::new(AtomicBool::new(queues > 0)) }
    }

    /// How many requests may wait for others.
    pub(crate) fn limits(&self) -> Limits {
        if self.queues == 0 { Limits::DEVICE } else { Limits::of_rings(self.rings_each) }
    }

    /// Whether requests come by rings.
    pub(crate) fn uses_rings(&self) -> bool {
        self.uses_rings.load(Ordering::Relaxed)
    }
}

/// The rings, as they are made: the kernel holds requests back until each queue
/// has one, so that they are used only once all are there.
#[derive(Default)]
struct Rings {
    tried: usize,
    made: usize,
    /// Whether they are used.
    decided: Option<bool>,
}

#[derive(Debug)]
struct ToRing(Arc<RingReply>);

impl Answer for ToRing {
    fn answer(&self, parts: &[IoSlice<'_>]) -> io::Result<()> {
        self.0.fill(parts)
    }
}

/// Rings of each of so many queues.
fn rings_each(threads: usize, queues: u16) -> usize {
    let most = RINGS_MIN.max(RINGS / usize::from(queues).max(1));
    threads.clamp(RINGS_MIN, most)
}

/// The threads, and the most requests in the background, where requests are held up on
/// purpose: those in the background leave threads for those that programs wait for.
pub(crate) fn where_requests_are_held(threads: usize, by_ring: bool) -> (usize, u16) {
    let threads = threads.max(THREADS_HELD);
    let queues = by_ring.then(processors).flatten();
    let at_a_time = queues.map_or(threads, |queues| rings_each(threads, queues));
    let background = u16::try_from(at_a_time * 2 / 3).unwrap_or(u16::MAX);
    (threads, background.clamp(BACKGROUND_HELD_MIN, BACKGROUND_MAX))
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

/// Serves until the session is over.
///
/// # Errors
/// The first error that ended a thread before that.
pub(crate) fn serve(dispatcher: Dispatcher<Front>, transport: RequestSource) -> io::Result<()> {
    let RequestSource { threads, queues, rings_each, uses_rings } = transport;
    // Made first, since there may be no room for it later.
    let spare =
        (queues > 0).then(|| FuseRing::new(&dispatcher, 0, REQUEST_MAX_BYTES as usize)).transpose()?;
    let pool = Arc::new(Pool {
        dispatcher,
        handles: Mutex::default(),
        readers_max: threads,
        readers: AtomicUsize::new(0),
        idle: AtomicUsize::new(0),
        rings: Mutex::default(),
        rings_changed: Condvar::new(),
        uses_rings,
    });
    if let Some(spare) = spare {
        pool.begin_rings(queues, rings_each, spare);
    }
    (0..READERS.min(threads)).try_for_each(|_| pool.begin_reader())?;
    let mut result = Ok(());
    let next = || lock(&pool.handles).pop();
    while let Some(thread) = next() {
        let ended = thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked")));
        result = result.and(ended);
    }
    result
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pool {
    /// Begins the threads of all rings, and decides whether these are used. If
    /// not, the kernel learns of it by the spare one: it holds requests back
    /// until then.
    fn begin_rings(self: &Arc<Self>, queues: u16, each: usize, spare: FuseRing) {
        let mut begun = 0;
        for (queue, number) in (0..queues).flat_map(|queue| (0..each).map(move |number| (queue, number))) {
            let pool = Arc::clone(self);
            match self.begin(format!("fuse-{queue}-{number}"), move || pool.take_from_ring(queue)) {
                Ok(()) => begun += 1,
                Err(error) => tracing::warn!(%error, "could not begin a thread to serve requests"),
            }
        }
        let mut rings = lock(&self.rings);
        while rings.tried < begun {
            rings = self.rings_changed.wait(rings).unwrap_or_else(PoisonError::into_inner);
        }
        let all = rings.made == usize::from(queues) * each;
        rings.decided = Some(all);
        if !all {
            tracing::warn!("could not make all rings of io_uring, requests come by the device");
            self.uses_rings.store(false, Ordering::Relaxed);
            spare.refuse();
        }
        self.rings_changed.notify_all();
    }

    /// Notes that a ring was made or not; answers whether it is used.
    fn ring_is_used(&self, made: bool) -> bool {
        let mut rings = lock(&self.rings);
        rings.tried += 1;
        rings.made += usize::from(made);
        self.rings_changed.notify_all();
        loop {
            match rings.decided {
                Some(used) => return used,
                None => rings = self.rings_changed.wait(rings).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    fn begin(&self, name: String, run: impl FnOnce() -> io::Result<()> + Send + 'static) -> io::Result<()> {
        let handle = std::thread::Builder::new().name(name).spawn(run)?;
        lock(&self.handles).push(handle);
        Ok(())
    }

    fn begin_reader(self: &Arc<Self>) -> io::Result<()> {
        let number = self.readers.fetch_add(1, Ordering::Relaxed);
        let pool = Arc::clone(self);
        self.begin(format!("fuse-{number}"), move || pool.read_device())
    }

    fn read_device(self: &Arc<Self>) -> io::Result<()> {
        // A queue of its own for each thread's requests in progress. It needs
        // to open the device again, which a helper may have opened for this
        // process.
        let dispatcher = self.dispatcher.with_own_queue().unwrap_or_else(|_| self.dispatcher.clone());
        let mut buffer = AlignedBuf::new();
        let buffer = buffer.bytes(DIRECT_ALIGNMENT + REQUEST_MAX_BYTES as usize + HEADERS_MAX);
        // The data of writes is aligned for direct I/O.
        let buffer = &mut buffer[DIRECT_ALIGNMENT - BEFORE_DATA..];
        loop {
            self.idle.fetch_add(1, Ordering::Relaxed);
            let received = dispatcher.receive(buffer);
            let was_last = self.idle.fetch_sub(1, Ordering::Relaxed) == 1;
            let size = match received {
                Ok(Some(size)) => size,
                Ok(None) => return Ok(()),
                // The mount went away as it was about to take a request.
                Err(error) if error.raw_os_error() == Some(Os::CONNABORTED.raw_os_error()) => return Ok(()),
                Err(error) => return Err(error),
            };
            if was_last
                && self.readers.load(Ordering::Relaxed) < self.readers_max
                && let Err(error) = self.begin_reader()
            {
                tracing::warn!(%error, "could not begin one more thread to serve requests");
            }
            if !dispatcher.serve(&buffer[..size], None)? {
                return Ok(());
            }
        }
    }

    fn take_from_ring(self: &Arc<Self>, queue: u16) -> io::Result<()> {
        let ring = FuseRing::new(&self.dispatcher, queue, REQUEST_MAX_BYTES as usize);
        if let Err(error) = &ring {
            tracing::debug!(%error, queue, "no ring");
        }
        let used = self.ring_is_used(ring.is_ok());
        let Some(mut ring) = ring.ok().filter(|_| used) else { return Ok(()) };
        let mut processor = CpuSet::new();
        processor.set(usize::from(queue));
        // One that is not there, or not for this process, has no requests.
        let _ = sched_setaffinity(None, &processor);
        let answer: Arc<dyn Answer> = Arc::new(ToRing(ring.reply()));
        loop {
            let request = match ring.next_request() {
                Ok(request) => request,
                Err(RingEnd::Over(error)) => {
                    match error.raw_os_error().map(Os::from_raw_os_error) {
                        Some(Os::NOTCONN | Os::CONNABORTED | Os::CANCELED | Os::NODEV) => {
                            tracing::debug!(%error, queue, "a ring is over");
                        }
                        _ => tracing::error!(%error, queue, "a ring ended before its session"),
                    }
                    return Ok(());
                }
                Err(RingEnd::Refused(error)) => {
                    tracing::debug!(%error, queue, "the kernel takes no ring, requests come by the device");
                    self.uses_rings.store(false, Ordering::Relaxed);
                    return Ok(());
                }
            };
            if !self.dispatcher.serve(request, Some(Arc::clone(&answer)))? {
                return Ok(());
            }
        }
    }
}
