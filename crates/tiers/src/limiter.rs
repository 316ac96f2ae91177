//! Access to a tier's store. It keeps a hanging tier from blocking every
//! thread, and handles a tier that is absent or lost.

use braid_contract::{
    Environment, Errno, Error, Fd, NativeFd, ObjectId, ObjectStat, ReadPiece, Result, Store,
    StoreCapabilities, StoreIo, Timestamp, Usage, ZoneStatus,
};
use parking_lot::{Condvar, Mutex, RwLock};
use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// If no operation ends for this long, while some are under way, the tier
/// hangs: further ones are answered `EIO` until one ends.
const HANG_NS: u64 = 10_000_000_000;

/// The same while a sync or a removal is under way: on a slow device these may
/// take long without an error, and keep everything else waiting.
const LONG_HANG_NS: u64 = 300_000_000_000;

/// If no operation ends for this long, the tier may be about to hang.
const STALL_NS: u64 = 1_000_000_000;

/// Most operations in flight on one tier, even if its store takes more. There
/// are more threads than this, so that a hanging tier leaves some for the
/// others: a thread inside a hanging store can't be recovered.
const IN_FLIGHT_MAX: u32 = 20;

/// An absent tier lacks no capability: each operation answers that it is
/// absent.
const ABSENT: StoreCapabilities = StoreCapabilities {
    native_files: true,
    punch: true,
    allocate: true,
    seek_data: true,
    overwrite: true,
    access_times: true,
    durable: true,
    preallocates: false,
    queue_depth: IN_FLIGHT_MAX,
};

/// A store, and the number of its operations in flight.
pub(crate) struct InFlightLimiter {
    /// `None` if the tier is absent.
    store: RwLock<Option<Arc<dyn Store>>>,
    /// Those of the store, which stay.
    capabilities: StoreCapabilities,
    in_flight: AtomicU32,
    in_flight_max: u32,
    /// Those in flight that may take long.
    long: AtomicU32,
    /// The time when an operation last ended, or began on an idle tier.
    progress_ns: AtomicU64,
    waiting: AtomicU32,
    turn: Mutex<()>,
    ended: Condvar,
    environment: Arc<dyn Environment>,
}

impl InFlightLimiter {
    pub(crate) fn new(store: Option<Arc<dyn Store>>, environment: Arc<dyn Environment>) -> Self {
        let capabilities = store.as_ref().map_or(ABSENT, |store| store.capabilities());
        Self {
            store: RwLock::new(store),
            capabilities,
            in_flight: AtomicU32::new(0),
            in_flight_max: capabilities.queue_depth.clamp(1, IN_FLIGHT_MAX),
            long: AtomicU32::new(0),
            progress_ns: AtomicU64::new(environment.monotonic_ns()),
            waiting: AtomicU32::new(0),
            turn: Mutex::new(()),
            ended: Condvar::new(),
            environment,
        }
    }

    /// Whether there is no store behind the limiter.
    pub(crate) fn is_absent(&self) -> bool {
        self.store.read().is_none()
    }

    /// Takes the store out, and answers it. Operations in flight continue on
    /// it.
    pub(crate) fn take(&self) -> Option<Arc<dyn Store>> {
        self.store.write().take()
    }

    /// The time since an operation last ended while some were in flight; 0 if
    /// none are.
    fn stalled_ns(&self) -> u64 {
        if self.in_flight.load(Ordering::Acquire) == 0 {
            return 0;
        }
        self.environment.monotonic_ns().saturating_sub(self.progress_ns.load(Ordering::Acquire))
    }

    /// Whether no operation has ended for a while.
    pub(crate) fn is_stalled(&self) -> bool {
        self.stalled_ns() >= STALL_NS
    }

    /// Whether an operation is in flight.
    pub(crate) fn is_busy(&self) -> bool {
        self.in_flight.load(Ordering::Acquire) > 0
    }

