//! Sequential reads through one descriptor.

use parking_lot::Mutex;

/// Ranges in a row from which on a stream is expected to go on.
const RANGES_MIN: u32 = 2;

/// The stream that is being read, by ranges. Of concurrent reads, which are no
/// stream, some may be taken for one: that does no harm.
#[derive(Debug, Default)]
pub(crate) struct ReadStream(Mutex<Stream>);

#[derive(Debug, Default)]
struct Stream {
    /// The range after the last that was read.
    next: u64,
    /// Ranges in a row.
    ranges: u32,
    /// Later ranges that were asked for already.
    asked: Vec<u64>,
}

impl ReadStream {
    /// Notes a read in a range; answers whether it enters the range, as part of a
    /// stream.
    pub(crate) fn enters(&self, range: u64) -> bool {
        let mut stream = self.0.lock();
        // The kernel has several reads under way: an earlier one may be late.
        if range < stream.next && range + 2 >= stream.next {
            return false;
        }
        stream.ranges = if range == stream.next { stream.ranges + 1 } else { 1 };
        stream.next = range + 1;
        stream.asked.retain(|asked| *asked > range);
        stream.ranges >= RANGES_MIN
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

    #[test]
    fn a_stream_enters_each_range_once_although_reads_overtake_each_other() {
        let stream = ReadStream::default();
        let entered: Vec<u64> =
            [0, 0, 1, 0, 1, 2, 1, 2, 3].into_iter().filter(|range| stream.enters(*range)).collect();
        assert_eq!(entered, [1, 2, 3]);
    }

    #[test]
    fn reads_at_random_are_no_stream() {
        let stream = ReadStream::default();
        assert!((0..100).all(|at| !stream.enters(at * 37 % 100)));
        assert!(!stream.enters(7) && stream.enters(8), "but what begins anywhere may become one");
    }

    #[test]
    fn a_range_is_asked_for_once() {
        let stream = ReadStream::default();
        assert!(stream.asks(5) && stream.asks(9) && !stream.asks(5));
        (3..=5).for_each(|range| _ = stream.enters(range));
        assert!(stream.asks(5) && !stream.asks(9), "it was passed");
    }
}
