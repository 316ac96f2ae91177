//! The logs of all workers, and their durable part.
//!
//! Records are numbered across all logs; after power loss, they count up to the first
//! that is missing. A commit writes the buffers of all workers, and flushes the device
//! once for all waiting callers.
//!
//! A block that a record frees is given out again when the record is durable, *and* when
//! a chunk has recorded that durably (`durable` in its header). Recovery checks the data
//! of the records behind that against their checksums, as it may not have reached the
//! device; it would mistake new data in a block for data that is missing.

use crate::device::Device;
use crate::extents::Run;
use crate::failpoint::{Failpoint, fails_at};
use crate::layout::SegmentAt;
use crate::sync::{Condvar, Mutex};
use crate::tail::Tail;
use crate::writer::{Chain, Medium};
use braid_contract::{Errno, Error, Result};
use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// All logs.
#[derive(Debug)]
pub(crate) struct Journal {
    pub(crate) medium: Medium,
    workers: Vec<Worker>,
    next_record: AtomicU64,
    /// Records up to this one are durable.
    durable: AtomicU64,
    commits: Mutex<Commits>,
    done: Condvar,
    /// The error after which nothing can be promised any more.
    failed: OnceLock<Error>,
    flushes: AtomicU64,
    is_read_only: bool,
}

#[derive(Debug)]
struct Worker {
    chain: Mutex<Chain>,
    /// Blocks that records freed, by the number of the record.
    pending: Mutex<VecDeque<(u64, Run)>>,
}

#[derive(Debug)]
struct Commits {
    is_running: bool,
    /// Records up to this one are known to be durable whatever happens.
    marked: u64,
}

/// The logs as a checkpoint finds them.
pub(crate) struct Cut {
    /// Records from this one on are in the new segments.
    pub(crate) first_record: u64,
    pub(crate) logs: Vec<SegmentAt>,
    /// Groups with nothing but earlier records.
    pub(crate) before: Vec<u64>,
}

impl Journal {
    /// Goes on with these logs, whose next record has this number.
    pub(crate) fn new(medium: Medium, chains: Vec<Chain>, next_record: u64) -> Self {
        let worker = |chain| Worker { chain: Mutex::new(chain), pending: Mutex::default() };
        Self {
            medium,
            workers: chains.into_iter().map(worker).collect(),
            next_record: AtomicU64::new(next_record),
            durable: AtomicU64::new(next_record - 1),
            commits: Mutex::new(Commits { is_running: false, marked: next_record - 1 }),
            done: Condvar::new(),
            failed: OnceLock::new(),
            flushes: AtomicU64::new(0),
            is_read_only: false,
        }
    }

