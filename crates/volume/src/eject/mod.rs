//! Taking Braid out of a tree: all data comes home, every file is a plain one,
//! and then attributes and `.braid` go, from home last. The volume is not
//! mounted meanwhile. What was brought home stays there however it ends, and
//! the volume stays one until all of it is home.
//!
//! `clear` is the last step, which an interrupted one goes on with.

mod clear;

pub(crate) use clear::begun;

use crate::file::{File, Layout};
use crate::format::{Reason, TABLE_LEN};
use crate::migrate::Pace;
use crate::movers::{Drive, Who};
use crate::namespace::{Identity, Seen};
use crate::tiers::Tier;
use crate::{OpenError, Volume, VolumeConfig};
use braid_contract::{Errno, Error, Fd, Result, TierId};
use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

/// Ranges of a file that are collected at a time.
const BATCH: usize = 1024;

/// What an ejection came to, or would.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Ejection {
    /// Files that had data on other tiers than home.
    pub files: u64,
    /// Bytes of them there.
    pub bytes: u64,
    /// Room on home for them, in bytes.
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
    /// Brings all data of the volume that `config` describes home, and takes
    /// it apart; with `dry_run`, only looks what that means. `progress` is told
    /// after each file; it ends early when that answers `false`.
    ///
    /// # Errors
    /// An [`OpenError`] if the volume can't be opened, or a tier fails in a way
    /// that is not one file's. The volume is one still.
    pub fn eject(
        config: VolumeConfig,
        dry_run: bool,
        progress: &mut dyn FnMut(EjectProgress) -> bool,
    ) -> std::result::Result<Ejection, OpenError> {
        if begun(&config.home.root)? {
            if dry_run {
                let hindrance = "it was begun, and all data is home; what is left is to be cleared";
                return Ok(Ejection { hindrance: Some(hindrance.into()), ..Ejection::default() });
            }
            clear::go_on(&config)?;
            return Ok(Ejection { done: true, ..Ejection::default() });
        }
        if !dry_run && clear::end_hollow(&config)? {
            return Ok(Ejection { done: true, ..Ejection::default() });
        }
        refuse_what_is_none(&config)?;
        let volume = Self::open(config)?;
        // What they were at is not wanted any more.
        volume.jobs.stop();
        volume.movers.stop();
        let result = volume.eject_open(dry_run, progress);
        let ended = volume.shutdown();
        let ejection = result?;
        ended?;
        if ejection.done {
            clear::clear(&volume)?;
        }
        Ok(ejection)
    }

    fn eject_open(&self, dry_run: bool, progress: &mut dyn FnMut(EjectProgress) -> bool) -> Result<Ejection> {
        let mut ejection = self.survey()?;
        if dry_run || !ejection.left.is_empty() || ejection.hindrance.is_some() {
            return Ok(ejection);
        }
        if !self.bring_all_home(&mut ejection, progress)? {
            ejection.hindrance = Some("it was interrupted".into());
        }
        if ejection.left.is_empty() && ejection.hindrance.is_none() {
            self.reaper.reap_now(self);
            self.reaper.bury(self);
            ejection.hindrance = self.what_is_left()?;
        }
        ejection.done = ejection.left.is_empty() && ejection.hindrance.is_none();
        if ejection.done {
            clear::begin(&self.home)?;
        }
        Ok(ejection)
    }

    /// What there is to be done, and what is in the way.
    fn survey(&self) -> Result<Ejection> {
        let (mut ejection, mut linked) = (Ejection::default(), HashSet::new());
        self.home.walk_below(&[], &mut |seen| {
            match seen {
                Seen::File(_, _, identity) if identity.attr.nlink > 1 && !linked.insert(identity.ino()) => {}
                Seen::File(path, fd, identity) => {
                    let elsewhere = self.home.id_attr(&**fd, identity).and_then(|attr| match attr {
                        None => Ok(0),
                        Some(_) => self.with_file(fd, identity, |file| self.readable_elsewhere(file)),
                    });
                    match elsewhere {
                        Ok(bytes) => {
                            ejection.files += u64::from(bytes > 0);
                            ejection.bytes += bytes;
                        }
                        Err(error) => ejection.left.push((path.to_owned(), error.to_string())),
                    }
                }
                Seen::Failed(path, error) => ejection.left.push((path.to_owned(), error.to_string())),
            }
            Ok(())
        })?;
        let home = self.tiers.home();
        home.measure_again();
        ejection.room = home.room();
        if ejection.room < ejection.bytes {
            ejection.hindrance = Some(format!("tier {} has no room for all that is elsewhere", home.name));
        }
        Ok(ejection)
    }

    /// Bytes of a file that are not on home; an error if some can't be read.
    fn readable_elsewhere(&self, file: &File) -> Result<u64> {
        let mut bytes = 0;
        self.each_away(file, 0, &mut |range| {
            let tier = self.tiers.get(range.tier)?;
            if tier.is_absent() || !tier.is_healthy() {
                let what = format!("some of it is on tier {}, which is {}", tier.name, tier.state().name());
                return Err(Error::new(Errno::EIO, what));
            }
            bytes += range.len;
            Ok(())
        })?;
        Ok(bytes)
    }

    /// Calls `visit` with each range of a file that is not on home.
    fn each_away(&self, file: &File, first: u64, visit: &mut dyn FnMut(Away) -> Result<()>) -> Result<()> {
        let Layout::Spread(spread) = &*file.layout.read() else { return Ok(()) };
        let (ranges, size, home) = (spread.range_size(), spread.size(), self.tiers.home().id);
        let end = ranges.count(size);
        spread.index.for_each(ranges.range_of(first), |range, entry| {
            // What lies behind the end goes when the file becomes plain.
            if range >= end {
                return Ok(());
            }
            let tier = entry?.tier;
            let offset = ranges.start_of(range);
            let len = (size - offset).min(ranges.bytes());
            if tier == home {
                Ok(())
            } else {
                visit(Away { offset, len, tier, next: offset + ranges.bytes() })
            }
        })
    }

    /// Answers whether it came to its end.
    fn bring_all_home(
        &self,
        ejection: &mut Ejection,
        progress: &mut dyn FnMut(EjectProgress) -> bool,
    ) -> Result<bool> {
        let (mut now, mut goes_on) = (EjectProgress { done: 0, total: ejection.bytes }, true);
        let (left, mut linked) = (&mut ejection.left, HashSet::new());
        let walked = self.home.walk_below(&[], &mut |seen| {
            match seen {
                Seen::File(_, _, identity) if identity.attr.nlink > 1 && !linked.insert(identity.ino()) => {}
                Seen::File(path, fd, identity) => {
                    let is_spread = self.home.id_attr(&**fd, identity).map(|attr| attr.is_some());
                    let mut tell = |bytes| {
                        now.done += bytes;
                        goes_on = progress(now);
                        if goes_on { Ok(()) } else { Err(Errno::ECANCELED.into()) }
                    };
                    let done = is_spread.and_then(|spread| match spread {
                        true => self.with_file(fd, identity, |file| self.bring_file_home(file, &mut tell)),
                        false => Ok(()),
                    });
                    if let Err(error) = done.and_then(|()| self.strip(fd, identity)) {
                        note(left, path, &error);
                    }
                }
                Seen::Failed(path, error) => note(left, path, &error),
            }
            if goes_on { Ok(()) } else { Err(Errno::ECANCELED.into()) }
        });
        match walked {
            Err(error) if error.errno() == Errno::ECANCELED => Ok(false),
            walked => walked.map(|()| true),
        }
    }

    fn bring_file_home(&self, file: &File, told: &mut dyn FnMut(u64) -> Result<()>) -> Result<()> {
        file.opened(false)?;
        let moved = self.move_home_from_all(file, told).and_then(|()| self.gather(file));
        let ended = self.end_use(file, false);
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
            let (home, pace) = (self.tiers.home(), Pace::new(None, &self.paces));
            self.side_by_side(away.into_values(), |ranges| {
                ranges.iter().try_for_each(|range| self.move_range_home(file, range.offset, home, &pace))
            })?;
            told(bytes)?;
        }
    }

    fn move_range_home(&self, file: &File, offset: u64, home: &Tier, pace: &Pace) -> Result<()> {
        let drive = Drive { pace, who: Who::UnguardedJob };
        self.relocate(file, offset, home, (Reason::Asked, drive)).map(drop)
    }

    /// Takes Braid's attributes from a plain file: a pin, and an id that was
    /// copied from another file.
    fn strip(&self, fd: &Fd, identity: &Identity) -> Result<()> {
        self.home.remove_id_attr(&**fd)?;
        self.home.set_pin(&**fd, identity, None)
    }

    /// What is there that no file leads to.
    fn what_is_left(&self) -> Result<Option<String>> {
        let mut indexes = 0_u64;
        self.index.list(&mut |_| {
            indexes += 1;
            Ok(())
        })?;
        if indexes > 0 {
            return Ok(Some(format!("{indexes} indexes belong to no file: see braid fsck --repair")));
        }
        for (tier, store) in self.tiers.stores() {
            let mut objects = 0_u64;
            store.list(&mut |_| objects += 1)?;
            if objects > 0 {
                let what = format!("{objects} objects on tier {} belong to no file", tier.name);
                return Ok(Some(what + ": see braid fsck --repair"));
            }
        }
        Ok(None)
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
