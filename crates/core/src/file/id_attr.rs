//! The id attribute of a file in use: its contents, and when it is stored.

use crate::core::Core;
use crate::live::{File, Spread};
use braid_contract::{ObjectId, Result};
use braid_format::{IdAttr, IdKind, WholeAttr};
use braid_home::Identity;
use braid_index::Whole;
use std::sync::atomic::Ordering;

/// The id attribute of a whole file.
pub(super) fn id_attr(id: ObjectId, identity: &Identity, attr: WholeAttr) -> IdAttr {
    IdAttr { kind: IdKind::Whole(attr), id, ino: identity.ino(), btime_ns: identity.btime_ns() }
}

/// The attribute that a whole file has, or is to have.
pub(super) fn whole_attr(id: ObjectId, identity: &Identity, spread: &Spread, whole: &Whole) -> IdAttr {
    let (tier, reason, durable) = (whole.tier, whole.reason, whole.durable);
    id_attr(id, identity, WholeAttr { tier, range_size: spread.range_size(), reason, durable })
}

/// The kind of file that the attribute names.
pub(super) fn kind_of(spread: &Spread) -> IdKind {
    let of_whole = |whole: Whole| WholeAttr {
        tier: whole.tier,
        range_size: spread.range_size(),
        reason: whole.reason,
        durable: whole.durable_stored,
    };
    spread.index.whole().map_or(IdKind::Spread, |whole| IdKind::Whole(of_whole(whole)))
}

/// Sets the attribute to `now`, durably; if that fails, back to `before`.
pub(super) fn switch_attr(core: &Core, file: &File, now: &IdAttr, before: &IdAttr) -> Result<()> {
    let set = core.home.set_id_attr(&**file.data(), now);
    let set = set.and_then(|()| file.data().sync(false));
    set.inspect_err(|_| drop(core.home.set_id_attr(&**file.data(), before)))
}

/// Stores in the attribute that the object of a whole file is durable, if
/// it does not say so yet.
pub(super) fn store_durable(core: &Core, file: &File, spread: &Spread) -> Result<()> {
    let times = file.hold_times();
    // Held meanwhile, so that the file gets no index.
    let stored = spread.index.with_whole(|whole| {
        if !whole.durable || whole.durable_stored {
            return Ok(());
        }
        // After a crash, a change of the home inode says that it knows the
        // time of the last write.
        times.update(spread, None)?;
        let identity = core.home.identify(&**file.data())?;
        core.home.set_id_attr(&**file.data(), &whole_attr(spread.id(), &identity, spread, whole))?;
        spread.inode_dirty.store(true, Ordering::Release);
        whole.durable_stored = true;
        Ok(())
    });
    stored.unwrap_or(Ok(()))
}
