//! One object of a zoned store: its bytes in buffers and in zones.

use super::buffers::Buffers;
use super::extents::{Extents, LOST, Place};
use super::former::{Former, Formers};
use super::log::IndexLog;
use super::spans::Spans;
use super::table::{Resident, Stream, Written};
use super::watched::Watched;
use super::zones::{Claim, Zones};
use braid_contract::{Errno, Error, ObjectId, Result, Timestamp, ZonedDevice};
use braid_format::ZoneRecord;
use braid_sys::AlignedBuf;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes that are read from the device at a time.
const READ_MAX: usize = 1 << 20;
/// Bytes that are compared at a time with repeated writes.
const COMPARE_MAX: usize = 64 << 10;

/// No object has a byte there, nor is a block beyond it.
pub(super) const END: u64 = 1 << 63;

/// An object.
pub(super) struct Object {
    pub(super) id: ObjectId,
    /// Its number in the log.
    pub(super) number: u64,
    pub(super) state: RwLock<State>,
}

/// The state of an object.
#[derive(Default)]
pub(super) struct State {
    pub(super) size: u64,
    pub(super) mtime: Timestamp,
    pub(super) atime: Option<Timestamp>,
    /// The bytes that were written and not cut off or punched since.
    pub(super) present: Spans,
    /// Those of them that are in zones, as they are there.
    pub(super) placed: Spans,
    pub(super) extents: Extents,
    /// Blocks for which there is to be room.
    pub(super) reserved: Spans,
    buffers: BTreeMap<u64, Buffer>,
    pub(super) removed: bool,
    /// Where blocks were that were moved.
    formers: Formers,
    /// The device has lost data of it, and no sync has reported that.
    pub(super) untold: bool,
    /// Grows with each change of the written data.
    pub(super) changes: u64,
    /// The times that the log has.
    logged: Option<(Timestamp, Option<Timestamp>)>,
}

/// The memory of an extent.
struct Buffer {
    bytes: AlignedBuf,
    /// Blocks that are in it.
    loaded: Spans,
    /// Those of them that are not on the device as they are.
    dirty: Spans,
    stream: Stream,
}

/// Shared by all objects of a store.
pub(super) struct Shared {
    pub(super) device: Arc<Watched>,
    pub(super) zones: Zones,
    pub(super) log: IndexLog,
    pub(super) buffers: Buffers<Object>,
    pub(super) block: u64,
    /// Bytes of an extent, a power of two.
    pub(super) extent: u64,
    /// The device has lost data, and no sync of everything has reported that.
    pub(super) untold: AtomicBool,
}

impl Shared {
    pub(super) fn blocks_of(&self, bytes: &Range<u64>) -> Range<u64> {
        bytes.start / self.block..bytes.end.div_ceil(self.block)
    }

    fn extents_of(&self, blocks: &Range<u64>) -> Range<u64> {
        let per_extent = self.extent / self.block;
        blocks.start / per_extent..blocks.end.div_ceil(per_extent)
    }

    fn bytes_of(&self, blocks: &Range<u64>) -> Range<u64> {
        blocks.start * self.block..blocks.end * self.block
    }

    /// A zone is for data of a stream now.
    pub(super) fn opened(&self, zone: u32, stream: Stream) {
        self.log.add(&ZoneRecord::Zone { zone, stream: stream.map(|stream| stream.0) });
    }

    /// Reads blocks of a zone.
    fn read_place(&self, place: Place, buf: &mut [u8]) -> Result<()> {
        if place.zone == LOST {
            return Err(Error::new(Errno::EIO, "the device has lost this data"));
        }
        let skipped = u64::from(place.at) * self.block;
        self.device.read(place.zone, skipped, buf)
    }
}

impl Object {
    pub(super) fn new(id: ObjectId, number: u64, mtime: Timestamp) -> Arc<Self> {
        let state = State { mtime, ..State::default() };
        Arc::new(Self { id, number, state: RwLock::new(state) })
    }

