//! The numbers of writes: they show the newer one of two, the durable ones, and those that a crash
//! may have torn.
//!
//! One counter serves the whole file system. All writes up to a number are made durable together,
//! now and then; the record at the root then has that number. After a mount that was not ended, the
//! numbers behind that are suspects: a slot with such a number may have a header and not the bytes,
//! and the older slot counts. With any other number that is damage.
//!
//! After a sync that failed, a later one does not tell what the first one has lost. The numbers in
//! question are in doubt then: suspects of the mounts to come, and not durable in this one.

use super::header::{Header, SEQUENCE_MAX};
use super::key::MasterKey;
use super::record::{self, Attributes, Ranges, Record};
use crate::sync::{Mutex, RwLock, RwLockReadGuard};
use braid_contract::{Errno, Error, FileSystem, RefusalKind, Result};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// So many numbers are reserved at a time.
const RESERVED: u64 = 1 << 40;

/// The numbers of one file system.
pub(crate) struct Sequence {
    next: AtomicU64,
    /// Up to here, numbers are reserved.
    limit: AtomicU64,
    /// Up to here, all is durable.
    settled: AtomicU64,
    is_begun: AtomicBool,
    kept: Mutex<Kept>,
    /// Held by writes; its only holder knows that no number is in use.
    barrier: RwLock<()>,
    /// As they were found: later ones are not torn.
    suspects: Ranges,
    /// Numbers that a failed sync may have kept from the devices.
    doubted: RwLock<Ranges>,
    tag: u32,
}

/// What was known when a sync began.
#[derive(Clone, Copy)]
pub(crate) struct Attempt {
    settled: u64,
    /// Up to here, numbers may be in doubt: the sync does not make them durable.
    pub(crate) doubted: u64,
}

struct Kept {
    record: Record,
    /// Where attributes are, once it is known.
    names: Option<Attributes>,
}

impl Sequence {
    /// That of the file system `child`, with the key that the stack has.
    pub(crate) fn open(child: &dyn FileSystem, key: Option<&MasterKey>) -> Result<Self> {
        let (names, mut record) = match record::find(child)? {
            Some((names, record)) => (Some(names), record),
            None => {
                let mut instance = [0; 16];
                super::codec::fill_random(&mut instance)?;
                (None, Record::new(instance))
            }
        };
        if let Some(key) = key {
            let check = key.check(&record.instance);
            if record.key_check != [0; 16] && record.key_check != check {
                let text = "encrypt: the key is not the one that the volume's files are encrypted with";
                return Err(Error::refused(Errno::EACCES, RefusalKind::Request, text));
            }
            record.key_check = check;
        }
        // The data of an earlier mount is durable from here on. Later, a front end may be waiting
        // for the very request that would have it written back.
        let mut doubted = Vec::new();
        if record.settled < record.limit
            && let Err(error) = child.sync()
        {
            tracing::warn!(%error, "what an earlier mount has written may not be durable");
            doubted.push(record.settled + 1..=record.limit);
        }
        record.suspect_the_unsettled();
        Ok(Self {
            next: AtomicU64::new(record.limit + 1),
            limit: AtomicU64::new(record.limit),
            settled: AtomicU64::new(record.limit),
            is_begun: AtomicBool::new(false),
            suspects: record.suspects.clone(),
            doubted: RwLock::new(doubted),
            tag: record.tag(),
            kept: Mutex::new(Kept { record, names }),
            barrier: RwLock::default(),
        })
    }

    /// The names of attributes; `None` if nothing was written yet.
    pub(crate) fn names(&self) -> Option<Attributes> {
        self.kept.lock().names
    }

    pub(crate) fn tag(&self) -> u32 {
        self.tag
    }

