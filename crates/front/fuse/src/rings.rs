//! The transport of requests, and its rings: their number, their memory, and those
//! that a process leaves to the next. Used by `serve` and `session`.

use crate::init::{BACKGROUND_MAX, REQUEST_MAX_BYTES};
use crate::invalidate::Limits;
use crate::pause::Pause;
use braid_sys::{FuseRing, RingArea};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Rings of a session on a machine of many processors, of which each has at
/// least [`RINGS_MIN`], however many threads were asked for: some requests are
/// answered only after others. The kernel does not hand requests that wait for a
/// ring to one that is made later, so that all are made at first.
const RINGS: usize = 768;
const RINGS_MIN: usize = 8;

/// Threads by the device, or rings of each processor as far as [`RINGS`] go, where
/// requests are held up on purpose: each that waits has one.
const THREADS_HELD: usize = 384;
/// So many requests in the background are let in, whatever few rings a processor has.
const BACKGROUND_HELD_MIN: u16 = 64;

/// How requests are to come.
#[derive(Clone, Debug)]
pub(crate) struct RequestSource {
    /// Most threads that read the device.
    pub(crate) threads: usize,
    /// Queues of rings, and rings of each. None: all requests come by the
    /// device.
    pub(crate) queues: u16,
    pub(crate) rings_each: usize,
    /// Whether rings are used, as is known once the session runs.
    pub(crate) uses_rings: Arc<AtomicBool>,
    /// The memory of the rings.
    pub(crate) area: Option<Arc<RingArea>>,
    /// Rings with a request that is not served: at first, those of the process before.
    pub(crate) held: Arc<Mutex<BTreeSet<usize>>>,
    pub(crate) pause: Arc<Pause>,
    /// How long a thread polls for the next request before it sleeps.
    pub(crate) poll: Duration,
    /// Requests that come again are refused.
    pub(crate) refuses: bool,
}

/// The rings that one process leaves to the next.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RingsState {
    queues: u16,
    each: usize,
    /// Where their memory is, and how it is divided.
    place: u64,
    slots: usize,
    slot_len: usize,
    /// Those with a request.
    held: Vec<usize>,
}

impl RingsState {
    /// Their memory, in this process.
    pub(crate) fn area(&self, file: OwnedFd) -> io::Result<RingArea> {
        RingArea::received(file, self.place, self.slots, self.slot_len)
    }
}

impl RequestSource {
    /// So many threads at most; by rings, of each processor's queue so many, if
    /// the kernel agreed to that.
    ///
    /// # Errors
    /// If there is no memory for the rings.
    pub(crate) fn new(threads: usize, by_ring: bool, poll: Duration) -> io::Result<Self> {
        let queues = by_ring.then(processors).flatten().unwrap_or(0);
        let rings_each = rings_each(threads, queues);
        // One more is spare.
        let slots = usize::from(queues) * rings_each + 1;
        let area = || RingArea::new(slots, FuseRing::slot_len(REQUEST_MAX_BYTES as usize)).map(Arc::new);
        Ok(Self {
            threads,
            queues,
            rings_each,
            uses_rings: Arc::new(AtomicBool::new(queues > 0)),
            area: (queues > 0).then(area).transpose()?,
            held: Arc::default(),
            pause: Arc::new(Pause::new()?),
            poll,
            refuses: false,
        })
    }

    /// The same, with the rings that another process left.
    ///
    /// # Errors
    /// If there are no descriptors left.
    pub(crate) fn resumed(
        threads: usize,
        rings: Option<(&RingsState, Arc<RingArea>)>,
        poll: Duration,
    ) -> io::Result<Self> {
        let mut this = Self::new(threads, false, poll)?;
        if let Some((state, area)) = rings {
            (this.queues, this.rings_each, this.area) = (state.queues, state.each, Some(area));
            this.uses_rings = Arc::new(AtomicBool::new(true));
            this.held = Arc::new(Mutex::new(state.held.iter().copied().collect()));
        }
        Ok(this)
    }

    /// The rings for the process that goes on, and their memory.
    pub(crate) fn give(&self) -> Option<(RingsState, Arc<RingArea>)> {
        let area = self.area.as_ref().filter(|_| self.uses_rings())?;
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let state = RingsState {
            queues: self.queues,
            each: self.rings_each,
            place: area.place(),
            slots: area.slots(),
            slot_len: area.slot_len(),
            held: held.iter().copied().collect(),
        };
        Some((state, Arc::clone(area)))
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

/// Rings of each of so many queues.
fn rings_each(threads: usize, queues: u16) -> usize {
    let most = RINGS_MIN.max(RINGS / usize::from(queues).max(1));
    threads.clamp(RINGS_MIN, most)
}

/// The threads, and the most requests in the background. Where the file system holds
/// requests up on purpose, those in the background leave threads for those that programs
/// wait for.
pub(crate) fn at_a_time(threads: usize, by_ring: bool, holds_up: bool) -> (usize, u16) {
    if !holds_up {
        return (threads.max(1), BACKGROUND_MAX);
    }
    let threads = threads.max(THREADS_HELD);
    let queues = by_ring.then(processors).flatten();
    let served = queues.map_or(threads, |queues| rings_each(threads, queues));
    let background = u16::try_from(served * 2 / 3).unwrap_or(u16::MAX);
    (threads, background.clamp(BACKGROUND_HELD_MIN, BACKGROUND_MAX))
}

/// Whether requests can come through io_uring, as far as this process knows. As
/// root, lets the kernel offer that.
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
