//! A recording. Each operation puts a record into a buffer of a fixed size; one
//! without room is counted, and the operation does not wait. [`Recording`]
//! takes the records out, as lines.

use super::files::{File, Files};
use crate::Pattern;
use crate::count::Count;
use crate::sync::{Mutex, Receiver, RecvTimeoutError, RwLock, SyncSender, sync_channel};
use braid_contract::{Environment, Errno, Error, InodeId, RefusalKind, Result};
use braid_placement::{Header, LineKind, Record, TRACE_VERSION, TraceOpKind, line};
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// Most records that wait to be taken: some 8 MiB without their paths.
const RECORDS_MAX: usize = 40_000;
/// Most bytes of paths in them.
const PATHS_BYTES_MAX: usize = 8 << 20;
/// Most described files of a recording at a time: some 32 MiB.
const DESCRIBED_MAX: usize = 1 << 20;
/// Approximate bytes of lines that are taken at a time.
const LINES_BYTES: usize = 128 << 10;

/// Whether there is a recording, and its buffer.
#[derive(Debug)]
pub(super) struct Tracing {
    on: AtomicBool,
    /// The number of the last recording.
    last: AtomicU64,
    current: RwLock<Option<Recorder>>,
    /// The mount has ended: there are no more recordings.
    closed: AtomicBool,
    /// Of all recordings.
    totals: Arc<Totals>,
}

/// The fate of the records of all recordings.
#[derive(Debug, Default)]
pub(super) struct Totals {
    pub(super) records: Count,
    pub(super) dropped: Count,
}

/// A current recording, as seen by operations.
#[derive(Debug)]
pub(super) struct Recorder {
    number: u64,
    pub(super) began_ns: u64,
    pub(super) files: Files,
    /// Which files; all if `None`.
    path: Option<Pattern>,
    sender: SyncSender<Record>,
    counts: Arc<Counts>,
    totals: Arc<Totals>,
    /// Files that were described and not removed since.
    described: Mutex<HashSet<u64>>,
}

/// Counts that operations leave for the [`Recording`].
#[derive(Debug, Default)]
struct Counts {
    /// Records without room since this was last read.
    lost: AtomicU64,
    /// Bytes of paths that wait to be taken.
    paths_bytes: AtomicUsize,
}

impl Tracing {
    pub(super) fn new() -> Self {
        Self {
            on: AtomicBool::new(false),
            last: AtomicU64::new(0),
            current: RwLock::new(None),
            closed: AtomicBool::new(false),
            totals: Arc::default(),
        }
    }

    pub(super) fn totals(&self) -> &Totals {
        &self.totals
    }

    /// Whether there is a recording.
    pub(super) fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    /// Runs `work` with the current recording, if there still is one.
    pub(super) fn with<T>(&self, work: impl FnOnce(&Recorder) -> T) -> Option<T> {
        self.current.read().as_ref().map(work)
    }

    /// Ends the recording of this number. Its buffer can still be taken.
    /// Answers whether there was one.
    pub(super) fn stop(&self, number: u64) -> bool {
        let mut current = self.current.write();
        if current.as_ref().is_none_or(|recorder| recorder.number != number) {
            return false;
        }
        self.on.store(false, Ordering::Relaxed);
        *current = None;
        true
    }

    /// Ends the current recording, and allows no more.
    pub(super) fn close(&self) {
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
        if put {
            self.totals.records.one();
        } else {
            self.counts.paths_bytes.fetch_sub(path_bytes, Ordering::Relaxed);
            self.lost();
        }
        put
    }

    /// Describes the file, unless that was done. Answers whether it is to be
    /// recorded; a file without room for its description is not.
    pub(super) fn describes(&self, file: &File, record: impl FnOnce() -> Record) -> bool {
        let mut recorded = file.recorded.lock();
        if let Some(wanted) = *recorded {
            return wanted;
        }
        let record = record();
        let wanted = self.wants(record.path.as_deref().unwrap_or_default());
        if wanted && !(self.may_describe(file.ino.0) && self.put(record)) {
            return false;
        }
        if wanted {
            self.described.lock().insert(file.ino.0);
        }
        *recorded = Some(wanted);
        wanted
    }

    /// Notes that the file is gone.
    pub(super) fn gone(&self, ino: InodeId, now_ns: u64) {
        if self.described.lock().remove(&ino.0) {
            let at = now_ns.saturating_sub(self.began_ns);
            self.put(Record { at, ..Record::of(TraceOpKind::Remove, ino.0) });
        }
    }

    /// Whether this file may be described, for the first time or again: the
    /// number of remembered files is limited. If not, its operations are
    /// counted as lost.
    fn may_describe(&self, file: u64) -> bool {
        let described = self.described.lock();
        let may = described.len() < DESCRIBED_MAX || described.contains(&file);
        if !may {
            self.lost();
        }
        may
    }

