//! The log of the object index: frames of records in one of two regions of the
//! device. When a region is full, a checkpoint of the whole index begins the other
//! one.

use super::watched::Watched;
use braid_contract::{Context, Environment, Errno, Error, Result, ZoneKind, ZonedDevice};
use braid_format::{FRAME_HEAD, FRAME_PAYLOAD_MAX, FormatError, FrameHead, FrameKind, ZoneRecord};
use braid_sys::AlignedBuf;
use parking_lot::Mutex;
use std::io::IoSlice;
use std::mem::take;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Zones of the device that hold the log, if they are sequential: the first ones.
pub(super) const SEQUENTIAL_ZONES: u32 = 2;

/// Where a log may be: part of a zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Region {
    zone: u32,
    kind: ZoneKind,
    from: u64,
    len: u64,
}

/// The log, and the records that are not in it yet.
pub(super) struct IndexLog {
    device: Arc<Watched>,
    block: usize,
    store: [u8; 16],
    regions: [Region; 2],
    pending: Mutex<Pending>,
    writer: Mutex<Writer>,
    /// Records that are durable, as a count since the store was opened.
    durable: AtomicU64,
    /// Bytes that were written since then.
    written: AtomicU64,
    /// Bytes of the newest checkpoint, and of the records that were added since.
    checkpoint: AtomicU64,
    grown: AtomicU64,
    environment: Arc<dyn Environment>,
}

/// Whether an index has room for more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum IndexRoom {
    Enough,
    /// A checkpoint decides.
    Unsure,
    Full,
}

/// Records that are to be written, in their order.
#[derive(Debug, Default)]
struct Pending {
    /// The contents of each frame.
    frames: Vec<Vec<u8>>,
    /// Records so far since the store was opened.
    count: u64,
}

/// Where the log goes on.
#[derive(Clone, Copy, Debug)]
struct Writer {
    /// The region that it is in.
    region: usize,
    generation: u64,
    salt: u64,
    /// Number of the next frame, and its place in the region.
    sequence: u64,
    at: u64,
    /// The end of the log can't be relied on: a checkpoint comes first.
    torn: bool,
}

/// The contents of a region.
#[derive(Clone, Copy, Debug)]
struct Found {
    store: [u8; 16],
    generation: u64,
    salt: u64,
    /// Whole frames, and where they end.
    frames: u64,
    end: u64,
    /// The checkpoint that it begins with is whole.
    is_whole: bool,
    moved_on: bool,
    torn: bool,
    /// A frame that can't be read, and was not torn either.
    broken: Option<FormatError>,
}

/// Calls a function with each record of the index as it is.
pub(super) type Snapshot<'a> = &'a dyn Fn(&mut dyn FnMut(&ZoneRecord));

/// The two regions for the log of a device, and the first zone behind them: parts
/// of its conventional zones, else its first two zones.
pub(super) fn regions_of(device: &dyn ZonedDevice) -> Result<([Region; 2], u32)> {
    let zones = device.geometry().zones;
    let mut conventional = 0;
    while conventional < zones && device.report(conventional)?.kind == ZoneKind::Conventional {
        conventional += 1;
    }
    let region =
        |zone, from, len| Ok::<_, Error>(Region { zone, kind: device.report(zone)?.kind, from, len });
    let whole = |zone| region(zone, 0, device.report(zone)?.capacity);
    match conventional {
        0 if zones < SEQUENTIAL_ZONES => {
            Err(Error::new(Errno::EINVAL, format!("the device has {zones} zones")))
        }
        0 => Ok(([whole(0)?, whole(1)?], SEQUENTIAL_ZONES)),
        1 => {
            let block = device.geometry().block;
            let half = device.report(0)?.capacity / 2 / block * block;
            Ok(([region(0, 0, half)?, region(0, half, half)?], 1))
        }
        _ => Ok(([whole(0)?, whole(1)?], conventional)),
    }
}

impl IndexLog {
    /// A log that is not on the device yet.
    pub(super) fn new(
        device: Arc<Watched>,
        regions: [Region; 2],
        environment: Arc<dyn Environment>,
    ) -> Result<Self> {
        let mut store = [0; 16];
        environment.fill_random(&mut store)?;
        // The first checkpoint goes to the first region.
        let writer = Writer { region: 1, generation: 0, salt: 0, sequence: 0, at: 0, torn: true };
        Ok(Self::with(device, regions, environment, store, writer))
    }

