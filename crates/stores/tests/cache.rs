//! The cache against stores without one: the same answers, whatever is read, written,
//! cut off and removed, and by however many threads; what it reads again and what not;
//! and how tiers share its memory.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use braid_contract::{ObjectId, ReadPiece, Result, SplitMix, Store, StoreIo, StoreLayer, StoreOperation};
use braid_stores::cache::{CacheFigures, CacheMemory, CacheShare, CacheStore};
use braid_stores::fault::FaultStore;
use braid_stores::memory::MemoryStore;
use std::collections::BTreeMap;
use std::io::{IoSlice, IoSliceMut};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const RANGE: u64 = 4096;
const A: ObjectId = ObjectId([1; 16]);
const B: ObjectId = ObjectId([2; 16]);

/// A store that counts reads, and takes its time for them.
struct Slow {
    inner: MemoryStore,
    reads: AtomicU64,
    takes: Duration,
}

impl Slow {
    fn new(takes: Duration) -> Arc<Self> {
        Arc::new(Self { inner: MemoryStore::new(64 << 20), reads: AtomicU64::new(0), takes })
    }

    fn reads(&self) -> u64 {
        self.reads.swap(0, Ordering::Relaxed)
    }
}

impl StoreLayer for Slow {
    fn inner(&self) -> &dyn Store {
        &self.inner
    }

    fn before(&self, operation: StoreOperation, _: &[ObjectId]) -> Result<()> {
        if operation == StoreOperation::Read {
            self.reads.fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(self.takes);
        }
        Ok(())
    }
}

fn all_of_it(memory: &CacheMemory, tier: &str) {
    memory.set_shares(BTreeMap::from([(tier.to_owned(), CacheShare::Part(1.0))]));
}

fn read(store: &dyn Store, id: ObjectId, offset: u64, len: usize) -> Result<Vec<u8>> {
    let mut bytes = vec![0xaa; len];
    let done = store.read_at(id, offset, &mut [IoSliceMut::new(&mut bytes)], StoreIo::default())?;
    bytes.truncate(done);
    Ok(bytes)
}

fn write(store: &dyn Store, id: ObjectId, offset: u64, bytes: &[u8]) -> Result<usize> {
    let (one, other) = bytes.split_at(bytes.len() / 3);
    store.write_at(id, offset, &[IoSlice::new(one), IoSlice::new(other)], StoreIo::default())
}

fn figures(memory: &CacheMemory, tier: &str) -> CacheFigures {
    memory.figures().into_iter().find(|(name, _)| name == tier).unwrap().1
}

/// One operation by chance on both stores; they answer the same.
fn step(random: &mut SplitMix, cached: &dyn Store, plain: &dyn Store) {
    let id = if random.below(3) == 0 { B } else { A };
    let (offset, len) = (random.below(12 * RANGE), random.below(3 * RANGE));
    let both = |act: &dyn Fn(&dyn Store) -> Result<Vec<u8>>| {
        let [one, other] = [cached, plain].map(|store| act(store).map_err(|error| error.errno()));
        assert_eq!(one, other);
    };
    match random.below(20) {
        0..8 => both(&|store| read(store, id, offset, len as usize)),
        8..10 => both(&|store| {
            let mut bufs = [vec![0; 100], vec![0; len as usize], vec![0; 5000]];
            let offsets = [offset + RANGE, offset, offset / 2];
            let mut pieces: Vec<ReadPiece<'_>> =
                bufs.iter_mut().zip(offsets).map(|(buf, offset)| ReadPiece::new(offset, buf)).collect();
            store.read_pieces(id, &mut pieces, StoreIo::default())?;
            let done: Vec<usize> = pieces.iter().map(|piece| piece.done).collect();
            Ok(bufs.iter().zip(done).flat_map(|(buf, done)| buf[..done].to_vec()).collect())
        }),
        10..15 => {
            let data: Vec<u8> = (0..len).map(|_| random.next_u64() as u8).collect();
            both(&|store| write(store, id, offset, &data).map(|done| vec![done as u8]));
        }
        15 => both(&|store| store.truncate(id, offset).map(|()| Vec::new())),
        16 => both(&|store| store.punch(id, offset, len + 1).map(|()| Vec::new())),
        17 => both(&|store| store.allocate(id, offset, len + 1, len % 2 == 0).map(|()| Vec::new())),
        18 => both(&|store| store.create(id).map(|()| Vec::new())),
        _ => both(&|store| store.remove(&[id]).map(|()| Vec::new())),
    }
}

