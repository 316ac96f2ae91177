//! The range size of a file: that of its index if it has one, else the present
//! one by the rules or the volume. It is fixed when the index is made.

use crate::core::Core;
use crate::file::choose::rule_for;
use crate::live::{File, Layout};
use braid_contract::Result;
use braid_format::RangeSize;
use braid_placement::{Origin, WriteSpan};

/// The range size of a file, or the one that it would get if it was spread now,
/// other than for a write.
pub fn range_size_of(core: &Core, file: &File) -> Result<RangeSize> {
    range_size_in(core, file, &file.layout.read())
}

/// The same for a caller that holds the file's layout.
pub fn range_size_in(core: &Core, file: &File, layout: &Layout) -> Result<RangeSize> {
    match layout {
        Layout::Spread(spread) => Ok(spread.range_size()),
        Layout::Plain => range_size_by_rule(core, file, Origin::default(), WriteSpan::at_rest),
    }
}

/// The range size of a plain file that is spread for a write of `offset ..
/// end`.
pub(super) fn range_size_for(
    core: &Core,
    file: &File,
    offset: u64,
    end: u64,
    origin: Origin,
) -> Result<RangeSize> {
    let span =
        |size: u64| WriteSpan { offset, len: end - offset, size, size_after: size.max(end), new_bytes: 0 };
    range_size_by_rule(core, file, origin, span)
}

/// The range size of a plain file by the rules, with the span that follows from
/// its size.
fn range_size_by_rule(
    core: &Core,
    file: &File,
    origin: Origin,
    span: impl FnOnce(u64) -> WriteSpan,
) -> Result<RangeSize> {
    if core.placer.rules().smallest_range().is_none() {
        return Ok(core.range_size);
    }
    let rule = rule_for(core, file, origin, span(file.home_size()?));
    Ok(rule.and_then(|rule| rule.range_size).unwrap_or(core.range_size))
}

/// The shortest ranges that any plain file would get: a file that fits into one
/// of them fits into one range, whatever rule counts.
pub fn smallest_range(core: &Core) -> RangeSize {
    core.placer.rules().smallest_range().map_or(core.range_size, |smallest| smallest.min(core.range_size))
}
