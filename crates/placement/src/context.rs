//! The input of policies and rules: a write, a file's credits and the tiers.

use crate::credits::Credits;
use braid_contract::{Caller, Hint, StoreIo, TierId, WriteFlags};

/// The origin of a write, or of another operation that gives ranges their tier.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Origin {
    /// The caller's user.
    pub uid: u32,
    /// The caller's group.
    pub gid: u32,
    /// Thread id; 0 if unknown, such as for writeback by the kernel.
    pub thread: u32,
    /// The write must be durable when it returns.
    pub sync: bool,
    /// It must bypass the page cache.
    pub direct: bool,
    /// Space is only set aside: there is no data yet.
    pub reserves: bool,
    /// The kernel's cache writes back, in no order: earlier data of the file
    /// may follow.
    pub written_back: bool,
    /// Knowledge about the data's future.
    pub hint: Hint,
}

impl Origin {
    /// The origin of a write.
    pub fn of_write(caller: &Caller, flags: WriteFlags) -> Self {
        Self { sync: flags.sync, direct: flags.direct, hint: flags.hint, ..Self::of_caller(caller) }
    }

    /// The origin of an operation that reserves space.
    pub fn of_reserving(caller: &Caller) -> Self {
        Self { reserves: true, ..Self::of_caller(caller) }
    }

    /// The origin of another operation.
    pub fn of_caller(caller: &Caller) -> Self {
        Self { uid: caller.uid, gid: caller.gid, thread: caller.tid, ..Self::default() }
    }

    /// Whether data stays in memory for a while, and is written to the tier in
    /// the background.
    pub fn is_buffered(&self) -> bool {
        !(self.direct || self.sync || self.reserves)
    }

    /// The part of it that a store needs.
    pub fn store_io(&self) -> StoreIo {
        StoreIo { direct: self.direct, hint: self.hint }
    }
}

/// The bytes of a file whose ranges are to get their tier.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WriteSpan {
    /// Start of the write.
    pub offset: u64,
    /// Bytes of the write.
    pub len: u64,
    /// Size of the file before it.
    pub size: u64,
    /// Size of the file once it is done.
    pub size_after: u64,
    /// Bytes that the new ranges take together.
    pub new_bytes: u64,
}

impl WriteSpan {
    /// The span of a file of `size` bytes without a write.
    pub fn at_rest(size: u64) -> Self {
        Self { size, size_after: size, ..Self::default() }
    }

    /// Whether the write begins at the end of the file, or beyond.
    pub fn appends(&self) -> bool {
        self.offset >= self.size
    }

    /// Bytes of room that a tier needs to get the new ranges: all of them if
    /// the file is large enough to fill them soon. A file is assumed to double
    /// in size, so that a small one with long ranges can still use a tier that
    /// has room for it.
    pub fn needed_bytes(&self) -> u64 {
        self.new_bytes.min(self.len.max(self.size))
    }

    /// Those bytes that count as taken before the tier is measured again. A
    /// write into a hole says nothing about later ones.
    pub fn taken_bytes(&self) -> u64 {
        if self.appends() { self.needed_bytes() } else { self.new_bytes.min(self.len) }
    }
}

/// The facts about the write that first touches some ranges.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The origin of the write.
    pub origin: Origin,
    /// The part of the file.
    pub span: WriteSpan,
    /// A number that is unique to the file.
    pub file: u64,
    /// The shares of this file that were dealt to each tier so far.
    pub credits: &'a Credits,
    /// The tiers, including home.
    pub tiers: &'a [TierView],
}

impl Context<'_> {
    pub(crate) fn home(&self) -> Option<&TierView> {
        self.tiers.iter().find(|tier| tier.home)
    }

    pub(crate) fn tier(&self, id: TierId) -> Option<&TierView> {
        self.tiers.iter().find(|tier| tier.id == id)
    }

    /// The writing thread, or else the file, as a number.
    pub(crate) fn stream(&self) -> u64 {
        match self.origin.thread {
            0 => self.file | 1 << 63,
            thread => u64::from(thread),
        }
    }
}

/// A tier as a policy sees it.
#[derive(Clone, Debug)]
pub struct TierView {
    /// The tier's number.
    pub id: TierId,
    /// Whether it is home.
    pub home: bool,
    /// Bandwidth relative to the other tiers, above 0.
    pub weight: f64,
    /// Estimated bytes a second, read and written.
    pub bandwidth: [f64; 2],
    /// Whether it has room for the new ranges beyond the reserve, and takes new
    /// ranges at all.
    pub has_room: bool,
    /// Used share of the tier's space, by all users, 0 to 1.
    pub used: f64,
    /// Bytes of writes in flight on it.
    pub queued: u64,
    /// Threads that saturate it with writes, if known.
    pub saturating: Option<u32>,
}
