//! What a damaged entry said, and how long the ranges are of a file whose header
//! is damaged, where that can be told.

use super::Check;
use super::file::Subject;
use super::raw_index::{RawEntry, RawIndex};
use braid_contract::{Access, Errno, Result, TierId};
use braid_format::{Entry, RangeSize, Reason, SIZE_MAX, Words};
use braid_tiers::next_data;
use std::collections::BTreeMap;
use std::ops::Range;

/// The tier of each range that has an entry; `None` if that is damaged.
type Owners = BTreeMap<u64, Option<TierId>>;

/// Where there is data of a file.
struct Data {
    /// By tier, in order.
    on: BTreeMap<TierId, Vec<Range<u64>>>,
    /// Tiers that can't tell.
    untold: Vec<TierId>,
}

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
            match next_data(&**store, subject.attr.id, bytes.start) {
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
    /// which all its data is where the entries say; by every such size, the file
    /// reads the same. If there is none, or a tier can't tell, what a crash left
    /// of a move is passed over, and the sizes by which the rest is where the
    /// entries say must all show the same. `None` if nothing tells.
    pub(super) fn inferred_ranges(&self, subject: &Subject, index: &RawIndex) -> Result<Option<RangeSize>> {
        if let Some(header) = index.corrected_header() {
            return Ok(Some(header.range_size));
        }
        let mut owners = Owners::new();
        index.for_each(|raw| {
            owners.insert(raw.range, raw.entry.ok().map(|entry| entry.tier));
            Ok(())
        })?;
        let size = index.size()?.ok();
        let data = self.data_of(subject, size.unwrap_or(SIZE_MAX))?;
        let sizes = || std::iter::once(self.ground.range_size).chain(RangeSize::all());
        if data.untold.is_empty()
            && let Some(agreed) = sizes().find(|ranges| data.is_all_owned(&owners, *ranges))
        {
            return Ok(Some(agreed));
        }
        let size = size.unwrap_or_else(|| data.end().max(subject.identity.size()));
        let mut fitting = sizes().filter_map(|it| Some((it, data.shown(&owners, it, size)?)));
        let Some((first, shown)) = fitting.next() else { return Ok(None) };
        Ok(fitting.all(|(_, other)| other == shown).then_some(first))
    }

    /// Where there is data of a file below `size`.
    fn data_of(&self, subject: &Subject, size: u64) -> Result<Data> {
        type Next<'a> = &'a dyn Fn(u64) -> Result<Option<(u64, u64)>>;
        let stretches = |next: Next<'_>| -> Result<Vec<Range<u64>>> {
            let (mut found, mut at) = (Vec::new(), 0);
            while let Some((start, end)) = next(at)?.filter(|(start, _)| *start < size) {
                at = end.max(start + 1);
                found.push(start..at.min(size));
            }
            Ok(found)
        };
        let home = subject.fd.reopen(Access::Read)?;
        let mut data = Data { on: BTreeMap::new(), untold: Vec::new() };
        data.on.insert(self.ground.home_id, stretches(&|at| home.next_data(at))?);
        for tier in &self.ground.tiers {
            let telling = tier.store.as_ref().filter(|store| store.capabilities().seek_data);
            let found = telling.map(|store| stretches(&|at| store.next_data(subject.attr.id, at)));
            match found {
                Some(Ok(found)) => _ = data.on.insert(tier.id, found),
                Some(Err(error)) if error.errno() == Errno::ENOENT => {}
                Some(Err(_)) | None => data.untold.push(tier.id),
            }
        }
        Ok(data)
    }
}

impl Data {
    /// Each stretch, and its tier.
    fn each(&self) -> impl Iterator<Item = (TierId, &Range<u64>)> {
        self.on.iter().flat_map(|(tier, stretches)| stretches.iter().map(|bytes| (*tier, bytes)))
    }

    /// Where the last of it ends.
    fn end(&self) -> u64 {
        self.each().map(|(_, bytes)| bytes.end).max().unwrap_or(0)
    }

    /// Whether all data is on the tier of its range's entry. One that is
    /// damaged may have said anything.
    fn is_all_owned(&self, owners: &Owners, ranges: RangeSize) -> bool {
        let is_owned = |tier, range| owners.get(&range).is_some_and(|it| it.is_none_or(|it| it == tier));
        self.each().all(|(tier, bytes)| {
            let mut touched = ranges.ranges_of(bytes.start, bytes.end);
            touched.all(|range| is_owned(tier, range))
        })
    }

    /// What a file of `size` bytes shows, in ranges of this size: stretches of
    /// data, and where that of tiers may be that can't tell. A crash may have
    /// left on another tier what the one of the entry has too. `None` if there
    /// is other data, or an entry lies behind the end: that is rare, and what
    /// too large ranges look like.
    fn shown(&self, owners: &Owners, ranges: RangeSize, size: u64) -> Option<Vec<(TierId, Range<u64>)>> {
        if owners.last_key_value().is_some_and(|(last, _)| *last >= ranges.count(size)) {
            return None;
        }
        let mut shown: Vec<(TierId, Range<u64>)> = Vec::new();
        let mut show = |tier: TierId, bytes: Range<u64>| match shown.last_mut() {
            Some((last, before)) if *last == tier && before.end == bytes.start => before.end = bytes.end,
            _ => shown.push((tier, bytes)),
        };
        for (tier, bytes) in self.each() {
            for range in ranges.ranges_of(bytes.start, bytes.end) {
                let of_range = ranges.bytes_of(range..range + 1, size);
                let piece = bytes.start.max(of_range.start)..bytes.end.min(of_range.end);
                match *owners.get(&range)? {
                    Some(owner) if owner == tier => show(tier, piece),
                    None => show(tier, piece),
                    Some(owner) if self.covers(owner, &piece) => {}
                    Some(_) => return None,
                }
            }
        }
        for (range, owner) in owners {
            if let Some(owner) = owner.filter(|owner| self.untold.contains(owner)) {
                show(owner, ranges.bytes_of(*range..range + 1, size));
            }
        }
        Some(shown)
    }

    /// Whether a tier has data of all these bytes.
    fn covers(&self, tier: TierId, bytes: &Range<u64>) -> bool {
        let Some(stretches) = self.on.get(&tier) else { return false };
        let mut at = bytes.start;
        for stretch in &stretches[stretches.partition_point(|stretch| stretch.end <= at)..] {
            if at >= bytes.end || stretch.start > at {
                break;
            }
            at = stretch.end;
        }
        at >= bytes.end
    }
}

/// Whether the next stretch of data begins within these bytes.
pub(super) fn begins_in(data: Option<(u64, u64)>, bytes: &Range<u64>) -> bool {
    data.is_some_and(|(start, _)| start < bytes.end)
}