    fn lost(&self) {
        self.counts.lost.fetch_add(1, Ordering::Relaxed);
        self.totals.dropped.one();
    }

    /// Whether a file of this path is to be recorded.
    fn wants(&self, path: &str) -> bool {
        self.path.as_ref().is_none_or(|pattern| pattern.matches(Path::new(path)))
    }
}

/// The size of a record beyond its fixed part.
fn path_bytes(record: &Record) -> usize {
    record.path.as_ref().map_or(0, String::capacity)
}

/// A recording, for its reader. It ends when this is dropped.
pub struct Recording {
    tracing: Arc<Tracing>,
    environment: Arc<dyn Environment>,
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
    /// Operations in them.
    pub ops: u64,
    /// Operations that are missing there.
    pub dropped: u64,
    /// Opens among them whose reads the kernel does itself.
    pub passthrough_opens: u64,
}

/// The description of the recorded volume.
#[derive(Clone, Debug)]
pub struct Traced {
    /// Its id.
    pub volume: String,
    /// Size of its ranges in bytes.
    pub range: u32,
    /// Its policy.
    pub policy: String,
}

impl Recording {
    /// Starts a recording.
    ///
    /// # Errors
    /// `EINVAL` if `path` is not a pattern, `EBUSY` if a recording is under
    /// way, `ENODEV` once the mount ends.
    pub(super) fn begin(
        tracing: &Arc<Tracing>,
        environment: &Arc<dyn Environment>,
        traced: Traced,
        path: Option<&str>,
    ) -> Result<Self> {
        let pattern = path.map(|text| {
            Pattern::try_from(text.to_owned())
                .map_err(|what| Error::refused(Errno::EINVAL, RefusalKind::Request, what))
        });
        let pattern = pattern.transpose()?;
        let mut current = tracing.current.write();
        if current.is_some() {
            return Err(Error::refused(
                Errno::EBUSY,
                RefusalKind::Busy,
                "the volume is being recorded already",
            ));
        }
        if tracing.closed.load(Ordering::Relaxed) {
            return Err(Error::new(Errno::ENODEV, "the volume is being closed"));
        }
        let (sender, receiver) = sync_channel(RECORDS_MAX);
        let number = tracing.last.fetch_add(1, Ordering::Relaxed) + 1;
        let (began_ns, counts) = (environment.monotonic_ns(), Arc::<Counts>::default());
        let head = line(&Header {
            version: TRACE_VERSION,
            braid: env!("CARGO_PKG_VERSION").into(),
            volume: traced.volume,
            range: traced.range,
            policy: traced.policy,
            began: environment.wall_ns() / 1_000_000_000,
            path: path.map(str::to_owned),
        });
        *current = Some(Recorder {
            number,
            began_ns,
            files: Files::default(),
            path: pattern,
            sender,
            counts: Arc::clone(&counts),
            totals: Arc::clone(&tracing.totals),
            described: Mutex::default(),
        });
        // Still under the lock, so that a stop comes after it.
        tracing.on.store(true, Ordering::Relaxed);
        drop(current);
        let (tracing, environment) = (Arc::clone(tracing), Arc::clone(environment));
        Ok(Self { tracing, environment, number, head, receiver, counts, began_ns })
    }

    /// Its number, by which [`Trace::stop_recording`](super::Trace::stop_recording) ends it.
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
        self.environment.monotonic_ns().saturating_sub(self.began_ns)
    }

    /// Whether the end of the mount ends it.
    #[must_use]
    pub fn is_cut_off(&self) -> bool {
        self.tracing.closed.load(Ordering::Relaxed)
    }

    /// The operations since the last call; waits for some, at most so long.
    /// `None` once the recording has ended and all of it was taken.
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
            recorded.lines.push_str(&line(&Record {
                op: LineKind::Dropped,
                at,
                dropped,
                ..Record::default()
            }));
        }
        Some(recorded)
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        self.tracing.stop(self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_described_before_may_be_again_and_others_once_there_is_room() {
        let (sender, _receiver) = sync_channel(1);
        let recorder = Recorder {
            number: 1,
            began_ns: 0,
            files: Files::default(),
            path: None,
            sender,
            counts: Arc::default(),
            totals: Arc::default(),
            described: Mutex::default(),
        };
        recorder.described.lock().extend(0..DESCRIBED_MAX as u64);
        assert!(recorder.may_describe(5));
        let new = DESCRIBED_MAX as u64;
        assert!(!recorder.may_describe(new));
        assert_eq!(recorder.counts.lost.load(Ordering::Relaxed), 1);
        recorder.gone(InodeId(5), 1);
        assert!(recorder.may_describe(5));
    }
}
