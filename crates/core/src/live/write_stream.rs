//! Sequential writes through one descriptor.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a stream from which on it is expected to go on.
const STREAM_MIN: u64 = 8 << 20;
/// It is reported in steps that end at multiples of this.
const STEP: u64 = 2 << 20;

/// The stream that is being written. Of concurrent writes, which are no stream,
/// some may be taken for one: that does no harm.
#[derive(Debug, Default)]
pub(crate) struct WriteStream {
    began: AtomicU64,
    end: AtomicU64,
    told: AtomicU64,
}

impl WriteStream {
    /// Notes a write. Answers bytes that the stream has written and passed, and
    /// that were not answered before; `None`, most often: there are too few.
    pub(crate) fn wrote(&self, offset: u64, len: u64) -> Option<Range<u64>> {
        let end = offset + len;
        if self.end.swap(end, Ordering::Relaxed) != offset {
            self.began.store(offset, Ordering::Relaxed);
            self.told.store(offset, Ordering::Relaxed);
            return None;
        }
        let passed = end - end % STEP;
        if end.saturating_sub(self.began.load(Ordering::Relaxed)) < STREAM_MIN
            || passed <= self.told.load(Ordering::Relaxed)
        {
            return None;
        }
        let told = self.told.swap(passed, Ordering::Relaxed);
        (told < passed).then_some(told..passed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// The reports of a stream of blocks of 1 MiB from `offset` on.
    fn told(stream: &WriteStream, offset: u64, blocks: u64) -> Vec<(u64, u64)> {
        let told = (0..blocks).filter_map(|block| stream.wrote(offset + block * MIB, MIB));
        told.map(|bytes| (bytes.start, bytes.end)).collect()
    }

    #[test]
    fn a_long_stream_is_told_of_once_and_in_steps() {
        let stream = WriteStream::default();
        assert_eq!(told(&stream, 0, 12), [(0, 8 * MIB), (8 * MIB, 10 * MIB), (10 * MIB, 12 * MIB)]);
        assert_eq!(told(&stream, 12 * MIB, 3), [(12 * MIB, 14 * MIB)]);
    }

    #[test]
    fn short_streams_and_writes_at_random_are_not_told_of() {
        let stream = WriteStream::default();
        assert_eq!(told(&stream, 0, 7), []);
        assert_eq!(told(&stream, 100 * MIB, 7), []);
        for block in 0..100 {
            assert_eq!(stream.wrote((block * 37 % 100) * MIB, MIB), None);
        }
        let at = 5 * MIB + 4096;
        assert_eq!(told(&stream, at, 9), [(at, 12 * MIB), (12 * MIB, 14 * MIB)]);
    }
}