    /// Whether a new operation would not wait for another.
    pub(crate) fn is_prompt(&self) -> bool {
        self.in_flight.load(Ordering::Acquire) < self.in_flight_max && !self.is_stalled()
    }

    /// Whether no operation has ended for so long that the tier hangs, unless
    /// those in flight may take longer.
    pub(crate) fn is_stuck(&self) -> bool {
        self.stalled_ns() >= HANG_NS
    }

    /// Whether the tier hangs.
    pub(crate) fn hangs(&self) -> bool {
        self.stalled_ns() >= self.hang_ns()
    }

    /// The time after which a tier without progress hangs.
    fn hang_ns(&self) -> u64 {
        if self.long.load(Ordering::Acquire) == 0 { HANG_NS } else { LONG_HANG_NS }
    }

    /// Runs one operation on the store that may take long.
    fn pass_long<T>(&self, op: impl FnOnce(&dyn Store) -> Result<T>) -> Result<T> {
        self.pass(|store| {
            self.long.fetch_add(1, Ordering::AcqRel);
            let _long = Long(self);
            op(store)
        })
    }

    fn store(&self) -> Result<Arc<dyn Store>> {
        self.store.read().clone().ok_or_else(|| Error::new(Errno::ENODEV, "the tier is not there"))
    }

    /// Runs one operation on the store.
    fn pass<T>(&self, op: impl FnOnce(&dyn Store) -> Result<T>) -> Result<T> {
        let store = self.store()?;
        self.enter()?;
        // The guard counts down even if the store panics.
        let _under_way = UnderWay(self);
        op(&*store)
    }

    fn enter(&self) -> Result<()> {
        if !self.is_stalled() && self.try_enter() { Ok(()) } else { self.wait_for_turn() }
    }

    /// Counts one more operation in flight, if the limit allows it.
    fn try_enter(&self) -> bool {
        // First of all: another thread must not take the time in which nothing
        // was asked for a stall.
        if self.in_flight.load(Ordering::Acquire) == 0 {
            self.progress_ns.store(self.environment.monotonic_ns(), Ordering::Release);
        }
        let before = self.in_flight.fetch_add(1, Ordering::AcqRel);
        if before >= self.in_flight_max {
            self.in_flight.fetch_sub(1, Ordering::AcqRel);
        }
        before < self.in_flight_max
    }

    fn wait_for_turn(&self) -> Result<()> {
        self.waiting.fetch_add(1, Ordering::AcqRel);
        let mut turn = self.turn.lock();
        let entered = loop {
            let stalled = self.stalled_ns();
            if stalled >= self.hang_ns() {
                break Err(Error::new(Errno::EIO, "the tier hangs"));
            }
            if self.try_enter() {
                break Ok(());
            }
            let wait_ns = self.hang_ns().saturating_sub(stalled).min(HANG_NS);
            self.ended.wait_for(&mut turn, Duration::from_nanos(wait_ns));
        };
        drop(turn);
        self.waiting.fetch_sub(1, Ordering::AcqRel);
        entered
    }
}

/// An operation in flight that may take long.
struct Long<'a>(&'a InFlightLimiter);

impl Drop for Long<'_> {
    fn drop(&mut self) {
        self.0.long.fetch_sub(1, Ordering::AcqRel);
    }
}

/// An operation in flight.
struct UnderWay<'a>(&'a InFlightLimiter);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let limiter = self.0;
        limiter.progress_ns.store(limiter.environment.monotonic_ns(), Ordering::Release);
        limiter.in_flight.fetch_sub(1, Ordering::AcqRel);
        if limiter.waiting.load(Ordering::Acquire) > 0 {
            let _turn = limiter.turn.lock();
            limiter.ended.notify_all();
        }
    }
}

impl Store for InFlightLimiter {
    fn capabilities(&self) -> StoreCapabilities {
        self.capabilities
    }

    fn zones(&self) -> Option<ZoneStatus> {
        self.store().ok().and_then(|store| store.zones())
    }

