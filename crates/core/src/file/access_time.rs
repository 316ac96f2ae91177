//! The access time of a spread file (Mux §2.3).
//!
//! The tier whose file system did the last read owns it. Home's renews the time of
//! the home inode by itself, by the options of its mount. The others are read
//! through descriptors that leave access times alone: so a move or a check leaves
//! no trace, a tier's mount options do not matter, and a read causes no write. In
//! their place the time in memory is renewed, by the same rule as home's
//! (`live/times.rs`). It counts from then on. Their object gets it within a
//! second, and at the last close and each `fsync`; the owners word of the index
//! leads to it.
//!
//! The home inode gets the time when it is changed anyway. Alone, it can't be
//! set: that would be a change, which the change time shows, and by which the
//! next read would be due again.
//!
//! A reader of a tier past this renews the time in memory itself (`coord`:
//! `Live::renew_atime`); the last close takes it from there. Spread files are
//! never passed through to the kernel.

use crate::core::Core;
use crate::file::collective::learn_atime;
use crate::live::{Due, File, HeldTimes, Layout, Spread};
use braid_contract::{Errno, Renewal, Result, SetTime, Store, TierId, Timestamp};
use braid_format::{Entry, Owners};
use braid_tiers::{Backend, Tier};
use std::io::IoSliceMut;
use std::sync::Arc;

/// With `relatime`, an access time is renewed when it is this old.
const DAY_SECS: i64 = 24 * 60 * 60;

/// The file was read up to `end`. Does nothing, most often.
pub(super) fn renew(core: &Core, file: &File, spread: &Spread, end: u64) {
    let due = match spread.times.atime_is_due(core.home.read_renewal()) {
        None => false,
        Some(Due::Renewed) => true,
        Some(Due::Check(now_ns)) => renew_if_old(core, file, spread, now_ns),
    };
    if !due {
        return;
    }
    let last = spread.range_size().range_of(end.saturating_sub(1));
    let Ok(Some(Entry { tier, .. })) = spread.index.entry(last) else {
        return read_home(file);
    };
    // Where another thread sets times, a later read or the close sees to it.
    if spread.times.was_read_on(tier)
        && let Some(held) = file.try_hold_times()
    {
        keep_on(core, file, spread, (tier, &held));
    }
}

/// Renews the access time by a read at `now_ns`, if the rule of the kernel says
/// so; answers whether it did.
fn renew_if_old(core: &Core, file: &File, spread: &Spread, now_ns: i64) -> bool {
    learn_atime(core, spread);
    let (Ok(renewal), Ok(home)) = (core.home.look_at_renewal(), file.data().stat()) else { return false };
    let atime = spread.times.atime().map_or(home.attr.atime, |atime| atime.max(home.attr.atime));
    let mtime = spread.times.mtime().map_or(home.attr.mtime, |mtime| mtime.max(home.attr.mtime));
    let is_old = match renewal {
        Renewal::Never => false,
        Renewal::Always => true,
        Renewal::Relative => {
            let age_secs = now_ns.div_euclid(1_000_000_000) - atime.secs;
            atime <= mtime.max(home.attr.ctime) || age_secs >= DAY_SECS
        }
    };
    is_old && spread.times.renew_atime(now_ns, mtime)
}

/// Gives the access time to its owner, if that does not have it yet.
pub(super) fn keep_owed(core: &Core, spread: &Spread, file: &File) {
    if let Some(tier) = spread.times.atime_owed_to() {
        keep_on(core, file, spread, (tier, &file.hold_times()));
    }
}

