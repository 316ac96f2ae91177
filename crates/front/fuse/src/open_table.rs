//! The inodes that are open in the kernel, and their modes: the kernel allows
//! only certain combinations, and this table enforces them.
//!
//! All opens of an inode at one time are of one kind:
//!
//! - Passthrough excludes all others: the kernel fails an open with `EIO` that
//!   is of another kind, or has another backing file, than those in effect
//!   (`fs/fuse/iomode.c`).
//! - Cached and direct opens may coexist for the kernel, but its cache does not
//!   keep up: a direct write drops cached pages before it is carried out (newer
//!   kernels also after it), and reads that overlap it bring old data back to
//!   stay. So later opens get the kind of the first one; either is correct for
//!   every open, since `coherence` handles direct writes of both kinds, and
//!   they differ in speed only.
//!
//! The kernel drops its own state before it sends RELEASE, and builds it up
//! after it got the reply to OPEN. An open is counted here from before the
//! reply until RELEASE, so the table always holds at least the kernel's opens,
//! and following it is strict enough.

use crate::ledger::OpenKind;
use braid_contract::{InodeId, IoMode};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Shards of the table; opens of inodes in different shards share no lock.
pub(crate) const SHARDS: usize = 64;

type Shard<B> = HashMap<InodeId, Arc<Mutex<Opens<B>>>>;

/// The open inodes. `B` is the kernel's reference to a backing file.
pub(crate) struct OpenTable<B> {
    shards: Vec<Mutex<Shard<B>>>,
}

/// The opens of one inode, as one process hands them to the next.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct OpensState {
    ino: InodeId,
    count: u64,
    writers: u64,
    direct: bool,
    /// The number of the backing file of opens by passthrough.
    backing: Option<u32>,
}

impl OpensState {
    /// An inode that is not open.
    pub(crate) fn new(ino: InodeId) -> Self {
        Self { ino, count: 0, writers: 0, direct: false, backing: None }
    }

    /// One more open.
    pub(crate) fn add(&mut self, kind: OpenKind, writes: bool) {
        self.count += 1;
        self.writers += u64::from(writes);
        match kind {
            OpenKind::Direct => self.direct = true,
            OpenKind::Passthrough(backing) => self.backing = Some(backing),
            OpenKind::Cached | OpenKind::Directory => {}
        }
    }
}

/// The opens of one inode.
pub(crate) struct Opens<B> {
    count: u64,
    /// Those that may write.
    writers: u64,
    kind: Kind<B>,
}

/// The kind of all opens of an inode; meaningless without opens.
enum Kind<B> {
    Cached,
    Direct,
    Passthrough(Arc<B>),
}

/// The answer to one open.
#[derive(Debug)]
pub(crate) enum Grant<B> {
    /// Through the page cache.
    Cached,
    /// Bypassing the page cache, request by request.
    Direct,
    /// On this backing file.
    Passthrough(Arc<B>),
}

impl<B> OpenTable<B> {
    pub(crate) fn new() -> Self {
        Self { shards: (0..SHARDS).map(|_| Mutex::default()).collect() }
    }

    /// Calls `f` with the opens of `ino`, exclusively. An inode without opens
    /// takes no memory afterwards.
    pub(crate) fn with<R>(&self, ino: InodeId, f: impl FnOnce(&mut Opens<B>) -> R) -> R {
        let lease = self.lease(ino);
        let mut opens = lock(&lease.opens);
        f(&mut opens)
    }