    /// Fills `buf` with the bytes from `offset` on, which are within the object.
    pub(super) fn read(shared: &Shared, state: &State, offset: u64, buf: &mut [u8]) -> Result<()> {
        buf.fill(0);
        let span = offset..offset + buf.len() as u64;
        let mut bounce = AlignedBuf::new();
        for part in state.present.within(span) {
            let blocks = shared.blocks_of(&part);
            let mut at = blocks.start;
            while at < blocks.end {
                let run = state.run_at(shared, at..blocks.end);
                let end = run.end.min(at + READ_MAX as u64 / shared.block);
                let bytes = shared.bytes_of(&(at..end));
                let wanted = bytes.start.max(part.start)..bytes.end.min(part.end);
                let to = &mut buf[(wanted.start - offset) as usize..(wanted.end - offset) as usize];
                match run.from {
                    From::Buffer(extent) => state.copy_from(shared, extent, &wanted, to)?,
                    From::Place(place) => {
                        let place = Place { blocks: (end - at) as u32, ..place };
                        let read = bounce.bytes((bytes.end - bytes.start) as usize);
                        shared.read_place(place, read)?;
                        let skipped = (wanted.start - bytes.start) as usize;
                        to.copy_from_slice(&read[skipped..skipped + to.len()]);
                    }
                }
                at = end;
            }
        }
        Ok(())
    }

    /// Refuses data that differs from the object's, where it has any. The kernel's cache
    /// writes the end of a file in whole pages, again when they fill up. Unreadable data
    /// answers its own error: its range could not be moved elsewhere either.
    pub(super) fn refuse_other(shared: &Shared, state: &State, offset: u64, data: &[u8]) -> Result<()> {
        let mut there = Vec::new();
        for part in state.present.within(offset..offset + data.len() as u64) {
            let written = &data[(part.start - offset) as usize..(part.end - offset) as usize];
            for (at, piece) in (part.start..).step_by(COMPARE_MAX).zip(written.chunks(COMPARE_MAX)) {
                there.resize(piece.len(), 0);
                Self::read(shared, state, at, &mut there)?;
                if there != piece {
                    return Err(Error::new(Errno::EOPNOTSUPP, "a zoned tier writes each byte once"));
                }
            }
        }
        Ok(())
    }

    /// Writes bytes of one extent that the object does not have. There is a buffer for
    /// the extent, or `spare` is one.
    pub(super) fn write(
        self: &Arc<Self>,
        shared: &Shared,
        state: &mut State,
        (offset, data, stream): (u64, &[u8], Stream),
        spare: &mut Option<AlignedBuf>,
    ) -> Result<()> {
        let extent = offset / shared.extent;
        let span = offset..offset + data.len() as u64;
        let blocks = shared.blocks_of(&span);
        if let Entry::Vacant(entry) = state.buffers.entry(extent) {
            let bytes = spare.take().ok_or(Errno::EAGAIN)?;
            entry.insert(Buffer { bytes, loaded: Spans::default(), dirty: Spans::default(), stream });
            shared.buffers.note_held(self, extent);
        }
        // The rest of the first and the last block.
        for block in [blocks.start, blocks.end - 1] {
            state.load(shared, extent, block)?;
        }
        let promised = state.promised_within(shared, blocks.clone()).count();
        shared.zones.promise(blocks.end - blocks.start - promised)?;
        let Some(buffer) = state.buffers.get_mut(&extent) else { return Err(Errno::EIO.into()) };
        let base = extent * shared.extent;
        let from = (offset - base) as usize;
        buffer.bytes.bytes(shared.extent as usize)[from..from + data.len()].copy_from_slice(data);
        buffer.loaded.insert(blocks.clone());
        buffer.dirty.insert(blocks);
        buffer.stream = stream;
        state.changes += 1;
        state.present.insert(span.clone());
        state.size = state.size.max(span.end);
        Ok(())
    }

