//! When a thread that has answered a request polls for the next one before it sleeps. Used by
//! `serve`.
//!
//! A program that gets its reply is woken while the thread that replied still has the
//! processor, so that the scheduler moves it to an idle one. To wake a halted processor takes
//! longer than most requests, in virtual machines above all; and since the program's next
//! request comes by its new processor, that happens at each request. A thread that polls for
//! a moment keeps its processor from halting, and a program on another one where it is.
//!
//! That is of use only while requests follow each other closely, and while processors would
//! be idle otherwise: a thread that polls beside other work keeps that waiting, or waits for
//! it. And where it is in vain most of the time, as on machines with so many idle processors
//! that programs move on all the same, it is left alone for a while.

use rustix::io::pread;
use std::fs::File;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

/// Requests follow each other closely if no more than this lies between two.
const CLOSE: Duration = Duration::from_micros(500);

/// How often to look whether there are idle processors.
const LOOK: Duration = Duration::from_millis(2);

/// So many looks have to find none until nothing polls: a task may run for just a moment.
const LOOKS: u32 = 3;

/// A poll that got a request saves one in vain. What can be saved at most; how long nothing
/// polls once all is spent, and what there is to spend then.
const SAVED_MAX: u32 = 200;
const PAUSE: Duration = Duration::from_millis(100);
const TRIES: u32 = 20;

/// What the threads of a session share about polling.
#[derive(Debug)]
pub(crate) struct Polling {
    /// How long a thread polls. Zero: not at all.
    most: Duration,
    processors: u32,
    /// The times below are in nanoseconds since then.
    began: Instant,
    /// When the last request came, and whether it followed another closely.
    last: AtomicU64,
    close: AtomicBool,
    /// When to look for idle processors again, and how many looks in a row found none.
    look: AtomicU64,
    busy: AtomicU32,
    /// Threads that poll at present.
    polling: AtomicU32,
    /// How many polls in vain there may be until nothing polls for a while, and the end of
    /// that.
    saved: AtomicU32,
    paused_until: AtomicU64,
    /// Has the number of tasks that run or wait for a processor.
    load: Option<File>,
}

impl Polling {
    /// Threads poll for so long.
    pub(crate) fn new(most: Duration) -> Self {
        let processors = available_parallelism().map_or(1, |count| count.get() as u32);
        let load = File::open("/proc/loadavg").ok();
        Self {
            most: if load.is_some() && processors > 1 { most } else { Duration::ZERO },
            processors,
            began: Instant::now(),
            last: AtomicU64::new(0),
            close: AtomicBool::new(false),
            look: AtomicU64::new(0),
            busy: AtomicU32::new(0),
            polling: AtomicU32::new(0),
            saved: AtomicU32::new(TRIES),
            paused_until: AtomicU64::new(0),
            load,
        }
    }

    /// Notes that a request came.
    pub(crate) fn came(&self) {
        if self.most.is_zero() {
            return;
        }
        let now = self.now();
        let before = self.last.swap(now, Ordering::Relaxed);
        let close = now.saturating_sub(before) < CLOSE.as_nanos() as u64;
        self.close.store(close, Ordering::Relaxed);
    }

    /// Polls: `is_there` answers whether a request is there.
    pub(crate) fn poll(&self, mut is_there: impl FnMut() -> bool) {
        let _polling = Counted::new(&self.polling);
        let until = Instant::now() + self.most;
        let mut found = is_there();
        while !found && Instant::now() < until {
            // The program that is to send the request may wait for this processor.
            std::thread::yield_now();
            found = is_there();
        }
        self.account(found);
    }

