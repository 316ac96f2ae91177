//! Reads and writes of a file or a block device through io_uring, several of which are under way
//! at a time.

use crate::batch_ring::{ATTEMPTS_MAX, BatchRing, RETRY_DELAY};
use io_uring::{cqueue, opcode, squeue, types};
use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// The memory of a transfer.
#[derive(Debug)]
pub enum Transfer<'a> {
    /// To be filled from the file.
    Read(&'a mut [u8]),
    /// To be written to the file.
    Write(&'a [u8]),
}

/// A part of a transfer that is still to be done.
struct Left<'a> {
    offset: u64,
    data: Transfer<'a>,
}

/// A ring for transfers, used by one thread at a time.
#[derive(Debug)]
pub struct FileRing(BatchRing<squeue::Entry, cqueue::Entry>);

impl FileRing {
    /// A ring for up to `depth` transfers at a time.
    ///
    /// # Errors
    /// The kernel has no io_uring, or no memory for it.
    pub fn new(depth: u32) -> io::Result<Self> {
        BatchRing::new(depth).map(Self)
    }

    /// Carries transfers out, each at an offset, in any order; returns when all are done.
    ///
    /// # Errors
    /// The first one; `UnexpectedEof` if the file ends within a transfer. The others may be done, or
    /// not.
    pub fn carry_out(&mut self, file: impl AsFd, transfers: Vec<(u64, Transfer<'_>)>) -> io::Result<()> {
        let mut left: Vec<_> = transfers.into_iter().map(|(offset, data)| Left { offset, data }).collect();
        left.retain(|left| left.len() > 0);
        let mut stalled = 0;
        while !left.is_empty() {
            let batch = left.len().min(self.0.depth());
            let entries: Vec<_> =
                (0..).zip(&mut left[..batch]).map(|(number, left)| left.entry(&file, number)).collect();
            let mut done = 0;
            // SAFETY: the memory is borrowed, and the file is, until this returns.
            for (number, result) in unsafe { self.0.submit(&entries) }? {
                let left = usize::try_from(number).ok().and_then(|at| left.get_mut(at));
                done += left.ok_or(io::ErrorKind::InvalidData)?.goes_on(result)?;
            }
            left.retain(|left| left.len() > 0);
            stalled = if done > 0 { 0 } else { stalled + 1 };
            if stalled == ATTEMPTS_MAX {
                return Err(rustix::io::Errno::AGAIN.into());
            }
            if stalled > 0 {
                std::thread::sleep(RETRY_DELAY);
            }
        }
        Ok(())
    }

    /// Whether it can be used again.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        self.0.is_usable()
    }
}

impl Left<'_> {
    fn len(&self) -> usize {
        match &self.data {
            Transfer::Read(data) => data.len(),
            Transfer::Write(data) => data.len(),
        }
    }

    /// The entry for what is left, at most as much as the kernel does at once.
    fn entry(&mut self, file: &impl AsFd, number: u64) -> squeue::Entry {
        let fd = types::Fd(file.as_fd().as_raw_fd());
        let len = self.len().min(1 << 30) as u32;
        let entry = match &mut self.data {
            Transfer::Read(data) => opcode::Read::new(fd, data.as_mut_ptr(), len).offset(self.offset).build(),
            Transfer::Write(data) => opcode::Write::new(fd, data.as_ptr(), len).offset(self.offset).build(),
        };
        entry.user_data(number)
    }

    /// Leaves what is to be done after this result; returns the bytes that were done.
    fn goes_on(&mut self, result: i32) -> io::Result<usize> {
        let done = match usize::try_from(result) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(done) => done.min(self.len()),
            Err(_) if [libc::EINTR, libc::EAGAIN].contains(&-result) => 0,
            Err(_) => return Err(io::Error::from_raw_os_error(-result)),
        };
        self.offset += done as u64;
        match &mut self.data {
            Transfer::Read(data) => *data = &mut std::mem::take(data)[done..],
            Transfer::Write(data) => *data = &data[done..],
        }
        Ok(done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn more_transfers_than_entries_are_all_done() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let Ok(mut ring) = FileRing::new(4) else { return };
        let data: Vec<u8> = (0..100_000_u32).map(|at| (at % 251) as u8).collect();
        let parts = data.chunks(3000).enumerate().map(|(at, part)| (at as u64 * 3000, Transfer::Write(part)));
        ring.carry_out(&file, parts.rev().collect()).unwrap();
        let mut written = Vec::new();
        file.read_to_end(&mut written).unwrap();
        assert!(written == data);

        let mut read = vec![0; data.len()];
        let parts =
            read.chunks_mut(7000).enumerate().map(|(at, part)| (at as u64 * 7000, Transfer::Read(part)));
        ring.carry_out(&file, parts.collect()).unwrap();
        assert!(read == data);
        ring.carry_out(&file, vec![(5, Transfer::Write(&[]))]).unwrap();
    }

    #[test]
    fn a_file_that_ends_and_one_that_can_not_be_written_are_told() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1000).unwrap();
        let Ok(mut ring) = FileRing::new(2) else { return };
        let mut memory = [0; 2000];
        let ended = ring.carry_out(&file, vec![(0, Transfer::Read(&mut memory))]).unwrap_err();
        assert_eq!(ended.kind(), io::ErrorKind::UnexpectedEof);
        assert!(ring.0.is_empty() && ring.is_usable());
        ring.carry_out(&file, vec![(0, Transfer::Read(&mut memory[..1000]))]).unwrap();
        let read_only = std::fs::File::open(file.path()).unwrap();
        let refused = FileRing::new(2).unwrap().carry_out(&read_only, vec![(0, Transfer::Write(&[1]))]);
        assert_eq!(refused.unwrap_err().raw_os_error(), Some(libc::EBADF));
    }
}
