//! The layer on a tier's store.

use super::memory::CacheMemory;
use super::ranges::Data;
use super::tier::TierCache;
use braid_contract::{NativeFd, ObjectId, ReadPiece, Result, Store, StoreIo, StoreLayer};
use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;
use std::time::Instant;

/// A store with a part of the cache. It is always coherent with the store below, as long
/// as all changes of that pass here.
pub struct CacheStore {
    inner: Arc<dyn Store>,
    part: Arc<TierCache>,
    memory: Arc<CacheMemory>,
    /// Bytes of a range, as a power of two.
    shift: u32,
}

impl CacheStore {
    /// Puts the cache on the store of the tier of this name.
    #[must_use]
    pub fn new(memory: &Arc<CacheMemory>, tier: &str, inner: Arc<dyn Store>) -> Self {
        let shift = memory.range().ilog2();
        Self { inner, part: memory.join(tier), memory: Arc::clone(memory), shift }
    }

    /// First and last range of some bytes, at least one.
    fn ranges_of(&self, offset: u64, len: u64) -> (u64, u64) {
        (offset >> self.shift, offset.saturating_add(len.max(1) - 1) >> self.shift)
    }

    /// The ranges that a read needs, each with the bytes of it up to the last one needed.
    fn wanted(&self, offset: u64, len: usize) -> impl Iterator<Item = (u64, usize)> + use<> {
        let shift = self.shift;
        let (first, last) = self.ranges_of(offset, len as u64);
        let end = offset + len as u64;
        (first..=last).map(move |range| (range, (end - (range << shift)).min(1 << shift) as usize))
    }