#[test]
fn whatever_is_done_it_answers_what_the_store_would() {
    let mut hits = 0;
    for seed in 0..60 {
        let mut random = SplitMix::new(seed);
        let memory = CacheMemory::new(RANGE);
        // From next to nothing to enough for all.
        memory.set_budget(RANGE * (1 + seed % 15));
        all_of_it(&memory, "t");
        let cached = CacheStore::new(&memory, "t", Arc::new(MemoryStore::new(64 << 20)));
        let plain = MemoryStore::new(64 << 20);
        for _ in 0..400 {
            step(&mut random, &cached, &plain);
            let now = figures(&memory, "t");
            assert!(now.bytes <= now.limit, "{now:?}");
        }
        hits += figures(&memory, "t").hits;
    }
    assert!(hits > 1000, "{hits}");
}

#[test]
fn what_is_read_again_comes_from_memory_with_what_was_written_since() {
    let slow = Slow::new(Duration::ZERO);
    let memory = CacheMemory::new(RANGE);
    memory.set_budget(1 << 20);
    all_of_it(&memory, "t");
    let store = &CacheStore::new(&memory, "t", Arc::clone(&slow) as _) as &dyn Store;
    store.create(A).unwrap();
    write(store, A, 0, &[1; 3 * RANGE as usize]).unwrap();
    assert_eq!(read(store, A, 100, 2 * RANGE as usize).unwrap(), [1; 2 * RANGE as usize]);
    assert!(slow.reads() > 0);
    write(store, A, RANGE - 2, &[7; 4]).unwrap();
    assert_eq!(read(store, A, RANGE - 3, 6).unwrap(), [1, 7, 7, 7, 7, 1]);
    assert_eq!(slow.reads(), 0, "it was there");
    // Direct reads are the store's.
    let mut buf = [0; 4];
    let direct = StoreIo { direct: true, ..StoreIo::default() };
    store.read_at(A, 0, &mut [IoSliceMut::new(&mut buf)], direct).unwrap();
    assert_eq!((buf, slow.reads()), ([1; 4], 1));
    // Without memory, so are all, and then it begins anew.
    memory.set_budget(0);
    assert_eq!(figures(&memory, "t").bytes, 0);
    read(store, A, 0, 4).unwrap();
    assert_eq!(slow.reads(), 1);
    memory.set_budget(1 << 20);
    read(store, A, 0, 4).unwrap();
    read(store, A, 5, 4).unwrap();
    assert_eq!(slow.reads(), 1);
}

#[test]
fn after_a_failed_sync_or_write_the_store_is_asked() {
    let slow = Slow::new(Duration::ZERO);
    let faults = FaultStore::new(Arc::clone(&slow) as _, Vec::new());
    let control = faults.control();
    let memory = CacheMemory::new(RANGE);
    memory.set_budget(1 << 20);
    all_of_it(&memory, "t");
    let store = &CacheStore::new(&memory, "t", Arc::new(faults)) as &dyn Store;
    store.create(A).unwrap();
    write(store, A, 0, &[1; 2 * RANGE as usize]).unwrap();
    for fault in ["write:EIO", "write:short", "sync:EIO"] {
        read(store, A, 0, 2 * RANGE as usize).unwrap();
        slow.reads();
        control.set(vec![fault.parse().unwrap()]);
        let (written, synced) = (write(store, A, 10, &[2; 8]), store.sync(&[A], false));
        assert!(written != Ok(8) || synced.is_err(), "{fault}");
        control.clear();
        let now = read(store, A, 0, 30).unwrap();
        assert!(slow.reads() > 0, "{fault}");
        assert_eq!(now, read(&slow.inner, A, 0, 30).unwrap(), "{fault}");
    }
}

