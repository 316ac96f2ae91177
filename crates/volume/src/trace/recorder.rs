//! Records what applications do. Whoever does something puts a record into a
//! buffer of a fixed size; one that finds no room is counted, and nobody waits.
//! Whoever records takes them out, as lines.

use crate::Volume;
use crate::sync::{Mutex, Receiver, RecvTimeoutError, RwLock, SyncSender, sync_channel};
use braid_contract::{Errno, Error, RefusalKind, Result};
use braid_placement::{Header, Record, TRACE_VERSION, Told, glob, line};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// Records that wait to be taken, at most: some 8 MiB without their paths.
const RECORDS_MAX: usize = 40_000;
/// Bytes of the paths in them, at most.
const PATHS_BYTES_MAX: usize = 8 << 20;
/// Files that a recording tells of at a time, at most: some 32 MiB.
const TOLD_MAX: usize = 1 << 20;
/// About how many bytes of lines are taken at a time.
const LINES_BYTES: usize = 128 << 10;

/// Whether something is recorded, and where it goes.
#[derive(Debug)]
pub(crate) struct Tracing {
    on: AtomicBool,
    /// The number of the last recording.
    last: AtomicU64,
    current: RwLock<Option<Recorder>>,
    /// The volume ends: nothing is recorded any more.
    closed: AtomicBool,
}

/// A recording under way, as those see it who are recorded.
#[derive(Debug)]
pub(super) struct Recorder {
    pub(super) number: u64,
    pub(super) began_ns: u64,
    /// Which files; all if there is none.
    pub(super) path: Option<String>,
    sender: SyncSender<Record>,
    counts: Arc<Counts>,
    /// The files that something was told of.
    told: Mutex<HashSet<u64>>,
}

/// What those who are recorded count for whoever records.
#[derive(Debug, Default)]
struct Counts {
    /// Records that found no room since that was last told.
    lost: AtomicU64,
    /// Bytes of paths that wait to be taken.
    paths_bytes: AtomicUsize,
}

/// What a file knows of being recorded.
#[derive(Debug, Default)]
pub(crate) struct FileTrace {
    /// Twice the number of the recording that was told of it, and one more if
    /// it is not to be recorded.
    pub(super) told: AtomicU64,
    /// Its last name went while a recording was under way.
    pub(super) nameless: AtomicBool,
}

impl Tracing {
    pub(crate) const fn new() -> Self {
        Self {
            on: AtomicBool::new(false),
            last: AtomicU64::new(0),
            current: RwLock::new(None),
            closed: AtomicBool::new(false),
        }
    }

    /// Whether anything is recorded.
    pub(crate) fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    /// Does `work` with the recording, if one is under way still.
    pub(super) fn with<T>(&self, work: impl FnOnce(&Recorder) -> T) -> Option<T> {
        self.current.read().as_ref().map(work)
    }

    /// Ends the recording of this number. What is in the buffer can be taken
    /// still. Answers whether there was one.
    fn stop(&self, number: u64) -> bool {
        let mut current = self.current.write();
        if current.as_ref().is_none_or(|recorder| recorder.number != number) {
            return false;
        }
        self.on.store(false, Ordering::Relaxed);
        *current = None;
        true
    }

    /// Ends the recording that is under way, and lets none begin.
    pub(crate) fn close(&self) {
        let mut current = self.current.write();
        self.closed.store(true, Ordering::Relaxed);
        self.on.store(false, Ordering::Relaxed);
        *current = None;
    }
}

impl Recorder {
    /// Puts a record into the buffer; answers whether there was room.
    pub(super) fn put(&self, record: Record) -> bool {
        let path_bytes = path_bytes(&record);
        let waiting = self.counts.paths_bytes.fetch_add(path_bytes, Ordering::Relaxed);
        let put = waiting + path_bytes <= PATHS_BYTES_MAX && self.sender.try_send(record).is_ok();
        if !put {
            self.counts.paths_bytes.fetch_sub(path_bytes, Ordering::Relaxed);
            self.counts.lost.fetch_add(1, Ordering::Relaxed);
        }
        put
    }

    /// Whether this file may be told of, for the first time or again: what is
    /// remembered of them is bounded. If not, what would have been recorded is
    /// counted as lost.
    pub(super) fn may_tell(&self, file: u64) -> bool {
        let told = self.told.lock();
        let may = told.len() < TOLD_MAX || told.contains(&file);
        if !may {
            self.counts.lost.fetch_add(1, Ordering::Relaxed);
        }
        may
    }

    /// Notes that the file was told of.
    pub(super) fn tell_of(&self, file: u64) {
        self.told.lock().insert(file);
    }

    /// The file is gone; answers whether it was told of.
    pub(super) fn forget(&self, file: u64) -> bool {
        self.told.lock().remove(&file)
    }

    /// Whether a file of this path is to be recorded.
    pub(super) fn wants(&self, path: &str) -> bool {
        self.path.as_deref().is_none_or(|pattern| glob::matches(pattern, path))
    }
}

/// What of a record is not counted by its number.
fn path_bytes(record: &Record) -> usize {
    record.path.as_ref().map_or(0, String::capacity)
}