    fn lease(&self, ino: InodeId) -> Lease<'_, B> {
        let shard = &self.shards[shard_index(ino)];
        let opens = lock(shard).entry(ino).or_default().clone();
        Lease { shard, ino, opens }
    }

    /// Takes all opens out, for the process that goes on with them; no request is
    /// under way. `raw` answers the number of a backing file, which stays registered.
    pub(crate) fn give(&self, raw: impl Fn(B) -> u32) -> Vec<OpensState> {
        let taken = self.shards.iter().flat_map(|shard| std::mem::take(&mut *lock(shard)));
        let state = |(ino, opens): (InodeId, Arc<Mutex<Opens<B>>>)| {
            let Opens { count, writers, kind } = std::mem::take(&mut *lock(&opens));
            let (direct, backing) = match kind {
                Kind::Cached => (false, None),
                Kind::Direct => (true, None),
                // Only answers to opens share it, and they are sent.
                Kind::Passthrough(backing) => (false, Arc::into_inner(backing).map(&raw)),
            };
            OpensState { ino, count, writers, direct, backing }
        };
        taken.map(state).collect()
    }

    /// Goes on with the opens of an earlier process.
    pub(crate) fn go_on(&self, all: &[OpensState], wrap: impl Fn(u32) -> B) {
        for OpensState { ino, count, writers, direct, backing } in all {
            let kind = match backing {
                Some(raw) => Kind::Passthrough(Arc::new(wrap(*raw))),
                None if *direct => Kind::Direct,
                None => Kind::Cached,
            };
            let opens = Opens { count: *count, writers: *writers, kind };
            lock(&self.shards[shard_index(*ino)]).insert(*ino, Arc::new(Mutex::new(opens)));
        }
    }

    /// The inodes of which only the kernel's cache may have data, where it keeps writes back: data
    /// of others was written back when they were closed.
    pub(crate) fn perhaps_dirty(&self) -> Vec<InodeId> {
        let lease = |shard| {
            let lease =
                move |(ino, opens): (&InodeId, &Arc<_>)| Lease { shard, ino: *ino, opens: Arc::clone(opens) };
            lock(shard).iter().map(lease).collect::<Vec<_>>()
        };
        // An open that is under way may be slow, and keeps no others.
        let leases = self.shards.iter().flat_map(lease);
        leases.filter(|lease| lock(&lease.opens).may_be_dirty()).map(|lease| lease.ino).collect()
    }

    /// How many inodes the table holds.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).len()).sum()
    }
}

/// Inode numbers are often multiples of something: their bits are mixed.
pub(crate) fn shard_index(ino: InodeId) -> usize {
    let mixed = ino.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    usize::try_from(mixed).map_or(0, |mixed| mixed % SHARDS)
}

/// State is only changed between calls out of this crate, so it is whole even
/// if one of those panicked.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A use of an inode's entry; the last one removes an entry without opens.
struct Lease<'a, B> {
    shard: &'a Mutex<Shard<B>>,
    ino: InodeId,
    opens: Arc<Mutex<Opens<B>>>,
}

impl<B> Drop for Lease<'_, B> {
    fn drop(&mut self) {
        let mut shard = lock(self.shard);
        // Entries are only cloned under the shard's lock: if there are two
        // references, they are the shard's and this one, and no other can
        // appear.
        if Arc::strong_count(&self.opens) == 2 && lock(&self.opens).is_closed() {
            shard.remove(&self.ino);
        }
    }
}

impl<B> Default for Opens<B> {
    fn default() -> Self {
        Self { count: 0, writers: 0, kind: Kind::Cached }
    }
}

impl<B> Opens<B> {
    /// Whether the inode has no opens, so that passthrough may begin.
    pub(crate) fn is_closed(&self) -> bool {
        self.count == 0
    }

    /// Whether the inode is open by passthrough, so that every further open
    /// must be.
    pub(crate) fn is_passthrough(&self) -> bool {
        !self.is_closed() && matches!(self.kind, Kind::Passthrough(_))
    }

    /// Whether there may be data that only the kernel's cache has, where it
    /// keeps writes back.
    pub(crate) fn may_be_dirty(&self) -> bool {
        self.writers > 0
    }

