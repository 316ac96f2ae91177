//! Bringing data home, and naming the files that stay on their tier.

use super::amounts::{EjectOptions, EjectProgress, Ejection};
use super::clear;
use super::in_place::{Fate, Site, fate, name_in_place, sites, unplace};
use super::survey::{Away, Names, each_away, survey};
use braid_contract::{Errno, Error, Fd, ObjectId, Result, Shown, TierId};
use braid_core::Core;
use braid_core::file::{end_use, gather, relocate};
use braid_core::live::File;
use braid_core::namespace::with_file;
use braid_core::reap::{reap_now, retire_marks};
use braid_format::Reason;
use braid_home::{Identity, Seen};
use braid_tiers::Tier;
use braid_tiers::rate::Throttles;
use braid_tiers::rate::{IoClass, MoveRate, Pace};
use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

/// The tools of an ejection: the core, and the throttles of the tiers.
pub(crate) type Tools<'a> = (&'a Core, &'a Throttles);

/// Ranges of a file that are collected at a time.
const BATCH: usize = 1024;

pub(crate) fn eject_open(
    (core, throttles): Tools<'_>,
    options: EjectOptions,
    progress: &mut dyn FnMut(EjectProgress) -> bool,
) -> Result<Ejection> {
    let sites = sites(core)?;
    let (mut ejection, names) = survey(core, options, &sites)?;
    if options.dry_run || !ejection.left.is_empty() || ejection.hindrance.is_some() {
        return Ok(ejection);
    }
    let now = EjectProgress { done: 0, total: ejection.amounts.bytes };
    let mut work = EjectRun {
        options,
        names: &names,
        sites: &sites,
        ejection: &mut ejection,
        placed: HashSet::new(),
        now,
        progress,
        goes_on: true,
    };
    let ended = take_apart((core, throttles), &mut work)?;
    let placed = work.placed;
    if !ended {
        ejection.hindrance = Some("it was interrupted".into());
    }
    if ejection.left.is_empty() && ejection.hindrance.is_none() {
        reap_now(core);
        retire_marks(core);
        ejection.hindrance = what_is_left(core, &placed)?;
    }
    ejection.done = ejection.left.is_empty() && ejection.hindrance.is_none();
    if ejection.done {
        make_places_durable(core, &sites, options)?;
        clear::begin(&core.home, options.in_place)?;
    }
    Ok(ejection)
}

/// Makes the files' new names on their tiers durable, and home's file system.
fn make_places_durable(core: &Core, sites: &[Site], options: EjectOptions) -> Result<()> {
    if options.in_place {
        sites.iter().try_for_each(|site| site.store.sync_all())?;
        core.home.root().sync_fs()?;
    }
    Ok(())
}

/// Visits all files: those that come home do so in the first pass, which takes
/// long; those that stay get their names in the second. Answers whether it
/// reached the end.
fn take_apart((core, throttles): Tools<'_>, work: &mut EjectRun<'_>) -> Result<bool> {
    for placing in [false, true] {
        if placing && !work.options.in_place {
            continue;
        }
        let mut linked = HashSet::new();
        let walked = core.home.walk_below(&[], &mut |seen| {
            match seen {
                Seen::File(_, _, identity) if identity.attr.nlink > 1 && !linked.insert(identity.ino()) => {}
                Seen::File(path, fd, identity) => {
                    let names = work.names.of(identity, path);
                    if let Err(error) = eject_file((core, throttles), work, (fd, identity, &names), placing) {
                        note(&mut work.ejection.left, path, &error);
                    }
                }
                Seen::Failed(path, error) => note(&mut work.ejection.left, path, &error),
            }
            if work.goes_on { Ok(()) } else { Err(Errno::ECANCELED.into()) }
        });
        match walked {
            Err(error) if error.errno() == Errno::ECANCELED => return Ok(false),
            walked => walked?,
        }
    }
    Ok(true)
}

/// Handles one file. Files that stay are skipped, except in the pass for them.
fn eject_file(
    (core, throttles): Tools<'_>,
    work: &mut EjectRun<'_>,
    (fd, identity, names): (&Fd, &Identity, &[PathBuf]),
    placing: bool,
) -> Result<()> {
    if core.home.id_attr(&**fd, identity)?.is_none() {
        return strip(core, fd, identity);
    }
    let is_home = with_file(core, fd, identity, |file| {
        if work.options.in_place
            && let Fate::Stays(placed) = fate(core, file, identity, names, work.sites)?
        {
            if !placing {
                return Ok(false);
            }
            match name_in_place(core, fd, &placed, names, work.sites) {
                Ok(()) => {
                    work.placed.insert((placed.tier, placed.id));
                    return work.tell(0).map(|()| false);
                }
                // The file comes home, if there is room.
                Err(error) => {
                    tracing::info!(path = %names[0].shown(), %error, "a file can't stay on its tier");
                    work.not_placed(placed.tier, placed.size);
                }
            }
        }
        unplace(file, names, work.sites)?;
        bring_file_home((core, throttles), file, &mut |bytes| work.tell(bytes)).map(|()| true)
    })?;
    if is_home { strip(core, fd, identity) } else { Ok(()) }
}

