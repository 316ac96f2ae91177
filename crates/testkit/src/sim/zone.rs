//! One zone of a [simulated zoned device](super::SimZoned), and its states after
//! power loss.

use super::choose::Chooser;
use braid_contract::{ZoneKind, ZoneState};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A block that was not entirely written is torn in units of these.
const SECTOR: usize = 512;

/// A zone.
#[derive(Clone, Debug)]
pub(super) struct Zone {
    pub(super) kind: ZoneKind,
    pub(super) capacity: u64,
    /// Set from outside: it failed.
    pub(super) failed: Option<ZoneState>,
    block: u64,
    /// The written part; of a conventional zone, all.
    data: Arc<Vec<u8>>,
    /// How much of it is there for certain.
    durable: u64,
    finished: bool,
    /// It is finished for certain.
    finish_durable: bool,
    /// Of a conventional zone: blocks that were written since the last flush, as
    /// they were before each time.
    before: BTreeMap<u64, Vec<Vec<u8>>>,
    /// As it was before the first reset since the last flush.
    unreset: Option<Arc<Zone>>,
}

/// A possible state of a zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    Any,
    /// It was reset and finished, if it was asked for.
    InOrder,
}

impl Zone {
    /// An empty zone.
    pub(super) fn new(kind: ZoneKind, capacity: u64, block: u64) -> Self {
        let data = if kind == ZoneKind::Conventional { vec![0; capacity as usize] } else { Vec::new() };
        Self {
            kind,
            capacity,
            failed: None,
            block,
            durable: data.len() as u64,
            data: Arc::new(data),
            finished: false,
            finish_durable: false,
            before: BTreeMap::new(),
            unreset: None,
        }
    }

    /// Bytes that were written.
    pub(super) fn written(&self) -> u64 {
        self.data.len() as u64
    }

    pub(super) fn write_pointer(&self) -> u64 {
        if self.finished || self.kind == ZoneKind::Conventional { self.capacity } else { self.written() }
    }

    pub(super) fn state(&self) -> ZoneState {
        match (self.failed, self.kind) {
            (Some(state), _) => state,
            (None, ZoneKind::Conventional) => ZoneState::Full,
            (None, _) if self.write_pointer() == self.capacity => ZoneState::Full,
            (None, _) if self.write_pointer() == 0 => ZoneState::Empty,
            (None, _) => ZoneState::Closed,
        }
    }

    /// Reads up to the write pointer: the lost or finished part is zeros. Answers
    /// whether that is all.
    pub(super) fn read(&self, offset: u64, buf: &mut [u8]) -> bool {
        let end = if self.kind == ZoneKind::Conventional { self.written() } else { self.write_pointer() };
        if offset + buf.len() as u64 > end {
            return false;
        }
        let from = self.data.get(offset as usize..).unwrap_or_default();
        let there = from.len().min(buf.len());
        buf[..there].copy_from_slice(&from[..there]);
        buf[there..].fill(0);
        true
    }

    /// Writes where it can be written.
    pub(super) fn put(&mut self, offset: u64, bytes: &[u8]) {
        if self.kind == ZoneKind::Sequential {
            Arc::make_mut(&mut self.data).extend_from_slice(bytes);
            return;
        }
        let data = Arc::make_mut(&mut self.data);
        for (number, block) in (offset / self.block..).zip(bytes.chunks(self.block as usize)) {
            let from = (number * self.block) as usize;
            let place = &mut data[from..from + block.len()];
            self.before.entry(number).or_default().push(place.to_vec());
            place.copy_from_slice(block);
        }
    }

    pub(super) fn reset(&mut self) {
        let empty = Self { failed: self.failed, ..Self::new(self.kind, self.capacity, self.block) };
        let before = std::mem::replace(self, empty);
        // As it is on the device now, and was before it was reset more than once.
        self.unreset = (before.write_pointer() > 0 || before.unreset.is_some()).then(|| Arc::new(before));
    }

    pub(super) fn finish(&mut self) {
        self.finished |= self.written() < self.capacity;
    }

    pub(super) fn flush(&mut self) {
        (self.durable, self.finish_durable) = (self.written(), self.finished);
        self.unreset = None;
        self.before.clear();
    }

    /// Whether power loss leaves it as it is.
    pub(super) fn is_durable(&self) -> bool {
        self.durable == self.written()
            && self.finish_durable == self.finished
            && self.unreset.is_none()
            && self.before.is_empty()
    }

    pub(super) fn lose_from(&mut self, offset: u64) {
        Arc::make_mut(&mut self.data).truncate(offset as usize);
        self.flush();
    }

    pub(super) fn damage(&mut self, offset: usize, len: usize) {
        let data = Arc::make_mut(&mut self.data);
        let end = (offset + len).min(data.len());
        if let Some(bytes) = data.get_mut(offset..end) {
            bytes.iter_mut().for_each(|byte| *byte ^= 0x5a);
        }
    }

    /// The zone as it is found after the power was lost.
    pub(super) fn after_power_loss(
        zone: &Arc<Self>,
        chooser: &mut dyn Chooser,
        outcome: Outcome,
    ) -> Arc<Self> {
        if zone.is_durable() {
            return Arc::clone(zone);
        }
        if let Some(unreset) = zone.unreset.as_ref().filter(|_| outcome == Outcome::Any)
            && chooser.choose(2) == 0
        {
            return Self::after_power_loss(unreset, chooser, outcome);
        }
        let mut found = Self::clone(zone);
        if found.kind == ZoneKind::Conventional {
            found.lose_blocks(chooser);
        } else {
            found.lose_end(chooser, outcome);
        }
        found.flush();
        Arc::new(found)
    }

    /// Each block is any of its versions, or part one and part the next one.
    fn lose_blocks(&mut self, chooser: &mut dyn Chooser) {
        let (block, data) = (self.block as usize, Arc::make_mut(&mut self.data));
        for (number, older) in std::mem::take(&mut self.before) {
            let place = &mut data[number as usize * block..][..block];
            let newest = place.to_vec();
            let versions: Vec<&[u8]> = older.iter().chain([&newest]).map(|version| &version[..]).collect();
            let chosen = chooser.choose(2 * versions.len() - 1);
            place.copy_from_slice(versions[chosen / 2]);
            if chosen % 2 == 1 && block > SECTOR {
                let torn = (1 + chooser.choose(block / SECTOR)).min(block / SECTOR - 1) * SECTOR;
                place[..torn].copy_from_slice(&versions[chosen / 2 + 1][..torn]);
            }
        }
    }

    fn lose_end(&mut self, chooser: &mut dyn Chooser, outcome: Outcome) {
        let was_full = self.written() == self.capacity;
        let unsure = (self.written() - self.durable) / self.block;
        if unsure > 0 {
            let kept = self.durable + chooser.choose(unsure as usize + 1) as u64 * self.block;
            if kept < self.written() {
                Arc::make_mut(&mut self.data).truncate(kept as usize);
            }
        }
        let is_unsure = match was_full {
            // One that was full may be so, whatever it has lost.
            true => self.written() < self.capacity,
            false => self.finished != self.finish_durable,
        };
        if is_unsure {
            self.finished = outcome == Outcome::InOrder || chooser.choose(2) > 0;
        }
    }
}