#[test]
fn a_reader_never_sees_less_than_what_was_written_before_it_asked() {
    let slow = Slow::new(Duration::from_micros(30));
    let memory = CacheMemory::new(RANGE);
    memory.set_budget(40 * RANGE);
    all_of_it(&memory, "t");
    let store = &CacheStore::new(&memory, "t", slow) as &dyn Store;
    store.create(A).unwrap();
    store.truncate(A, 8 * RANGE).unwrap();
    let written: &[AtomicU64] = &[const { AtomicU64::new(0) }; 8];
    let over = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        for writer in 0..2_u64 {
            scope.spawn(move || {
                for turn in 1..1500_u64 {
                    let range = (turn % 4) * 2 + writer;
                    write(store, A, range * RANGE + 8, &turn.to_le_bytes()).unwrap();
                    written[range as usize].store(turn, Ordering::SeqCst);
                }
                over.store(true, Ordering::SeqCst);
            });
        }
        for reader in 0..3 {
            scope.spawn(move || {
                let mut random = SplitMix::new(reader);
                while !over.load(Ordering::SeqCst) {
                    let range = random.below(8);
                    let least = written[range as usize].load(Ordering::SeqCst);
                    let found = read(store, A, range * RANGE + 8, 8).unwrap();
                    let found = u64::from_le_bytes(found.try_into().unwrap());
                    assert!(found >= least, "{found} in range {range} after {least} was written");
                    if random.below(50) == 0 {
                        // Others come from the store again.
                        store.punch(A, range * RANGE, 4).unwrap();
                    }
                }
            });
        }
    });
}

/// A store in which one operation, once it has done its work, waits to be let go.
struct Held {
    inner: MemoryStore,
    operation: StoreOperation,
    /// Tells that it waits, and hears that it may go.
    gate: Mutex<Option<(Sender<()>, Receiver<()>)>>,
}

impl Held {
    fn wait(&self, operation: StoreOperation) {
        let gate = if operation == self.operation { self.gate.lock().unwrap().take() } else { None };
        if let Some((here, go)) = gate {
            here.send(()).unwrap();
            go.recv_timeout(Duration::from_secs(60)).unwrap();
        }
    }
}

impl StoreLayer for Held {
    fn inner(&self) -> &dyn Store {
        &self.inner
    }

    fn read_at(&self, id: ObjectId, offset: u64, bufs: &mut [IoSliceMut<'_>], io: StoreIo) -> Result<usize> {
        let done = self.inner.read_at(id, offset, bufs, io);
        self.wait(StoreOperation::Read);
        done
    }

    fn write_at(&self, id: ObjectId, offset: u64, bufs: &[IoSlice<'_>], io: StoreIo) -> Result<usize> {
        let done = self.inner.write_at(id, offset, bufs, io);
        self.wait(StoreOperation::Write);
        done
    }
}

/// What is read after a second write that came while an operation, read or write, was
/// about to return; and what the store has.
fn overtaken(operation: StoreOperation, is_known: bool) -> (Vec<u8>, Vec<u8>) {
    let held = Arc::new(Held { inner: MemoryStore::new(1 << 20), operation, gate: Mutex::new(None) });
    let memory = CacheMemory::new(RANGE);
    memory.set_budget(1 << 20);
    all_of_it(&memory, "t");
    let store = &CacheStore::new(&memory, "t", Arc::clone(&held) as _) as &dyn Store;
    store.create(A).unwrap();
    write(store, A, 0, &[0; 64]).unwrap();
    if is_known {
        read(store, A, 0, 64).unwrap();
    }
    let ((here, is_here), (go, gone)) = (channel(), channel());
    *held.gate.lock().unwrap() = Some((here, gone));
    std::thread::scope(|scope| {
        scope.spawn(move || match operation {
            StoreOperation::Read => _ = read(store, A, 0, 8).unwrap(),
            _ => _ = write(store, A, 0, &[1; 9]).unwrap(),
        });
        is_here.recv_timeout(Duration::from_secs(60)).unwrap();
        write(store, A, 0, &[2; 9]).unwrap();
        go.send(()).unwrap();
    });
    (read(store, A, 0, 64).unwrap(), read(&held.inner, A, 0, 64).unwrap())
}

#[test]
fn of_two_that_overlap_the_cache_has_what_the_store_has() {
    for (operation, is_known) in [(StoreOperation::Write, true), (StoreOperation::Read, false)] {
        let (found, stored) = overtaken(operation, is_known);
        assert_eq!(found, stored, "{operation:?}");
        assert_eq!(found[..9], [2; 9]);
    }
}