    /// Counts an open that the file system answered with `mode`, if the kernel
    /// allows it now. A first passthrough open is decided by
    /// [`begin_passthrough`](Self::begin_passthrough) instead.
    pub(crate) fn join(&mut self, mode: &IoMode, writes: bool) -> Option<Grant<B>> {
        match (mode, self.is_passthrough()) {
            (IoMode::Passthrough(_), false) | (IoMode::Cached | IoMode::Direct, true) => return None,
            (IoMode::Cached, false) if self.is_closed() => self.kind = Kind::Cached,
            (IoMode::Direct, false) if self.is_closed() => self.kind = Kind::Direct,
            _ => {}
        }
        self.count += 1;
        self.writers += u64::from(writes);
        Some(match &self.kind {
            Kind::Cached => Grant::Cached,
            Kind::Direct => Grant::Direct,
            Kind::Passthrough(backing) => Grant::Passthrough(Arc::clone(backing)),
        })
    }

    /// Counts the first passthrough open. Only for an inode that
    /// [`is_closed`](Self::is_closed).
    pub(crate) fn begin_passthrough(&mut self, backing: B, writes: bool) -> Grant<B> {
        debug_assert!(self.is_closed(), "passthrough began beside other opens");
        let backing = Arc::new(backing);
        self.count = 1;
        self.writers = u64::from(writes);
        self.kind = Kind::Passthrough(Arc::clone(&backing));
        Grant::Passthrough(backing)
    }

