//! The tiers that jobs may move data to, and their room.

use crate::occupancy::bytes_on;
use braid_contract::units::show_size_up;
use braid_contract::{Access, Errno, Error, Fd, RefusalKind, Result};
use braid_core::Core;
use braid_format::is_below_root;
use braid_tiers::{Tier, TierConfig};
use std::path::Path;
use std::sync::Arc;

/// The tier of this name, if it takes new ranges.
pub(super) fn target_named(core: &Core, name: &str) -> Result<Arc<Tier>> {
    let tier = core.tiers.named(name)?;
    if tier.is_draining() {
        let what = format!("tier {name} takes no new ranges: it is to be empty");
        return Err(Error::refused(Errno::EBUSY, RefusalKind::Request, what));
    }
    match tier.is_healthy() {
        true => Ok(tier),
        false => {
            let what = format!("tier {name} is {}", tier.state().name());
            Err(Error::refused(Errno::EBUSY, RefusalKind::Trouble, what))
        }
    }
}

/// The tiers that take new ranges, best first, as movers see them: by speed, but
/// home before all others where the policy puts it there. Each has its rank,
/// which equally good ones share.
///
/// # Errors
/// `EINVAL` if none is known to be better than another.
pub(super) fn ranked_tiers(core: &Core) -> Result<Vec<(Arc<Tier>, f64)>> {
    let views = core.tiers.views(0, 0);
    let home_first = core.placer.policy().prefers_home();
    let mut tiers = core.tiers.by_speed(home_first);
    tiers.retain(|(tier, _)| views.iter().any(|view| view.id == tier.id && view.has_room));
    for (tier, rank) in &mut tiers {
        if home_first && tier.is_home() {
            *rank = f64::INFINITY;
        }
    }
    match (tiers.first(), tiers.last()) {
        (Some((_, best)), Some((_, worst))) if best > worst => Ok(tiers),
        _ => {
            let what = "no tier is known to be faster than another: give them weights, or name the tier";
            Err(Error::refused(Errno::EINVAL, RefusalKind::Request, what))
        }
    }
}

/// Checks that `to` has room for so much.
pub(super) fn check_room(what: &str, needed: u64, to: &Tier) -> Result<()> {
    to.measure_again();
    let room = to.room();
    if needed <= room {
        return Ok(());
    }
    let what = format!("tier {} has room for {}, and {what}", to.name, show_size_up(room));
    Err(Error::refused(Errno::ENOSPC, RefusalKind::Room, what))
}

/// Opens a path below the root.
pub(super) fn open_below(core: &Core, path: &str) -> Result<Fd> {
    let below = Path::new(path);
    if !is_below_root(path) {
        let what = format!("{path}: paths are below the volume's root, without '..'");
        return Err(Error::refused(Errno::EINVAL, RefusalKind::Request, what));
    }
    let shown = if path.is_empty() { Path::new(".") } else { below };
    core.home.root().open_at(shown.as_os_str(), Access::Path).map_err(|error| error.context(path))
}

/// Checks that the other tiers, and `new`, which is about to join them, have
/// room for the data of `tier`; the error has the numbers.
pub(super) fn check_room_for_evacuation(core: &Core, tier: &Tier, new: Option<&TierConfig>) -> Result<()> {
    core.tiers.measure_again();
    let takes = |other: &Tier| other.id != tier.id && !other.is_draining() && other.is_healthy();
    let mut rooms: Vec<(String, u64)> = core
        .tiers
        .iter()
        .filter(|other| takes(other))
        .map(|other| (other.name.clone(), other.room()))
        .collect();
    if let Some((new, store)) = new.and_then(|new| Some((new, new.store.as_ref()?))) {
        let usage = store.usage()?;
        let room = usage.available.saturating_sub(new.reserve.bytes(usage.total));
        rooms.push((new.name.clone(), room));
    }
    let room = rooms.iter().fold(0_u64, |sum, (_, room)| sum.saturating_add(*room));
    let needed = bytes_on(core, tier, room)?;
    if needed <= room {
        return Ok(());
    }
    let each: Vec<String> =
        rooms.iter().map(|(name, room)| format!("{name} {}", show_size_up(*room))).collect();
    let what = format!(
        "tier {} holds {}, and the other tiers have room for {} ({}): make room, or add a tier",
        tier.name,
        show_size_up(needed),
        show_size_up(room),
        if each.is_empty() { "there is none".into() } else { each.join(", ") }
    );
    Err(Error::refused(Errno::ENOSPC, RefusalKind::Room, what))
}
