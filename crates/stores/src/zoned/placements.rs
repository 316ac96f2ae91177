//! Which placement of a device the data of a stream goes to.

use super::table::Stream;
use std::collections::BTreeMap;

/// So many placements, and one of them is the index's alone.
const ENOUGH_FOR_THE_INDEX: usize = 3;

/// The placements of a device, and their streams.
#[derive(Debug)]
pub(super) struct Placements {
    /// The one for the index.
    index: Option<u16>,
    /// Those for data, the one that was written last at the end.
    order: Vec<u16>,
    of: BTreeMap<Stream, u16>,
}

impl Placements {
    /// These placements; with fewer than two, nothing is kept apart.
    pub(super) fn new(ids: &[u16]) -> Self {
        let ids = if ids.len() < 2 { &[] } else { ids };
        let taken = usize::from(ids.len() >= ENOUGH_FOR_THE_INDEX);
        Self { index: ids.first().copied(), order: ids[taken..].to_vec(), of: BTreeMap::new() }
    }

    /// The one that the index goes to.
    pub(super) fn of_index(&self) -> Option<u16> {
        self.index
    }

    /// The one that a stream goes to, if it has any.
    pub(super) fn of(&self, stream: Stream) -> Option<u16> {
        self.of.get(&stream).copied()
    }

    /// The one that data of a stream is written to now. A stream that has none gets a
    /// free one; if none is free, it shares the one that was written longest ago.
    pub(super) fn used(&mut self, stream: Stream) -> Option<u16> {
        let is_free = |id: &u16| !self.of.values().any(|taken| taken == id);
        let id = self.of(stream).or_else(|| self.order.iter().copied().find(is_free));
        let id = id.or_else(|| self.order.first().copied())?;
        self.of.insert(stream, id);
        self.order.retain(|other| *other != id);
        self.order.push(id);
        Some(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_contract::StreamId;

    fn stream(number: u32) -> Stream {
        Some(StreamId(number))
    }

    #[test]
    fn streams_are_kept_apart_as_far_as_there_are_placements() {
        let mut placements = Placements::new(&[0, 1, 2, 3]);
        assert_eq!(placements.of_index(), Some(0));
        let mut used = |number| placements.used(stream(number)).unwrap();
        let first = [used(7), used(8), used(9)];
        assert_eq!(first, [1, 2, 3]);
        assert_eq!([used(8), used(7)], [2, 1], "a stream keeps the one that it has");
        assert_eq!(used(10), 3, "the one that was written longest ago is shared");
        assert_eq!([used(11), used(9), used(10), used(11)], [2, 3, 3, 2]);
        assert_eq!(placements.used(None), Some(1), "data without a stream is one too");
        assert_eq!((placements.of(None), placements.of(stream(99))), (Some(1), None));
    }

    #[test]
    fn with_few_placements_the_index_shares_one() {
        let mut two = Placements::new(&[4, 5]);
        assert_eq!((two.of_index(), two.used(stream(1)), two.used(None)), (Some(4), Some(4), Some(5)));
        for few in [&[4][..], &[]] {
            let mut none = Placements::new(few);
            assert_eq!((none.of_index(), none.used(stream(1)), none.of(stream(1))), (None, None, None));
        }
    }
}
