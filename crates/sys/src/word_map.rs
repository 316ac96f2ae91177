//! A shared mapping of a file as 8-byte words.

use crate::bus_guard::touch;
use memmap2::{MmapOptions, MmapRaw};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Part of a file, mapped shared, as little-endian 8-byte words that change
/// one atomic store at a time.
///
/// Loads and stores are those of memory: stored words are in the file for every
/// other reader at once, and on the device after a sync of the file or whenever
/// the kernel writes it back. Where the file has no block, or the device can't
/// read it, an access fails, and so does every later one.
#[derive(Debug)]
pub struct WordMap {
    map: MmapRaw,
    writable: bool,
    /// Whether a page could not be loaded. Others may be newer, so none is
    /// trusted any more.
    failed: AtomicBool,
}

impl WordMap {
    /// Maps `len` bytes of the file at `offset`, a multiple of the page size;
    /// for loads only unless `writable`.
    ///
    /// # Errors
    /// Those of `mmap(2)`.
    pub fn new(file: impl AsFd, offset: u64, len: usize, writable: bool) -> io::Result<Self> {
        let mut options = MmapOptions::new();
        options.offset(offset).len(len);
        let fd = file.as_fd().as_raw_fd();
        let map = if writable { options.map_raw(fd)? } else { options.map_raw_read_only(fd)? };
        Ok(Self { map, writable, failed: AtomicBool::new(false) })
    }

    /// Loads a word.
    ///
    /// # Errors
    /// `EIO` if a page of the mapping could not be loaded; `EINVAL` beyond it.
    pub fn load(&self, word: usize) -> io::Result<u64> {
        let loaded = touch(self.word(word)?, &self.failed, |word| word.load(Ordering::Acquire));
        loaded.map(u64::from_le).ok_or_else(|| io::Error::from_raw_os_error(libc::EIO))
    }

    /// Stores a word.
    ///
    /// # Errors
    /// `EIO` if a page of the mapping could not be loaded, `EROFS` if it is for
    /// loads only, `EINVAL` beyond it.
    pub fn store(&self, word: usize, value: u64) -> io::Result<()> {
        if !self.writable {
            return Err(io::Error::from_raw_os_error(libc::EROFS));
        }
        let store = |word: &AtomicU64| word.store(value.to_le(), Ordering::Release);
        touch(self.word(word)?, &self.failed, store).ok_or_else(|| io::Error::from_raw_os_error(libc::EIO))
    }

    fn word(&self, word: usize) -> io::Result<&AtomicU64> {
        if word >= self.map.len() / 8 {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        // SAFETY: the word is inside the mapping, which begins at a page
        // boundary (so it is aligned) and lives as long as `self`. It is only
        // ever accessed through atomics, so changes by other processes are
        // races on atomics, which are defined.
        Ok(unsafe { &*self.map.as_mut_ptr().cast::<AtomicU64>().add(word) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn stores_reach_the_file() {
        let mut file = tempfile::tempfile().unwrap();
        file.set_len(8192).unwrap();
        let map = WordMap::new(&file, 4096, 4096, true).unwrap();
        map.store(1, 0x0102_0304_0506_0708).unwrap();
        assert_eq!(map.load(1).unwrap(), 0x0102_0304_0506_0708);
        assert_eq!(map.load(512).unwrap_err().raw_os_error(), Some(libc::EINVAL));
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes[4104..4112], [8, 7, 6, 5, 4, 3, 2, 1]);
    }

    #[test]
    fn a_page_that_can_not_be_had_is_an_error_and_the_process_lives() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(8192).unwrap();
        let map = WordMap::new(&file, 0, 8192, true).unwrap();
        map.store(0, 7).unwrap();
        file.set_len(4096).unwrap();
        assert_eq!(map.load(512).unwrap_err().raw_os_error(), Some(libc::EIO));
        assert_eq!(map.store(513, 1).unwrap_err().raw_os_error(), Some(libc::EIO));
        assert!(map.load(0).is_err(), "nothing of it is believed any more");
        assert_eq!(WordMap::new(&file, 0, 4096, true).unwrap().load(0).unwrap(), 7, "a new mapping is");
    }

    #[test]
    fn what_is_mapped_for_loads_is_not_stored_to() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(4096).unwrap();
        let map = WordMap::new(&file, 0, 4096, false).unwrap();
        assert_eq!(map.load(3).unwrap(), 0);
        assert_eq!(map.store(3, 1).unwrap_err().raw_os_error(), Some(libc::EROFS));
    }
}
