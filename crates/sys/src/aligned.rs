//! Memory that direct I/O accepts.

/// Alignment of memory, offset and length that is enough for direct I/O on
/// every current block device, in bytes.
pub const DIRECT_ALIGNMENT: usize = 4096;

/// Whether memory may be used for direct I/O as it is.
#[must_use]
pub fn is_aligned(memory: &[u8]) -> bool {
    memory.as_ptr().addr().is_multiple_of(DIRECT_ALIGNMENT)
}

/// A buffer whose bytes begin at a multiple of [`DIRECT_ALIGNMENT`] in memory.
/// It grows on demand, and keeps its size for the next use.
#[derive(Debug, Default)]
pub struct AlignedBuf {
    memory: Vec<u8>,
}

impl AlignedBuf {
    /// An empty buffer; allocates nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self { memory: Vec::new() }
    }

    /// `len` aligned bytes, whose contents are left over from earlier uses.
    pub fn bytes(&mut self, len: usize) -> &mut [u8] {
        let needed = len + DIRECT_ALIGNMENT;
        if self.memory.len() < needed {
            // A fresh zeroed vector, not `resize`: nothing old needs copying.
            self.memory = vec![0; needed];
        }
        let start =
            self.memory.as_ptr().addr().next_multiple_of(DIRECT_ALIGNMENT) - self.memory.as_ptr().addr();
        &mut self.memory[start..start + len]
    }

    /// Has memory for `len` bytes that is there before it is written to.
    pub fn make_resident(&mut self, len: usize) {
        self.bytes(len);
        // Zeros are there already as far as the compiler knows, and may be left out.
        self.memory.fill(1);
    }

    /// The aligned bytes as they are, at least as many as were asked for before.
    #[must_use]
    pub fn filled(&self) -> &[u8] {
        let address = self.memory.as_ptr().addr();
        let start = address.next_multiple_of(DIRECT_ALIGNMENT) - address;
        self.memory.get(start..).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Page faults of this thread.
    fn faults() -> u64 {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        stat.rsplit(") ").next().unwrap().split(' ').nth(7).unwrap().parse().unwrap()
    }

    #[test]
    fn resident_memory_is_there_before_it_is_used() {
        const LEN: usize = 16 << 20;
        let write = |buf: &mut AlignedBuf| {
            let before = faults();
            buf.bytes(LEN).chunks_mut(4096).for_each(|page| page[0] = 7);
            faults() - before
        };
        let (mut fresh, mut resident) = (AlignedBuf::new(), AlignedBuf::new());
        resident.make_resident(LEN);
        let (of_fresh, of_resident) = (write(&mut fresh), write(&mut resident));
        assert!(of_resident < of_fresh / 2, "{of_resident} of {of_fresh}");
    }

    #[test]
    fn bytes_are_aligned_at_every_size() {
        let mut buf = AlignedBuf::new();
        for len in [0, 1, 4096, 70_000, 12] {
            let bytes = buf.bytes(len);
            assert_eq!(bytes.len(), len);
            assert!(is_aligned(bytes));
            bytes.fill(7);
            assert!(buf.filled().len() >= len && buf.filled()[..len].iter().all(|byte| *byte == 7));
        }
    }
}
