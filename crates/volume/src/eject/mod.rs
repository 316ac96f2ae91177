//! Taking Braid out of a tree: all data comes home, every file is a plain one,
//! and then attributes and `.braid` go, from home last. In place, what is whole
//! on a tier stays there. The volume is not mounted meanwhile. What was brought
//! home stays there however it ends, and the volume stays one until every file
//! has its place.
//!
//! `survey` looks at what there is to be done, `in_place` gives files their
//! names on their tier. What follows the record that ends the volume, and can be
//! gone on with, is in `clear`, with `settle` for files that stay on their tier.

mod clear;
mod in_place;
mod settle;
mod survey;

pub(crate) use clear::begun;

use crate::{OpenError, Volume, VolumeConfig};
use braid_contract::{Errno, Error, Fd, ObjectId, Result, Shown, TierId};
use braid_core::file::gather::gather;
use braid_core::file::open::end_use;
use braid_core::file::relocate::relocate;
use braid_core::live::File;
use braid_core::namespace::known::with_file;
use braid_core::reap::{reap_now, reclaim_orphans};
use braid_format::{Reason, TABLE_LEN};
use braid_home::{Identity, Seen};
use braid_tiers::Tier;
use braid_tiers::rate::{IoClass, MoveRate, Pace};
use in_place::{Fate, Site};
use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use survey::Names;

/// Ranges of a file that are collected at a time.
const BATCH: usize = 1024;

/// How an ejection is to go.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EjectOptions {
    /// Only look what it means.
    pub dry_run: bool,
    /// Files that are whole on another tier stay there, as ordinary files of
    /// its directory.
    pub in_place: bool,
}

/// Files that stay on a tier.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Stays {
    /// The tier's name.
    pub tier: String,
    /// Files.
    pub files: u64,
    /// Bytes in them.
    pub bytes: u64,
}

/// How much comes home, and how much stays where.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Amounts {
    /// Files that come home.
    pub files: u64,
    /// Bytes of them on other tiers.
    pub bytes: u64,
    /// Room that they take on home, in bytes: less where there are holes.
    pub space: u64,
    /// What stays on other tiers.
    pub stays: Vec<Stays>,
}

impl Amounts {
    fn comes_home(&mut self, bytes: u64, space: u64) {
        self.files += 1;
        self.bytes += bytes;
        self.space += space;
    }

    fn stays(&mut self, tier: &str, bytes: u64) {
        match self.stays.iter_mut().find(|stays| stays.tier == tier) {
            Some(stays) => (stays.files, stays.bytes) = (stays.files + 1, stays.bytes + bytes),
            None => self.stays.push(Stays { tier: tier.to_owned(), files: 1, bytes }),
        }
    }
}

/// What an ejection came to, or would.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Ejection {
    /// What comes home and what stays, as it was asked for.
    pub amounts: Amounts,
    /// The same for an ejection in place.
    pub in_place: Amounts,
    /// Room on home, in bytes.
    pub room: u64,
    /// Files that could not be brought home, below the root, and why not.
    pub left: Vec<(PathBuf, String)>,
    /// What else keeps the volume from being taken apart.
    pub hindrance: Option<String>,
    /// Nothing of Braid is left on any tier.
    pub done: bool,
}

/// How far an ejection is: bytes that came home, and bytes that are to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EjectProgress {
    /// Bytes that are at home now and were not.
    pub done: u64,
    /// Bytes that were elsewhere.
    pub total: u64,
}

impl Volume {
    /// Brings all data of the volume that `config` describes home, but for what
    /// may stay where it is, and takes the volume apart. `progress` is told after
    /// each file; it ends early when that answers `false`. What was begun goes on
    /// the way that it was begun.
    ///
    /// # Errors
    /// An [`OpenError`] if the volume can't be opened, or a tier fails in a way
    /// that is not one file's. The volume is one still.
    pub fn eject(
        config: VolumeConfig,
        options: EjectOptions,
        progress: &mut dyn FnMut(EjectProgress) -> bool,
    ) -> std::result::Result<Ejection, OpenError> {
        if begun(&config.home.root)? {
            if options.dry_run {
                let hindrance = "it was begun, and every file has its place; what is left is to be cleared";
                return Ok(Ejection { hindrance: Some(hindrance.into()), ..Ejection::default() });
            }
            clear::go_on(&config)?;
            return Ok(Ejection { done: true, ..Ejection::default() });
        }
        if !options.dry_run && clear::end_hollow(&config)? {
            return Ok(Ejection { done: true, ..Ejection::default() });
        }
        refuse_what_is_none(&config)?;
        let volume = Self::open(config)?;
        // What they were at is not wanted any more.
        volume.jobs.stop();
        volume.movers.rounds.stop();
        let result = volume.eject_open(options, progress);
        let ended = volume.shutdown();
        let ejection = result?;
        ended?;
        if ejection.done {
            clear::clear(&volume, options.in_place)?;
        }
        Ok(ejection)
    }