    fn with(
        device: Arc<Watched>,
        regions: [Region; 2],
        environment: Arc<dyn Environment>,
        store: [u8; 16],
        writer: Writer,
    ) -> Self {
        let block = device.geometry().block as usize;
        let (pending, writer) = (Mutex::default(), Mutex::new(writer));
        let (durable, written, grown) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        let checkpoint = AtomicU64::new(0);
        Self {
            device,
            block,
            store,
            regions,
            pending,
            writer,
            durable,
            written,
            checkpoint,
            grown,
            environment,
        }
    }

    /// The log that is on the device, whose records are handed to `replay`, with
    /// whether they were certainly durable; `None` if there is none.
    ///
    /// # Errors
    /// `EUCLEAN` if the newest checkpoint is lost, or if a frame that whole frames
    /// follow is damaged or of a newer version; those of the device.
    pub(super) fn open(
        device: Arc<Watched>,
        regions: [Region; 2],
        environment: &Arc<dyn Environment>,
        replay: &mut dyn FnMut(ZoneRecord, bool) -> Result<()>,
    ) -> Result<Option<Self>> {
        let block = device.geometry().block as usize;
        let mut newest: Option<(usize, Found)> = None;
        for (at, region) in regions.iter().enumerate() {
            let found = scan(&*device, region, block, &mut |_, _, _| Ok(()))?;
            let is_newer =
                |found: &Found| newest.is_none_or(|(_, newest)| found.generation > newest.generation);
            if let Some(found) = found.filter(|found| found.is_whole).filter(is_newer) {
                newest = Some((at, found));
            }
        }
        let Some((at, found)) = newest else { return Ok(None) };
        if found.moved_on {
            let what = "the newest checkpoint of the object index is lost or damaged";
            return Err(Error::new(Errno::EUCLEAN, what));
        }
        if let Some(error) = &found.broken {
            return Err(damaged(&regions[at], found.end, error));
        }
        if found.generation == u64::MAX {
            let error = FormatError::Damaged("its generation has none after it");
            return Err(damaged(&regions[at], 0, &error));
        }
        scan(&*device, &regions[at], block, &mut |number, kind, records| {
            // Data is durable before a checkpoint holds, and before the next frame is
            // begun.
            let was_durable = kind != FrameKind::Changes || number + 1 < found.frames;
            records.into_iter().try_for_each(|record| replay(record, was_durable))
        })?;
        let Found { store, generation, salt, frames: sequence, end, torn, .. } = found;
        let writer = Writer { region: at, generation, salt, sequence, at: end, torn };
        let log = Self::with(device, regions, Arc::clone(environment), store, writer);
        log.grown.store(end, Ordering::Relaxed);
        Ok(Some(log))
    }

    /// Adds a record, which is in the log after the next [`commit`](Self::commit).
    pub(super) fn add(&self, record: &ZoneRecord) {
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        self.grown.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        let mut pending = self.pending.lock();
        pending.count += 1;
        match pending.frames.last_mut().filter(|frame| frame.len() + bytes.len() <= FRAME_PAYLOAD_MAX) {
            Some(frame) => frame.extend_from_slice(&bytes),
            None => pending.frames.push(bytes),
        }
    }

    /// Makes everything durable: data written to the device, and all records
    /// that were added before. Fails if a flush failed since there were so many
    /// [failures](Watched::failures): objects may lead to data that is lost. The caller
    /// holds no object.
    pub(super) fn commit(&self, failures: u64, snapshot: Snapshot<'_>) -> Result<()> {
        let target = self.pending.lock().count;
        let mut writer = self.writer.lock();
        let (frames, count) = {
            let mut pending = self.pending.lock();
            (take(&mut pending.frames), pending.count)
        };
        if frames.is_empty() && self.durable.load(Ordering::Acquire) >= target {
            // Another thread made the records and their data durable.
            return Ok(());
        }
        // One may have failed while this waited for the log.
        let written = self.device.check_since(failures);
        let written = written.and_then(|()| self.write_all(&mut writer, &frames, failures, snapshot));
        let written = written.and_then(|()| self.device.flush_since(failures));
        match written {
            Ok(()) => self.durable.store(count, Ordering::Release),
            Err(_) => {
                writer.torn = true;
                self.pending.lock().frames.splice(0..0, frames);
            }
        }
        written.context("writing the object index")
    }

