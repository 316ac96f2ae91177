//! Persistent memory: a file of a file system that maps it as it is, without a page cache (DAX).

use crate::bus_guard::touch_all;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::ffi::c_void;
use std::io::{self, IoSlice};
use std::os::fd::AsFd;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Bytes of a word.
const WORD: usize = 8;
/// Words that are gathered before they are stored.
const GATHERED: usize = 512;

/// A file in persistent memory, mapped shared, with synchronous page faults (`MAP_SYNC`): a block
/// of the file is durable before it can be written to. Bytes are read and written by words, so that
/// a word that another thread writes at the same time is read as it was or as it is.
///
/// Where the file has no block, or the memory can't be read, an access fails, and so does every
/// later one.
///
/// Bytes that can be read need not be durable: a process that was killed while it wrote may have
/// left some in the processor's cache. Writes that returned are durable, so these are only of writes
/// that were under way. The user of a map has to read all that it relies on of those before its own
/// first write, as a log file system does when it is opened: it reads the superblocks, the image, the
/// logs, and the data of all records that the logs do not say to be durable. So reads before the
/// first write make durable what they return, and later ones need not.
#[derive(Debug)]
pub struct PersistentMap {
    start: *mut c_void,
    len: usize,
    failed: AtomicBool,
    /// Whether reads make durable what they return: until the first write.
    reads_flush: AtomicBool,
}

// SAFETY: the mapping is this type's own, and only accessed by atomic words.
unsafe impl Send for PersistentMap {}
// SAFETY: as above.
unsafe impl Sync for PersistentMap {}

impl PersistentMap {
    /// Maps the first `len` bytes of a file, a multiple of the page size.
    ///
    /// # Errors
    /// `EOPNOTSUPP` if it is not in persistent memory, or this processor has no way to write its
    /// caches back; those of `mmap(2)`.
    pub fn new(file: impl AsFd, len: usize) -> io::Result<Self> {
        if !cfg!(target_arch = "x86_64") {
            return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
        }
        let (access, flags) =
            (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED_VALIDATE | MapFlags::SYNC);
        // SAFETY: the kernel chooses a place where nothing is mapped.
        let start = unsafe { mmap(ptr::null_mut(), len, access, flags, file.as_fd(), 0)? };
        Ok(Self { start, len, failed: AtomicBool::new(false), reads_flush: AtomicBool::new(true) })
    }

    /// Fills `buf` with the bytes from `at` on. Before the first write, they are durable then.
    ///
    /// # Errors
    /// `EINVAL` beyond the end, `EIO` if memory can't be read.
    pub fn read(&self, at: usize, buf: &mut [u8]) -> io::Result<()> {
        let words = self.words(at, buf.len())?;
        let flushes = self.reads_flush.load(Ordering::Relaxed);
        let read = |words: &[AtomicU64]| {
            if flushes {
                flush_lines(words);
                store_fence();
            }
            let (head, rest) = buf.split_at_mut((WORD - at % WORD).min(buf.len()));
            let mut words = words.iter().map(|word| word.load(Ordering::Relaxed).to_ne_bytes());
            let mut next = || words.next().unwrap_or_default();
            head.copy_from_slice(&next()[at % WORD..][..head.len()]);
            for part in rest.chunks_mut(WORD) {
                part.copy_from_slice(&next()[..part.len()]);
            }
        };
        touch_all(words, &self.failed, read).ok_or_else(|| io::Error::from_raw_os_error(libc::EIO))
    }

