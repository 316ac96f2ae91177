//! The state of each object by the log of the index, as it is replayed.

use super::extents::{Extents, LOST, Place};
use super::object::{END, whole_blocks};
use super::spans::Spans;
use super::table::Stream;
use braid_contract::{ObjectId, StreamId, Timestamp};
use braid_format::ZoneRecord;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

/// An object as the log has it.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) id: ObjectId,
    pub(super) size: u64,
    pub(super) mtime: Timestamp,
    pub(super) atime: Option<Timestamp>,
    pub(super) present: Spans,
    pub(super) extents: Extents,
    /// Blocks for which there is to be room.
    pub(super) reserved: Spans,
}

/// The index as the log has it.
#[derive(Debug, Default)]
pub(super) struct Replay {
    pub(super) label: Option<Vec<u8>>,
    pub(super) objects: HashMap<u64, Known>,
    pub(super) streams: BTreeMap<u32, Stream>,
    /// The highest number of an object.
    pub(super) highest: u64,
    /// Blocks that were said to be durable, and are not there.
    pub(super) lost: u64,
    /// Some of the last records are about data that never was durable.
    pub(super) passed_over: bool,
    /// Bytes of an object that the last record was about, if that was passed over.
    passed: Option<(u64, Range<u64>)>,
    block: u64,
}

impl Replay {
    pub(super) fn new(block: u64) -> Self {
        Self { block, ..Self::default() }
    }

    /// One more record. `written` answers how many blocks of a zone were written,
    /// if it is one for data; blocks beyond were lost with the power, before
    /// anything said that they were durable, unless `was_durable`.
    pub(super) fn add(
        &mut self,
        record: ZoneRecord,
        was_durable: bool,
        written: &dyn Fn(u32) -> Option<u32>,
    ) {
        let passed = self.passed.take();
        match record {
            ZoneRecord::Label(label) => self.label = Some(label),
            ZoneRecord::Unlabelled => self.label = None,
            ZoneRecord::Made { object, id } => {
                let (mtime, present, extents) = (Timestamp::default(), Spans::default(), Extents::default());
                self.highest = self.highest.max(object);
                self.objects.entry(object).or_insert(Known {
                    id,
                    size: 0,
                    mtime,
                    atime: None,
                    present,
                    extents,
                    reserved: Spans::default(),
                });
            }
            ZoneRecord::Piece { object, start, end, zone, at } => {
                let blocks = start / self.block..end.div_ceil(self.block);
                // Else it leads nowhere, and its data is lost.
                let count = u32::try_from(blocks.end - blocks.start).ok();
                let count = count.filter(|count| at.checked_add(*count).is_some());
                let Some(count) = count else {
                    self.lost = self.lost.saturating_add(blocks.end - blocks.start);
                    return;
                };
                let is_there = zone == LOST || written(zone).is_some_and(|written| at + count <= written);
                if !is_there && !was_durable {
                    self.passed_over = true;
                    self.passed = Some((object, start..end));
                    return;
                }
                let Some(known) = self.objects.get_mut(&object) else { return };
                known.reserved.remove(blocks.clone());
                known.extents.put(blocks.start, Place { zone, at, blocks: count });
                known.present.insert(start..end);
                known.size = known.size.max(end);
            }
            ZoneRecord::Size { object, size } => {
                let Some(known) = self.objects.get_mut(&object) else { return };
                known.size = size;
                known.cut(size..END, self.block);
            }
            ZoneRecord::Punched { object, start, end } => {
                // It is about gaps in missing data: they were there before.
                if let Some((of, bytes)) = &passed
                    && (*of, start >= bytes.start, end <= bytes.end) == (object, true, true)
                {
                    self.passed = passed;
                    return;
                }
                let Some(known) = self.objects.get_mut(&object) else { return };
                known.cut(start..end, self.block);
            }
            ZoneRecord::Reserved { object, start, end } => {
                let Some(known) = self.objects.get_mut(&object) else { return };
                let blocks = start / self.block..end.div_ceil(self.block);
                known.reserved.insert(blocks.clone());
                let placed: Vec<_> = known.extents.within(blocks).collect();
                for (first, place) in placed {
                    known.reserved.remove(first..first + u64::from(place.blocks));
                }
            }
            ZoneRecord::Times { object, mtime, atime } => {
                let Some(known) = self.objects.get_mut(&object) else { return };
                (known.mtime, known.atime) = (mtime, atime);
            }
            ZoneRecord::Removed { object } => _ = self.objects.remove(&object),
            ZoneRecord::Zone { zone, stream } => _ = self.streams.insert(zone, stream.map(StreamId)),
        }
    }

    /// All records were added. Data beyond the written part of a zone is lost, and
    /// may not be taken for data that is written there next.
    pub(super) fn finish(&mut self, written: &dyn Fn(u32) -> Option<u32>) {
        let is_there = |place: &Place| {
            let end = place.at.checked_add(place.blocks).zip(written(place.zone));
            end.is_some_and(|(end, written)| end <= written)
        };
        for known in self.objects.values_mut() {
            let lost: Vec<(u64, Place)> =
                known.extents.iter().filter(|(_, place)| place.zone != LOST && !is_there(place)).collect();
            for (first, place) in lost {
                self.lost = self.lost.saturating_add(place.blocks.into());
                known.extents.put(first, Place { zone: LOST, ..place });
            }
        }
    }

    /// Of these zones, the byte behind the last one that is of use.
    pub(super) fn ends(&self, zones: Range<u32>) -> impl Iterator<Item = (u32, u64)> {
        let mut ends: BTreeMap<u32, u64> = zones.clone().map(|zone| (zone, 0)).collect();
        for (_, place) in self.objects.values().flat_map(|known| known.extents.iter()) {
            if let Some(end) = ends.get_mut(&place.zone) {
                *end = (*end).max((u64::from(place.at) + u64::from(place.blocks)) * self.block);
            }
        }
        ends.into_iter()
    }
}

impl Known {
    fn cut(&mut self, span: Range<u64>, block: u64) {
        self.present.remove(span.clone());
        let touched = span.start / block..span.end.div_ceil(block);
        let keeps = |at: u64| self.present.touches(&(at * block..(at + 1) * block));
        let first = touched.start + u64::from(keeps(touched.start));
        let end = touched.end - u64::from(touched.end > 0 && keeps(touched.end - 1));
        if first < end {
            self.extents.remove(first..end);
            self.reserved.remove(whole_blocks(&span, block));
        }
    }
}
