//! [`ZonedStore`] itself.

use super::buffers::{Buffers, Taken};
use super::index::Index;
use super::log::{IndexLog, regions_of};
use super::object::{END, Object, Shared, State};
use super::pace::{Background, Pace};
use super::replay::Replay;
use super::table::Stream;
use super::watched::Watched;
use super::zones::{Claim, Zones};
use braid_contract::{
    Context, Environment, Errno, Error, ObjectId, ObjectStat, Result, Store, StoreCapabilities, StoreIo,
    StreamId, Timestamp, Usage, ZoneStatus, ZonedDevice,
};
use braid_format::{ZONED_LABEL_MAX, ZoneRecord};
use braid_sys::AlignedBuf;
use std::collections::hash_map::Entry;
use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Operations that go on at the same time.
const QUEUE_DEPTH: u32 = 64;

/// Settings of a zoned store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZonedSettings {
    /// Bytes that are gathered in memory before they are written, a power of two
    /// from 4 KiB to 512 MiB.
    pub extent: u64,
    /// Memory for that, in bytes; at least one extent.
    pub memory: u64,
    /// Pass on writes at once, in whole blocks.
    pub write_through: bool,
    /// Bytes a second that are moved in the background to empty zones, once they run
    /// short; 0: none, writes alone see to it.
    pub gc: u64,
}

impl ZonedSettings {
    /// Shortest and longest extent.
    const EXTENTS: [u64; 2] = [4 << 10, 512 << 20];

    /// Whether an extent may have so many bytes.
    #[must_use]
    pub fn is_extent(bytes: u64) -> bool {
        let [least, most] = Self::EXTENTS;
        bytes.is_power_of_two() && (least..=most).contains(&bytes)
    }
}

impl Default for ZonedSettings {
    fn default() -> Self {
        Self { extent: 2 << 20, memory: 64 << 20, write_through: false, gc: 64 << 20 }
    }
}

/// A tier on a zoned device: objects as extents in zones, of a stream each.
pub struct ZonedStore {
    index: Arc<Index>,
    pace: Arc<Pace>,
    _background: Option<Background>,
    /// The highest number of an object so far.
    highest: AtomicU64,
    write_through: bool,
    environment: Arc<dyn Environment>,
}

