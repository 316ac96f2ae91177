//! Which tiers have something of a file. An error of a tier on which the file
//! has nothing does not concern the file.

use crate::core::Core;
use crate::live::{File, Layout, Spread};
use braid_contract::{Errno, Error, Result, Store};
use braid_format::Entry;
use braid_tiers::Tier;
use std::sync::Arc;

/// Whether `error` only says that the file has no object on the tier, and none
/// was ever synced there: it was not made yet, or power loss took it before a
/// sync was answered. There is nothing in it then.
pub(super) fn is_absent(spread: &Spread, tier: &Tier, error: &Error) -> Result<bool> {
    Ok(error.errno() == Errno::ENOENT && !tier.is_home() && !spread.index.is_object_durable(tier.id)?)
}

/// Passes on the error of a tier, unless the file has nothing there: then the
/// error does not concern the file.
pub(crate) fn concerning(spread: &Spread, tier: &Tier, error: Error) -> Result<()> {
    if concerns(spread, tier)? { Err(error) } else { Ok(()) }
}

/// Whether the file has something on the tier.
pub fn concerns(spread: &Spread, tier: &Tier) -> Result<bool> {
    if let Some(whole) = spread.index.whole_tier() {
        return Ok(whole == tier.id);
    }
    let mut concerns = tier.is_home();
    spread.index.for_each(0, |_, entry| {
        // A damaged entry names no tier; reading it says so.
        concerns |= entry.is_ok_and(|entry| entry.tier == tier.id);
        Ok(())
    })?;
    Ok(concerns)
}

/// The tiers on which a file may have an object.
pub(crate) fn stores_of(core: &Core, spread: &Spread) -> Vec<(Arc<Tier>, Arc<dyn Store>)> {
    let whole = spread.index.whole_tier();
    core.tiers.stores().filter(|(tier, _)| whole.is_none_or(|whole| whole == tier.id)).collect()
}

/// The entry of the range at `offset`; `None` if it has no tier, or the file no
/// index.
pub(super) fn entry_at(file: &File, offset: u64) -> Result<Option<Entry>> {
    match &*file.layout.read() {
        Layout::Plain => Ok(None),
        Layout::Spread(spread) => spread.index.entry(spread.range_size().range_of(offset)),
    }
}