    fn read_past(&self, id: ObjectId, pieces: &mut [ReadPiece<'_>], io: StoreIo) -> Result<()> {
        let begun = Instant::now();
        self.inner.read_pieces(id, pieces, io)?;
        let count = pieces.len().max(1);
        let bytes: usize = pieces.iter().map(|piece| piece.done).sum();
        self.part.was_read(bytes / count, begun.elapsed() / count as u32);
        self.part.was_passed();
        // A tier that turns out to be slower gets a part.
        self.memory.were_read(count as u64);
        Ok(())
    }

    /// Reads ranges from the store, those next to each other at once, and keeps them.
    fn fetch(&self, id: ObjectId, missing: &[u64], io: StoreIo) -> Result<Vec<Data>> {
        let tickets: Vec<_> = missing.iter().map(|range| self.part.ticket(id, *range)).collect();
        let runs: Vec<&[u64]> = missing.chunk_by(|one, next| one + 1 == *next).collect();
        let mut buffers: Vec<Vec<u8>> = runs.iter().map(|run| vec![0; run.len() << self.shift]).collect();
        let at = |run: &[u64]| run.first().map_or(0, |range| range << self.shift);
        let mut reads: Vec<ReadPiece<'_>> =
            runs.iter().zip(&mut buffers).map(|(run, buf)| ReadPiece::new(at(run), buf)).collect();
        let begun = Instant::now();
        self.inner.read_pieces(id, &mut reads, io)?;
        let took = begun.elapsed() / runs.len().max(1) as u32;
        let done: Vec<usize> = reads.iter().map(|read| read.done).collect();
        self.part.was_read(done.iter().sum::<usize>() / runs.len().max(1), took);
        let ranges = runs.iter().zip(&buffers).zip(done).flat_map(|((run, buffer), done)| {
            let held = &buffer[..done];
            let range = |at: usize| held.get(at << self.shift..).unwrap_or_default();
            (0..run.len()).map(range).map(|rest| &rest[..rest.len().min(1 << self.shift)])
        });
        let data: Vec<Data> = ranges.map(|range| Arc::new(range.to_vec())).collect();
        let read = missing.iter().zip(&data).zip(tickets);
        self.part.keep(id, read.map(|((range, data), ticket)| (*range, Arc::clone(data), ticket)).collect());
        self.memory.were_read(missing.len() as u64);
        Ok(data)
    }

    fn read_through(&self, id: ObjectId, pieces: &mut [ReadPiece<'_>], io: StoreIo) -> Result<()> {
        let wanted: Vec<(u64, usize)> =
            pieces.iter().flat_map(|piece| self.wanted(piece.offset, piece.buf.len())).collect();
        let mut found = self.part.look(id, &wanted);
        let mut missing: Vec<u64> = wanted
            .iter()
            .zip(&found)
            .filter(|(_, data)| data.is_none())
            .map(|((range, _), _)| *range)
            .collect();
        missing.dedup();
        if !missing.is_empty() {
            let Ok(fetched) = self.fetch(id, &missing, io) else {
                // It answers how far it comes with the request.
                return self.inner.read_pieces(id, pieces, io);
            };
            for ((range, _), data) in wanted.iter().zip(&mut found).filter(|(_, data)| data.is_none()) {
                *data = missing.iter().position(|other| other == range).map(|at| Arc::clone(&fetched[at]));
            }
        }
        let mut found = found.into_iter();
        for piece in pieces {
            let of_piece: Vec<Option<Data>> =
                self.wanted(piece.offset, piece.buf.len()).map(|_| found.next().flatten()).collect();
            piece.done = self.copied(piece.offset, piece.buf, &of_piece);
        }
        Ok(())
    }

    /// Copies from ranges; answers how many bytes there are before the object's end.
    fn copied(&self, offset: u64, buf: &mut [u8], ranges: &[Option<Data>]) -> usize {
        let mut done = 0;
        for data in ranges {
            let within = ((offset + done as u64) & ((1 << self.shift) - 1)) as usize;
            let held = data.as_ref().and_then(|data| data.get(within..)).unwrap_or_default();
            let count = held.len().min(buf.len() - done);
            buf[done..done + count].copy_from_slice(&held[..count]);
            done += count;
            if within + count < 1 << self.shift {
                break;
            }
        }
        done
    }

    /// Bytes that were written, by range.
    fn by_range<'a>(&self, offset: u64, bufs: &'a [IoSlice<'_>], done: usize) -> Vec<(u64, usize, &'a [u8])> {
        let (mut pieces, mut at, mut left) = (Vec::new(), offset, done);
        for buf in bufs {
            let mut rest = &buf[..buf.len().min(left)];
            left -= rest.len();
            while !rest.is_empty() {
                let within = (at & ((1 << self.shift) - 1)) as usize;
                let (piece, more) = rest.split_at(rest.len().min((1 << self.shift) - within));
                pieces.push((at >> self.shift, within, piece));
                at += piece.len() as u64;
                rest = more;
            }
        }
        pieces
    }

    /// Changes some bytes of an object in a way that the cache does not follow.
    fn changing<T>(&self, id: ObjectId, (offset, len): (u64, u64), change: impl FnOnce() -> T) -> T {
        let (first, last) = self.ranges_of(offset, len);
        let _under_way = self.part.begin(id, first, last);
        let done = change();
        if last - first < 1024 {
            self.part.forget(id, first, last);
        } else {
            self.part.forget_from(id, first);
        }
        done
    }

    /// The same for the objects as a whole.
    fn changing_all<T>(&self, ids: &[ObjectId], change: impl FnOnce() -> T) -> T {
        let _under_way = self.part.begin_all();
        let done = change();
        ids.iter().for_each(|id| self.part.forget_from(*id, 0));
        done
    }

    /// The store is another one afterwards.
    fn renewing<T>(&self, change: impl FnOnce() -> T) -> T {
        let _under_way = self.part.begin_all();
        let done = change();
        self.part.clear();
        done
    }
}

impl StoreLayer for CacheStore {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    fn read_pieces(&self, id: ObjectId, pieces: &mut [ReadPiece<'_>], io: StoreIo) -> Result<()> {
        if io.direct || self.memory.budget() == 0 {
            return self.inner.read_pieces(id, pieces, io);
        }
        if self.part.passes() { self.read_past(id, pieces, io) } else { self.read_through(id, pieces, io) }
    }

    fn read_at(&self, id: ObjectId, offset: u64, bufs: &mut [IoSliceMut<'_>], io: StoreIo) -> Result<usize> {
        let [buf] = bufs else { return self.inner.read_at(id, offset, bufs, io) };
        let mut piece = [ReadPiece::new(offset, buf)];
        StoreLayer::read_pieces(self, id, &mut piece, io)?;
        Ok(piece[0].done)
    }

    fn write_at(&self, id: ObjectId, offset: u64, bufs: &[IoSlice<'_>], io: StoreIo) -> Result<usize> {
        let len: usize = bufs.iter().map(|buf| buf.len()).sum();
        let (first, last) = self.ranges_of(offset, len as u64);
        let change = self.part.begin(id, first, last);
        match self.inner.write_at(id, offset, bufs, io) {
            Ok(done) if done == len => {
                self.part.written(&change, id, &self.by_range(offset, bufs, done));
                Ok(done)
            }
            other => {
                self.part.forget(id, first, last);
                other
            }
        }
    }

    fn allocate(&self, id: ObjectId, offset: u64, len: u64, keep_size: bool) -> Result<()> {
        self.changing(id, (offset, len), || self.inner.allocate(id, offset, len, keep_size))
    }

    fn punch(&self, id: ObjectId, offset: u64, len: u64) -> Result<()> {
        self.changing(id, (offset, len), || self.inner.punch(id, offset, len))
    }

    fn truncate(&self, id: ObjectId, size: u64) -> Result<()> {
        self.changing_all(&[id], || self.inner.truncate(id, size))
    }

    fn sync(&self, ids: &[ObjectId], data_only: bool) -> Result<()> {
        // Unwritten data may be gone below.
        self.inner.sync(ids, data_only).inspect_err(|_| self.changing_all(ids, || ()))
    }

    fn sync_all(&self) -> Result<()> {
        self.inner.sync_all().inspect_err(|_| self.renewing(|| ()))
    }

    fn remove(&self, ids: &[ObjectId]) -> Result<()> {
        self.changing_all(ids, || self.inner.remove(ids))
    }

    fn probe(&self, label: &[u8]) -> Result<()> {
        self.renewing(|| self.inner.probe(label))
    }

    fn clear(&self) -> Result<()> {
        self.renewing(|| self.inner.clear())
    }

    fn adopt(&self, id: ObjectId, file: &dyn NativeFd) -> Result<()> {
        self.changing_all(&[id], || self.inner.adopt(id, file))
    }

    fn share_range(
        &self,
        id: ObjectId,
        offset: u64,
        from: &dyn NativeFd,
        from_offset: u64,
        len: u64,
    ) -> Result<u64> {
        self.changing(id, (offset, len), || self.inner.share_range(id, offset, from, from_offset, len))
    }
}