impl ZonedStore {
    /// Opens the store on a device; one without a label is empty.
    ///
    /// # Errors
    /// `EINVAL` for settings or a device that can't be used, `EUCLEAN` if its index is
    /// damaged; those of the device.
    pub fn open(
        device: Arc<dyn ZonedDevice>,
        settings: ZonedSettings,
        environment: Arc<dyn Environment>,
    ) -> Result<Self> {
        let device = Arc::new(Watched::new(device));
        let geometry = device.geometry();
        if !ZonedSettings::is_extent(settings.extent) || settings.extent < geometry.block {
            let [least, most] = ZonedSettings::EXTENTS;
            let what = format!(
                "extents of {} bytes: a power of two from {least} to {most} is needed",
                settings.extent
            );
            return Err(Error::new(Errno::EINVAL, what));
        }
        let (regions, first) = regions_of(&*device)?;
        let limits = [geometry.open_max, geometry.active_max].into_iter().flatten().min();
        // The log may need two zones while it goes from one to the other.
        let open_max = limits.map_or(usize::MAX, |most| most.saturating_sub(2) as usize);
        let numbers = first..geometry.zones;
        let mut zones = Zones::new(Arc::clone(&device), numbers.clone(), open_max)?;
        let written = |zone: u32| zones.write_pointer(zone);
        let mut replay = Replay::new(geometry.block);
        let log = IndexLog::open(Arc::clone(&device), regions, &environment, &mut |record, was_durable| {
            replay.add(record, was_durable, &written);
            Ok(())
        })?;
        replay.finish(&written);
        if !device.keeps_write_pointers() {
            replay.ends(numbers.clone()).for_each(|(zone, end)| device.set_write_pointer(zone, end));
            zones = Zones::new(Arc::clone(&device), numbers, open_max)?;
        }
        let log = match log {
            Some(log) => log,
            None => IndexLog::new(Arc::clone(&device), regions, Arc::clone(&environment))?,
        };
        let count = (settings.memory / settings.extent).max(1) as usize;
        let buffers = Buffers::new(settings.extent as usize, count);
        let (block, extent, untold) = (geometry.block, settings.extent, AtomicBool::new(false));
        let shared = Shared { device, zones, log, buffers, block, extent, untold };
        let highest = AtomicU64::new(replay.highest);
        let index = Arc::new(Index::new(shared, replay));
        let has_thread = settings.gc > 0 && environment.threads();
        let pace = Arc::new(Pace::new(Arc::clone(&environment), has_thread));
        let background = has_thread.then(|| Background::begin(&pace, &index, settings.gc)).transpose()?;
        Ok(Self {
            index,
            pace,
            _background: background,
            highest,
            write_through: settings.write_through,
            environment,
        })
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.environment.wall_ns())
    }

    /// Writes data of an object to the device, of one extent or of all; zones are
    /// emptied for it if need be. The caller holds no object.
    fn flush(&self, object: &Object, extent: Option<u64>) -> Result<()> {
        self.index.settle()?;
        let mut waited = 0;
        let flushed = self.write_out(object, extent, &mut waited);
        if let Ok(blocks) = flushed {
            self.pace.pay(&self.index, blocks, &mut waited);
        }
        self.pace.has_waited(waited);
        flushed.map(|_| ())
    }

    /// Writes the data of objects that is in memory, and has it durable: once more if
    /// the device was found to have lost some of it meanwhile.
    fn make_durable(&self, objects: &[Arc<Object>]) -> Result<()> {
        let device = &self.index.shared.device;
        let failures = device.failures();
        loop {
            let losses = device.losses();
            for object in objects {
                self.flush(object, None)?;
                object.log_times(&self.index.shared, &mut object.state.write());
            }
            self.index.commit()?;
            device.check_since(failures)?;
            if device.losses() == losses {
                return Ok(());
            }
        }
    }

    /// Answers how many blocks were written. Adds the time in which zones were emptied
    /// to `waited`.
    fn write_out(&self, object: &Object, extent: Option<u64>, waited: &mut u64) -> Result<u64> {
        let mut claim = Claim::New;
        loop {
            let flushed = object.flush(&self.index.shared, &mut object.state.write(), extent, claim);
            match flushed {
                Err(error) if error.errno() == Errno::EAGAIN => {
                    if self.pace.make_room(&self.index, waited)? {
                        continue;
                    }
                    if claim == Claim::Squeezed {
                        return Err(Error::new(Errno::ENOSPC, "no zone has room"));
                    }
                    claim = Claim::Squeezed;
                }
                flushed => return flushed,
            }
        }
    }

    /// Writes bytes of one extent of an object. Those that it has already stay: they are
    /// compared, unless the object is as it was when they were, after `compared` changes.
    /// Answers how many bytes from the first one on are there.
    fn write_extent(
        &self,
        object: &Arc<Object>,
        part: (u64, &[u8], Stream),
        compared: &mut u64,
    ) -> Result<usize> {
        let (shared, (offset, data, _)) = (&self.index.shared, part);
        let span = offset..offset + data.len() as u64;
        let extent = offset / shared.extent;
        let mut spare = None;
        let result = loop {
            let mut state = object.state.write();
            if state.removed {
                break Err(Errno::ENOENT.into());
            }
            if state.changes != *compared
                && let Err(error) = Object::refuse_other(shared, &state, offset, data)
            {
                break Err(error);
            }
            if state.present.covers(&span) || spare.is_some() || state.has_buffer(extent) {
                state.mtime = self.now();
                break self.fill_gaps(object, &mut state, part, compared, &mut spare);
            }
            drop(state);
            match self.buffer() {
                Ok(buf) => spare = Some(buf),
                Err(error) => break Err(error),
            }
        };
        if let Some(spare) = spare {
            shared.buffers.put(spare);
        }
        result
    }

    /// Writes the parts of an extent that the object does not have. Answers how many bytes
    /// from the first one on are there; if there are none, the error.
    fn fill_gaps(
        &self,
        object: &Arc<Object>,
        state: &mut State,
        (offset, data, stream): (u64, &[u8], Stream),
        compared: &mut u64,
        spare: &mut Option<AlignedBuf>,
    ) -> Result<usize> {
        let was_compared = state.changes == *compared;
        for gap in state.present.gaps_within(offset..offset + data.len() as u64) {
            let (from, to) = ((gap.start - offset) as usize, (gap.end - offset) as usize);
            let part = (gap.start, &data[from..to], stream);
            match object.write(&self.index.shared, state, part, spare) {
                Ok(()) => {}
                Err(_) if from > 0 => return Ok(from),
                Err(error) => return Err(error),
            }
        }
        if was_compared {
            *compared = state.changes;
        }
        Ok(data.len())
    }

    /// A free buffer: if all are in use, the data of one is written. The caller
    /// holds no object.
    fn buffer(&self) -> Result<AlignedBuf> {
        let mut failed = 0;
        loop {
            match self.index.shared.buffers.take() {
                Taken::Buffer(buf) => return Ok(buf),
                Taken::Held(object, extent) => {
                    let flushed = self.flush(&object, Some(extent));
                    object.release(&self.index.shared, &mut object.state.write(), extent);
                    if let Err(error) = flushed {
                        failed += 1;
                        if failed == self.index.shared.buffers.most() {
                            return Err(error);
                        }
                    }
                }
            }
        }
    }

    /// After a write: writes the pieces that can't grow any more, or all of them
    /// by choice.
    fn write_filled(&self, object: &Object, extent: u64, at_once: bool) {
        let filled = Object::is_filled(&self.index.shared, &object.state.read(), extent);
        if !filled && !at_once {
            return;
        }
        match self.flush(object, Some(extent)) {
            Ok(()) if filled => object.release(&self.index.shared, &mut object.state.write(), extent),
            Ok(()) => {}
            // It stays in memory, and a sync reports the error.
            Err(error) => tracing::debug!(%error, object = %object.id, "data is not written yet"),
        }
    }
}

