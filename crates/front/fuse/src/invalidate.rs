//! Drops pages from the kernel's cache, for writes that are answered after
//! that.
//!
//! Dropping a page waits for a read that fills it, which waits for an answer of
//! Braid. So threads that answer requests must not wait for it: others do, each
//! for one request, so that a slow tier delays only its own users. Nor may
//! requests that wait here use up all that the kernel sends at a time, or all
//! rings of a processor, or the read would never be sent: beyond its [`Limits`],
//! a write is answered while its pages are still being dropped.

use crate::init::BACKGROUND_MAX;
use fuser::{INodeNo, Notifier};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// How many requests may wait here at a time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    writes: usize,
    /// Those that have the kernel write back.
    write_backs: usize,
}

impl Limits {
    /// For requests that come by the device. The kernel waits for the answer to
    /// a write-back in the caller's name, so that there is no limit.
    pub(crate) const DEVICE: Self = Self { writes: BACKGROUND_MAX as usize / 2, write_backs: usize::MAX };

    /// For requests that come by queues of so many rings: one that waits keeps
    /// its ring, and of each queue one is left.
    pub(crate) fn of_rings(each: usize) -> Self {
        Self { writes: each / 2, write_backs: each.saturating_sub(1) / 2 }
    }
}

/// Longest time a thread waits for work before it ends.
const IDLE_MAX: Duration = Duration::from_secs(5);

/// A stretch of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stretch {
    pub(crate) ino: INodeNo,
    pub(crate) offset: u64,
    pub(crate) end: u64,
}

/// Makes the kernel drop pages.
pub(crate) trait DropPages: Send + Sync + 'static {
    fn drop_pages(&self, stretch: Stretch);
}

impl DropPages for Notifier {
    fn drop_pages(&self, Stretch { ino, offset, end }: Stretch) {
        let len = (end - offset).cast_signed();
        if let Err(error) = self.inval_inode(ino, offset.cast_signed(), len) {
            tracing::warn!("cached pages of inode {} could not be dropped: {error}", ino.0);
        }
    }
}

type Answer = Box<dyn FnOnce() + Send>;

/// Pages to be dropped, and the answer that waits for that.
struct Task {
    stretch: Stretch,
    answer: Option<Answer>,
    /// The limit that it counts against.
    held: Option<Held>,
}

/// Requests that wait here.
#[derive(Clone, Copy, Debug)]
enum Held {
    Write,
    WriteBack,
}

/// Threads that drop pages, started as needed.
pub(crate) struct Invalidator {
    shared: Arc<Shared>,
}

struct Shared {
    pages: Box<dyn DropPages>,
    limits: Limits,
    /// The processors of the daemon. A thread that serves a ring stays on one,
    /// and those that it begins would.
    processors: Option<CpuSet>,
    state: Mutex<State>,
    work: Condvar,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Task>,
    /// Threads that wait for work.
    idle: usize,
    /// Writes that wait for their answer.
    writes: usize,
    write_backs: usize,
    over: bool,
}

impl Invalidator {
    pub(crate) fn new(pages: impl DropPages, limits: Limits) -> Self {
        let (pages, processors) = (Box::new(pages), sched_getaffinity(None).ok());
        let (state, work) = (Mutex::default(), Condvar::new());
        Self { shared: Arc::new(Shared { pages, limits, processors, state, work }) }
    }

    /// Drops the pages of a stretch, then calls `answer`; waits for neither.
    pub(crate) fn drop_then(&self, stretch: Stretch, answer: impl FnOnce() + Send + 'static) {
        let mut state = self.shared.lock();
        if state.writes >= self.shared.limits.writes {
            state.add_unheld(stretch);
            drop(state);
            return answer();
        }
        state.writes += 1;
        self.add(state, Task { stretch, answer: Some(Box::new(answer)), held: Some(Held::Write) });
    }

    /// Makes the kernel write back the inode's data in its cache, then calls
    /// `then` with `true`; waits for neither. Where too many wait already, calls
    /// it with `false` at once.
    pub(crate) fn write_back_then(&self, ino: INodeNo, then: impl FnOnce(bool) + Send + 'static) {
        let stretch = Stretch { ino, offset: 0, end: i64::MAX.cast_unsigned() };
        let mut state = self.shared.lock();
        if state.write_backs >= self.shared.limits.write_backs {
            drop(state);
            return then(false);
        }
        state.write_backs += 1;
        self.add(state, Task { stretch, answer: Some(Box::new(|| then(true))), held: Some(Held::WriteBack) });
    }

    /// Whether an answer waits for pages to be dropped or written back.
    pub(crate) fn is_busy(&self) -> bool {
        let state = self.shared.lock();
        !state.queue.is_empty() || state.writes > 0 || state.write_backs > 0
    }

    fn add(&self, mut state: MutexGuard<'_, State>, task: Task) {
        state.queue.push_back(task);
        let enough = state.queue.len() <= state.idle;
        drop(state);
        self.shared.work.notify_one();
        if enough {
            return;
        }
        let shared = Arc::clone(&self.shared);
        if let Err(error) = thread::Builder::new().name("invalidate".into()).spawn(move || shared.work()) {
            tracing::warn!("no thread to drop cached pages: {error}");
            // Better in this thread than not at all.
            self.shared.work_off();
        }
    }
}

impl Drop for Invalidator {
    fn drop(&mut self) {
        self.shared.lock().over = true;
        self.shared.work.notify_all();
    }
}

