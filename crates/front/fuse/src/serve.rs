//! The threads that serve a session.
//!
//! Requests come through io_uring, where the kernel has it for FUSE: by a queue
//! for each processor, to a thread that stays on the caller's, so that a request
//! wakes no other processor. Else, and for the few kinds that never come so, they
//! come by the device.

use crate::front::Front;
use crate::init::REQUEST_MAX_BYTES;
use crate::pause::{Held, Next, Pause, Source};
use crate::polling::Polling;
use crate::rings::RequestSource;
use braid_sys::{AlignedBuf, DIRECT_ALIGNMENT, FuseRing, RingArea, RingEnd, RingReply};
use fuser::{Answer, Dispatcher};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::{Errno as Os, retry_on_intr};
use rustix::thread::{CpuSet, sched_setaffinity};
use std::collections::BTreeSet;
use std::io::{self, IoSlice};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Threads that read the device at first. Few, so that those at work stay in the
/// processor's caches; as the last one gets something to do, one more begins.
const READERS: usize = 2;

/// How long notices of the kernel that it forgot inodes gather, beside rings: each alone
/// would wake a thread.
const FORGETS_GATHER: Timespec = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };

/// Bytes before the data of a write that comes by the device: two headers.
const BEFORE_DATA: usize = 80;

/// Most bytes of a request by the device, beside its data.
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
    area: Option<Arc<RingArea>>,
    held: Arc<Mutex<BTreeSet<usize>>>,
    pause: Arc<Pause>,
    polling: Polling,
    /// Requests that come again are refused.
    refuses: bool,
}

/// A thread that counts among those of the session until it ends.
struct Counted<'a> {
    pause: &'a Pause,
    source: Source,
    /// It is not counted any more.
    done: bool,
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        if !self.done {
            // A ring may end because the kernel takes none.
            let over = !matches!(self.source, Source::Queue(_));
            self.pause.ends(self.source, over);
        }
    }
}

impl Counted<'_> {
    /// It takes requests from there from now on.
    fn turn(&mut self, source: Source) {
        if self.source != source {
            self.pause.turns(self.source, source);
            self.source = source;
        }
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

/// Why serving ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// The session is over.
    Over,
    /// Requests are held up, for another process.
    Paused,
}

/// Serves until the session is over, or requests are held up.
///
/// # Errors
/// The first error that ended a thread before that.
pub(crate) fn serve(dispatcher: Dispatcher<Front>, transport: RequestSource) -> io::Result<End> {
    let RequestSource { threads, queues, rings_each, uses_rings, area, held, pause, poll: most, refuses } =
        transport;
    // Made first, since there may be no room for it later.
    let spare =
        area.as_ref().map(|area| FuseRing::new(&dispatcher, 0, area, area.slots() - 1)).transpose()?;
    let pool = Arc::new(Pool {
        dispatcher,
        handles: Mutex::default(),
        readers_max: threads,
        readers: AtomicUsize::new(0),
        idle: AtomicUsize::new(0),
        rings: Mutex::default(),
        rings_changed: Condvar::new(),
        uses_rings,
        area,
        held,
        pause,
        polling: Polling::new(most),
        refuses,
    });
    if let Some(spare) = spare {
        pool.begin_rings(queues, rings_each, spare);
    }
    // Few requests come by the device beside rings, and one thread knows when it ends.
    let readers = if pool.uses_rings() { 1 } else { READERS.min(threads) };
    (0..readers).try_for_each(|_| pool.begin_reader())?;
    loop {
        match pool.pause.next() {
            Next::Begin(threads) => (0..threads).try_for_each(|_| pool.begin_reader())?,
            Next::Give => return pool.join().map(|()| End::Paused),
            Next::End => return pool.join().map(|()| End::Over),
        }
    }
}

/// Sets whether reading the device waits for a request.
fn set_blocking(device: &impl AsFd, blocks: bool) -> io::Result<()> {
    let flags = fcntl_getfl(device)?;
    let wanted = if blocks { flags - OFlags::NONBLOCK } else { flags | OFlags::NONBLOCK };
    if wanted != flags {
        fcntl_setfl(device, wanted)?;
    }
    Ok(())
}