    /// Begins a write. No number is settled while the guard is there.
    pub(crate) fn begin(&self, child: &dyn FileSystem) -> Result<RwLockReadGuard<'_, ()>> {
        if !self.is_begun.load(Ordering::Acquire) {
            let mut kept = self.kept.lock();
            if !self.is_begun.load(Ordering::Acquire) {
                self.reserve(child, &mut kept)?;
                self.is_begun.store(true, Ordering::Release);
            }
        }
        Ok(self.barrier.read())
    }

    /// Whether anything was written.
    pub(crate) fn has_begun(&self) -> bool {
        self.is_begun.load(Ordering::Acquire)
    }

    /// A number higher than `others`, for a write that has begun.
    pub(crate) fn next(&self, child: &dyn FileSystem, others: u64) -> Result<u64> {
        self.next.fetch_max(others + 1, Ordering::Relaxed);
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        if number + RESERVED / 2 > self.limit.load(Ordering::Acquire) {
            let mut kept = self.kept.lock();
            if number + RESERVED / 2 > self.limit.load(Ordering::Acquire) {
                self.reserve(child, &mut kept)?;
            }
        }
        if number < SEQUENCE_MAX { Ok(number) } else { Err(Errno::EFBIG.into()) }
    }

    fn reserve(&self, child: &dyn FileSystem, kept: &mut Kept) -> Result<()> {
        kept.record.limit = self.next.load(Ordering::Relaxed) + RESERVED;
        kept.names = Some(record::store(child, kept.names, &kept.record)?);
        record::make_durable(child)?;
        self.limit.store(kept.record.limit, Ordering::Release);
        Ok(())
    }

    /// The last number that a write has been done with.
    pub(crate) fn done(&self) -> u64 {
        let _alone = self.barrier.write();
        self.next.load(Ordering::Relaxed) - 1
    }

    /// Whether there are writes that are not settled.
    pub(crate) fn is_unsettled(&self) -> bool {
        self.next.load(Ordering::Relaxed) - 1 > self.settled.load(Ordering::Relaxed)
    }

    /// All up to `number` is durable.
    pub(crate) fn settle(&self, child: &dyn FileSystem, number: u64) -> Result<()> {
        if !self.is_begun.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut kept = self.kept.lock();
        self.settled.fetch_max(number, Ordering::Release);
        kept.record.settled = kept.record.settled.max(number);
        record::store(child, kept.names, &kept.record).map(drop)
    }

    /// Before a sync.
    pub(crate) fn attempt(&self) -> Attempt {
        let doubted = self.doubted.read().last().map_or(0, |range| *range.end());
        Attempt { settled: self.settled.load(Ordering::Acquire), doubted }
    }

    /// A sync has failed: all that was not durable before is in doubt.
    pub(crate) fn doubt(&self, child: &dyn FileSystem, attempt: Attempt) {
        let range = attempt.settled + 1..=self.next.load(Ordering::Relaxed) - 1;
        if range.is_empty() {
            return;
        }
        let mut kept = self.kept.lock();
        if !self.doubt_more(range.clone()) {
            return;
        }
        kept.record.suspect(range);
        let stored = record::store(child, kept.names, &kept.record);
        if let Err(error) = stored.and_then(|_| record::make_durable(child)) {
            // They are suspects all the same if the mount does not end, and are stored with the next
            // record if it does.
            tracing::warn!(%error, "the writes that a failed sync may have lost could not be noted");
        }
    }

    /// Answers whether that is anything new.
    fn doubt_more(&self, range: RangeInclusive<u64>) -> bool {
        let mut doubted = self.doubted.write();
        let before = doubted.clone();
        record::add(&mut doubted, range);
        *doubted != before
    }

    /// All is durable, and nothing will be written any more.
    pub(crate) fn end(&self, child: &dyn FileSystem) -> Result<()> {
        if !self.is_begun.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        let mut kept = self.kept.lock();
        let done = self.next.load(Ordering::Relaxed) - 1;
        (kept.record.settled, kept.record.limit) = (done, done);
        record::store(child, kept.names, &kept.record)?;
        record::make_durable(child)
    }

    /// Whether the write of a header is durable. Numbers of another record, and of earlier mounts,
    /// are, if they are not in doubt.
    pub(crate) fn is_durable(&self, header: &Header) -> bool {
        let is_settled = header.sequence <= self.settled.load(Ordering::Acquire);
        header.instance != self.tag || (is_settled && !self.is_doubted(header))
    }

    /// Whether all writes up to a number are settled, and none is in doubt.
    pub(crate) fn is_settled(&self, number: u64) -> bool {
        let is_sound = self.doubted.read().first().is_none_or(|range| *range.start() > number);
        number <= self.settled.load(Ordering::Acquire) && is_sound
    }

    /// Whether a failed sync may have kept the write of a header from the devices.
    pub(crate) fn is_doubted(&self, header: &Header) -> bool {
        let doubted = self.doubted.read();
        header.instance == self.tag && doubted.iter().any(|range| range.contains(&header.sequence))
    }

    /// Whether a crash may have kept the write of a header from the devices.
    pub(crate) fn is_suspect(&self, header: &Header) -> bool {
        header.instance == self.tag && self.suspects.iter().any(|range| range.contains(&header.sequence))
    }
}