impl State {
    /// Adds pages that no write waits for. Those of one inode are dropped
    /// together.
    fn add_unheld(&mut self, stretch: Stretch) {
        let same = |task: &&mut Task| task.answer.is_none() && task.stretch.ino == stretch.ino;
        match self.queue.iter_mut().find(same) {
            Some(Task { stretch: waiting, .. }) => {
                waiting.offset = waiting.offset.min(stretch.offset);
                waiting.end = waiting.end.max(stretch.end);
            }
            None => self.queue.push_back(Task { stretch, answer: None, held: None }),
        }
    }
}

impl Shared {
    /// State is whole between any two statements that change it.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The body of a thread, until there is no more work.
    fn work(&self) {
        if let Some(processors) = &self.processors {
            // Where it is refused, this thread is as good as another.
            let _ = sched_setaffinity(None, processors);
        }
        loop {
            self.work_off();
            let mut state = self.lock();
            state.idle += 1;
            let nothing = |state: &mut State| state.queue.is_empty() && !state.over;
            let waited = self.work.wait_timeout_while(state, IDLE_MAX, nothing);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            state.idle -= 1;
            if state.queue.is_empty() {
                return;
            }
        }
    }

    /// Does the present work.
    fn work_off(&self) {
        loop {
            let Some(Task { stretch, answer, held }) = self.lock().queue.pop_front() else { return };
            self.pages.drop_pages(stretch);
            // Before the answer, which allows the next request.
            match held {
                Some(Held::Write) => self.lock().writes -= 1,
                Some(Held::WriteBack) => self.lock().write_backs -= 1,
                None => {}
            }
            if let Some(answer) = answer {
                answer();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};

    /// Reports the inode whose pages are about to be dropped, and waits for
    /// permission if its number is odd.
    struct Gate {
        begun: SyncSender<u64>,
        go_on: Mutex<Receiver<()>>,
    }

    impl DropPages for Gate {
        fn drop_pages(&self, stretch: Stretch) {
            self.begun.send(stretch.ino.0).unwrap();
            if stretch.ino.0 % 2 == 1 {
                self.go_on.lock().unwrap().recv().unwrap();
            }
        }
    }

    fn stretch(ino: u64) -> Stretch {
        Stretch { ino: INodeNo(ino), offset: 0, end: 4096 }
    }

    #[test]
    fn one_that_waits_keeps_no_other_and_is_answered_last() {
        let (begun, begins) = sync_channel(16);
        let (go_on, may_go_on) = channel();
        let invalidator = Invalidator::new(Gate { begun, go_on: Mutex::new(may_go_on) }, Limits::DEVICE);
        let (answer, answers) = channel();
        for ino in [1, 2] {
            let answer = answer.clone();
            invalidator.drop_then(stretch(ino), move || answer.send(ino).unwrap());
        }
        assert_eq!(answers.recv().unwrap(), 2);
        go_on.send(()).unwrap();
        assert_eq!(answers.recv().unwrap(), 1);
        let mut begun: Vec<u64> = begins.try_iter().collect();
        begun.sort_unstable();
        assert_eq!(begun, [1, 2]);
    }

    #[test]
    fn requests_that_wait_leave_a_ring_of_each_queue() {
        for rings in 2..200 {
            let Limits { writes, write_backs } = Limits::of_rings(rings);
            assert!(writes > 0 && writes + write_backs < rings, "{rings} rings");
        }
    }

    #[test]
    fn so_many_write_backs_wait_and_not_more() {
        let (begun, begins) = sync_channel(16);
        let (go_on, may_go_on) = channel();
        let limits = Limits { writes: 0, write_backs: 2 };
        let invalidator = Invalidator::new(Gate { begun, go_on: Mutex::new(may_go_on) }, limits);
        let (answer, answers) = channel();
        for _ in 0..3 {
            let answer = answer.clone();
            invalidator.write_back_then(INodeNo(1), move |done| answer.send(done).unwrap());
        }
        assert!(!answers.recv().unwrap());
        (0..2).for_each(|_| go_on.send(()).unwrap());
        assert!((0..2).all(|_| answers.recv().unwrap()));
        assert_eq!(begins.iter().take(2).count(), 2);
    }

    #[test]
    fn so_many_wait_and_not_more() {
        const HELD_MAX: usize = Limits::DEVICE.writes;
        let (begun, begins) = sync_channel(2 * HELD_MAX);
        let (go_on, may_go_on) = channel();
        let invalidator = Invalidator::new(Gate { begun, go_on: Mutex::new(may_go_on) }, Limits::DEVICE);
        let (answer, answers) = channel();
        let drop_then = |held: bool| {
            let answer = answer.clone();
            invalidator.drop_then(stretch(1), move || answer.send(held).unwrap());
        };
        (0..HELD_MAX).for_each(|_| drop_then(true));
        assert!(answers.try_recv().is_err());
        drop_then(false);
        drop_then(false);
        assert_eq!(answers.try_iter().collect::<Vec<_>>(), [false, false]);
        // Those two are dropped at once, after the others.
        (0..=HELD_MAX).for_each(|_| go_on.send(()).unwrap());
        (0..HELD_MAX).for_each(|_| assert!(answers.recv().unwrap()));
        assert_eq!(begins.iter().take(HELD_MAX + 1).count(), HELD_MAX + 1);
        assert!(answers.try_recv().is_err());
    }
}
