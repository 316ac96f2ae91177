//! The expected contents of a file: its size, and the write that each of its
//! bytes comes from.

use super::stamp::Source;

/// Bytes that one write wrote and that are still there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Span {
    start: u64,
    end: u64,
    source: Source,
}

/// A file's contents at one time.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Content {
    pub(crate) size: u64,
    /// Sorted and disjoint; all other bytes are zeros.
    spans: Vec<Span>,
}

impl Content {
    /// `source` writes `len` bytes at `at`.
    pub(crate) fn write(&mut self, at: u64, len: u64, source: Source) {
        if len == 0 {
            return;
        }
        self.clear(at, at + len);
        let place = self.spans.partition_point(|span| span.start < at);
        self.spans.insert(place, Span { start: at, end: at + len, source });
        self.size = self.size.max(at + len);
    }

    /// `len` bytes at `at` become zeros; the size stays.
    pub(crate) fn zero(&mut self, at: u64, len: u64) {
        self.clear(at, at.saturating_add(len));
    }

    /// The file is cut, or grows with zeros.
    pub(crate) fn set_size(&mut self, size: u64) {
        self.clear(size, u64::MAX);
        self.size = size;
    }

    /// Which write the byte at `offset` comes from.
    pub(crate) fn source_at(&self, offset: u64) -> Source {
        let place = self.spans.partition_point(|span| span.end <= offset);
        self.spans.get(place).filter(|span| span.start <= offset).map_or(0, |span| span.source)
    }

    /// Offsets at which the origin of the bytes may change.
    pub(crate) fn boundaries(&self) -> impl Iterator<Item = u64> + '_ {
        self.spans.iter().flat_map(|span| [span.start, span.end]).chain([self.size])
    }

    fn clear(&mut self, start: u64, end: u64) {
        let mut kept = Vec::with_capacity(self.spans.len() + 2);
        for span in &self.spans {
            if span.end <= start || end <= span.start {
                kept.push(*span);
                continue;
            }
            if span.start < start {
                kept.push(Span { end: start, ..*span });
            }
            if end < span.end {
                kept.push(Span { start: end, ..*span });
            }
        }
        self.spans = kept;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(content: &Content) -> Vec<Source> {
        (0..content.size).map(|offset| content.source_at(offset)).collect()
    }

    #[test]
    fn later_writes_cover_earlier_ones() {
        let mut content = Content::default();
        content.write(0, 6, 1);
        content.write(2, 2, 2);
        content.write(8, 1, 3);
        assert_eq!(sources(&content), [1, 1, 2, 2, 1, 1, 0, 0, 3]);
        content.write(1, 7, 4);
        assert_eq!(sources(&content), [1, 4, 4, 4, 4, 4, 4, 4, 3]);
    }

    #[test]
    fn what_was_cut_does_not_come_back_when_the_file_grows() {
        let mut content = Content::default();
        content.write(0, 6, 1);
        content.set_size(2);
        content.set_size(5);
        assert_eq!(sources(&content), [1, 1, 0, 0, 0]);
        content.write(1, 3, 2);
        content.zero(2, 1);
        assert_eq!(sources(&content), [1, 2, 0, 2, 0]);
        let mut boundaries: Vec<u64> = content.boundaries().collect();
        boundaries.sort_unstable();
        boundaries.dedup();
        assert_eq!(boundaries, [0, 1, 2, 3, 4, 5]);
    }
}