    /// Logs that take no records: nothing is ever written.
    pub(crate) fn read_only(medium: Medium, last_record: u64) -> Self {
        // It has no place, and never gets one.
        let chain = Chain::resumed(0, SegmentAt::default(), SegmentAt::default());
        Self { is_read_only: true, ..Self::new(medium, vec![chain], last_record.saturating_add(1)) }
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    /// Refuses changes where there can't be any.
    ///
    /// # Errors
    /// `EROFS` if the file system is only read.
    pub(crate) fn writable(&self) -> Result<()> {
        let text = "the file system is salvaged: it can be read only";
        if self.is_read_only { Err(Error::new(Errno::EROFS, text)) } else { Ok(()) }
    }

    pub(crate) fn workers(&self) -> usize {
        self.workers.len()
    }

    pub(crate) fn device(&self) -> &dyn Device {
        &*self.medium.device
    }

    /// Flushes of the device since it was opened.
    pub(crate) fn flushes(&self) -> u64 {
        self.flushes.load(Ordering::Relaxed)
    }

    /// The number of the last record.
    pub(crate) fn last_record(&self) -> u64 {
        self.next_record.load(Ordering::Acquire) - 1
    }

    /// Records that are not known to be durable.
    pub(crate) fn undurable(&self) -> u64 {
        self.last_record() - self.durable.load(Ordering::Acquire)
    }

    /// Blocks that wait to be given out again.
    pub(crate) fn pending_blocks(&self) -> u64 {
        let of_worker = |worker: &Worker| worker.pending.lock().iter().map(|(_, run)| run.len).sum::<u64>();
        self.workers.iter().map(of_worker).sum()
    }

    /// Refuses to go on after a failure.
    ///
    /// # Errors
    /// `EIO` if the log could not be written, `EROFS` if it is only read.
    pub(crate) fn check(&self) -> Result<()> {
        self.writable()?;
        match self.failed.get() {
            None => Ok(()),
            Some(error) => Err(Error::new(Errno::EIO, format!("the log takes no changes any more: {error}"))),
        }
    }

    /// Takes no more records.
    pub(crate) fn close(&self) {
        let _ = self.failed.set(Error::new(Errno::EIO, "it is closed"));
    }

    /// Fails the journal on an error of the device, whose contents are unknown then; only
    /// reading goes on.
    pub(crate) fn fail_on_error<T>(&self, result: Result<T>) -> Result<T> {
        result.inspect_err(|error| {
            if error.errno() != Errno::ENOSPC && self.failed.set(error.clone()).is_ok() {
                tracing::error!(%error, "the log can't be written; nothing more is changed");
            }
        })
    }

    /// Adds a record; returns its number. Nothing is written to the device before the
    /// buffer is full or a commit asks for it.
    ///
    /// # Errors
    /// `ENOSPC` if the log has no room, `EFBIG` for a record that is too long, those of
    /// the device.
    pub(crate) fn append(&self, worker: usize, bytes: &[u8]) -> Result<u64> {
        self.check()?;
        let (medium, durable) = (&self.medium, self.durable.load(Ordering::Acquire));
        let mut chain = self.workers[worker % self.workers.len()].chain.lock();
        match chain.prepare(bytes.len(), durable, medium) {
            Err(error) if error.errno() == Errno::EFBIG => return Err(error),
            prepared => self.fail_on_error(prepared)?,
        }
        let record = self.next_record.fetch_add(1, Ordering::AcqRel);
        chain.add(record, bytes, medium.salt);
        self.fail_on_error(chain.spill(durable, medium))?;
        Ok(record)
    }

    /// Notes blocks that a record freed.
    pub(crate) fn freed(&self, worker: usize, record: u64, runs: &[Run]) {
        if fails_at(Failpoint::ReuseAtOnce) {
            runs.iter().for_each(|run| self.medium.space.free(*run));
        } else if !runs.is_empty() {
            let mut pending = self.workers[worker % self.workers.len()].pending.lock();
            pending.extend(runs.iter().map(|run| (record, *run)));
        }
    }

    /// Makes all records up to this one durable, and the data that they refer to.
    ///
    /// # Errors
    /// Those of the device; from then on, nothing can be changed.
    pub(crate) fn commit(&self, upto: u64) -> Result<()> {
        if self.is_read_only {
            return Ok(());
        }
        let mut commits = self.commits.lock();
        loop {
            self.check()?;
            if self.durable.load(Ordering::Acquire) >= upto {
                return Ok(());
            }
            if !commits.is_running {
                break;
            }
            self.done.wait(&mut commits);
        }
        commits.is_running = true;
        drop(commits);
        self.lead(false)
    }

    /// Makes everything durable, and all blocks that were freed before free.
    ///
    /// # Errors
    /// Those of the device.
    pub(crate) fn settle(&self) -> Result<()> {
        self.commit(self.last_record())?;
        self.flush(true)
    }

    /// Flushes the device, with all records, whether that is needed for records or not;
    /// if it `marks`, a chunk is written in any case, which says which records are
    /// durable.
    ///
    /// # Errors
    /// Those of the device.
    pub(crate) fn flush(&self, marks: bool) -> Result<()> {
        let mut commits = self.commits.lock();
        while commits.is_running {
            self.done.wait(&mut commits);
        }
        self.check()?;
        commits.is_running = true;
        drop(commits);
        self.lead(marks)
    }

    /// Commits for all waiting callers. The caller has said that a commit is
    /// running.
    fn lead(&self, marks: bool) -> Result<()> {
        let before = self.durable.load(Ordering::Acquire);
        let upto = self.last_record();
        let written = self.write_all(before, marks).and_then(|wrote| {
            self.device().flush()?;
            self.flushes.fetch_add(1, Ordering::Relaxed);
            Ok(wrote)
        });
        let written = self.fail_on_error(written);
        let mut commits = self.commits.lock();
        commits.is_running = false;
        if let Ok(wrote) = &written {
            self.durable.fetch_max(upto, Ordering::AcqRel);
            if *wrote {
                commits.marked = commits.marked.max(before);
            }
        }
        let marked = commits.marked;
        drop(commits);
        self.done.notify_all();
        written?;
        self.release(marked);
        Ok(())
    }

    /// Writes the buffers of all workers; returns whether anything was written.
    fn write_all(&self, durable: u64, marks: bool) -> Result<bool> {
        let mut wrote = false;
        for worker in &self.workers {
            let mut chain = worker.chain.lock();
            wrote |= chain.has_records();
            chain.write_out(durable, &self.medium)?;
        }
        if marks && !wrote {
            self.workers[0].chain.lock().write_chunk(durable, &self.medium)?;
            wrote = true;
        }
        Ok(wrote)
    }

    /// Gives out blocks again that records up to this one freed.
    pub(crate) fn release(&self, upto: u64) {
        for worker in &self.workers {
            let mut pending = worker.pending.lock();
            while let Some((record, run)) = pending.front().copied()
                && record <= upto
            {
                pending.pop_front();
                self.medium.space.free(run);
            }
        }
    }

    /// Has records that are not written yet outlive the process, from now on; returns their memory.
    ///
    /// # Errors
    /// Those of getting it.
    pub(crate) fn outlive(&self) -> io::Result<Vec<OwnedFd>> {
        let outlive = |worker: &Worker| {
            let tail = Tail::new()?;
            let memory = tail.memory()?;
            worker.chain.lock().outlive(tail);
            Ok(memory)
        };
        self.workers.iter().map(outlive).collect()
    }

    /// Writes the buffers of all workers, and has them go on in new segments.
    ///
    /// # Errors
    /// `ENOSPC` without room for the segments, those of the device.
    pub(crate) fn cut(&self) -> Result<Cut> {
        let durable = self.durable.load(Ordering::Acquire);
        let mut chains: Vec<_> = self.workers.iter().map(|worker| worker.chain.lock()).collect();
        for chain in &mut chains {
            let rotated = chain.write_out(durable, &self.medium).and_then(|()| chain.rotate(&self.medium));
            self.fail_on_error(rotated)?;
        }
        Ok(Cut {
            first_record: self.next_record.load(Ordering::Acquire),
            logs: chains.iter().map(|chain| chain.at()).collect(),
            before: chains.iter_mut().flat_map(|chain| chain.take_before()).collect(),
        })
    }

    /// Everything that logs have, for an account: the groups of their segments.
    pub(crate) fn all_groups(&self) -> Vec<u64> {
        self.workers.iter().flat_map(|worker| worker.chain.lock().all_groups()).collect()
    }
}