fn bring_file_home(
    (core, throttles): Tools<'_>,
    file: &File,
    told: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<()> {
    file.opened(false)?;
    let moved = move_home_from_all((core, throttles), file, told).and_then(|()| gather(core, file));
    let ended = end_use(core, file, false);
    match moved {
        Ok(true) => ended,
        Ok(false) => Err(Error::new(Errno::EIO, "some of it is on a tier that is in trouble")),
        Err(error) => Err(error),
    }
}

fn move_home_from_all(
    (core, throttles): Tools<'_>,
    file: &File,
    told: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<()> {
    let mut first = 0;
    loop {
        let mut away: BTreeMap<TierId, Vec<Away>> = BTreeMap::new();
        let (mut count, mut bytes) = (0, 0);
        let collected = each_away(core, file, first, &mut |range| {
            (count, bytes, first) = (count + 1, bytes + range.len, range.next);
            away.entry(range.tier).or_default().push(range);
            if count == BATCH { Err(Errno::ECANCELED.into()) } else { Ok(()) }
        });
        collected.or_else(|error| if count == BATCH { Ok(()) } else { Err(error) })?;
        if count == 0 {
            return Ok(());
        }
        let (home, pace) = (core.tiers.home(), Pace::new(None, &throttles.paces));
        core.side_by_side(away.into_values(), |ranges| {
            ranges
                .iter()
                .try_for_each(|range| move_range_home((core, throttles), file, range.offset, home, &pace))
        })?;
        told(bytes)?;
    }
}

fn move_range_home(
    (core, throttles): Tools<'_>,
    file: &File,
    offset: u64,
    home: &Tier,
    pace: &Pace,
) -> Result<()> {
    let rate = MoveRate { throttles, pace, class: IoClass::UnguardedJob };
    relocate(core, file, offset, home, (Reason::Asked, rate)).map(drop)
}

/// Takes Braid's attributes from a plain file: a pin, and an id that was
/// copied from another file.
fn strip(core: &Core, fd: &Fd, identity: &Identity) -> Result<()> {
    core.home.remove_id_attr(&**fd)?;
    core.home.set_pin(&**fd, identity, None)
}

/// Looks for data that no file leads to.
fn what_is_left(core: &Core, placed: &HashSet<(TierId, ObjectId)>) -> Result<Option<String>> {
    let mut indexes = 0_u64;
    core.index.list(&mut |_| {
        indexes += 1;
        Ok(())
    })?;
    if indexes > 0 {
        return Ok(Some(format!("{indexes} indexes belong to no file: see braid fsck --repair")));
    }
    for (tier, store) in core.tiers.stores() {
        let mut objects = 0_u64;
        store.list(&mut |id| objects += u64::from(!placed.contains(&(tier.id, id))))?;
        if objects > 0 {
            let what = format!("{objects} objects on tier {} belong to no file", tier.name);
            return Ok(Some(what + ": see braid fsck --repair"));
        }
    }
    Ok(None)
}

/// The state of a running ejection.
struct EjectRun<'w> {
    options: EjectOptions,
    names: &'w Names,
    sites: &'w [Site],
    ejection: &'w mut Ejection,
    /// Objects that stay where they are.
    placed: HashSet<(TierId, ObjectId)>,
    now: EjectProgress,
    progress: &'w mut dyn FnMut(EjectProgress) -> bool,
    goes_on: bool,
}

impl EjectRun<'_> {
    /// Reports progress; `ECANCELED` if the ejection is to end.
    fn tell(&mut self, bytes: u64) -> Result<()> {
        self.now.done += bytes;
        self.goes_on = (self.progress)(self.now);
        if self.goes_on { Ok(()) } else { Err(Errno::ECANCELED.into()) }
    }

    /// Counts a file that was to stay on its tier, and comes home.
    fn not_placed(&mut self, tier: TierId, bytes: u64) {
        self.now.total += bytes;
        let amounts = &mut self.ejection.amounts;
        amounts.comes_home(bytes, bytes);
        let name = self.sites.iter().find(|site| site.tier == tier).map(|site| &site.name);
        if let Some(stays) = amounts.stays.iter_mut().find(|stays| Some(&stays.tier) == name) {
            stays.files -= 1;
            stays.bytes -= bytes;
        }
    }
}

fn note(left: &mut Vec<(PathBuf, String)>, path: &Path, error: &Error) {
    if error.errno() != Errno::ECANCELED {
        left.push((path.to_owned(), error.to_string()));
    }
}
