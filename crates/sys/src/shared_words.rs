//! Memory that processes share, as 8-byte words.

use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// Prevents the memory from shrinking under those who map it.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// Words that every process with the descriptor may load and store.
///
/// The memory has a fixed length and all of its pages from the start: no access
/// fails later.
#[derive(Debug)]
pub struct SharedWords {
    map: MmapRaw,
    fd: OwnedFd,
}

impl SharedWords {
    /// Creates words, all of them 0.
    ///
    /// # Errors
    /// Those of `memfd_create(2)`, `fallocate(2)` (no memory left) and
    /// `mmap(2)`.
    pub fn create(name: &str, words: usize) -> io::Result<Self> {
        let fd = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::fallocate(&fd, FallocateFlags::empty(), 0, words as u64 * 8)?;
        rustix::fs::fcntl_add_seals(&fd, SEALS)?;
        Self::open(fd)
    }

    /// Maps the words behind a descriptor that was opened for writing.
    ///
    /// # Errors
    /// `EPERM` if its length may change later; those of `mmap(2)`.
    pub fn open(fd: OwnedFd) -> io::Result<Self> {
        let len = sealed_len(&fd)?;
        let map = MmapOptions::new().len(len).map_raw(fd.as_raw_fd())?;
        Ok(Self { map, fd })
    }

    /// The words.
    #[must_use]
    pub fn words(&self) -> &[AtomicU64] {
        let words = self.map.as_mut_ptr().cast::<AtomicU64>();
        // SAFETY: the mapping begins at a page boundary, has this length for
        // good (its file is sealed) and lives as long as `self`. All processes
        // access it through atomics only: another process's store is a race on
        // atomics, which is defined. Every bit pattern is a valid word.
        unsafe { std::slice::from_raw_parts(words, self.map.len() / 8) }
    }

    /// A descriptor with which others may load the words, but not store.
    ///
    /// # Errors
    /// Those of opening it again.
    pub fn read_only_fd(&self) -> io::Result<OwnedFd> {
        let path = format!("/proc/self/fd/{}", self.fd.as_raw_fd());
        Ok(OpenOptions::new().read(true).open(path)?.into())
    }
}

impl AsFd for SharedWords {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Words that this process may only load.
#[derive(Debug)]
pub struct SharedWordsView {
    map: MmapRaw,
}

impl SharedWordsView {
    /// Maps the words behind a descriptor.
    ///
    /// # Errors
    /// `EPERM` if their number may change later; those of `mmap(2)`.
    pub fn open(fd: impl AsFd) -> io::Result<Self> {
        let len = sealed_len(&fd)?;
        Ok(Self { map: MmapOptions::new().len(len).map_raw_read_only(fd.as_fd().as_raw_fd())? })
    }

    /// The number of words.
    #[must_use]
    pub fn count(&self) -> usize {
        self.map.len() / 8
    }

    /// Loads a word; earlier stores of its writer are then visible.
    ///
    /// # Panics
    /// If there is no such word.
    #[must_use]
    pub fn load(&self, word: usize) -> u64 {
        self.word(word).load(Ordering::Acquire)
    }

    /// As [`futex_wait`](crate::futex_wait) on a word, between processes.
    ///
    /// # Panics
    /// If there is no such word.
    pub fn wait(&self, word: usize, expected: u64, timeout: Option<std::time::Duration>) -> bool {
        crate::futex_wait(self.word(word), expected, timeout, crate::FutexScope::Shared)
    }

    fn word(&self, word: usize) -> &AtomicU64 {
        assert!(word < self.count(), "no such word");
        // SAFETY: the word is inside the mapping, aligned, and lives as long as
        // `self`. Nothing here stores to it: an acquiring load of 8 bytes needs
        // no right to write on any processor that Braid runs on.
        unsafe { &*self.map.as_ptr().cast::<AtomicU64>().add(word) }
    }
}

/// The length of a file that can't shrink.
fn sealed_len(fd: &impl AsFd) -> io::Result<usize> {
    if !rustix::fs::fcntl_get_seals(fd)?.contains(SealFlags::SHRINK) {
        return Err(io::Error::from_raw_os_error(libc::EPERM));
    }
    let file = File::from(fd.as_fd().try_clone_to_owned()?);
    usize::try_from(file.metadata()?.len()).map_err(|_| io::Error::from_raw_os_error(libc::EFBIG))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_the_descriptor_sees_the_same_words() {
        let words = SharedWords::create("test", 1000).unwrap();
        let again = SharedWords::open(words.as_fd().try_clone_to_owned().unwrap()).unwrap();
        assert_eq!(again.words().len(), 1000);
        words.words()[999].store(7, Ordering::Release);
        assert_eq!(again.words()[999].load(Ordering::Acquire), 7);
        assert!(File::from(words.as_fd().try_clone_to_owned().unwrap()).set_len(8).is_err(), "it is sealed");
    }

    #[test]
    fn a_descriptor_for_loads_gives_no_mapping_for_stores() {
        let words = SharedWords::create("test", 8).unwrap();
        let fd = words.read_only_fd().unwrap();
        assert!(SharedWords::open(fd.try_clone().unwrap()).is_err());
        let view = SharedWordsView::open(fd).unwrap();
        words.words()[3].store(5, Ordering::Release);
        assert_eq!((view.count(), view.load(3)), (8, 5));
        assert!(!view.wait(3, 4, None));
    }

    #[test]
    fn a_file_that_may_become_shorter_is_refused() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(64).unwrap();
        assert!(SharedWords::open(file.into()).is_err());
    }
}