    /// Keeps room for bytes that are to be written.
    pub(super) fn reserve(&self, shared: &Shared, state: &mut State, span: &Range<u64>) -> Result<()> {
        let blocks = shared.blocks_of(span);
        let mut new = state.promised_within(shared, blocks.clone());
        for (first, place) in state.extents.within(blocks.clone()) {
            new.insert(first..first + u64::from(place.blocks));
        }
        let gaps = new.gaps_within(blocks);
        shared.zones.promise(gaps.iter().map(|gap| gap.end - gap.start).sum())?;
        for gap in gaps {
            let Range { start, end } = shared.bytes_of(&gap);
            shared.log.add(&ZoneRecord::Reserved { object: self.number, start, end });
            state.reserved.insert(gap);
        }
        Ok(())
    }

    /// Whether nothing more can come to an extent.
    pub(super) fn is_filled(shared: &Shared, state: &State, extent: u64) -> bool {
        state.present.covers(&(extent * shared.extent..(extent + 1) * shared.extent))
    }

    /// Writes data in memory to the device, of one extent or of all; it is durable
    /// with the next commit of the log. Answers how many blocks that took.
    pub(super) fn flush(
        &self,
        shared: &Shared,
        state: &mut State,
        extent: Option<u64>,
        claim: Claim,
    ) -> Result<u64> {
        let extents: Vec<u64> = match extent {
            Some(extent) => vec![extent],
            None => state.buffers.keys().copied().collect(),
        };
        let mut written = 0;
        for extent in extents {
            written += self.flush_extent(shared, state, extent, claim)?;
        }
        Ok(written)
    }

    fn flush_extent(&self, shared: &Shared, state: &mut State, extent: u64, claim: Claim) -> Result<u64> {
        let mut written = 0;
        while let Some(buffer) = state.buffers.get_mut(&extent)
            && let Some(blocks) = buffer.dirty.next(0)
        {
            let bytes = shared.bytes_of(&blocks);
            let base = extent * shared.extent;
            let in_buffer = |span: &Range<u64>| (span.start - base) as usize..(span.end - base) as usize;
            let memory = buffer.bytes.bytes(shared.extent as usize);
            // Older data there must not come back as part of the object.
            for gap in state.present.gaps_within(bytes.clone()) {
                memory[in_buffer(&gap)].fill(0);
            }
            let stream = buffer.stream;
            let mut opened = |zone| shared.opened(zone, stream);
            let resident = (self.id, blocks.start);
            let places =
                shared.zones.write(stream, claim, resident, &memory[in_buffer(&bytes)], &mut opened)?;
            let mut at = blocks.start;
            for place in places {
                self.is_written(shared, state, at, place);
                at += u64::from(place.blocks);
            }
            if let Some(buffer) = state.buffers.get_mut(&extent) {
                buffer.dirty.remove(blocks.start..at);
            }
            written += at - blocks.start;
        }
        Ok(written)
    }

    /// Blocks of the object were written from memory, and are in a place now.
    fn is_written(&self, shared: &Shared, state: &mut State, first: u64, place: Place) {
        let blocks = first..first + u64::from(place.blocks);
        let bytes = shared.bytes_of(&blocks);
        state.formers.forget(&blocks);
        state.reserved.remove(blocks);
        state.placed.remove(bytes.clone());
        state.present.within(bytes).for_each(|part| state.placed.insert(part));
        self.is_at(shared, state, (first, place), Written::Promised);
    }

    /// Blocks of the object, from `first` on, are in a place now.
    pub(super) fn is_at(
        &self,
        shared: &Shared,
        state: &mut State,
        (first, place): (u64, Place),
        why: Written,
    ) {
        let blocks = first..first + u64::from(place.blocks);
        let before = state.extents.put(first, place);
        self.describe_place(shared, &state.placed, (first, place), &mut |record| shared.log.add(record));
        for (first, place) in before {
            if why == Written::Moved {
                let (resets, record) = (shared.zones.resets(place.zone), shared.log.added());
                state.formers.add(Former { first, place, resets, record }, shared.log.durable());
            }
            // Only then: a zone without live data is reset with the next commit.
            shared.zones.free(why, place);
        }
        if place.zone == LOST {
            self.recover(shared, state, blocks);
        }
    }

