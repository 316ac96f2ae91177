//! What a damaged entry said, and how long the ranges are of a file whose header
//! is damaged, where that can be told.

use super::Check;
use super::file::Subject;
use super::raw_index::{RawEntry, RawIndex};
use crate::format::{Entry, RangeSize, Reason, SIZE_MAX, Words};
use braid_contract::{Access, Errno, Result, TierId};
use std::collections::HashMap;
use std::ops::Range;

/// A stretch of data, and the tier that has it.
type Data = (TierId, Range<u64>);

/// The entry that a word was before one of its bits was flipped. Its check has
/// 32 bits: no other entry is one bit away.
pub(super) fn corrected(words: Words, raw: &RawEntry, is_tier: impl Fn(TierId) -> bool) -> Option<Entry> {
    let one_bit_away =
        (0..64).filter_map(|bit| words.decode_entry(raw.range, raw.word ^ 1 << bit).ok().flatten());
    one_bit_away.into_iter().find(|entry| is_tier(entry.tier))
}

impl Check<'_> {
    /// The entry of the range of these bytes, if one tier alone has data in it,
    /// where nothing of the file is missing anywhere.
    pub(super) fn inferred(
        &self,
        subject: &Subject,
        index: &RawIndex,
        bytes: &Range<u64>,
    ) -> Result<Option<Entry>> {
        let mut with_data = Vec::new();
        let home = subject.fd.reopen(Access::Read)?;
        if begins_in(home.next_data(bytes.start)?, bytes) {
            with_data.push(self.ground.home_id);
        }
        for tier in &self.ground.tiers {
            let Some(store) = &tier.store else { return Ok(None) };
            match store.next_data(subject.attr.id, bytes.start) {
                Ok(data) if begins_in(data, bytes) => with_data.push(tier.id),
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

    /// How long the ranges of a file are, whose index has no header of it: what
    /// the header said before one of its bits was flipped, or else a size by
    /// which all its data is where the entries say. By every such size, the file
    /// reads the same. `None` if there is no such size, or a tier can't tell.
    pub(super) fn inferred_ranges(&self, subject: &Subject, index: &RawIndex) -> Result<Option<RangeSize>> {
        if let Some(header) = index.corrected_header() {
            return Ok(Some(header.range_size));
        }
        let mut owners = HashMap::new();
        index.for_each(|raw| {
            owners.insert(raw.range, raw.entry.ok().map(|entry| entry.tier));
            Ok(())
        })?;
        let size = index.size()?.unwrap_or(SIZE_MAX);
        let Some(data) = self.data_of(subject, size)? else { return Ok(None) };
        let agrees = |ranges: &RangeSize| {
            data.iter().all(|(tier, bytes)| {
                let mut touched = ranges.ranges_of(bytes.start, bytes.end);
                // One that is damaged may have said anything.
                touched
                    .all(|range| owners.get(&range).is_some_and(|owner| owner.is_none_or(|it| it == *tier)))
            })
        };
        Ok(std::iter::once(self.ground.range_size).chain(RangeSize::all()).find(agrees))
    }

    /// Where there is data of a file below `size`, and on which tier. `None` if
    /// a tier can't tell.
    fn data_of(&self, subject: &Subject, size: u64) -> Result<Option<Vec<Data>>> {
        let mut data: Vec<Data> = Vec::new();
        let mut add = |tier: TierId, next: &dyn Fn(u64) -> Result<Option<(u64, u64)>>| -> Result<()> {
            let mut at = 0;
            while let Some((start, end)) = next(at)?.filter(|(start, _)| *start < size) {
                at = end.max(start + 1);
                data.push((tier, start..at.min(size)));
            }
            Ok(())
        };
        let home = subject.fd.reopen(Access::Read)?;
        add(self.ground.home_id, &|at| home.next_data(at))?;
        for tier in &self.ground.tiers {
            let Some(store) = &tier.store else { return Ok(None) };
            match add(tier.id, &|at| store.next_data(subject.attr.id, at)) {
                Err(error) if error.errno() != Errno::ENOENT => return Ok(None),
                _ => {}
            }
        }
        Ok(Some(data))
    }
}

/// Whether the next stretch of data begins within these bytes.
pub(super) fn begins_in(data: Option<(u64, u64)>, bytes: &Range<u64>) -> bool {
    data.is_some_and(|(start, _)| start < bytes.end)
}
