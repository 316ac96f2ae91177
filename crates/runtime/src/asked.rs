//! A request, copied out of the memory that the application shares; and its copy in the
//! [ledger](crate::ledger), where a process that goes on after a crash finds it.

use crate::layout::{ENTRIES, GROUPS_MAX, Geometry, NAME_MAX, NAME_WORDS, NUMBERS_WORDS, Slot};
use crate::words;
use braid_contract::Errno;
use braid_sdk::abi::{Failure, Numbers};
use std::sync::atomic::{AtomicU64, Ordering};

/// Words of a copy.
pub(crate) const WORDS: usize = 2 + NUMBERS_WORDS + 2 * NAME_WORDS;

/// A name, and its length in bytes.
type Name = ([u8; NAME_MAX], usize);

/// A request.
pub(crate) struct Asked {
    pub(crate) numbers: Numbers,
    name: Name,
    new_name: Name,
    /// Bytes that it brings.
    pub(crate) data: usize,
    /// Bytes that its answer may have.
    pub(crate) room: usize,
    /// Groups of its caller that it brings.
    pub(crate) groups: usize,
    pub(crate) entries: bool,
}

impl Asked {
    /// The request in a slot.
    pub(crate) fn of(words: &[AtomicU64], geometry: Geometry, slot: Slot) -> Result<Self, Failure> {
        let lengths = words[slot.lengths()].load(Ordering::Relaxed);
        let room = words[slot.room()].load(Ordering::Relaxed);
        let parts = (&words[slot.numbers()], &words[slot.name()], &words[slot.new_name()]);
        Self::from_words((lengths, room), parts, geometry)
    }

    fn from_words(
        (lengths, room): (u64, u64),
        (numbers, name, new_name): (&[AtomicU64], &[AtomicU64], &[AtomicU64]),
        geometry: Geometry,
    ) -> Result<Self, Failure> {
        let (name_len, new_name_len, data) =
            ((lengths & 0xffff) as usize, (lengths >> 16 & 0xffff) as usize, (lengths >> 32) as usize);
        let (groups, entries) = ((room >> 32 & 0x1_ffff) as usize, room & ENTRIES != 0);
        let room = room & 0xffff_ffff;
        let most = geometry.data;
        let fits = name_len <= NAME_MAX
            && new_name_len <= NAME_MAX
            && groups <= GROUPS_MAX
            && data + groups * 4 <= most;
        let Some(room) = usize::try_from(room).ok().filter(|room| *room <= most && fits) else {
            return Err(Failure { errno: Errno::EINVAL.0, why: "a request of impossible lengths".into() });
        };
        let text = |words: &[AtomicU64], len: usize| {
            let mut text = [0; NAME_MAX];
            words::load(words, &mut text[..len]);
            (text, len)
        };
        Ok(Self {
            numbers: words::load_value(numbers),
            name: text(name, name_len),
            new_name: text(new_name, new_name_len),
            data,
            room,
            groups,
            entries,
        })
    }

    /// Keeps a copy in these words.
    pub(crate) fn keep(&self, words: &[AtomicU64]) {
        let (name, new_name) = (self.name(), self.new_name());
        let lengths = name.len() as u64 | (new_name.len() as u64) << 16 | (self.data as u64) << 32;
        words[0].store(lengths, Ordering::Relaxed);
        let entries = if self.entries { ENTRIES } else { 0 };
        words[1].store(self.room as u64 | (self.groups as u64) << 32 | entries, Ordering::Relaxed);
        let (numbers, names) = words[2..].split_at(NUMBERS_WORDS);
        words::store_value(numbers, &self.numbers);
        words::store(names, name);
        words::store(&names[NAME_WORDS..], new_name);
    }

    /// The copy in these words.
    pub(crate) fn kept(words: &[AtomicU64], geometry: Geometry) -> Result<Self, Failure> {
        let load = |at: usize| words[at].load(Ordering::Relaxed);
        let (numbers, names) = words[2..].split_at(NUMBERS_WORDS);
        let (name, new_name) = names.split_at(NAME_WORDS);
        Self::from_words((load(0), load(1)), (numbers, name, new_name), geometry)
    }

    pub(crate) fn name(&self) -> &[u8] {
        &self.name.0[..self.name.1]
    }

    pub(crate) fn new_name(&self) -> &[u8] {
        &self.new_name.0[..self.new_name.1]
    }
}