    fn now(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    /// Whether to poll now.
    pub(crate) fn is_of_use(&self) -> bool {
        if self.most.is_zero() || !self.close.load(Ordering::Relaxed) {
            return false;
        }
        let now = self.now();
        if now < self.paused_until.load(Ordering::Relaxed) {
            return false;
        }
        let look = self.look.load(Ordering::Relaxed);
        let next = now + LOOK.as_nanos() as u64;
        if now >= look && self.look.compare_exchange(look, next, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            let busy = if self.has_idle_processor() { 0 } else { self.busy.load(Ordering::Relaxed) + 1 };
            self.busy.store(busy.min(LOOKS), Ordering::Relaxed);
        }
        self.busy.load(Ordering::Relaxed) < LOOKS
    }

    /// Whether a processor has nothing to do but, perhaps, to poll. This thread does
    /// something else.
    fn has_idle_processor(&self) -> bool {
        let mut buffer = [0; 128];
        let read = self.load.as_ref().and_then(|load| pread(load, &mut buffer, 0).ok()).unwrap_or(0);
        let polling = self.polling.load(Ordering::Relaxed);
        running(&buffer[..read]).is_some_and(|running| running.saturating_sub(polling) < self.processors)
    }

    /// Notes whether a poll got a request.
    fn account(&self, found: bool) {
        let saved = self.saved.load(Ordering::Relaxed);
        let left = if found { (saved + 1).min(SAVED_MAX) } else { saved.saturating_sub(1) };
        if left == 0 {
            self.paused_until.store(self.now() + PAUSE.as_nanos() as u64, Ordering::Relaxed);
        }
        self.saved.store(if left == 0 { TRIES } else { left }, Ordering::Relaxed);
    }
}

/// A thread that counts until it drops this.
struct Counted<'a>(&'a AtomicU32);

impl<'a> Counted<'a> {
    fn new(count: &'a AtomicU32) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How many tasks run or wait for a processor, by the text of `/proc/loadavg`: the number
/// before the slash.
fn running(load: &[u8]) -> Option<u32> {
    let text = std::str::from_utf8(load).ok()?;
    let (before, _) = text.split_once('/')?;
    before.rsplit(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_running_tasks_is_read() {
        assert_eq!(running(b"0.50 0.40 0.30 2/345 1234\n"), Some(2));
        assert_eq!(running(b"0.50 0.40"), None);
        assert_eq!(running(b""), None);
    }

    /// One that polls whatever the machine does at the time.
    fn polling() -> Polling {
        let most = Duration::from_micros(50);
        let began = Instant::now().checked_sub(Duration::from_secs(1)).unwrap();
        Polling { most, began, processors: u32::MAX, ..Polling::new(most) }
    }

    fn tries(polling: &Polling, found: bool) -> u32 {
        let mut tries = 0;
        if polling.is_of_use() {
            polling.poll(|| {
                tries += 1;
                found
            });
        }
        tries
    }

    #[test]
    fn only_requests_that_follow_each_other_are_polled_for() {
        let polling = polling();
        assert_eq!(tries(&polling, true), 0);
        polling.came();
        assert_eq!(tries(&polling, true), 0, "the first one");
        // A slow machine may be away for longer.
        while !polling.close.load(Ordering::Relaxed) {
            polling.came();
        }
        assert_eq!(tries(&polling, true), 1);
        assert!(tries(&polling, false) > 1);
        assert_eq!(polling.polling.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn what_is_in_vain_pauses() {
        let polling = polling();
        polling.close.store(true, Ordering::Relaxed);
        let in_vain = (0..SAVED_MAX).take_while(|_| tries(&polling, false) > 0).count();
        assert_eq!(in_vain, TRIES as usize);
        polling.paused_until.store(0, Ordering::Relaxed);
        (0..SAVED_MAX).for_each(|_| assert_eq!(tries(&polling, true), 1));
        let in_vain = (0..2 * SAVED_MAX).take_while(|_| tries(&polling, false) > 0).count();
        assert_eq!(in_vain, SAVED_MAX as usize);
    }

    #[test]
    fn nothing_polls_where_no_processor_is_idle() {
        let polling = Polling { processors: 0, ..polling() };
        polling.close.store(true, Ordering::Relaxed);
        let polled = (0..LOOKS + 1).take_while(|_| {
            polling.look.store(0, Ordering::Relaxed);
            tries(&polling, true) > 0
        });
        assert_eq!(polled.count(), LOOKS as usize - 1);
        let never = Polling::new(Duration::ZERO);
        never.close.store(true, Ordering::Relaxed);
        assert_eq!(tries(&never, true), 0);
    }
}