    /// The object's data in a zone, of a resident of it, is lost where the zone has
    /// lost it.
    pub(super) fn lose_in(&self, shared: &Shared, state: &mut State, zone: u32, resident: Resident) {
        let blocks = resident.first..resident.first + u64::from(resident.blocks);
        let there: Vec<(u64, Place)> =
            state.extents.within(blocks).filter(|(_, place)| place.zone == zone).collect();
        for (first, mut place) in there {
            let Some(from) = shared.zones.lost_from(zone) else { return };
            let gone = place.split_off(from);
            if gone > 0 {
                let lost = Place { zone: LOST, at: 0, blocks: gone };
                self.is_at(shared, state, (first + u64::from(place.blocks), lost), Written::Promised);
            }
        }
    }

    /// The device has lost these blocks. Moved blocks are at their old places again;
    /// data in memory is written anew; the next sync reports the rest.
    fn recover(&self, shared: &Shared, state: &mut State, blocks: Range<u64>) {
        let mut lost = Spans::default();
        lost.insert(blocks.clone());
        for Former { first, place, resets, .. } in state.formers.within(&blocks) {
            let was_there = first..first + u64::from(place.blocks);
            let resident = Resident { object: self.id, first, blocks: place.blocks };
            if lost.covers(&was_there) && shared.zones.take_back(place, resident, resets) {
                lost.remove(was_there);
                self.is_at(shared, state, (first, place), Written::Promised);
            }
        }
        let before = state.promised_within(shared, blocks.clone()).count();
        for (_, buffer) in state.buffers.range_mut(shared.extents_of(&blocks)) {
            let there: Vec<Range<u64>> =
                lost.within(blocks.clone()).flat_map(|part| buffer.loaded.within(part)).collect();
            for part in there {
                lost.remove(part.clone());
                buffer.dirty.insert(part);
            }
        }
        shared.zones.has_promised(state.promised_within(shared, blocks).count() - before);
        if lost.next(0).is_some() {
            state.untold = true;
            shared.untold.store(true, Ordering::Release);
        }
    }

    /// Records a place in the index.
    fn describe_place(
        &self,
        shared: &Shared,
        placed: &Spans,
        (first, place): (u64, Place),
        emit: &mut dyn FnMut(&ZoneRecord),
    ) {
        let (object, zone) = (self.number, place.zone);
        let bytes = shared.bytes_of(&(first..first + u64::from(place.blocks)));
        let Some(span) = placed.bounds_within(bytes) else { return };
        let Range { start, end } = span.clone();
        // Blocks before the first byte are not in the record.
        let at = place.at + (start / shared.block - first) as u32;
        emit(&ZoneRecord::Piece { object, start, end, zone, at });
        let mut before = start;
        for part in placed.within(span) {
            if part.start > before {
                emit(&ZoneRecord::Punched { object, start: before, end: part.start });
            }
            before = part.end;
        }
    }

    /// These bytes are gone. A block that is reserved stays so, unless all of it is.
    pub(super) fn cut(&self, shared: &Shared, state: &mut State, span: Range<u64>) {
        state.changes += 1;
        state.present.remove(span.clone());
        state.placed.remove(span.clone());
        // Blocks of which no byte is left.
        let touched = shared.blocks_of(&span);
        let keep_first = state.present.touches(&shared.bytes_of(&(touched.start..touched.start + 1)));
        let keep_last =
            touched.end > 0 && state.present.touches(&shared.bytes_of(&(touched.end - 1..touched.end)));
        let gone = touched.start + u64::from(keep_first)..touched.end - u64::from(keep_last);
        if gone.is_empty() {
            return;
        }
        state.formers.forget(&gone);
        for (_, freed) in state.extents.remove(gone.clone()) {
            shared.zones.free(Written::Promised, freed);
        }
        let promised = state.promised_within(shared, gone.clone()).count();
        state.reserved.remove(whole_blocks(&span, shared.block));
        let first = gone.start * shared.block / shared.extent;
        let held: Vec<u64> = state.buffers.range(first..).map(|(extent, _)| *extent).collect();
        for extent in held {
            let base = extent * shared.extent / shared.block;
            if base >= gone.end {
                break;
            }
            self.forget_blocks(shared, state, extent, &gone);
        }
        let still = state.promised_within(shared, gone).count();
        shared.zones.keep_promise(promised - still);
    }