    /// Writes `bufs`, one after another, from `at` on, which is a multiple of 8 as their length
    /// together; they are durable then.
    ///
    /// # Errors
    /// `EINVAL` beyond the end, or of another length; `EIO` if the memory fails.
    pub fn write(&self, at: usize, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        let len: usize = bufs.iter().map(|buf| buf.len()).sum();
        if !at.is_multiple_of(WORD) || !len.is_multiple_of(WORD) {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let words = self.words(at, len)?;
        self.reads_flush.store(false, Ordering::Relaxed);
        let mut bytes = Gathered::new(bufs);
        let write = |words: &[AtomicU64]| {
            for words in words.chunks(GATHERED) {
                let gathered = bytes.next(words.len() * WORD);
                for (word, bytes) in words.iter().zip(gathered.chunks_exact(WORD)) {
                    word.store(u64::from_ne_bytes(bytes.try_into().unwrap_or_default()), Ordering::Relaxed);
                }
                flush_lines(words);
            }
            store_fence();
        };
        touch_all(words, &self.failed, write).ok_or_else(|| io::Error::from_raw_os_error(libc::EIO))
    }

    /// The words that have these bytes.
    fn words(&self, at: usize, len: usize) -> io::Result<&[AtomicU64]> {
        let end = at.checked_add(len).filter(|end| *end <= self.len);
        let end = end.ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
        let (first, last) = (at / WORD, end.div_ceil(WORD));
        // SAFETY: they are inside the mapping, which is aligned to pages, whose length is a multiple
        // of words, and which lives as long as `self`. They are only accessed through atomics, so
        // changes by other threads and processes are races on atomics, which are defined.
        Ok(unsafe { std::slice::from_raw_parts(self.start.cast::<AtomicU64>().add(first), last - first) })
    }
}

impl Drop for PersistentMap {
    fn drop(&mut self) {
        // SAFETY: it was mapped by this type, and nothing refers to it any more.
        let _ = unsafe { munmap(self.start, self.len) };
    }
}

/// Bytes of several pieces of memory, in order.
struct Gathered<'a> {
    bufs: &'a [IoSlice<'a>],
    /// How much of the first was taken.
    taken: usize,
    bytes: [u8; GATHERED * WORD],
}

impl<'a> Gathered<'a> {
    fn new(bufs: &'a [IoSlice<'a>]) -> Self {
        Self { bufs, taken: 0, bytes: [0; GATHERED * WORD] }
    }

    /// The next `len` bytes.
    fn next(&mut self, len: usize) -> &[u8] {
        let mut done = 0;
        while let Some(first) = self.bufs.first().filter(|_| done < len) {
            let rest = &first[self.taken..];
            let some = rest.len().min(len - done);
            self.bytes[done..done + some].copy_from_slice(&rest[..some]);
            done += some;
            self.taken += some;
            if self.taken == first.len() {
                (self.bufs, self.taken) = (&self.bufs[1..], 0);
            }
        }
        &self.bytes[..len]
    }
}

/// Has the processor write the lines of its cache that have these words to memory.
#[cfg(target_arch = "x86_64")]
fn flush_lines(words: &[AtomicU64]) {
    /// Bytes of a line of the cache.
    const LINE: usize = 64;
    let lines = words.as_ptr().addr() / LINE..(words.as_ptr().addr() + size_of_val(words)).div_ceil(LINE);
    for line in lines {
        let place = words.as_ptr().with_addr(line * LINE).cast::<u8>();
        // SAFETY: every such processor has the instruction, which changes no memory, and takes any
        // address of a mapped page; a line is within one.
        unsafe { std::arch::x86_64::_mm_clflush(place) };
    }
}

/// Orders that before all later stores: they are not durable without it.
#[cfg(target_arch = "x86_64")]
fn store_fence() {
    // SAFETY: every such processor has the instruction.
    unsafe { std::arch::x86_64::_mm_sfence() };
}

#[cfg(not(target_arch = "x86_64"))]
fn flush_lines(_: &[AtomicU64]) {}

#[cfg(not(target_arch = "x86_64"))]
fn store_fence() {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_gathered_in_their_order() {
        let bytes: Vec<u8> = (0..=255).cycle().take(3 * GATHERED * WORD).collect();
        let cuts = [0, 1, 1, 500, 4096, 4097, 9000, bytes.len()];
        let pieces: Vec<IoSlice<'_>> =
            cuts.windows(2).map(|cut| IoSlice::new(&bytes[cut[0]..cut[1]])).collect();
        let mut gathered = Gathered::new(&pieces);
        for part in bytes.chunks(GATHERED * WORD) {
            assert_eq!(gathered.next(part.len()), part);
        }
    }

    #[test]
    fn a_file_with_a_page_cache_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(8192).unwrap();
        let refused = PersistentMap::new(&file, 8192).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EOPNOTSUPP));
    }
}
