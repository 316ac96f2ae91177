//! What a damaged entry said, where that can be told.

use super::Check;
use super::file::Subject;
use super::raw_index::{RawEntry, RawIndex};
use crate::format::{Entry, Reason, Words};
use braid_contract::{Access, Errno, Result, TierId};
use std::ops::Range;

/// The entry that a word was before one of its bits was flipped. Its check has
/// 32 bits: no other entry is one bit away.
pub(super) fn corrected(words: Words, raw: &RawEntry, is_tier: impl Fn(TierId) -> bool) -> Option<Entry> {
    let one_bit_away =
        (0..64).filter_map(|bit| words.decode_entry(raw.range, raw.word ^ 1 << bit).ok().flatten());
    one_bit_away.into_iter().find(|entry| is_tier(entry.tier))
}

impl Check<'_> {
    /// The entry of a range that one tier alone has data in, where nothing of
    /// the file is missing anywhere.
    pub(super) fn inferred(
        &self,
        subject: &Subject,
        index: &RawIndex,
        range: u64,
        size: u64,
    ) -> Result<Option<Entry>> {
        let bytes = self.bytes_of(range..range + 1, size);
        let mut with_data = Vec::new();
        let home = subject.fd.reopen(Access::Read)?;
        if begins_in(home.next_data(bytes.start)?, &bytes) {
            with_data.push(self.ground.home_id);
        }
        for tier in &self.ground.tiers {
            let Some(store) = &tier.store else { return Ok(None) };
            match store.next_data(subject.attr.id, bytes.start) {
                Ok(data) if begins_in(data, &bytes) => with_data.push(tier.id),
                Ok(_) => {}
                Err(error) if error.errno() == Errno::ENOENT && index.durable(tier.id)? == Ok(false) => {}
                // It may have had the data.
                Err(_) => return Ok(None),
            }
        }
        Ok(match with_data[..] {
            [tier] => Some(Entry { tier, reason: Reason::Policy, version: 0 }),
            _ => None,
        })
    }
}

/// Whether the next stretch of data begins within these bytes.
pub(super) fn begins_in(data: Option<(u64, u64)>, bytes: &Range<u64>) -> bool {
    data.is_some_and(|(start, _)| start < bytes.end)
}