/// A recording, as whoever asked for it sees it. It ends when this is dropped.
pub struct Recording {
    volume: Arc<Volume>,
    number: u64,
    head: String,
    receiver: Receiver<Record>,
    counts: Arc<Counts>,
    began_ns: u64,
}

/// Some lines of a trace.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Recorded {
    /// Whole lines.
    pub lines: String,
    /// Operations that they tell.
    pub ops: u64,
    /// Operations that are missing there.
    pub dropped: u64,
    /// Opens among them of which the kernel does the reads by itself.
    pub passthrough_opens: u64,
}

impl Volume {
    /// Begins to record what is done with files whose paths match `path`, a
    /// pattern as rules have them, or with all.
    ///
    /// # Errors
    /// `EINVAL` if `path` is no pattern, `EBUSY` if a recording is under way,
    /// `ENODEV` if the volume is being closed.
    pub fn start_recording(self: &Arc<Self>, path: Option<&str>) -> Result<Recording> {
        if let Some(pattern) = path {
            glob::check(pattern).map_err(|what| {
                let what = format!("'{pattern}' is not a pattern of paths: {what}");
                Error::refused(Errno::EINVAL, RefusalKind::Request, what)
            })?;
        }
        let mut current = self.tracing.current.write();
        if current.is_some() {
            return Err(Error::refused(
                Errno::EBUSY,
                RefusalKind::Busy,
                "the volume is being recorded already",
            ));
        }
        if self.tracing.closed.load(Ordering::Relaxed) {
            return Err(Error::new(Errno::ENODEV, "the volume is being closed"));
        }
        let (sender, receiver) = sync_channel(RECORDS_MAX);
        let number = self.tracing.last.fetch_add(1, Ordering::Relaxed) + 1;
        let (began_ns, counts) = (self.core.environment.monotonic_ns(), Arc::<Counts>::default());
        let path = path.map(str::to_owned);
        let head = line(&Header {
            version: TRACE_VERSION,
            braid: env!("CARGO_PKG_VERSION").into(),
            volume: self.core.id.to_string(),
            range: self.core.range_size.get(),
            policy: self.placement.describe(),
            began: self.core.environment.wall_ns() / 1_000_000_000,
            path: path.clone(),
        });
        *current = Some(Recorder {
            number,
            began_ns,
            path,
            sender,
            counts: Arc::clone(&counts),
            told: Mutex::new(HashSet::new()),
        });
        // Still under the lock, so that whoever ends it comes after.
        self.tracing.on.store(true, Ordering::Relaxed);
        drop(current);
        Ok(Recording { volume: Arc::clone(self), number, head, receiver, counts, began_ns })
    }

    /// Ends the recording of this number. Answers whether it was under way.
    pub fn stop_recording(&self, number: u64) -> bool {
        self.tracing.stop(number)
    }
}

impl Recording {
    /// Its number, by which [`Volume::stop_recording`] ends it.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The first line of the trace.
    #[must_use]
    pub fn head(&self) -> &str {
        &self.head
    }

    /// Nanoseconds since it began.
    #[must_use]
    pub fn age_ns(&self) -> u64 {
        self.volume.core.environment.monotonic_ns().saturating_sub(self.began_ns)
    }

    /// Whether nobody ended it, but the volume ends.
    #[must_use]
    pub fn is_cut_off(&self) -> bool {
        self.volume.tracing.closed.load(Ordering::Relaxed)
    }

    /// What was done since the last call; waits until something is, at most for
    /// so long. `None` once the recording has ended and all of it was taken.
    pub fn next(&mut self, patience: Duration) -> Option<Recorded> {
        let mut recorded = Recorded::default();
        let mut more = match self.receiver.recv_timeout(patience) {
            Ok(record) => Some(record),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) if self.counts.lost.load(Ordering::Relaxed) == 0 => {
                return None;
            }
            Err(RecvTimeoutError::Disconnected) => None,
        };
        while let Some(record) = more {
            self.counts.paths_bytes.fetch_sub(path_bytes(&record), Ordering::Relaxed);
            recorded.ops += u64::from(record.is_op());
            recorded.passthrough_opens += u64::from(record.passthrough);
            recorded.lines.push_str(&line(&record));
            let is_enough = recorded.lines.len() >= LINES_BYTES;
            more = if is_enough { None } else { self.receiver.try_recv().ok() };
        }
        recorded.dropped = self.counts.lost.swap(0, Ordering::Relaxed);
        if recorded.dropped > 0 {
            let (at, dropped) = (self.age_ns(), recorded.dropped);
            recorded.lines.push_str(&line(&Record { op: Told::Dropped, at, dropped, ..Record::default() }));
        }
        Some(recorded)
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        self.volume.tracing.stop(self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_told_of_before_may_be_told_of_again_and_others_once_there_is_room() {
        let (sender, _receiver) = sync_channel(1);
        let told = Mutex::new((0..TOLD_MAX as u64).collect());
        let recorder = Recorder { number: 1, began_ns: 0, path: None, sender, counts: Arc::default(), told };
        assert!(recorder.may_tell(5));
        let new = TOLD_MAX as u64;
        assert!(!recorder.may_tell(new));
        assert_eq!(recorder.counts.lost.load(Ordering::Relaxed), 1);
        assert!(recorder.forget(5) && recorder.may_tell(new));
    }
}