    fn eject_open(
        &self,
        options: EjectOptions,
        progress: &mut dyn FnMut(EjectProgress) -> bool,
    ) -> Result<Ejection> {
        let sites = self.sites()?;
        let (mut ejection, names) = self.survey(options, &sites)?;
        if options.dry_run || !ejection.left.is_empty() || ejection.hindrance.is_some() {
            return Ok(ejection);
        }
        let now = EjectProgress { done: 0, total: ejection.amounts.bytes };
        let mut work = Work {
            options,
            names: &names,
            sites: &sites,
            ejection: &mut ejection,
            placed: HashSet::new(),
            now,
            progress,
            goes_on: true,
        };
        let ended = self.take_apart(&mut work)?;
        let placed = work.placed;
        if !ended {
            ejection.hindrance = Some("it was interrupted".into());
        }
        if ejection.left.is_empty() && ejection.hindrance.is_none() {
            reap_now(&self.core);
            reclaim_orphans(&self.core);
            ejection.hindrance = self.what_is_left(&placed)?;
        }
        ejection.done = ejection.left.is_empty() && ejection.hindrance.is_none();
        if ejection.done {
            self.make_places_durable(&sites, options)?;
            clear::begin(&self.core.home, options.in_place)?;
        }
        Ok(ejection)
    }

    /// What files have on their tiers, and what home knows of them.
    fn make_places_durable(&self, sites: &[Site], options: EjectOptions) -> Result<()> {
        if options.in_place {
            sites.iter().try_for_each(|site| site.store.sync_all())?;
            self.core.home.root().sync_fs()?;
        }
        Ok(())
    }

