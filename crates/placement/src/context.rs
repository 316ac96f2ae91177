//! What a policy and a rule are asked about: a write, a file's credits and the
//! tiers.

use crate::credits::Credits;
use braid_contract::{Caller, Hint, StoreIo, TierId, WriteFlags};

/// Who writes, and how; or who else gives ranges their tier.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Origin {
    /// The caller's user.
    pub uid: u32,
    /// The caller's group.
    pub gid: u32,
    /// Thread id; 0 if it is not known, such as when the kernel writes back.
    pub thread: u32,
    /// The write must be durable when it returns.
    pub sync: bool,
    /// It must not stay in memory.
    pub direct: bool,
    /// Space is only set aside: there is no data yet.
    pub reserves: bool,
    /// What is known of the data.
    pub hint: Hint,
}

impl Origin {
    /// Of a write.
    pub fn of_write(caller: &Caller, flags: WriteFlags) -> Self {
        Self { sync: flags.sync, direct: flags.direct, hint: flags.hint, ..Self::of_caller(caller) }
    }

    /// Of an operation that sets space aside.
    pub fn of_reserving(caller: &Caller) -> Self {
        Self { reserves: true, ..Self::of_caller(caller) }
    }

    /// Of another operation.
    pub fn of_caller(caller: &Caller) -> Self {
        Self { uid: caller.uid, gid: caller.gid, thread: caller.tid, ..Self::default() }
    }

    /// Whether data stays in memory for a while, and is written to the tier
    /// with nobody waiting for it.
    pub(crate) fn is_buffered(&self) -> bool {
        !(self.direct || self.sync || self.reserves)
    }

    /// What a store needs to know of it.
    pub fn store_io(&self) -> StoreIo {
        StoreIo { direct: self.direct, hint: self.hint }
    }
}

/// Where in a file ranges are to get their tier.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WriteSpan {
    /// Where the write begins.
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
    /// Of a file of `size` bytes that nobody writes to.
    pub fn at_rest(size: u64) -> Self {
        Self { size, size_after: size, ..Self::default() }
    }

    /// Whether the write begins at the end of the file, or beyond.
    pub fn appends(&self) -> bool {
        self.offset >= self.size
    }

    /// Bytes that a tier has to have room for to get the new ranges: all of
    /// them if the file is large enough to fill them soon. A file is taken to
    /// become as long again as it is, so that a small one with long ranges is
    /// not kept from a tier that has room for it.
    pub fn needed_bytes(&self) -> u64 {
        self.new_bytes.min(self.len.max(self.size))
    }

    /// Bytes of them that count as taken before the tier is measured again. A
    /// write into a hole says nothing of what comes next.
    pub fn taken_bytes(&self) -> u64 {
        if self.appends() { self.needed_bytes() } else { self.new_bytes.min(self.len) }
    }
}

/// What is known of the write that first touches some ranges.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// Who writes, and how.
    pub origin: Origin,
    /// Where in the file.
    pub span: WriteSpan,
    /// A number that no other file has.
    pub file: u64,
    /// What was dealt to each tier of this file so far.
    pub credits: &'a Credits,
    /// The tiers; home is among them.
    pub tiers: &'a [TierView],
}

impl Context<'_> {
    pub(crate) fn home(&self) -> Option<&TierView> {
        self.tiers.iter().find(|tier| tier.home)
    }

    pub(crate) fn tier(&self, id: TierId) -> Option<&TierView> {
        self.tiers.iter().find(|tier| tier.id == id)
    }

    /// The thread that writes, or else the file that is written, as a number.
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
    /// Bytes a second that it is believed to do, read and written.
    pub bandwidth: [f64; 2],
    /// There is room for the new ranges beyond the reserve, and the tier takes
    /// new ranges at all.
    pub has_room: bool,
    /// Share of the tier's space in use by anybody, 0 to 1.
    pub used: f64,
    /// Bytes of writes that are under way on it.
    pub queued: u64,
    /// Threads that keep it busy with writes, where that is known.
    pub saturating: Option<u32>,
}
