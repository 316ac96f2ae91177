//! Facts about a file that tiers know and its home inode does not: the space
//! that it takes there, and its access time. Tiers are asked once, and after
//! changes; in between, the collective inode answers (Mux §2.3).

use crate::core::Core;
use crate::file::named_on;
use crate::live::{AheadAttrs, File, Spread};
use braid_contract::{Errno, Error, ObjectId, ObjectStat, Result, Store, TierId, Timestamp};
use braid_tiers::{Backend, Tier, bit};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

/// Bytes of a block, as `stat` counts them.
pub(crate) const BLOCK: u64 = 512;

/// How long `stat` waits for a busy tier to answer.
const STAT_PATIENCE: Duration = Duration::from_millis(100);

/// Blocks that a file takes on tiers other than home, and its access time by
/// reads of them; no blocks if a tier does not answer at present.
pub(crate) fn ask_tiers(
    core: &Core,
    file: &File,
    ahead: &AheadAttrs,
) -> (Option<u64>, Option<Option<Timestamp>>) {
    let tiers = other_tiers(core);
    let known = file.with_spread(ahead.id, |spread| spread.space.on(tiers)).flatten();
    if let (Some(blocks), Some(atime)) = (known, ahead.atime) {
        return (Some(blocks), Some(atime));
    }
    let asked = ask_for_blocks(core, file, ahead, tiers);
    let atime = file.with_spread(ahead.id, |spread| {
        if asked.is_some() {
            // One whose object is missing has no time either.
            spread.times.learn_atime(None);
        }
        spread.times.atime_is_known().then(|| spread.times.atime())
    });
    (asked, atime.flatten())
}

/// The tiers other than home, as bits.
pub(crate) fn other_tiers(core: &Core) -> u64 {
    core.tiers.iter().filter(|tier| !tier.is_home()).fold(0, |bits, tier| bits | bit(tier.id))
}

fn ask_for_blocks(core: &Core, file: &File, ahead: &AheadAttrs, tiers: u64) -> Option<u64> {
    let question = file.with_spread(ahead.id, |spread| spread.space.ask())?;
    let may_have =
        |tier: &Tier| ahead.whole.is_none_or(|whole| whole == tier.id) && ahead.missing & bit(tier.id) == 0;
    let mut blocks = 0;
    for (tier, store) in core.tiers.stores().filter(|(tier, _)| may_have(tier)) {
        match stat_soon(core, &tier, store, ahead.id) {
            Ok(stat) => {
                blocks += space_of(file, &tier, &stat) / BLOCK;
                file.with_spread(ahead.id, |spread| learn_from(spread, tier.id, &stat));
            }
            Err(error) if error.errno() == Errno::ENOENT => {
                file.with_spread(ahead.id, |spread| spread.object_is_missing(tier.id));
            }
            Err(_) => return None,
        }
    }
    file.with_spread(ahead.id, |spread| spread.space.answered(&question, tiers, blocks));
    Some(blocks)
}

/// Takes the access time from an object, if its tier owns that.
fn learn_from(spread: &Spread, tier: TierId, stat: &ObjectStat) {
    if spread.index.owners().is_ok_and(|owners| owners.atime == tier) {
        spread.times.learn_atime(stat.atime);
    }
}

/// Asks the tier that owns the access time, unless that was done before. One
/// that does not answer at present is asked again the next time.
pub(crate) fn learn_atime(core: &Core, spread: &Spread) {
    if spread.times.atime_is_known() {
        return;
    }
    let owner = spread.index.owners().and_then(|owners| core.tiers.get(owners.atime));
    let atime = match owner.as_deref().map(|tier| (tier, &tier.backend)) {
        Ok((tier, Backend::Store(store))) => stat_soon(core, tier, Arc::clone(store), spread.id()),
        _ => return spread.times.learn_atime(None),
    };
    match atime {
        Ok(stat) => spread.times.learn_atime(stat.atime),
        Err(error) if error.errno() == Errno::ENOENT => spread.times.learn_atime(None),
        Err(_) => {}
    }
}

/// Bytes that a file takes on a tier, without those that it left there, where
/// they can't be freed by themselves.
fn space_of(file: &File, tier: &Tier, stat: &ObjectStat) -> u64 {
    match tier.capabilities().punch {
        true => stat.allocated,
        false => named_on(file, tier.id).map_or(stat.allocated, |named| named.min(stat.allocated)),
    }
}

/// The state of an object, unless its tier is slow: it may hang, and a
/// directory is listed without it.
fn stat_soon(core: &Core, tier: &Tier, store: Arc<dyn Store>, id: ObjectId) -> Result<ObjectStat> {
    let pool = match &core.pool {
        Some(pool) if tier.is_busy() => pool,
        _ => return store.stat(id),
    };
    let late = || Error::new(Errno::EAGAIN, format!("tier {} is slow to answer", tier.name));
    if !tier.is_prompt() {
        return Err(late());
    }
    let (tell, told) = channel();
    pool.spawn(move || drop(tell.send(store.stat(id))));
    told.recv_timeout(STAT_PATIENCE).unwrap_or_else(|_| Err(late()))
}