    /// Begins the other region with a checkpoint; fails as [`commit`](Self::commit)
    /// does. The caller holds no object.
    pub(super) fn checkpoint(&self, failures: u64, snapshot: Snapshot<'_>) -> Result<()> {
        let mut writer = self.writer.lock();
        let (frames, count) = {
            let mut pending = self.pending.lock();
            (take(&mut pending.frames), pending.count)
        };
        let written = self.device.check_since(failures);
        let written = written.and_then(|()| self.switch(&mut writer, failures, snapshot));
        match written.and_then(|()| self.device.check_since(failures)) {
            Ok(()) => {
                self.durable.store(count, Ordering::Release);
                Ok(())
            }
            Err(error) => {
                // It may be valid all the same: later records go behind another
                // one.
                writer.torn = true;
                self.pending.lock().frames.splice(0..0, frames);
                Err(error.context("writing the object index"))
            }
        }
    }

    /// Records that were added since the store was opened.
    pub(super) fn added(&self) -> u64 {
        self.pending.lock().count
    }

    /// Those of them that are durable.
    pub(super) fn durable(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    /// Bytes that were written to the device since the store was opened.
    pub(super) fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Whether there is room for a checkpoint, and for the records of moved data.
    pub(super) fn room(&self) -> IndexRoom {
        let most = self.regions.iter().map(|region| region.len / 2).min().unwrap_or(0);
        let (checkpoint, grown) =
            (self.checkpoint.load(Ordering::Relaxed), self.grown.load(Ordering::Relaxed));
        match checkpoint + grown {
            all if all <= most / 8 * 7 => IndexRoom::Enough,
            // Much of it may be gone since: it is an upper bound.
            _ if grown > most / 16 => IndexRoom::Unsure,
            _ => IndexRoom::Full,
        }
    }

    /// Whether a checkpoint has to come before anything else.
    pub(super) fn is_torn(&self) -> bool {
        self.writer.lock().torn
    }

    /// Whether something else than a log is where it would be.
    pub(super) fn would_replace(&self) -> Result<bool> {
        let mut buf = AlignedBuf::new();
        for Region { zone, kind, from, .. } in self.regions {
            let sequential = kind == ZoneKind::Sequential;
            if sequential && self.device.report(zone)?.write_pointer == 0 {
                continue;
            }
            let bytes = buf.bytes(self.block);
            self.device.read(zone, from, bytes)?;
            // Of a log that was begun or erased, some may be left.
            let is_log =
                FrameHead::decode(bytes).is_ok() || (!sequential && bytes.iter().all(|byte| *byte == 0));
            if !is_log {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Removes the log from the device, the newest region last. In a conventional zone,
    /// a checkpoint that never ends takes its place: were it zeros, one torn by a power
    /// loss could not be distinguished from something else.
    pub(super) fn erase(&self) -> Result<()> {
        let mut writer = self.writer.lock();
        *self.pending.lock() = Pending::default();
        for at in [1 - writer.region, writer.region] {
            let Region { zone, kind, from, .. } = self.regions[at];
            match kind {
                ZoneKind::Sequential => self.device.reset(zone)?,
                ZoneKind::Conventional => {
                    let (store, kind) = (self.store, FrameKind::Checkpoint);
                    let head = FrameHead { store, generation: 0, salt: 0, sequence: 0, kind, payload: 0 };
                    let mut buf = AlignedBuf::new();
                    let bytes = buf.bytes(self.block);
                    bytes.copy_from_slice(&head.seal(&[], self.block));
                    self.device.write(zone, from, &[IoSlice::new(bytes)])?;
                }
            }
            self.device.flush()?;
        }
        *writer = Writer { region: 1, generation: 0, salt: 0, sequence: 0, at: 0, torn: true };
        self.durable.store(0, Ordering::Release);
        Ok(())
    }

    fn write_all(
        &self,
        writer: &mut Writer,
        frames: &[Vec<u8>],
        failures: u64,
        snapshot: Snapshot<'_>,
    ) -> Result<()> {
        for (at, frame) in frames.iter().enumerate() {
            // Where no write pointer shows the fate of the data, a frame that leads to it
            // must not be there before it.
            if at > 0 || !self.device.keeps_write_pointers() {
                self.device.flush_since(failures)?;
            }
            let len = (FRAME_HEAD + frame.len()).next_multiple_of(self.block) as u64;
            // One more block says that the log has moved on, and the zone is not full then:
            // the write pointer of a full one does not show losses.
            if writer.torn || writer.at + len + 2 * self.block as u64 > self.regions[writer.region].len {
                // It takes all of the room left here.
                return self.switch(writer, failures, snapshot);
            }
            self.write_frame(writer, FrameKind::Changes, frame)?;
        }
        Ok(())
    }

    /// Writes a checkpoint to the other region, where the log goes on.
    fn switch(&self, writer: &mut Writer, failures: u64, snapshot: Snapshot<'_>) -> Result<()> {
        let region = 1 - writer.region;
        if self.regions[region].kind == ZoneKind::Sequential {
            self.device.reset(self.regions[region].zone)?;
        }
        let mut salt = [0; 8];
        self.environment.fill_random(&mut salt)?;
        let (generation, salt) = (writer.generation + 1, u64::from_le_bytes(salt));
        let mut next = Writer { region, generation, salt, sequence: 0, at: 0, torn: false };
        let (mut payload, mut failed, grown) = (Vec::new(), None, self.grown.load(Ordering::Relaxed));
        snapshot(&mut |record| {
            if failed.is_some() {
                return;
            }
            let mut bytes = Vec::new();
            record.encode(&mut bytes);
            if payload.len() + bytes.len() > FRAME_PAYLOAD_MAX {
                failed = self.write_checkpoint(&mut next, FrameKind::Checkpoint, &payload).err();
                payload.clear();
            }
            payload.extend_from_slice(&bytes);
        });
        if let Some(error) = failed {
            return Err(error);
        }
        // The data that it leads to is durable before it holds.
        self.device.flush_since(failures)?;
        self.write_checkpoint(&mut next, FrameKind::CheckpointEnd, &payload)?;
        self.device.flush()?;
        // One that was torn does not go on in a sequential zone.
        let goes_on = !writer.torn || self.regions[writer.region].kind == ZoneKind::Conventional;
        if writer.sequence > 0 && goes_on {
            // If that fails, the older log is only older.
            let mut old = *writer;
            if let Err(error) = self.write_frame(&mut old, FrameKind::MovedOn, &[]) {
                tracing::debug!(%error, "the older log of the object index is not closed");
            }
        }
        self.checkpoint.store(next.at, Ordering::Relaxed);
        self.grown.fetch_sub(grown, Ordering::Relaxed);
        *writer = next;
        Ok(())
    }

    fn write_checkpoint(&self, writer: &mut Writer, kind: FrameKind, payload: &[u8]) -> Result<()> {
        let len = (FRAME_HEAD + payload.len()).next_multiple_of(self.block) as u64;
        // Half of the region is for changes.
        if writer.at + len > self.regions[writer.region].len / 2 {
            return Err(Error::new(Errno::ENOSPC, "the object index is too long for its region"));
        }
        self.write_frame(writer, kind, payload)
    }

    fn write_frame(&self, writer: &mut Writer, kind: FrameKind, payload: &[u8]) -> Result<()> {
        let Writer { region, generation, salt, sequence, at, .. } = *writer;
        let payload_len = payload.len() as u32;
        let head = FrameHead { store: self.store, generation, salt, sequence, kind, payload: payload_len };
        let frame = head.seal(payload, self.block);
        let mut buf = AlignedBuf::new();
        let bytes = buf.bytes(frame.len());
        bytes.copy_from_slice(&frame);
        let Region { zone, from, .. } = self.regions[region];
        self.device.write(zone, from + at, &[IoSlice::new(bytes)])?;
        self.written.fetch_add(frame.len() as u64, Ordering::Relaxed);
        (writer.sequence, writer.at) = (sequence + 1, at + frame.len() as u64);
        Ok(())
    }
}

/// Reads the frames of a region, up to where none follows; `None` if it begins with
/// none.
///
/// # Errors
/// `EUCLEAN` for a frame of a newer version; those of the device.
fn scan(
    device: &dyn ZonedDevice,
    region: &Region,
    block: usize,
    visit: &mut dyn FnMut(u64, FrameKind, Vec<ZoneRecord>) -> Result<()>,
) -> Result<Option<Found>> {
    let written = match region.kind {
        ZoneKind::Conventional => region.len,
        ZoneKind::Sequential => device.report(region.zone)?.write_pointer.min(region.len),
    };
    let mut found: Option<Found> = None;
    let (mut buf, mut at) = (AlignedBuf::new(), 0);
    while at + block as u64 <= written {
        let bytes = buf.bytes(block);
        device.read(region.zone, region.from + at, bytes)?;
        let head = match FrameHead::decode(bytes) {
            Ok(head) => head,
            // It may be the newest.
            Err(error @ FormatError::Newer(_)) => return Err(damaged(region, at, &error)),
            Err(FormatError::Damaged(_)) => break,
        };
        let follows = found.is_none_or(|found| {
            let same = (found.store, found.generation, found.salt, found.frames);
            (head.store, head.generation, head.salt, head.sequence) == same
        });
        let len = head.len(block) as u64;
        if !follows || (found.is_none() && head.sequence != 0) || at + len > written {
            break;
        }
        let bytes = buf.bytes(len as usize);
        device.read(region.zone, region.from + at, bytes)?;
        let Ok(payload) = head.check(bytes) else { break };
        let before = found.unwrap_or(Found {
            store: head.store,
            generation: head.generation,
            salt: head.salt,
            frames: 0,
            end: 0,
            is_whole: false,
            moved_on: false,
            torn: false,
            broken: None,
        });
        let records = match ZoneRecord::decode_all(payload) {
            Ok(records) => records,
            Err(error) => {
                found = Some(Found { broken: Some(error), ..before });
                break;
            }
        };
        visit(before.frames, head.kind, records)?;
        at += len;
        found = Some(Found {
            frames: before.frames + 1,
            end: at,
            is_whole: before.is_whole || head.kind == FrameKind::CheckpointEnd,
            moved_on: head.kind == FrameKind::MovedOn,
            ..before
        });
    }
    if let Some(found) = found.as_mut().filter(|found| found.broken.is_none())
        && is_followed(device, region, block, written, found)?
    {
        found.broken = Some(FormatError::Damaged("a frame before whole ones can't be read"));
    }
    // A sequential zone goes on at its write pointer only.
    let torn = region.kind == ZoneKind::Sequential && at < written;
    Ok(found.map(|found| Found { torn, ..found }))
}

/// Whether whole frames of the same log follow one that is not. A frame is durable
/// before the next one is begun, so that none follows one that was torn.
fn is_followed(
    device: &dyn ZonedDevice,
    region: &Region,
    block: usize,
    written: u64,
    found: &Found,
) -> Result<bool> {
    let longest = (FRAME_HEAD + FRAME_PAYLOAD_MAX).next_multiple_of(block) as u64;
    let end = written.min(found.end + longest + block as u64);
    let (mut buf, mut at) = (AlignedBuf::new(), found.end);
    while at + block as u64 <= end {
        let bytes = buf.bytes(block);
        device.read(region.zone, region.from + at, bytes)?;
        let of_this_log = |head: &FrameHead| {
            (head.store, head.generation, head.salt) == (found.store, found.generation, found.salt)
        };
        if let Ok(head) = FrameHead::decode(bytes)
            && of_this_log(&head)
            && head.sequence > found.frames
            && at + head.len(block) as u64 <= written
        {
            let bytes = buf.bytes(head.len(block));
            device.read(region.zone, region.from + at, bytes)?;
            if head.check(bytes).is_ok() {
                return Ok(true);
            }
        }
        at += block as u64;
    }
    Ok(false)
}

fn damaged(region: &Region, at: u64, error: &FormatError) -> Error {
    let what = format!("the object index in zone {}, at {}: {error}", region.zone, region.from + at);
    Error::new(Errno::EUCLEAN, what)
}