/// Whether reading the device would not wait.
fn is_readable(device: &impl AsFd) -> bool {
    let mut fds = [PollFd::new(device, PollFlags::IN)];
    // Reading the device reports any error.
    retry_on_intr(|| poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))) != Ok(0)
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
            let source = Source::Queue(queue);
            self.pause.begins(source);
            let slot = usize::from(queue) * each + number;
            let serve = move || {
                let counted = Counted { pause: &pool.pause, source, done: false };
                pool.take_from_ring(queue, slot, counted)
            };
            match self.begin(format!("fuse-{queue}-{number}"), serve) {
                Ok(()) => begun += 1,
                Err(error) => {
                    self.pause.ends(source, false);
                    tracing::warn!(%error, "could not begin a thread to serve requests");
                }
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

    /// Waits for all threads, which are about to end.
    fn join(&self) -> io::Result<()> {
        let mut result = Ok(());
        let next = || lock(&self.handles).pop();
        while let Some(thread) = next() {
            let ended = thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked")));
            result = result.and(ended);
        }
        result
    }

    fn uses_rings(&self) -> bool {
        self.uses_rings.load(Ordering::Relaxed)
    }

    /// Where a thread of the device takes requests from.
    fn device_source(&self) -> Source {
        if self.uses_rings() { Source::DeviceBesideRings } else { Source::Device }
    }

    fn begin_reader(self: &Arc<Self>) -> io::Result<()> {
        let number = self.readers.fetch_add(1, Ordering::Relaxed);
        let (pool, source) = (Arc::clone(self), self.device_source());
        self.pause.begins(source);
        let begun = self.begin(format!("fuse-{number}"), move || {
            // Counted even if it panics.
            let counted = Counted { pause: &pool.pause, source, done: false };
            pool.read_device(counted)
        });
        begun.inspect_err(|_| self.pause.ends(source, false))
    }

    /// Whether a thread of the device is to end, since requests are held up.
    fn ends_reader(&self, counted: &mut Counted<'_>) -> bool {
        // Beside rings come none that an answer could wait for.
        let waits = counted.source == Source::Device && self.answers_wait();
        counted.done = self.pause.ends_thread(counted.source, waits);
        if counted.done {
            self.readers.fetch_sub(1, Ordering::Relaxed);
        }
        counted.done
    }

    fn answers_wait(&self) -> bool {
        self.dispatcher.filesystem().is_some_and(Front::answers_wait)
    }

    /// Reads requests until the session is over, or they are held up.
    fn read_device(self: &Arc<Self>, mut counted: Counted<'_>) -> io::Result<()> {
        // A queue of its own for each thread's requests in progress. It needs
        // to open the device again, which a helper may have opened for this
        // process. Requests in such a queue end with the process, where it is the last
        // that has it.
        let outlives = self.dispatcher.filesystem().is_some_and(Front::outlives_crash);
        let own = (!outlives).then(|| self.dispatcher.with_own_queue().ok()).flatten();
        let dispatcher = own.unwrap_or_else(|| self.dispatcher.clone());
        let mut buffer = AlignedBuf::new();
        let len = DIRECT_ALIGNMENT + REQUEST_MAX_BYTES as usize + HEADERS_MAX;
        if outlives {
            // A process that is killed gets no more memory: the kernel would fail the
            // request that it is copying.
            buffer.make_resident(len);
        }
        let buffer = buffer.bytes(len);
        // The data of writes is aligned for direct I/O.
        let buffer = &mut buffer[DIRECT_ALIGNMENT - BEFORE_DATA..];
        let (mut blocks, mut forgets) = (None, false);
        loop {
            counted.turn(self.device_source());
            let polls = counted.source == Source::DeviceBesideRings;
            // The request that made it readable may be gone: one that was to be
            // interrupted and is answered.
            if blocks != Some(!polls) {
                set_blocking(&dispatcher, !polls)?;
                blocks = Some(!polls);
            }
            if polls {
                if forgets {
                    self.pause.wait_to_be_asked(&FORGETS_GATHER);
                }
                self.pause.wait_for_device(dispatcher.as_fd());
                if self.ends_reader(&mut counted) {
                    return Ok(());
                }
            }
            self.idle.fetch_add(1, Ordering::Relaxed);
            if !polls && self.polling.is_of_use() {
                self.polling.poll(|| is_readable(&dispatcher));
            }
            let received = if polls { dispatcher.receive_now(buffer) } else { dispatcher.receive(buffer) };
            let was_last = self.idle.fetch_sub(1, Ordering::Relaxed) == 1;
            let size = match received {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                Ok(Some(size)) => size,
                Ok(None) => return Ok(()),
                // The mount went away as it was about to take a request.
                Err(error) if error.raw_os_error() == Some(Os::CONNABORTED.raw_os_error()) => {
                    return Ok(());
                }
                Err(error) => return Err(error),
            };
            if was_last
                && !self.uses_rings()
                && self.pause.is_serving()
                && self.readers.load(Ordering::Relaxed) < self.readers_max
                && let Err(error) = self.begin_reader()
            {
                tracing::warn!(%error, "could not begin one more thread to serve requests");
            }
            if !polls {
                self.polling.came();
            }
            forgets = polls && fuser::is_forget(&buffer[..size]);
            if !self.serve_or_refuse(&dispatcher, &buffer[..size])? {
                return Ok(());
            }
            if self.ends_reader(&mut counted) {
                return Ok(());
            }
        }
    }

    /// Answers a request; answers whether the session goes on.
    fn serve_or_refuse(&self, dispatcher: &Dispatcher<Front>, request: &[u8]) -> io::Result<bool> {
        if self.refuses && fuser::is_sent_again(request) {
            tracing::error!("a request that several processes ended with is answered EIO");
            return dispatcher.refuse(request, Os::IO.raw_os_error()).map(|()| true);
        }
        dispatcher.serve(request, None)
    }

    /// Takes requests from a ring until the session is over, or they are held up.
    fn take_from_ring(self: &Arc<Self>, queue: u16, slot: usize, counted: Counted<'_>) -> io::Result<()> {
        let ring = self.make_ring(queue, slot);
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
        if lock(&self.held).remove(&slot)
            && !self.dispatcher.serve(ring.adopt(), Some(Arc::clone(&answer)))?
        {
            return Ok(());
        }
        self.serve_ring(&mut ring, (queue, slot), counted, &answer)
    }

    fn make_ring(&self, queue: u16, slot: usize) -> io::Result<FuseRing> {
        let area = self.area.as_ref().ok_or(io::ErrorKind::NotFound)?;
        let mut ring = FuseRing::new(&self.dispatcher, queue, area, slot)?;
        ring.wake_by(self.pause.asked())?;
        Ok(ring)
    }

    fn serve_ring(
        &self,
        ring: &mut FuseRing,
        (queue, slot): (u16, usize),
        mut counted: Counted<'_>,
        answer: &Arc<dyn Answer>,
    ) -> io::Result<()> {
        loop {
            let handed_over = match self.polling.is_of_use() {
                true => ring.hand_over().map(|()| self.polling.poll(|| ring.is_ready())),
                false => Ok(()),
            };
            match handed_over.and_then(|()| ring.next_request()) {
                Ok(()) => self.polling.came(),
                Err(RingEnd::Woken) if self.pause.leaves(queue) => return Ok(()),
                Err(RingEnd::Woken) => continue,
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
            }
            if self.pause.holds(counted.source, self.answers_wait()) == Held::Yes {
                lock(&self.held).insert(slot);
                counted.done = true;
                return Ok(());
            }
            if !self.dispatcher.serve(ring.last_request(), Some(Arc::clone(answer)))? {
                return Ok(());
            }
        }
    }
}