    /// Goes through all files: those that come home do so in the first pass,
    /// which takes long, and those that stay get their names in the second one.
    /// Answers whether it came to its end.
    fn take_apart(&self, work: &mut Work<'_>) -> Result<bool> {
        for placing in [false, true] {
            if placing && !work.options.in_place {
                continue;
            }
            let mut linked = HashSet::new();
            let walked = self.core.home.walk_below(&[], &mut |seen| {
                match seen {
                    Seen::File(_, _, identity)
                        if identity.attr.nlink > 1 && !linked.insert(identity.ino()) => {}
                    Seen::File(path, fd, identity) => {
                        let names = work.names.of(identity, path);
                        if let Err(error) = self.eject_file(work, (fd, identity, &names), placing) {
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

    /// One file. Those that are to have a name on their tier are passed over,
    /// unless they are what is looked for.
    fn eject_file(
        &self,
        work: &mut Work<'_>,
        (fd, identity, names): (&Fd, &Identity, &[PathBuf]),
        placing: bool,
    ) -> Result<()> {
        if self.core.home.id_attr(&**fd, identity)?.is_none() {
            return self.strip(fd, identity);
        }
        let is_home = with_file(&self.core, fd, identity, |file| {
            if work.options.in_place
                && let Fate::Stays(placed) = self.fate(file, identity, names, work.sites)?
            {
                if !placing {
                    return Ok(false);
                }
                match self.name_in_place(fd, &placed, names, work.sites) {
                    Ok(()) => {
                        work.placed.insert((placed.tier, placed.id));
                        return work.tell(0).map(|()| false);
                    }
                    // It comes home, if there is room.
                    Err(error) => {
                        tracing::info!(path = %names[0].shown(), %error, "a file can't stay on its tier");
                        work.not_placed(placed.tier, placed.size);
                    }
                }
            }
            self.unplace(file, names, work.sites)?;
            self.bring_file_home(file, &mut |bytes| work.tell(bytes)).map(|()| true)
        })?;
        if is_home { self.strip(fd, identity) } else { Ok(()) }
    }

    fn bring_file_home(&self, file: &File, told: &mut dyn FnMut(u64) -> Result<()>) -> Result<()> {
        file.opened(false)?;
        let moved = self.move_home_from_all(file, told).and_then(|()| gather(&self.core, file));
        let ended = end_use(&self.core, file, false);
        match moved {
            Ok(true) => ended,
            Ok(false) => Err(Error::new(Errno::EIO, "some of it is on a tier that is in trouble")),
            Err(error) => Err(error),
        }
    }

    fn move_home_from_all(&self, file: &File, told: &mut dyn FnMut(u64) -> Result<()>) -> Result<()> {
        let mut first = 0;
        loop {
            let mut away: BTreeMap<TierId, Vec<Away>> = BTreeMap::new();
            let (mut count, mut bytes) = (0, 0);
            let collected = self.each_away(file, first, &mut |range| {
                (count, bytes, first) = (count + 1, bytes + range.len, range.next);
                away.entry(range.tier).or_default().push(range);
                if count == BATCH { Err(Errno::ECANCELED.into()) } else { Ok(()) }
            });
            collected.or_else(|error| if count == BATCH { Ok(()) } else { Err(error) })?;
            if count == 0 {
                return Ok(());
            }
            let (home, pace) = (self.core.tiers.home(), Pace::new(None, &self.throttles.paces));
            self.core.side_by_side(away.into_values(), |ranges| {
                ranges.iter().try_for_each(|range| self.move_range_home(file, range.offset, home, &pace))
            })?;
            told(bytes)?;
        }
    }

    fn move_range_home(&self, file: &File, offset: u64, home: &Tier, pace: &Pace) -> Result<()> {
        let rate = MoveRate { throttles: &self.throttles, pace, class: IoClass::UnguardedJob };
        relocate(&self.core, file, offset, home, (Reason::Asked, rate)).map(drop)
    }

    /// Takes Braid's attributes from a plain file: a pin, and an id that was
    /// copied from another file.
    fn strip(&self, fd: &Fd, identity: &Identity) -> Result<()> {
        self.core.home.remove_id_attr(&**fd)?;
        self.core.home.set_pin(&**fd, identity, None)
    }

    /// What is there that no file leads to.
    fn what_is_left(&self, placed: &HashSet<(TierId, ObjectId)>) -> Result<Option<String>> {
        let mut indexes = 0_u64;
        self.core.index.list(&mut |_| {
            indexes += 1;
            Ok(())
        })?;
        if indexes > 0 {
            return Ok(Some(format!("{indexes} indexes belong to no file: see braid fsck --repair")));
        }
        for (tier, store) in self.core.tiers.stores() {
            let mut objects = 0_u64;
            store.list(&mut |id| objects += u64::from(!placed.contains(&(tier.id, id))))?;
            if objects > 0 {
                let what = format!("{objects} objects on tier {} belong to no file", tier.name);
                return Ok(Some(what + ": see braid fsck --repair"));
            }
        }
        Ok(None)
    }
}

/// What goes along with an ejection.
struct Work<'w> {
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

impl Work<'_> {
    /// `ECANCELED` if it is to end.
    fn tell(&mut self, bytes: u64) -> Result<()> {
        self.now.done += bytes;
        self.goes_on = (self.progress)(self.now);
        if self.goes_on { Ok(()) } else { Err(Errno::ECANCELED.into()) }
    }

    /// A file that was to stay on its tier comes home.
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

/// A range that is not on home.
struct Away {
    offset: u64,
    len: u64,
    tier: TierId,
    /// Where the next one begins.
    next: u64,
}

fn note(left: &mut Vec<(PathBuf, String)>, path: &Path, error: &Error) {
    if error.errno() != Errno::ECANCELED {
        left.push((path.to_owned(), error.to_string()));
    }
}

/// An ejection makes no volume.
fn refuse_what_is_none(config: &VolumeConfig) -> std::result::Result<(), OpenError> {
    match config.home.root.read_small(".braid/label", TABLE_LEN)? {
        Some(_) => Ok(()),
        None => Err(OpenError::NoVolume { tier: config.home.name.clone() }),
    }
}