    /// Drops blocks from a buffer, and the buffer if nothing is left in it.
    fn forget_blocks(&self, shared: &Shared, state: &mut State, extent: u64, gone: &Range<u64>) {
        let Some(buffer) = state.buffers.get_mut(&extent) else { return };
        buffer.dirty.remove(gone.clone());
        buffer.loaded.remove(gone.clone());
        if buffer.loaded.next(0).is_none() {
            self.release(shared, state, extent);
        }
    }

    /// Its index as it is, as records.
    pub(super) fn describe(&self, shared: &Shared, state: &State, emit: &mut dyn FnMut(&ZoneRecord)) {
        let object = self.number;
        if state.removed {
            return;
        }
        emit(&ZoneRecord::Made { object, id: self.id });
        for (first, place) in state.extents.iter() {
            self.describe_place(shared, &state.placed, (first, place), emit);
        }
        emit(&ZoneRecord::Size { object, size: state.size });
        self.describe_reserved(shared, state, 0, emit);
        emit(&ZoneRecord::Times { object, mtime: state.mtime, atime: state.atime });
    }

    /// Records the room kept from a byte on. A size takes that away, in the log.
    fn describe_reserved(
        &self,
        shared: &Shared,
        state: &State,
        from: u64,
        emit: &mut dyn FnMut(&ZoneRecord),
    ) {
        for blocks in state.reserved.within(from / shared.block..u64::MAX / shared.block) {
            let Range { start, end } = shared.bytes_of(&blocks);
            emit(&ZoneRecord::Reserved { object: self.number, start, end });
        }
    }

    /// It has this size, at least as before; nothing is cut off.
    pub(super) fn log_size(&self, shared: &Shared, state: &mut State, size: u64) {
        shared.log.add(&ZoneRecord::Size { object: self.number, size });
        self.describe_reserved(shared, state, size, &mut |record| shared.log.add(record));
        state.size = size;
    }

    /// Adds the object's times to the log, if they changed.
    pub(super) fn log_times(&self, shared: &Shared, state: &mut State) {
        let (mtime, atime) = (state.mtime, state.atime);
        if state.logged != Some((mtime, atime)) {
            shared.log.add(&ZoneRecord::Times { object: self.number, mtime, atime });
            state.times_logged();
        }
    }

    /// Gives a buffer back, if nothing in it is needed.
    pub(super) fn release(&self, shared: &Shared, state: &mut State, extent: u64) {
        if state.buffers.get(&extent).is_some_and(|buffer| buffer.dirty.next(0).is_none())
            && let Some(buffer) = state.buffers.remove(&extent)
        {
            shared.buffers.give_back(self, extent, buffer.bytes);
        }
    }

    /// The object is gone.
    pub(super) fn clear(&self, shared: &Shared, state: &mut State) {
        self.cut(shared, state, 0..END);
        (state.size, state.removed) = (0, true);
    }
}

/// The blocks of which a span has all bytes.
pub(super) fn whole_blocks(span: &Range<u64>, block: u64) -> Range<u64> {
    span.start.div_ceil(block)..span.end / block
}

/// Where a run of blocks is.
enum From {
    Buffer(u64),
    Place(Place),
}

struct Run {
    end: u64,
    from: From,
}

impl State {
    /// The log has the times as they are.
    pub(super) fn times_logged(&mut self) {
        self.logged = Some((self.mtime, self.atime));
    }

    /// `ENOENT` if the object was removed since it was found.
    pub(super) fn check_there(&self) -> Result<()> {
        if self.removed { Err(Errno::ENOENT.into()) } else { Ok(()) }
    }

