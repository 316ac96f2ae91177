//! Holding requests up, so that another process can go on with the mount. Used by
//! `serve` and `session`.
//!
//! Threads of the device that have a request end once it is answered. A ring can't be left
//! while it waits for a request, which might be lost; so each takes one more, which it
//! does not serve, and the process that goes on does. Threads that wait need a request to
//! be woken: a few are made for that. Later requests wait in the kernel.

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::{AtFlags, CWD, StatxFlags};
use rustix::thread::{CpuSet, sched_setaffinity};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often threads that may wait for a request are looked for.
const WAKE_AGAIN: Duration = Duration::from_millis(20);

/// Requests are held up for so many times the patience at most.
const PATIENCE_FACTOR: u32 = 5;

/// Whether requests are served.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Stage {
    /// They are.
    #[default]
    Serving,
    /// Those that are under way.
    Pausing,
    /// None is under way, and none is taken.
    Paused,
}

/// Where a thread takes requests from.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Source {
    /// The device, which any request comes by.
    Device,
    /// The device, for requests that never come by rings.
    DeviceBesideRings,
    /// The queue of a processor.
    Queue(u16),
}

/// The stage of a session, and its threads.
#[derive(Debug)]
pub(crate) struct Pause {
    state: Mutex<State>,
    changed: Condvar,
    /// Readable while requests are to be held up.
    asked: OwnedFd,
    waking: Arc<Waking>,
}

/// Requests that were made to wake a thread and are not answered.
#[derive(Debug, Default)]
pub(crate) struct Waking {
    counts: Mutex<BTreeMap<Source, usize>>,
    answered: Condvar,
}

impl Waking {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Source, usize>> {
        // Each change is a single assignment.
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_made(&self, source: Source) {
        *self.lock().entry(source).or_default() += 1;
    }

    fn is_answered(&self, source: Source) {
        *self.lock().entry(source).or_default() -= 1;
        self.answered.notify_all();
    }

    fn count(&self, source: Source) -> usize {
        self.lock().get(&source).copied().unwrap_or(0)
    }

    /// Waits until all are answered, by whichever process; so long at most.
    pub(crate) fn wait(&self, patience: Duration) {
        let some_left = |counts: &mut BTreeMap<Source, usize>| counts.values().any(|count| *count > 0);
        let waited = self.answered.wait_timeout_while(self.lock(), patience, some_left);
        if waited.is_ok_and(|(_, result)| result.timed_out()) {
            tracing::warn!("requests that the upgrade made are not answered yet: the mount is busy");
        }
    }
}

#[derive(Debug, Default)]
struct State {
    stage: Stage,
    /// Threads that serve requests, or wait for them.
    threads: BTreeMap<Source, usize>,
    /// Threads of the device that have ended since requests were to be held up.
    ended: usize,
    /// Processors on which nothing runs: their queues get no requests.
    unreachable: BTreeSet<u16>,
    /// The session is over.
    over: bool,
}

impl State {
    fn count(&mut self, source: Source) -> &mut usize {
        self.threads.entry(source).or_default()
    }

    /// Threads that serve requests, or wait for them.
    fn all(&self) -> usize {
        self.threads.values().sum()
    }

    fn is_idle(&self) -> bool {
        self.all() == 0
    }
}

/// The next step of the session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Next {
    /// It is over.
    End,
    /// Nothing is under way: another process may go on.
    Give,
    /// So many threads are to begin again.
    Begin(usize),
}

/// The handling of the request that a thread has just got from a ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Held {
    /// Serve it.
    No,
    /// Leave it to the process that goes on.
    Yes,
}

