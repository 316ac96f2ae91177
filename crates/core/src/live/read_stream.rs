//! Sequential reads through one descriptor.

use parking_lot::Mutex;
use std::ops::Range;

/// The kernel has reads of so many bytes under way at once, in any order.
const AT_ONCE: u64 = 4 << 20;

/// The stream that is being read. Reads are one while they stay near its end, and
/// read most of the bytes that they pass.
#[derive(Debug, Default)]
pub(crate) struct ReadStream(Mutex<Stream>);

#[derive(Debug, Default)]
struct Stream {
    began: u64,
    end: u64,
    /// Bytes read since it began.
    bytes: u64,
    /// The range at its end.
    range: u64,
    /// Later ranges that were asked for already.
    asked: Vec<u64>,
}

impl ReadStream {
    /// Notes a read of these bytes, of which there are some, in a file with ranges
    /// of so many bytes; answers the range that the stream thereby enters, and how
    /// many it has read.
    pub(crate) fn enters(&self, read: Range<u64>, range_bytes: u64) -> Option<(u64, u64)> {
        let stream = &mut *self.0.lock();
        let (range, bytes) = ((read.end - 1) / range_bytes, read.end - read.start);
        let is_near = read.start <= stream.end.saturating_add(AT_ONCE)
            && read.end.saturating_add(AT_ONCE) >= stream.end;
        if stream.bytes == 0 || !is_near {
            *stream = Stream { began: read.start, end: read.end, bytes, range, asked: Vec::new() };
            return None;
        }
        stream.end = stream.end.max(read.end);
        stream.bytes = stream.bytes.saturating_add(bytes);
        let passed = stream.end.saturating_sub(stream.began);
        if range <= stream.range || stream.bytes < 2 * range_bytes || stream.bytes < passed / 2 {
            return None;
        }
        stream.range = range;
        stream.asked.retain(|asked| *asked > range);
        Some((range, stream.bytes / range_bytes))
    }

    /// Notes that a later range is asked for; answers whether it was not yet.
    pub(crate) fn asks(&self, range: u64) -> bool {
        let asked = &mut self.0.lock().asked;
        let new = !asked.contains(&range);
        if new {
            asked.push(range);
        }
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_contract::SplitMix;

    const MIB: u64 = 1 << 20;
    const RANGE: u64 = 2 * MIB;

    /// The ranges that reads of so many bytes at these offsets enter.
    fn entered(offsets: impl IntoIterator<Item = u64>, len: u64) -> Vec<u64> {
        let stream = ReadStream::default();
        let enters = |offset: u64| stream.enters(offset..offset + len, RANGE);
        offsets.into_iter().filter_map(enters).map(|(range, _)| range).collect()
    }

    #[test]
    fn a_stream_enters_each_range_once_although_reads_overtake_each_other() {
        assert_eq!(entered((0..16).map(|mib| mib * MIB), MIB), [1, 2, 3, 4, 5, 6, 7]);
        let overtaking = [1, 0, 3, 2, 5, 4, 4, 7, 6, 9, 8].map(|mib| mib * MIB);
        assert_eq!(entered(overtaking, MIB), [1, 2, 3, 4]);
        let stream = ReadStream::default();
        let reads = (0..16).filter_map(|mib| stream.enters(mib * MIB..(mib + 1) * MIB, RANGE));
        assert_eq!(reads.collect::<Vec<_>>()[..3], [(1, 2), (2, 2), (3, 3)]);
        // It may begin anywhere, and be read in blocks of any size.
        assert_eq!(entered((0..3000).map(|block| 9 * MIB + block * 4096), 4096), [6, 7, 8, 9, 10]);
        assert_eq!(entered((0..4).map(|block| block * 3 * RANGE), 3 * RANGE), [5, 8, 11]);
    }

    #[test]
    fn reads_at_random_or_of_a_part_are_no_stream() {
        let mut random = SplitMix::new(1);
        let offsets: Vec<u64> = (0..100_000).map(|_| random.next_u64() % (64 * MIB / 4096) * 4096).collect();
        let part = (0..1000).map(|range| range * RANGE).collect();
        for offsets in [offsets, part, vec![u64::MAX - 4096, 0, u64::MAX - 4096]] {
            assert_eq!(entered(offsets, 4096), Vec::<u64>::new());
        }
    }

    #[test]
    fn a_range_is_asked_for_once() {
        let stream = ReadStream::default();
        let read = |mib: u64| stream.enters(mib * MIB..(mib + 1) * MIB, RANGE);
        (0..6).for_each(|mib| _ = read(mib));
        assert!(stream.asks(5) && stream.asks(9) && !stream.asks(5));
        (6..11).for_each(|mib| _ = read(mib));
        assert!(stream.asks(5) && !stream.asks(9), "it was passed");
        read(1000);
        assert!(stream.asks(9), "another stream");
    }
}
