//! The frames of one file, through the child's: their headers, and which of the slots
//! counts.

use super::door::Door;
use super::file::{File, Format, Group};
use super::geometry::{FIRST, FRAMES, Geometry, HEADERS, Side, TRIO, group_of, place_of};
use super::header::{Coding, Header, Trio};
use super::shared::Shared;
use braid_contract::{Errno, Error, Result, Shown};
use std::sync::Arc;

/// A framed file, its format, and the child's file. Its owner holds the lock of
/// the file's state, alone if anything is changed.
#[derive(Clone, Copy)]
pub(crate) struct Access<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) file: &'a File,
    pub(crate) format: &'a Format,
    pub(crate) door: Door<'a>,
}

/// The contents of a frame.
pub(crate) enum Current {
    /// Zeros.
    Hole,
    /// The contents of this slot, with its bytes if they had to be checked.
    At(Side, Header, Option<Vec<u8>>),
    /// It can't be known.
    Lost,
}

impl Access<'_> {
    pub(crate) fn geometry(&self) -> Geometry {
        self.format.head.geometry
    }

    /// The headers of a group.
    pub(crate) fn group(&self, group: u64) -> Result<Arc<Group>> {
        if let Some(known) = self.file.known_group(group) {
            return Ok(known);
        }
        let mut bytes = [0; HEADERS as usize];
        self.door.read_at(self.geometry().headers_at(group), &mut bytes)?;
        let trios = bytes[FIRST as usize..].as_chunks::<TRIO>().0;
        let mut headers: Group = [Trio::default(); FRAMES as usize];
        for (header, bytes) in headers.iter_mut().zip(trios) {
            *header = Trio::decode(bytes, self.geometry());
        }
        let headers = Arc::new(headers);
        self.file.know_group(group, Arc::clone(&headers));
        Ok(headers)
    }

    pub(crate) fn trio(&self, frame: u64) -> Result<Trio> {
        Ok(self.group(group_of(frame))?[place_of(frame)])
    }

    /// Writes headers of frames of one group, which are in order.
    pub(crate) fn store_trios(&self, trios: &[(u64, Trio)]) -> Result<()> {
        let Some((first, _)) = trios.first() else { return Ok(()) };
        let group = group_of(*first);
        let mut headers = *self.group(group)?;
        let stored = trios.chunk_by(|(one, _), (next, _)| one + 1 == *next).try_for_each(|run| {
            let bytes: Vec<u8> = run.iter().flat_map(|(_, trio)| trio.encode()).collect();
            self.door.write_at(self.geometry().trio_at(run[0].0), &bytes)?;
            run.iter().for_each(|(frame, trio)| headers[place_of(*frame)] = *trio);
            Ok(())
        });
        match &stored {
            Ok(()) => self.file.know_group(group, Arc::new(headers)),
            // The headers there are unknown now.
            Err(_) => self.file.forget_groups(),
        }
        stored
    }

    /// Whether the write of a header is durable.
    pub(crate) fn is_durable(&self, header: &Header) -> bool {
        self.file.has_synced(header.sequence) || self.shared.sequence.is_durable(header)
    }

    /// The contents of a frame. If a crash may have torn its newest slot, that is checked.
    pub(crate) fn current(&self, frame: u64, trio: &Trio) -> Result<Current> {
        if trio.is_damaged() {
            return Ok(Current::Lost);
        }
        for (side, header) in trio.newest_first() {
            if !self.shared.sequence.is_suspect(&header) {
                return Ok(Current::At(side, header, None));
            }
            let bytes = self.open_slot(frame, side, &header)?;
            if bytes.is_some() {
                return Ok(Current::At(side, header, bytes));
            }
            self.is_torn(frame, &header);
        }
        Ok(Current::Hole)
    }

    /// The bytes of a frame without the zeros behind them.
    pub(crate) fn content(&self, frame: u64, current: Current) -> Result<Vec<u8>> {
        match current {
            Current::Hole => Ok(Vec::new()),
            Current::At(_, _, Some(bytes)) => Ok(bytes),
            Current::At(side, header, None) => {
                self.open_slot(frame, side, &header)?.ok_or_else(|| self.damage(frame))
            }
            Current::Lost => Err(self.damage(frame)),
        }
    }

    /// The bytes of a frame in a slot; `None` if they are damaged.
    fn open_slot(&self, frame: u64, side: Side, header: &Header) -> Result<Option<Vec<u8>>> {
        let mut bytes = vec![0; header.stored as usize];
        self.door.read_at(self.geometry().slot_at(frame, side), &mut bytes)?;
        self.shared.counts.checked.one();
        Ok(self.format.seal.open(frame, header, bytes))
    }

    /// Notes a version that does not count, once: after a crash, it may be damage all the same.
    fn is_torn(&self, frame: u64, header: &Header) {
        if self.file.is_first_torn(header.sequence) {
            self.shared.counts.torn.one();
            let (path, offset) = (self.shared.path(self.file.ino), self.geometry().start_of(frame));
            let text = "a version of a frame does not count: a crash has torn it, or it is damaged";
            tracing::warn!(path = %path.shown(), frame, offset, "{text}");
        }
    }

    fn damage(&self, frame: u64) -> Error {
        let path = self.shared.path(self.file.ino);
        let offset = self.geometry().start_of(frame);
        self.shared.counts.damaged.one();
        tracing::error!(path = %path.shown(), frame, offset, "a frame of the file is damaged");
        Error::new(Errno::EIO, format!("{}: the frame at offset {offset} is damaged", path.shown()))
    }

    /// The next group from `group` on with a header, if the bytes before `end` have one.
    pub(crate) fn next_used_group(&self, group: u64, end: u64) -> Result<Option<u64>> {
        let mut group = group;
        let last = match end.checked_sub(1) {
            Some(last) => group_of(self.geometry().frame_of(last)),
            None => return Ok(None),
        };
        while group <= last {
            if self.group(group)?.iter().any(|trio| !trio.is_absent()) {
                return Ok(Some(group));
            }
            group = (group + 1).max(self.next_data_group(group + 1)?);
        }
        Ok(None)
    }

    /// The first group from `group` on in which the child has any data.
    fn next_data_group(&self, group: u64) -> Result<u64> {
        let from = self.geometry().headers_at(group);
        match self.door.child.seek(self.door.caller, self.door.handle, from, braid_contract::SeekTarget::Data)
        {
            Ok(data) => Ok(self.geometry().group_at(data)),
            Err(error) if error.errno() == Errno::ENXIO => Ok(u64::MAX),
            // The child can't find data.
            Err(_) => Ok(group),
        }
    }
}

/// Whether a frame has data.
pub(crate) fn has_data(trio: &Trio) -> bool {
    trio.is_damaged() || trio.newest().is_some_and(|(_, header)| header.coding != Coding::Hole)
}
