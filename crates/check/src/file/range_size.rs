//! The size of the ranges of a file whose index has lost its header, inferred from
//! where its data is.

use super::IndexedFile;
use braid_contract::{Access, Errno, Result, TierId};
use braid_format::{RangeSize, SIZE_MAX};
use std::collections::BTreeMap;
use std::ops::Range;

/// The tier of each range that has an entry; `None` if the entry is damaged.
type EntryTiers = BTreeMap<u64, Option<TierId>>;

/// The data of a file on each tier.
struct DataMap {
    /// By tier, in order.
    on: BTreeMap<TierId, Vec<Range<u64>>>,
    /// Tiers that can't show where data is.
    untold: Vec<TierId>,
}

/// The range size: that of the header before one of its bits was flipped, or
/// else a size by which all data is where the entries say; by every such size,
/// the file reads the same. If there is none, or a tier can't show its data,
/// leftovers of a move by a crash are passed over, and all sizes by which the
/// rest is where the entries say must show the same bytes. `None` if nothing
/// decides.
pub(super) fn infer_range_size(of: IndexedFile<'_>) -> Result<Option<RangeSize>> {
    let IndexedFile { target, file, index } = of;
    if let Some(header) = index.corrected_header() {
        return Ok(Some(header.range_size));
    }
    let mut owners = EntryTiers::new();
    index.for_each(|raw| {
        owners.insert(raw.range, raw.entry.ok().map(|entry| entry.tier));
        Ok(())
    })?;
    let size = index.size()?.ok();
    let data = DataMap::of(of, size.unwrap_or(SIZE_MAX))?;
    let sizes = || std::iter::once(target.range_size).chain(RangeSize::all());
    if data.untold.is_empty()
        && let Some(agreed) = sizes().find(|ranges| data.is_all_owned(&owners, *ranges))
    {
        return Ok(Some(agreed));
    }
    let size = size.unwrap_or_else(|| data.end().max(file.home.size()));
    let mut fitting = sizes().filter_map(|it| Some((it, data.shown(&owners, it, size)?)));
    let Some((first, shown)) = fitting.next() else { return Ok(None) };
    Ok(fitting.all(|(_, other)| other == shown).then_some(first))
}

/// The stretches of data below `size`, as `next` finds them.
fn stretches(size: u64, next: impl Fn(u64) -> Result<Option<(u64, u64)>>) -> Result<Vec<Range<u64>>> {
    let (mut found, mut at) = (Vec::new(), 0);
    while let Some((start, end)) = next(at)?.filter(|(start, _)| *start < size) {
        at = end.max(start + 1);
        found.push(start..at.min(size));
    }
    Ok(found)
}

impl DataMap {
    /// Looks for data of a file below `size`.
    fn of(of: IndexedFile<'_>, size: u64) -> Result<Self> {
        let IndexedFile { target, file, .. } = of;
        let home = file.home.fd.reopen(Access::Read)?;
        let mut data = Self { on: BTreeMap::new(), untold: Vec::new() };
        data.on.insert(target.home_id, stretches(size, |at| home.next_data(at))?);
        for tier in &target.tiers {
            // A store that does not report holes says nothing of the ranges'
            // size.
            let store = tier.store.as_ref().filter(|store| store.capabilities().seek_data);
            match store.map(|store| stretches(size, |at| store.next_data(file.id(), at))) {
                Some(Ok(found)) => _ = data.on.insert(tier.id, found),
                Some(Err(error)) if error.errno() == Errno::ENOENT => {}
                Some(Err(_)) | None => data.untold.push(tier.id),
            }
        }
        Ok(data)
    }

    /// Each stretch, and its tier.
    fn each(&self) -> impl Iterator<Item = (TierId, &Range<u64>)> {
        self.on.iter().flat_map(|(tier, stretches)| stretches.iter().map(|bytes| (*tier, bytes)))
    }

    /// The end of the last stretch.
    fn end(&self) -> u64 {
        self.each().map(|(_, bytes)| bytes.end).max().unwrap_or(0)
    }

    /// Whether all data is on the tier of its range's entry. A damaged entry
    /// may have named any tier.
    fn is_all_owned(&self, owners: &EntryTiers, ranges: RangeSize) -> bool {
        let is_owned = |tier, range| owners.get(&range).is_some_and(|it| it.is_none_or(|it| it == tier));
        self.each().all(|(tier, bytes)| {
            let mut touched = ranges.ranges_of(bytes.start, bytes.end);
            touched.all(|range| is_owned(tier, range))
        })
    }

    /// The bytes that a file of `size` bytes shows in ranges of this size:
    /// stretches of data, and ranges of tiers that can't show it. A crash may
    /// have left a copy on another tier than that of the entry. `None` if there
    /// is other data, or an entry lies behind the end: that is rare, and too
    /// large ranges look like it.
    fn shown(&self, owners: &EntryTiers, ranges: RangeSize, size: u64) -> Option<Vec<(TierId, Range<u64>)>> {
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
