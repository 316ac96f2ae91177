//! The ranges that a tier's part of the cache has, least recently used first in two
//! levels: objects, and the ranges of each (PolyStore §4.6.2).

use braid_contract::ObjectId;
use lru::LruCache;
use std::sync::Arc;

/// Bytes that a range takes beside its data, about.
const OVERHEAD: u64 = 160;

/// Data of a range; less than a whole one at the object's end.
pub(super) type Data = Arc<Vec<u8>>;

/// The ranges in memory.
pub(super) struct Ranges {
    objects: LruCache<ObjectId, LruCache<u64, Data>>,
    bytes: u64,
}

impl Ranges {
    pub(super) fn new() -> Self {
        Self { objects: LruCache::unbounded(), bytes: 0 }
    }

    /// Memory that is in use.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// A range that is used.
    pub(super) fn get(&mut self, id: ObjectId, range: u64) -> Option<Data> {
        self.objects.get_mut(&id)?.get(&range).cloned()
    }

    pub(super) fn insert(&mut self, id: ObjectId, range: u64, data: Data) {
        self.bytes += cost(&data);
        let ranges = self.objects.get_or_insert_mut(id, LruCache::unbounded);
        if let Some(old) = ranges.put(range, data) {
            self.bytes -= cost(&old);
        }
    }

    /// Writes over a part of a range that is there. One that this leaves a gap in goes.
    pub(super) fn patch(&mut self, id: ObjectId, range: u64, within: usize, bytes: &[u8]) {
        let Some(ranges) = self.objects.peek_mut(&id) else { return };
        let Some(data) = ranges.peek_mut(&range) else { return };
        if within > data.len() {
            return self.remove(id, range);
        }
        let data = Arc::make_mut(data);
        let end = within + bytes.len();
        self.bytes += end.saturating_sub(data.len()) as u64;
        if end > data.len() {
            data.resize(end, 0);
        }
        data[within..end].copy_from_slice(bytes);
    }

    pub(super) fn remove(&mut self, id: ObjectId, range: u64) {
        let Some(ranges) = self.objects.peek_mut(&id) else { return };
        if let Some(data) = ranges.pop(&range) {
            self.bytes -= cost(&data);
        }
        if ranges.is_empty() {
            self.objects.pop(&id);
        }
    }

    /// Removes all ranges of an object from `first` on.
    pub(super) fn remove_from(&mut self, id: ObjectId, first: u64) {
        let Some(ranges) = self.objects.peek(&id) else { return };
        let gone: Vec<u64> = ranges.iter().map(|(range, _)| *range).filter(|range| *range >= first).collect();
        gone.into_iter().for_each(|range| self.remove(id, range));
    }

    pub(super) fn clear(&mut self) {
        *self = Self::new();
    }

    /// Evicts until at most `limit` bytes are in use; answers how many ranges went.
    pub(super) fn shrink(&mut self, limit: u64) -> u64 {
        let mut count = 0;
        while self.bytes > limit {
            let Some((id, ranges)) = self.objects.peek_lru() else { break };
            let id = *id;
            let Some((range, _)) = ranges.peek_lru() else { break };
            let range = *range;
            self.remove(id, range);
            count += 1;
        }
        count
    }
}

fn cost(data: &Data) -> u64 {
    data.len() as u64 + OVERHEAD
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ObjectId = ObjectId([1; 16]);
    const B: ObjectId = ObjectId([2; 16]);

    fn data(len: usize) -> Data {
        Arc::new(vec![1; len])
    }

    #[test]
    fn the_object_used_longest_ago_gives_its_range_used_longest_ago() {
        let mut ranges = Ranges::new();
        for (id, range) in [(A, 0), (A, 1), (B, 0), (B, 1)] {
            ranges.insert(id, range, data(100));
        }
        assert_eq!(ranges.bytes(), 4 * (100 + OVERHEAD));
        assert!(ranges.get(B, 0).is_some() && ranges.get(A, 0).is_some());
        // A was used last, so that B gives, first the range 1.
        let held = |ranges: &Ranges| {
            let has = |id, range| ranges.objects.peek(&id).is_some_and(|found| found.contains(&range));
            [has(A, 0), has(A, 1), has(B, 0), has(B, 1)]
        };
        assert_eq!(ranges.shrink(3 * (100 + OVERHEAD)), 1);
        assert_eq!(held(&ranges), [true, true, true, false]);
        assert_eq!(ranges.shrink(100 + OVERHEAD), 2);
        assert_eq!(held(&ranges), [true, false, false, false]);
        assert_eq!((ranges.shrink(0), ranges.bytes()), (1, 0));
        assert!(ranges.objects.is_empty());
    }

    #[test]
    fn a_range_grows_with_what_is_written_to_its_end() {
        let mut ranges = Ranges::new();
        ranges.insert(A, 0, data(4));
        let kept = ranges.get(A, 0).unwrap();
        ranges.patch(A, 0, 2, &[7; 4]);
        assert_eq!(*ranges.get(A, 0).unwrap(), [1, 1, 7, 7, 7, 7]);
        assert_eq!((kept.len(), ranges.bytes()), (4, 6 + OVERHEAD), "who reads it goes on with the old one");
        ranges.patch(A, 0, 7, &[7]);
        assert!(ranges.get(A, 0).is_none() && ranges.bytes() == 0);
        ranges.patch(B, 0, 0, &[7]);
        assert_eq!(ranges.bytes(), 0, "nothing was there");
    }

    #[test]
    fn the_end_of_an_object_goes() {
        let mut ranges = Ranges::new();
        (0..4).for_each(|range| ranges.insert(A, range, data(10)));
        ranges.insert(B, 3, data(10));
        ranges.remove_from(A, 2);
        assert!(ranges.get(A, 1).is_some() && ranges.get(A, 2).is_none() && ranges.get(B, 3).is_some());
        ranges.clear();
        assert_eq!(ranges.bytes(), 0);
    }
}
