//! The buffer that reads are answered from: one per thread, kept between
//! requests, page-aligned so that `O_DIRECT` reads from tiers can fill it.

use std::cell::RefCell;

/// Alignment of the buffer's start: enough for direct I/O on any device with
/// blocks of up to this size.
const ALIGNMENT: usize = 4096;

/// The buffer grows in steps of this, so that a thread that serves small reads
/// stays small.
const STEP: usize = 128 * 1024;

thread_local! {
    static BUFFER: RefCell<AlignedBuffer> = const { RefCell::new(AlignedBuffer { bytes: Vec::new(), start: 0 }) };
}

/// Calls `f` with this thread's buffer, `len` bytes long. The contents are
/// left over from earlier requests.
pub(crate) fn with_buffer<R>(len: usize, f: impl FnOnce(&mut [u8]) -> R) -> R {
    BUFFER.with_borrow_mut(|buffer| f(buffer.get(len)))
}

struct AlignedBuffer {
    bytes: Vec<u8>,
    /// Index of the first aligned byte.
    start: usize,
}

impl AlignedBuffer {
    fn get(&mut self, len: usize) -> &mut [u8] {
        if self.bytes.len() - self.start < len {
            self.bytes = vec![0; len.next_multiple_of(STEP) + ALIGNMENT];
            // `align_offset` may decline, by its contract, with usize::MAX; the
            // buffer then works for everything but direct I/O.
            self.start = match self.bytes.as_ptr().align_offset(ALIGNMENT) {
                offset @ 0..ALIGNMENT => offset,
                _ => 0,
            };
        }
        &mut self.bytes[self.start..self.start + len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_is_aligned() {
        let mut buffer = AlignedBuffer { bytes: Vec::new(), start: 0 };
        for len in [1, 4096, STEP, STEP + 1, 1 << 20, (1 << 20) + 4096, 7] {
            let bytes = buffer.get(len);
            assert_eq!(bytes.len(), len);
            assert_eq!(bytes.as_ptr().align_offset(ALIGNMENT), 0, "length {len}");
        }
    }

    #[test]
    fn memory_is_kept_between_requests() {
        let mut buffer = AlignedBuffer { bytes: Vec::new(), start: 0 };
        let first = buffer.get(1 << 20).as_ptr();
        assert_eq!(buffer.get(4096).as_ptr(), first);
        assert_eq!(buffer.get(1 << 20).as_ptr(), first);
    }
}