impl Pause {
    /// # Errors
    /// If there are no descriptors left.
    pub(crate) fn new() -> io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Self {
            state: Mutex::default(),
            changed: Condvar::new(),
            asked: eventfd(0, flags)?,
            waking: Arc::default(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Each change is a single assignment.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A thread is about to begin.
    pub(crate) fn begins(&self, source: Source) {
        *self.lock().count(source) += 1;
    }

    /// A thread takes requests from elsewhere from now on.
    pub(crate) fn turns(&self, from: Source, to: Source) {
        let mut state = self.lock();
        *state.count(from) -= 1;
        *state.count(to) += 1;
    }

    /// A thread could not begin, or ended; because the session is `over`, perhaps.
    pub(crate) fn ends(&self, source: Source, over: bool) {
        let mut state = self.lock();
        *state.count(source) -= 1;
        state.over |= over;
        self.changed.notify_all();
    }

    /// Whether requests are served as ever.
    pub(crate) fn is_serving(&self) -> bool {
        self.lock().stage == Stage::Serving
    }

    /// Whether a thread of the device is to end, and is counted so. Not while answers wait
    /// for the kernel, which may wait for an answer itself.
    pub(crate) fn ends_thread(&self, source: Source, answers_wait: bool) -> bool {
        let mut state = self.lock();
        if state.stage == Stage::Serving || answers_wait {
            return false;
        }
        *state.count(source) -= 1;
        state.ended += 1;
        self.changed.notify_all();
        true
    }

    /// The descriptor that is readable while requests are to be held up.
    pub(crate) fn asked(&self) -> BorrowedFd<'_> {
        self.asked.as_fd()
    }

    /// Whether the thread of a ring is to end that waits for a request which can't come.
    pub(crate) fn leaves(&self, queue: u16) -> bool {
        let state = self.lock();
        state.stage == Stage::Pausing && state.unreachable.contains(&queue)
    }

    /// Waits until there is a request at the device, or until requests are to be held up.
    pub(crate) fn wait_for_device(&self, device: BorrowedFd<'_>) {
        let mut fds = [PollFd::new(&device, PollFlags::IN), PollFd::new(&self.asked, PollFlags::IN)];
        // Reading the device reports any error.
        let _ = rustix::io::retry_on_intr(|| poll(&mut fds, None));
    }

    /// Waits until requests are to be held up, for so long at most.
    pub(crate) fn wait_to_be_asked(&self, at_most: &Timespec) {
        let _ = poll(&mut [PollFd::new(&self.asked, PollFlags::IN)], Some(at_most));
    }

    /// Holds the request of a ring while requests are to be held up.
    pub(crate) fn holds(&self, source: Source, answers_wait: bool) -> Held {
        let mut state = self.lock();
        if state.stage == Stage::Serving || answers_wait {
            return Held::No;
        }
        *state.count(source) -= 1;
        self.changed.notify_all();
        while state.stage == Stage::Pausing {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.stage == Stage::Paused {
            return Held::Yes;
        }
        *state.count(source) += 1;
        Held::No
    }

    /// Waits for something to do.
    pub(crate) fn next(&self) -> Next {
        let mut state = self.lock();
        loop {
            match state.stage {
                Stage::Serving if state.ended > 0 && !state.over => {
                    return Next::Begin(std::mem::take(&mut state.ended));
                }
                Stage::Pausing if state.is_idle() && !state.over => {
                    state.stage = Stage::Paused;
                    self.changed.notify_all();
                    return Next::Give;
                }
                Stage::Serving | Stage::Paused if state.is_idle() => return Next::End,
                Stage::Pausing if state.is_idle() && state.over => return Next::End,
                _ => state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    /// Holds requests up. Answers whether none is under way in the end; if it takes this time
    /// for one more thread to have nothing to do, they are served as before: a busy machine
    /// takes long for many threads, and a request that hangs never ends.
    pub(crate) fn hold_up(&self, patience: Duration, root: &Path) -> bool {
        let last = Instant::now() + patience * PATIENCE_FACTOR;
        let (mut until, mut least) = (Instant::now() + patience, usize::MAX);
        self.find_unreachable();
        self.lock().stage = Stage::Pausing;
        // It is never full.
        let _ = rustix::io::write(&self.asked, &1_u64.to_ne_bytes());
        let held = loop {
            self.wake(root);
            let state = self.lock();
            if state.stage != Stage::Pausing || state.over {
                break state.stage == Stage::Paused;
            }
            let now = Instant::now();
            if state.all() < least {
                (until, least) = ((now + patience).min(last), state.all());
            }
            let left = until.saturating_duration_since(now);
            if left.is_zero() {
                break false;
            }
            // A thread may have gone on since answers waited: it has to be woken again.
            let (state, _) = self
                .changed
                .wait_timeout(state, left.min(WAKE_AGAIN))
                .unwrap_or_else(PoisonError::into_inner);
            drop(state);
        };
        if !held {
            let mut state = self.lock();
            if state.stage == Stage::Paused {
                return true;
            }
            tracing::warn!(threads = ?state.threads, "requests can't be held up: some threads are still at work");
            state.stage = Stage::Serving;
            self.changed.notify_all();
        }
        let _ = rustix::io::read(&self.asked, &mut [0; 8]);
        held
    }

    /// Finds out on which processors nothing can run.
    fn find_unreachable(&self) {
        let sources: Vec<Source> = self.lock().threads.keys().copied().collect();
        let queues = sources.into_iter().filter_map(|source| match source {
            Source::Queue(queue) => Some(queue),
            Source::Device | Source::DeviceBesideRings => None,
        });
        let try_all = || queues.filter(|queue| !run_on(*queue)).collect();
        let tried = std::thread::scope(|scope| scope.spawn(try_all).join());
        self.lock().unreachable = tried.unwrap_or_default();
    }

    /// The requests that were made to wake threads.
    pub(crate) fn waking(&self) -> Arc<Waking> {
        Arc::clone(&self.waking)
    }

    /// Makes as many requests as there are threads that may wait for one.
    fn wake(&self, root: &Path) {
        let threads = self.lock().threads.clone();
        for (source, count) in threads {
            // Others poll.
            let processor = match source {
                Source::Device => None,
                Source::Queue(processor) if !self.leaves(processor) => Some(processor),
                Source::Queue(_) | Source::DeviceBesideRings => continue,
            };
            for _ in self.waking.count(source)..count {
                self.wake_one(source, processor, root);
            }
        }
    }

    /// Makes a request to the file system at `root`, on this processor, if that can be:
    /// it is answered by this process or by the one that goes on. Not waited for.
    fn wake_one(&self, source: Source, processor: Option<u16>, root: &Path) {
        let (root, waking) = (root.to_owned(), Arc::clone(&self.waking));
        waking.is_made(source);
        let ask = move || {
            // The answer is of no interest.
            if processor.is_none_or(run_on) {
                let _ = rustix::fs::statx(CWD, &root, AtFlags::STATX_FORCE_SYNC, StatxFlags::BASIC_STATS);
            }
            waking.is_answered(source);
        };
        if let Err(error) = std::thread::Builder::new().name("wake".into()).spawn(ask) {
            self.waking.is_answered(source);
            tracing::warn!(%error, "a thread that waits for requests can't be woken");
        }
    }
}

/// Has this thread run on one processor; answers whether it can.
fn run_on(processor: u16) -> bool {
    let mut only = CpuSet::new();
    only.set(usize::from(processor));
    sched_setaffinity(None, &only).is_ok()
}
