//! Bringing the home inode of a spread file up to date with its size and times.

use crate::core::Core;
use crate::file::access_time::set_times;
use crate::live::{File, Layout, Spread};
use braid_contract::{Result, SetTime};
use braid_tiers::Tier;

/// Brings size and times of the home inode up to date. Users of the file's
/// ranges are not kept waiting: one of them may be on a tier that hangs.
pub fn update_home_inode(file: &File) -> Result<()> {
    match &*file.layout.read() {
        Layout::Spread(spread) if file.can_write() => grow_home_file(file, spread),
        Layout::Spread(spread) => file.update_times(spread),
        Layout::Plain => Ok(()),
    }
}

/// Sets the modification time once more that the kernel set before it wrote
/// back.
pub(crate) fn restore_cached_time(core: &Core, file: &File) -> Result<()> {
    let Some(mtime) = file.cached_time.take_due() else { return Ok(()) };
    file.inode_will_change()?;
    set_times(core, file, None, Some(SetTime::At(mtime)))?;
    file.inode_is_set(true)
}

/// Makes the home file as long as the file is. The size of a file that became
/// shorter was set when it did.
pub(super) fn grow_home_file(file: &File, spread: &Spread) -> Result<()> {
    if file.home_size()? >= spread.size() {
        return file.update_times(spread);
    }
    let times = file.hold_times();
    // A write to a range on home makes the home file longer by itself, and
    // setting its size at the same time could cut the bytes just written.
    let _alone = file.home_len.write();
    let native = file.data().stat()?.attr;
    let size = spread.size();
    if native.size >= size {
        return times.update(spread, None);
    }
    file.writable()?.truncate(size)?;
    // That touched the modification time; if home owns it, it stays.
    times.update(spread, Some(native.mtime))
}

/// Changes the home file in a way that is none of its user's: its modification
/// time stays.
pub(super) fn unnoticed<T>(
    file: &File,
    spread: &Spread,
    tier: &Tier,
    change: impl FnOnce() -> Result<T>,
) -> Result<T> {
    if !tier.is_home() {
        return change();
    }
    let times = file.hold_times();
    let before = times.of_home()?;
    let changed = change();
    times.update(spread, Some(before))?;
    changed
}
