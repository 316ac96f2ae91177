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