/// Has `tier`, which was read, keep the access time, or home where it can't.
fn keep_on(core: &Core, file: &File, spread: &Spread, (tier, held): (TierId, &HeldTimes<'_>)) {
    let kept = match core.tiers.get(tier) {
        Ok(tier) => keep(spread, &tier, held),
        Err(error) => Err(error),
    };
    if let Err(error) = kept {
        tracing::debug!(file = %spread.id(), %error, "home keeps an access time");
        read_home(file);
    } else if is_ahead_on_home(file, spread) {
        read_home(file);
    }
}

/// Whether home has a later access time, as a user set one in the future: it
/// would count for ever.
fn is_ahead_on_home(file: &File, spread: &Spread) -> bool {
    let Some(atime) = spread.times.atime() else { return false };
    file.data().stat().is_ok_and(|home| home.attr.atime > atime)
}

/// Has home's file system renew the access time, in the place of a tier: that
/// leaves the change time alone.
fn read_home(file: &File) {
    let _ = file.data().read_at(0, &mut [IoSliceMut::new(&mut [0])], false);
}

/// Gives the object on `tier` the access time; the tier owns it then. No user
/// sets another one meanwhile.
fn keep(spread: &Spread, tier: &Tier, _: &HeldTimes<'_>) -> Result<()> {
    let Some(atime) = spread.times.atime() else { return Ok(()) };
    // Tried once: a tier that can't is not asked again and again.
    spread.times.atime_is_kept(atime);
    match &tier.backend {
        // Its file system did, if it found that due.
        Backend::Home(_) => return Ok(()),
        Backend::Store(store) if tier.capabilities().access_times => {
            give(store, spread, atime)?;
        }
        Backend::Store(_) => return Err(Errno::EOPNOTSUPP.into()),
    }
    spread.note_atime_owner(tier.id)
}

/// Sets times of the home inode for a user.
pub(crate) fn set_times(
    core: &Core,
    file: &File,
    atime: Option<SetTime>,
    mtime: Option<SetTime>,
) -> Result<()> {
    // Held alone, it may be changed back to an earlier time.
    let layout = file.layout.read();
    let _alone = file.hold_times();
    file.data().set_times(atime, mtime)?;
    let Layout::Spread(spread) = &*layout else { return Ok(()) };
    let home = core.tiers.home().id;
    if mtime.is_some() {
        spread.mtime_was_set(home)?;
    }
    if atime.is_none() {
        return Ok(());
    }
    let may_be_kept = spread.times.atime_was_set();
    match spread.index.whole_tier() {
        // It has no owners word: the object's time counts where it is later.
        Some(tier) if may_be_kept => {
            let time = file.data().stat()?.attr.atime;
            let told = core.tiers.get(tier).and_then(|tier| tell(&tier, spread, time));
            if let Err(error) = told {
                tracing::debug!(file = %spread.id(), %error, "an object keeps an earlier access time");
            }
            Ok(())
        }
        Some(_) => Ok(()),
        None => spread.change_owners(|owners| Owners { atime: home, ..owners }),
    }
}

fn tell(tier: &Tier, spread: &Spread, time: Timestamp) -> Result<()> {
    match &tier.backend {
        Backend::Store(store) if tier.capabilities().access_times => give(store, spread, time),
        _ => Ok(()),
    }
}

fn give(store: &Arc<dyn Store>, spread: &Spread, time: Timestamp) -> Result<()> {
    spread.times.object_gets_it();
    store.set_access_time(spread.id(), time)
}

/// Brings the access time to the home inode, before an object goes that may have
/// it. The change time shows that.
pub(super) fn bring_home(core: &Core, file: &File, spread: &Spread) {
    learn_atime(core, spread);
    if let Err(error) = file.hold_times().bring_atime(spread) {
        tracing::debug!(file = %spread.id(), %error, "an access time was not brought home");
    }
}

/// `from` is to own the access time no more: another tier with an object of the
/// file gets it, or else home.
pub(super) fn hand_over(core: &Core, file: &File, spread: &Spread, from: &Tier) -> Result<()> {
    if spread.index.owners()?.atime != from.id {
        return Ok(());
    }
    learn_atime(core, spread);
    if let Some(atime) = spread.times.atime() {
        let others = core.tiers.stores().filter(|(tier, _)| tier.id != from.id);
        for (tier, _) in others.filter(|(tier, _)| tier.is_healthy() && tier.capabilities().access_times) {
            let there = spread.index.is_object_durable(tier.id)?;
            if there && tell(&tier, spread, atime).is_ok() {
                return spread.note_atime_owner(tier.id);
            }
        }
        file.hold_times().bring_atime(spread)?;
    }
    let home = core.tiers.home().id;
    spread.change_owners(|owners| Owners { atime: home, ..owners })
}