    /// Counts the end of an open. The last one drops the backing file.
    pub(crate) fn close(&mut self, writes: bool) {
        debug_assert!(self.count > 0, "more ends than opens");
        self.count = self.count.saturating_sub(1);
        self.writers = self.writers.saturating_sub(u64::from(writes));
        if self.count == 0 {
            self.kind = Kind::Cached;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_testkit::SplitMix;
    use std::os::fd::OwnedFd;
    use std::sync::atomic::{AtomicI64, Ordering};
    use std::thread;

    const INO: InodeId = InodeId(7);

    fn passthrough() -> IoMode {
        let file = std::fs::File::open("/dev/null").expect("/dev/null opens");
        IoMode::Passthrough(Arc::new(OwnedFd::from(file)))
    }

    #[test]
    fn nothing_is_kept_for_closed_inodes() {
        let table = OpenTable::<()>::new();
        for ino in 1..100 {
            table
                .with(InodeId(ino), |opens| opens.join(&IoMode::Cached, false).map(|_| ()))
                .expect("cached joins");
        }
        assert_eq!(table.len(), 99);
        for ino in 1..100 {
            table.with(InodeId(ino), |opens| opens.close(false));
            table.with(InodeId(ino + 1000), |_| ());
        }
        assert_eq!(table.len(), 0);
    }

    #[test]
    fn opens_go_on_in_another_table() {
        let (first, second) = (OpenTable::<u32>::new(), OpenTable::<u32>::new());
        first.with(InodeId(1), |opens| drop(opens.begin_passthrough(7, true)));
        first.with(InodeId(2), |opens| opens.join(&IoMode::Direct, false).map(drop));
        first.with(InodeId(2), |opens| opens.join(&IoMode::Cached, true).map(drop));
        let state = first.give(|raw| raw);
        assert_eq!((state.len(), first.len()), (2, 0));
        second.go_on(&state, |raw| raw);
        second.with(InodeId(1), |opens| {
            assert!(opens.is_passthrough() && opens.may_be_dirty());
            assert!(matches!(opens.join(&passthrough(), false), Some(Grant::Passthrough(of)) if *of == 7));
        });
        second.with(InodeId(2), |opens| {
            assert!(matches!(opens.join(&IoMode::Cached, false), Some(Grant::Direct)));
            (0..3).for_each(|at| opens.close(at == 0));
            assert!(opens.is_closed() && !opens.may_be_dirty());
        });
    }

    #[test]
    fn a_panic_leaves_the_entry_usable_and_removable() {
        let table = OpenTable::<()>::new();
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            table.with(INO, |_| std::panic::resume_unwind(Box::new("deliberate")))
        }));
        assert!(panicked.is_err());
        assert_eq!(table.len(), 0);
        assert!(table.with(INO, |opens| opens.join(&IoMode::Direct, false)).is_some());
    }

    #[test]
    fn passthrough_excludes_all_else_until_its_last_open_ends() {
        let mut opens = Opens::<&str>::default();
        assert!(opens.join(&passthrough(), false).is_none(), "not without a backing file");
        opens.begin_passthrough("first", false);
        assert!(opens.join(&IoMode::Cached, false).is_none());
        assert!(opens.join(&IoMode::Direct, false).is_none());
        assert!(
            matches!(opens.join(&passthrough(), false), Some(Grant::Passthrough(backing)) if *backing == "first")
        );
        opens.close(false);
        assert!(opens.is_passthrough());
        opens.close(false);
        assert!(opens.is_closed() && !opens.is_passthrough());
        assert!(matches!(opens.join(&IoMode::Direct, false), Some(Grant::Direct)));
        assert!(opens.join(&passthrough(), false).is_none());
    }

    #[test]
    fn writers_are_counted() {
        let mut opens = Opens::<()>::default();
        opens.join(&IoMode::Cached, false);
        assert!(!opens.may_be_dirty());
        opens.join(&IoMode::Cached, true);
        opens.close(false);
        assert!(opens.may_be_dirty());
        opens.close(true);
        assert!(!opens.may_be_dirty() && opens.is_closed());
    }

    #[test]
    fn the_backing_file_goes_with_the_last_open() {
        let mut opens = Opens::<Arc<()>>::default();
        let backing = Arc::new(());
        opens.begin_passthrough(Arc::clone(&backing), false);
        opens.join(&passthrough(), false);
        opens.close(false);
        assert_eq!(Arc::strong_count(&backing), 2);
        opens.close(false);
        assert_eq!(Arc::strong_count(&backing), 1);
    }

    #[test]
    fn cached_and_direct_opens_do_not_mix() {
        let mut opens = Opens::<()>::default();
        assert!(matches!(opens.join(&IoMode::Direct, false), Some(Grant::Direct)));
        assert!(matches!(opens.join(&IoMode::Cached, false), Some(Grant::Direct)));
        opens.close(false);
        opens.close(false);
        assert!(matches!(opens.join(&IoMode::Cached, false), Some(Grant::Cached)));
        assert!(matches!(opens.join(&IoMode::Direct, false), Some(Grant::Cached)));
    }

    /// Threads open and close a few inodes in all modes; a model of the
    /// kernel's counter (positive: cached, negative: passthrough) checks that
    /// no combination comes up that it would refuse.
    #[test]
    fn concurrent_opens_never_reach_a_forbidden_combination() {
        let table = OpenTable::<()>::new();
        let counters: Vec<AtomicI64> = (0..4).map(|_| AtomicI64::new(0)).collect();
        thread::scope(|scope| {
            for thread in 0..4_u64 {
                let (table, counters) = (&table, &counters);
                scope.spawn(move || storm(table, counters, thread));
            }
        });
        assert_eq!(table.len(), 0);
        assert!(counters.iter().all(|counter| counter.load(Ordering::Relaxed) == 0));
    }

    fn storm(table: &OpenTable<()>, counters: &[AtomicI64], thread: u64) {
        let mut random = SplitMix::new(thread);
        let modes = [IoMode::Cached, IoMode::Direct, passthrough()];
        for _ in 0..20_000 {
            let index = random.below(counters.len() as u64) as usize;
            let mode = &modes[random.below(modes.len() as u64) as usize];
            let ino = InodeId(index as u64);
            let granted = table.with(ino, |opens| match opens.join(mode, false) {
                None if opens.is_closed() => Some(opens.begin_passthrough((), false)),
                grant => grant,
            });
            let Some(grant) = granted else { continue };
            // The kernel's side, later and unlocked.
            let step = match grant {
                Grant::Cached => 1,
                Grant::Direct => 0,
                Grant::Passthrough(_) => -1,
            };
            let before = counters[index].fetch_add(step, Ordering::Relaxed);
            assert!(before * step >= 0, "{before} with {step}");
            counters[index].fetch_sub(step, Ordering::Relaxed);
            table.with(ino, |opens| opens.close(false));
        }
    }
}
