//! Where blocks of an object were before they were moved. Until the move is durable,
//! their zones are not reset; should the device lose the moved data, they are there
//! again.

use super::extents::Place;
use std::ops::Range;

/// The former places of an object's blocks.
#[derive(Debug, Default)]
pub(super) struct Formers(Vec<Former>);

/// A former place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Former {
    /// The first block of the object that was there.
    pub(super) first: u64,
    pub(super) place: Place,
    /// How often the zone had been reset.
    pub(super) resets: u64,
    /// The record of the move, as a count.
    pub(super) record: u64,
}

impl Former {
    fn blocks(&self) -> Range<u64> {
        self.first..self.first + u64::from(self.place.blocks)
    }

    /// The part of it that these blocks were in, which it has.
    fn part(self, blocks: &Range<u64>) -> Self {
        let at = self.place.at + (blocks.start - self.first) as u32;
        let place = Place { at, blocks: (blocks.end - blocks.start) as u32, ..self.place };
        Self { first: blocks.start, place, ..self }
    }
}

impl Formers {
    /// Blocks were moved away from there. Those whose moves are durable, up to a record,
    /// are forgotten.
    pub(super) fn add(&mut self, former: Former, durable: u64) {
        self.0.retain(|known| known.record > durable);
        self.0.push(former);
    }

    /// The present data of these blocks was not in these places.
    pub(super) fn forget(&mut self, blocks: &Range<u64>) {
        let others = |former: Former| {
            let Range { start, end } = former.blocks();
            [start..end.min(blocks.start), start.max(blocks.end)..end]
                .into_iter()
                .filter(|part| part.start < part.end)
                .map(move |part| former.part(&part))
        };
        self.0 = std::mem::take(&mut self.0).into_iter().flat_map(others).collect();
    }

    /// The former places of some of these blocks, the newest first.
    pub(super) fn within(&self, blocks: &Range<u64>) -> Vec<Former> {
        let part = |former: &Former| {
            let part = former.blocks().start.max(blocks.start)..former.blocks().end.min(blocks.end);
            (part.start < part.end).then(|| former.part(&part))
        };
        self.0.iter().rev().filter_map(part).collect()
    }
}