impl Store for ZonedStore {
    fn capabilities(&self) -> StoreCapabilities {
        StoreCapabilities {
            native_files: false,
            punch: true,
            allocate: true,
            seek_data: true,
            overwrite: false,
            access_times: true,
            durable: true,
            preallocates: false,
            queue_depth: QUEUE_DEPTH,
        }
    }

    fn zones(&self) -> Option<ZoneStatus> {
        let shared = &self.index.shared;
        let mut status = shared.zones.status();
        for stream in &mut status.streams {
            stream.placement = shared.device.placement(stream.id.map(StreamId));
        }
        status.index_bytes = shared.log.written();
        status.memory_bytes = shared.buffers.memory();
        self.pace.tell(&mut status);
        Some(status)
    }

    fn create(&self, id: ObjectId) -> Result<()> {
        self.index.check_room()?;
        let mut objects = self.index.objects.write();
        if let Entry::Vacant(entry) = objects.entry(id) {
            let object = self.highest.fetch_add(1, Ordering::Relaxed) + 1;
            self.index.shared.log.add(&ZoneRecord::Made { object, id });
            entry.insert(Object::new(id, object, self.now()));
        }
        Ok(())
    }

    fn read_at(&self, id: ObjectId, offset: u64, bufs: &mut [IoSliceMut<'_>], _io: StoreIo) -> Result<usize> {
        self.index.settle_doubts();
        let object = self.index.object(id)?;
        let state = object.state.read();
        state.check_there()?;
        let (mut at, mut done) = (offset, 0);
        for buf in bufs {
            let len = (buf.len() as u64).min(state.size.saturating_sub(at)) as usize;
            Object::read(&self.index.shared, &state, at, &mut buf[..len])
                .with_context(|| format!("object {id}, from {at} on"))?;
            (at, done) = (at + len as u64, done + len);
            if len < buf.len() {
                break;
            }
        }
        Ok(done)
    }

    fn write_at(&self, id: ObjectId, offset: u64, bufs: &[IoSlice<'_>], io: StoreIo) -> Result<usize> {
        self.index.settle_doubts();
        let object = self.index.object(id)?;
        let len = bufs.iter().map(|buf| buf.len() as u64).sum::<u64>();
        let end = offset.checked_add(len).filter(|end| i64::try_from(*end).is_ok()).ok_or(Errno::EFBIG)?;
        self.index.check_room()?;
        // All of it is refused, or none.
        let mut compared = {
            let (state, mut at) = (object.state.read(), offset);
            if state.present.touches(&(offset..end)) {
                for buf in bufs {
                    Object::refuse_other(&self.index.shared, &state, at, buf)?;
                    at += buf.len() as u64;
                }
            }
            state.changes
        };
        let (mut at, extent) = (offset, self.index.shared.extent);
        for buf in bufs {
            let mut rest = &buf[..];
            while !rest.is_empty() {
                let (part, after) = rest.split_at(rest.len().min((extent - at % extent) as usize));
                let done = match self.write_extent(&object, (at, part, io.hint.stream), &mut compared) {
                    Ok(done) => done,
                    Err(_) if at > offset => return Ok((at - offset) as usize),
                    Err(error) => return Err(error),
                };
                self.write_filled(&object, at / extent, self.write_through || io.direct);
                if done < part.len() {
                    return Ok((at - offset) as usize + done);
                }
                (at, rest) = (at + part.len() as u64, after);
            }
        }
        Ok(len as usize)
    }

    fn allocate(&self, id: ObjectId, offset: u64, len: u64, keep_size: bool) -> Result<()> {
        let object = self.index.object(id)?;
        let end = offset.checked_add(len).filter(|end| i64::try_from(*end).is_ok()).ok_or(Errno::EFBIG)?;
        self.index.check_room()?;
        let mut state = object.state.write();
        state.check_there()?;
        object.reserve(&self.index.shared, &mut state, &(offset..end))?;
        if !keep_size && end > state.size {
            object.log_size(&self.index.shared, &mut state, end);
            state.mtime = self.now();
        }
        Ok(())
    }

    fn punch(&self, id: ObjectId, offset: u64, len: u64) -> Result<()> {
        let object = self.index.object(id)?;
        let end = offset.saturating_add(len).min(i64::MAX as u64);
        if offset >= end {
            return Ok(());
        }
        if object.state.read().is_small_hole(&self.index.shared, &(offset..end)) {
            self.index.check_room()?;
        }
        let mut state = object.state.write();
        state.check_there()?;
        self.index.shared.log.add(&ZoneRecord::Punched { object: object.number, start: offset, end });
        object.cut(&self.index.shared, &mut state, offset..end);
        if end >= state.size {
            // The data that showed the size may never be written now.
            let size = state.size;
            object.log_size(&self.index.shared, &mut state, size);
        }
        state.mtime = self.now();
        Ok(())
    }

    fn truncate(&self, id: ObjectId, size: u64) -> Result<()> {
        let object = self.index.object(id)?;
        if i64::try_from(size).is_err() {
            return Err(Errno::EFBIG.into());
        }
        let mut state = object.state.write();
        state.check_there()?;
        self.index.shared.log.add(&ZoneRecord::Size { object: object.number, size });
        object.cut(&self.index.shared, &mut state, size..END);
        (state.size, state.mtime) = (size, self.now());
        Ok(())
    }

    fn sync(&self, ids: &[ObjectId], _data_only: bool) -> Result<()> {
        let objects: Result<Vec<_>> = ids.iter().map(|id| self.index.object(*id)).collect();
        self.make_durable(&objects?)?;
        self.index.tell_lost(ids)
    }

    fn sync_all(&self) -> Result<()> {
        self.make_durable(&self.index.all())?;
        self.index.tell_any_lost()
    }

    fn remove(&self, ids: &[ObjectId]) -> Result<()> {
        for id in ids {
            let Ok(object) = self.index.object(*id) else { continue };
            let mut state = object.state.write();
            if state.removed {
                continue;
            }
            // Before its zones are free, and those before it is not found any more: else
            // a zone can't be emptied of data without an owner.
            self.index.shared.log.add(&ZoneRecord::Removed { object: object.number });
            object.clear(&self.index.shared, &mut state);
            self.index.objects.write().remove(id);
        }
        self.pace.freed(&self.index);
        Ok(())
    }

    fn stat(&self, id: ObjectId) -> Result<ObjectStat> {
        let object = self.index.object(id)?;
        let state = object.state.read();
        state.check_there()?;
        Ok(ObjectStat {
            size: state.size,
            allocated: state.allocated(&self.index.shared),
            mtime: state.mtime,
            atime: state.atime,
        })
    }

    fn set_access_time(&self, id: ObjectId, time: Timestamp) -> Result<()> {
        self.index.object(id)?.state.write().atime = Some(time);
        Ok(())
    }

    fn next_data(&self, id: ObjectId, offset: u64) -> Result<Option<(u64, u64)>> {
        let object = self.index.object(id)?;
        let state = object.state.read();
        state.check_there()?;
        Ok(state.present.next(offset).map(|span| (span.start, span.end)))
    }

    fn usage(&self) -> Result<Usage> {
        let (space, block) = (self.index.shared.zones.space(), self.index.shared.block);
        let available = space.usable.saturating_sub(space.used) * block;
        Ok(Usage {
            total: space.usable * block,
            free: available,
            available,
            device: self.index.shared.device.device(),
        })
    }

    fn label(&self) -> Result<Option<Vec<u8>>> {
        Ok(self.index.label.lock().clone())
    }

    fn set_label(&self, label: &[u8]) -> Result<()> {
        if label.len() > ZONED_LABEL_MAX {
            return Err(Errno::EINVAL.into());
        }
        let before = self.index.label.lock().clone();
        if before.is_none()
            && (self.index.shared.zones.are_used() || self.index.shared.log.would_replace()?)
        {
            let what = "the zones hold data that is not Braid's: reset them, if it is not needed";
            return Err(Error::new(Errno::ENOTEMPTY, what));
        }
        *self.index.label.lock() = Some(label.to_vec());
        self.index.shared.log.add(&ZoneRecord::Label(label.to_vec()));
        self.index.commit().inspect_err(|_| {
            // Whatever is in the log by then.
            self.index.shared.log.add(&before.clone().map_or(ZoneRecord::Unlabelled, ZoneRecord::Label));
            *self.index.label.lock() = before;
        })
    }

    fn probe(&self, label: &[u8]) -> Result<()> {
        self.index.shared.device.report(0).context("asking the device")?;
        if self.index.label.lock().as_deref() != Some(label) {
            return Err(Error::new(Errno::ESTALE, "it is another tier"));
        }
        Ok(())
    }

    fn clear(&self) -> Result<()> {
        let _turn = self.pace.hold(&self.index);
        let ids: Vec<ObjectId> = self.index.objects.read().keys().copied().collect();
        self.remove(&ids)?;
        self.index.commit()?;
        self.index.shared.zones.reset_all()?;
        self.index.shared.log.erase()?;
        *self.index.label.lock() = None;
        Ok(())
    }

    fn list(&self, visit: &mut dyn FnMut(ObjectId)) -> Result<()> {
        let ids: Vec<ObjectId> = self.index.objects.read().keys().copied().collect();
        ids.into_iter().for_each(visit);
        Ok(())
    }
}