    /// Whether a hole is between bytes that stay, and not one of whole blocks: it takes
    /// room in the index, and may free none in zones.
    pub(super) fn is_small_hole(&self, shared: &Shared, span: &Range<u64>) -> bool {
        let is_present = |at: u64| self.present.touches(&(at..at + 1));
        let is_whole = [span.start, span.end].iter().all(|at| at.is_multiple_of(shared.block));
        !is_whole && span.start > 0 && is_present(span.start - 1) && is_present(span.end)
    }

    /// Bytes of blocks that are in zones, or are to be.
    pub(super) fn allocated(&self, shared: &Shared) -> u64 {
        let mut new = self.promised_within(shared, 0..u64::MAX / shared.block);
        for (first, place) in self.extents.iter().filter(|(_, place)| place.zone != LOST) {
            new.remove(first..first + u64::from(place.blocks));
        }
        (self.extents.blocks() + new.count()) * shared.block
    }

    /// Those of some blocks that were promised room: they are in memory only, or
    /// reserved.
    fn promised_within(&self, shared: &Shared, blocks: Range<u64>) -> Spans {
        let mut promised = Spans::default();
        self.reserved.within(blocks.clone()).for_each(|part| promised.insert(part));
        for (_, buffer) in self.buffers.range(shared.extents_of(&blocks)) {
            buffer.dirty.within(blocks.clone()).for_each(|part| promised.insert(part));
        }
        promised
    }

    pub(super) fn has_buffer(&self, extent: u64) -> bool {
        self.buffers.contains_key(&extent)
    }

    /// Where the first of these blocks is, with those that follow it there.
    fn run_at(&self, shared: &Shared, blocks: Range<u64>) -> Run {
        let per_extent = shared.extent / shared.block;
        let extent = blocks.start / per_extent;
        let is_loaded = |block: u64| {
            self.buffers
                .get(&(block / per_extent))
                .is_some_and(|buffer| buffer.loaded.touches(&(block..block + 1)))
        };
        if is_loaded(blocks.start) {
            let end = ((extent + 1) * per_extent).min(blocks.end);
            let end = (blocks.start..end).find(|block| !is_loaded(*block)).unwrap_or(end);
            return Run { end, from: From::Buffer(extent) };
        }
        let place = self.extents.within(blocks.clone()).next();
        match place.filter(|(first, _)| *first == blocks.start) {
            Some((first, place)) => {
                let end = first + u64::from(place.blocks);
                let end = (first..end).find(|block| is_loaded(*block)).unwrap_or(end);
                Run { end, from: From::Place(place) }
            }
            None => Run { end: blocks.start + 1, from: From::Place(Place { zone: LOST, at: 0, blocks: 1 }) },
        }
    }

    fn copy_from(&self, shared: &Shared, extent: u64, span: &Range<u64>, to: &mut [u8]) -> Result<()> {
        let buffer = self.buffers.get(&extent).ok_or_else(|| Error::from(Errno::EIO))?;
        let base = extent * shared.extent;
        to.copy_from_slice(&buffer.bytes.filled()[(span.start - base) as usize..(span.end - base) as usize]);
        Ok(())
    }

    /// Has a block in the buffer of its extent, if anything of it is present there.
    fn load(&mut self, shared: &Shared, extent: u64, block: u64) -> Result<()> {
        let bytes = shared.bytes_of(&(block..block + 1));
        let place = self.extents.within(block..block + 1).next().map(|(_, place)| place);
        let Some(buffer) = self.buffers.get_mut(&extent) else { return Ok(()) };
        if buffer.loaded.touches(&(block..block + 1)) {
            return Ok(());
        }
        let from = (bytes.start - extent * shared.extent) as usize;
        let to = &mut buffer.bytes.bytes(shared.extent as usize)[from..from + shared.block as usize];
        match place {
            Some(place) => shared.read_place(place, to)?,
            None => to.fill(0),
        }
        buffer.loaded.insert(block..block + 1);
        Ok(())
    }
}
