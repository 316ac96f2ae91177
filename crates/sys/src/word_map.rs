//! A shared mapping of a file as 8-byte words.

use memmap2::{MmapOptions, MmapRaw};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::AtomicU64;

/// Part of a file, mapped shared, as little-endian 8-byte words that change
/// one atomic store at a time.
///
/// Loads and stores are those of memory: what is stored is in the file for
/// every other reader at once, and on the device after [`sync`](Self::sync) or
/// whenever the kernel writes it back. The mapped part of the file must lie
/// below its end for as long as the mapping exists, and words must only be
/// stored to where the file has blocks: otherwise the kernel answers an access
/// with `SIGBUS`.
#[derive(Debug)]
pub struct WordMap {
    map: MmapRaw,
}

impl WordMap {
    /// Maps `len` bytes of the file at `offset`, a multiple of the page size.
    ///
    /// # Errors
    /// Those of `mmap(2)`.
    pub fn new(file: impl AsFd, offset: u64, len: usize) -> io::Result<Self> {
        let map = MmapOptions::new().offset(offset).len(len).map_raw(file.as_fd().as_raw_fd())?;
        Ok(Self { map })
    }

    /// The mapped words, in the byte order of the file (little-endian).
    #[must_use]
    pub fn words(&self) -> &[AtomicU64] {
        let words = self.map.as_mut_ptr().cast::<AtomicU64>();
        // SAFETY: the mapping is `len` bytes, begins at a page boundary (so it
        // is aligned for 8 bytes) and lives as long as `self`. It is only ever
        // accessed through atomics, so changes by other processes are races on
        // atomics, which are defined.
        unsafe { std::slice::from_raw_parts(words, self.map.len() / 8) }
    }

    /// Makes `len` bytes from byte `start` of the mapping durable.
    ///
    /// # Errors
    /// `EIO` if the device could not take them.
    pub fn sync(&self, start: usize, len: usize) -> io::Result<()> {
        self.map.flush_range(start, len)
    }

    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// Whether nothing is mapped.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.map.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::sync::atomic::Ordering;

    #[test]
    fn stores_reach_the_file() {
        let mut file = tempfile::tempfile().unwrap();
        file.set_len(8192).unwrap();
        let map = WordMap::new(&file, 4096, 4096).unwrap();
        assert_eq!(map.words().len(), 512);
        map.words()[1].store(0x0102_0304_0506_0708_u64.to_le(), Ordering::Release);
        map.sync(0, 4096).unwrap();
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes[4104..4112], [8, 7, 6, 5, 4, 3, 2, 1]);
    }
}
