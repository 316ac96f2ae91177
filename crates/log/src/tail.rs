//! The records of a worker that are not on the device yet, in memory that outlives the process: a
//! second copy of its chunk. Another process goes on with it after a crash (`LabStor` §3.3), so that
//! no operation that was answered is lost. Used by `writer`, and by `after_crash`.
//!
//! The number of bytes is written last, so that a record is there as a whole or not at all, wherever
//! the process was killed.

use crate::codec::Take;
use crate::layout::{CHUNK_HEADER, CHUNK_MAX, open_record};
use crate::scan::Numbered;
use braid_contract::{Errno, Error, Result};
use braid_sys::{SharedWords, load_bytes, store_bytes};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;

/// Bytes of a word.
const WORD: usize = 8;
/// The number of bytes, and the records of a chunk.
const WORDS: usize = 1 + (CHUNK_MAX - CHUNK_HEADER) / WORD;

/// The records that a worker has not written yet.
#[derive(Debug)]
pub(crate) struct Tail(SharedWords);

impl Tail {
    /// An empty one.
    ///
    /// # Errors
    /// Those of getting memory.
    pub(crate) fn new() -> io::Result<Self> {
        SharedWords::create("braid-log", WORDS).map(Self)
    }

    /// The memory, for the next process.
    ///
    /// # Errors
    /// If there are no descriptors left.
    pub(crate) fn memory(&self) -> io::Result<OwnedFd> {
        self.0.as_fd().try_clone_to_owned()
    }

    /// Notes the records of a chunk, of which it has the first `noted` bytes already.
    pub(crate) fn note(&self, records: &[u8], noted: usize) {
        let first = noted / WORD;
        store_bytes(&self.0.words()[1 + first..], &records[first * WORD..]);
        self.0.words()[0].store(records.len() as u64, Ordering::Release);
    }

    /// The records are on the device.
    pub(crate) fn clear(&self) {
        self.0.words()[0].store(0, Ordering::Release);
    }
}

/// The records in the memory of a process that crashed.
///
/// # Errors
/// `EUCLEAN` if they are damaged, those of mapping it.
pub(crate) fn records(memory: OwnedFd, salt: u32) -> Result<Vec<Numbered>> {
    let memory = SharedWords::open(memory)?;
    let damaged = || Error::new(Errno::EUCLEAN, "the memory of the log's last records is damaged");
    let words = memory.words();
    let (len, words) = words.split_first().ok_or_else(damaged)?;
    let len = usize::try_from(len.load(Ordering::Acquire)).map_err(|_| damaged())?;
    if len > words.len() * WORD {
        return Err(damaged());
    }
    let mut bytes = vec![0; len];
    load_bytes(words, &mut bytes);
    let mut take = Take::new(&bytes);
    let mut records = Vec::new();
    while let Some((record, bytes)) = open_record(&mut take, salt) {
        records.push((record, bytes.to_vec()));
    }
    if take.is_empty() { Ok(records) } else { Err(damaged()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{RECORD_HEADER, seal_record};

    #[test]
    fn records_are_found_as_they_were_noted_until_they_are_written() {
        let tail = Tail::new().unwrap();
        let (mut chunk, mut expected) = (Vec::new(), Vec::new());
        for record in 1..200_u64 {
            let (at, bytes) = (chunk.len(), vec![record as u8; record as usize * 7 % 31]);
            chunk.resize(at + RECORD_HEADER, 0);
            chunk.extend_from_slice(&bytes);
            seal_record(&mut chunk, at, record, 5);
            tail.note(&chunk, at);
            expected.push((record, bytes));
            assert_eq!(records(tail.memory().unwrap(), 5).unwrap(), expected);
        }
        assert_eq!(records(tail.memory().unwrap(), 6).unwrap_err().errno(), Errno::EUCLEAN);
        // A record that was not noted to its end is none.
        tail.0.words()[1 + chunk.len() / WORD].store(u64::MAX, Ordering::Relaxed);
        tail.0.words()[2 + chunk.len() / WORD].store(u64::MAX, Ordering::Relaxed);
        tail.note(&chunk, chunk.len());
        assert_eq!(records(tail.memory().unwrap(), 5).unwrap(), expected);
        tail.clear();
        assert!(records(tail.memory().unwrap(), 5).unwrap().is_empty());
        tail.0.words()[0].store(u64::MAX, Ordering::Relaxed);
        assert_eq!(records(tail.memory().unwrap(), 5).unwrap_err().errno(), Errno::EUCLEAN);
    }

    #[test]
    fn the_longest_chunk_has_room() {
        let tail = Tail::new().unwrap();
        let mut chunk = vec![7; CHUNK_MAX - CHUNK_HEADER];
        seal_record(&mut chunk, 0, 9, 5);
        tail.note(&chunk, 0);
        let found = records(tail.memory().unwrap(), 5).unwrap();
        assert_eq!((found.len(), found[0].1.len()), (1, chunk.len() - RECORD_HEADER));
    }
}