    fn create(&self, id: ObjectId) -> Result<()> {
        self.pass(|store| store.create(id))
    }

    fn read_at(&self, id: ObjectId, offset: u64, bufs: &mut [IoSliceMut<'_>], io: StoreIo) -> Result<usize> {
        self.pass(|store| store.read_at(id, offset, bufs, io))
    }

    fn write_at(&self, id: ObjectId, offset: u64, bufs: &[IoSlice<'_>], io: StoreIo) -> Result<usize> {
        self.pass(|store| store.write_at(id, offset, bufs, io))
    }

    fn read_pieces(&self, id: ObjectId, pieces: &mut [ReadPiece<'_>], io: StoreIo) -> Result<()> {
        self.pass(|store| store.read_pieces(id, pieces, io))
    }

    fn allocate(&self, id: ObjectId, offset: u64, len: u64, keep_size: bool) -> Result<()> {
        self.pass(|store| store.allocate(id, offset, len, keep_size))
    }

    fn punch(&self, id: ObjectId, offset: u64, len: u64) -> Result<()> {
        self.pass(|store| store.punch(id, offset, len))
    }

    fn truncate(&self, id: ObjectId, size: u64) -> Result<()> {
        self.pass_long(|store| store.truncate(id, size))
    }

    fn start_write_back(&self, id: ObjectId, offset: u64, len: u64) -> Result<()> {
        // Nothing waits for it, and it may take as long as the device has other
        // things to write: it says nothing about whether the tier hangs.
        self.store()?.start_write_back(id, offset, len)
    }

    fn start_read(&self, id: ObjectId, offset: u64, len: u64) -> Result<()> {
        // The same.
        self.store()?.start_read(id, offset, len)
    }

    fn sync(&self, ids: &[ObjectId], data_only: bool) -> Result<()> {
        self.pass_long(|store| store.sync(ids, data_only))
    }

    fn sync_all(&self) -> Result<()> {
        self.pass_long(|store| store.sync_all())
    }

    fn remove(&self, ids: &[ObjectId]) -> Result<()> {
        self.pass_long(|store| store.remove(ids))
    }

    fn stat(&self, id: ObjectId) -> Result<ObjectStat> {
        self.pass(|store| store.stat(id))
    }

    fn set_access_time(&self, id: ObjectId, time: Timestamp) -> Result<()> {
        self.pass(|store| store.set_access_time(id, time))
    }

    fn next_data(&self, id: ObjectId, offset: u64) -> Result<Option<(u64, u64)>> {
        self.pass(|store| store.next_data(id, offset))
    }

    fn usage(&self) -> Result<Usage> {
        self.pass(|store| store.usage())
    }

    fn label(&self) -> Result<Option<Vec<u8>>> {
        self.pass(|store| store.label())
    }

    fn set_label(&self, label: &[u8]) -> Result<()> {
        self.pass(|store| store.set_label(label))
    }

    fn leave_notice(&self, text: &[u8]) -> Result<()> {
        self.pass(|store| store.leave_notice(text))
    }

    fn clear(&self) -> Result<()> {
        self.pass_long(|store| store.clear())
    }

    fn probe(&self, label: &[u8]) -> Result<()> {
        self.pass(|store| store.probe(label))
    }

    fn list(&self, visit: &mut dyn FnMut(ObjectId)) -> Result<()> {
        self.pass_long(|store| store.list(visit))
    }

    fn directory(&self) -> Result<Fd> {
        self.pass(|store| store.directory())
    }

    fn adopt(&self, id: ObjectId, file: &dyn NativeFd) -> Result<()> {
        self.pass(|store| store.adopt(id, file))
    }

    fn object_file(&self, id: ObjectId) -> Result<Fd> {
        self.pass(|store| store.object_file(id))
    }

    fn share_range(
        &self,
        id: ObjectId,
        offset: u64,
        from: &dyn NativeFd,
        from_offset: u64,
        len: u64,
    ) -> Result<u64> {
        self.pass(|store| store.share_range(id, offset, from, from_offset, len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_stores::dir::DirStore;
    use braid_testkit::conformance::store::{Layered, StoreLayer};
    use std::sync::mpsc::channel;

    /// A clock that is advanced by hand.
    #[derive(Debug, Default)]
    struct Clock(AtomicU64);

    impl Environment for Clock {
        fn wall_ns(&self) -> i64 {
            0
        }

        fn monotonic_ns(&self) -> u64 {
            self.0.load(Ordering::SeqCst)
        }

        fn fill_random(&self, _: &mut [u8]) -> Result<()> {
            Ok(())
        }

        fn threads(&self) -> bool {
            true
        }
    }

    /// Begins an operation that does not end before the closure returns.
    type Begin = fn(&InFlightLimiter, Box<dyn FnOnce() -> Result<()> + Send>) -> Result<()>;

    /// Whether the tier hangs by the limiter, after each of `seconds` in which
    /// its only operation, started by `begin`, did not end.
    fn hangs_after(begin: Begin, seconds: &[u64]) -> Vec<bool> {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(Clock::default());
        let store: Arc<dyn Store> = Arc::new(DirStore::open(dir.path()).unwrap());
        let limiter = InFlightLimiter::new(Some(store), Arc::<Clock>::clone(&clock));
        let (begun, has_begun) = channel();
        let (end, may_end) = channel::<()>();
        std::thread::scope(|scope| {
            let wait = Box::new(move || {
                begun.send(()).unwrap();
                let _ = may_end.recv();
                Ok(())
            });
            let operation = scope.spawn(|| begin(&limiter, wait));
            has_begun.recv().unwrap();
            let mut hung = Vec::new();
            for seconds in seconds {
                clock.0.store(seconds * 1_000_000_000, Ordering::SeqCst);
                hung.push(limiter.hangs());
                let answer = limiter.pass(|_| Ok(())).map_err(|error| error.errno());
                assert_eq!(answer, if limiter.hangs() { Err(Errno::EIO) } else { Ok(()) });
                // Operations that end show that the tier makes progress.
                clock.0.store(0, Ordering::SeqCst);
                limiter.progress_ns.store(0, Ordering::SeqCst);
            }
            drop(end);
            operation.join().unwrap().unwrap();
            assert!(!limiter.hangs(), "it goes on when operations end");
            hung
        })
    }

    /// A store that allows so many operations at once.
    struct Narrow(DirStore, u32);

    impl StoreLayer for Narrow {
        fn inner(&self) -> &dyn Store {
            &self.0
        }

        fn capabilities(&self) -> StoreCapabilities {
            StoreCapabilities { queue_depth: self.1, ..self.0.capabilities() }
        }
    }

    #[test]
    fn as_many_operations_are_under_way_as_the_store_takes_and_threads_allow() {
        let dir = tempfile::tempdir().unwrap();
        for (queue_depth, in_flight_max) in [(0, 1), (3, 3), (1000, IN_FLIGHT_MAX)] {
            let store = Layered(Narrow(DirStore::open(dir.path()).unwrap(), queue_depth));
            let limiter = InFlightLimiter::new(Some(Arc::new(store)), Arc::new(Clock::default()));
            assert_eq!((0..2000).take_while(|_| limiter.try_enter()).count(), in_flight_max as usize);
            assert!(!limiter.is_prompt());
        }
    }

    #[test]
    fn a_tier_hangs_when_nothing_ends_and_has_longer_for_a_sync() {
        let short = hangs_after(|limiter, wait| limiter.pass(|_| wait()), &[1, 9, 11, 400]);
        assert_eq!(short, [false, false, true, true]);
        let long = hangs_after(|limiter, wait| limiter.pass_long(|_| wait()), &[11, 299, 301]);
        assert_eq!(long, [false, false, true]);
    }
}
