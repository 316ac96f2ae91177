//! The survey of an ejection: how much comes home, how much may stay on which
//! tier, and the obstacles.

use super::amounts::{Amounts, EjectOptions, Ejection};
use super::in_place::{Fate, Site, fate};
use braid_contract::{Access, Errno, Error, Fd, Result, TierId};
use braid_core::Core;
use braid_core::file::allocated_on;
use braid_core::live::{File, Layout};
use braid_core::namespace::with_file;
use braid_home::{Identity, Seen};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

/// All names of files that have several, and data on other tiers, by the
/// number of the home inode.
#[derive(Default)]
pub(super) struct Names(HashMap<u64, Vec<PathBuf>>);

impl Names {
    /// All names of a file that was found under one of them, `path`.
    pub(super) fn of(&self, identity: &Identity, path: &Path) -> Vec<PathBuf> {
        let known = if identity.attr.nlink > 1 { self.0.get(&identity.ino()) } else { None };
        known.cloned().unwrap_or_else(|| vec![path.to_owned()])
    }
}

/// Collects the findings.
struct EjectSurveyor<'v> {
    core: &'v Core,
    sites: &'v [Site],
    /// Amounts if everything comes home, and if files stay where they can.
    all: Amounts,
    in_place: Amounts,
    left: Vec<(PathBuf, String)>,
    /// Files that can't stay in any case, and why.
    in_the_way: Vec<(PathBuf, String)>,
}

/// Surveys the work, and the obstacles.
pub(super) fn survey(core: &Core, options: EjectOptions, sites: &[Site]) -> Result<(Ejection, Names)> {
    let mut names = Names::default();
    let (all, in_place) = (Amounts::default(), Amounts::default());
    let (left, in_the_way) = (Vec::new(), Vec::new());
    let mut surveyor = EjectSurveyor { core, sites, all, in_place, left, in_the_way };
    core.home.walk_below(&[], &mut |seen| {
        match seen {
            Seen::File(path, fd, identity) => {
                let met = core.home.id_attr(&**fd, identity).and_then(|attr| match attr {
                    None => Ok(()),
                    Some(_) if identity.attr.nlink > 1 => {
                        names.0.entry(identity.ino()).or_default().push(path.to_owned());
                        Ok(())
                    }
                    Some(_) => surveyor.meet(fd, identity, &[path.to_owned()]),
                });
                met.unwrap_or_else(|error| surveyor.left.push((path.to_owned(), error.to_string())));
            }
            Seen::Failed(path, error) => surveyor.left.push((path.to_owned(), error.to_string())),
        }
        Ok(())
    })?;
    for paths in names.0.values() {
        let met = core.home.root().open_at(paths[0].as_os_str(), Access::Path).and_then(|fd| {
            let identity = core.home.identify(&*fd)?;
            surveyor.meet(&fd, &identity, paths)
        });
        met.unwrap_or_else(|error| surveyor.left.push((paths[0].clone(), error.to_string())));
    }
    Ok((surveyor.ejection(options), names))
}

/// Bytes of a file that are not on home, and the space that they take; an error
/// if some can't be read.
fn readable_elsewhere(core: &Core, file: &File) -> Result<(u64, u64)> {
    let mut on = BTreeMap::<TierId, u64>::new();
    each_away(core, file, 0, &mut |range| {
        let tier = core.tiers.get(range.tier)?;
        if tier.is_absent() || !tier.is_healthy() {
            let what = format!("some of it is on tier {}, which is {}", tier.name, tier.state().name());
            return Err(Error::new(Errno::EIO, what));
        }
        *on.entry(range.tier).or_default() += range.len;
        Ok(())
    })?;
    let Layout::Spread(spread) = &*file.layout.read() else { return Ok((0, 0)) };
    let mut space = 0;
    for (tier, bytes) in &on {
        space += allocated_on(file, spread, &*core.tiers.get(*tier)?).min(*bytes);
    }
    Ok((on.values().sum(), space))
}

/// A range that is not on home.
pub(super) struct Away {
    pub(super) offset: u64,
    pub(super) len: u64,
    pub(super) tier: TierId,
    /// Offset of the next range.
    pub(super) next: u64,
}

/// Calls `visit` with each range of a file that is not on home.
pub(super) fn each_away(
    core: &Core,
    file: &File,
    first: u64,
    visit: &mut dyn FnMut(Away) -> Result<()>,
) -> Result<()> {
    let Layout::Spread(spread) = &*file.layout.read() else { return Ok(()) };
    let (ranges, size, home) = (spread.range_size(), spread.size(), core.tiers.home().id);
    let end = ranges.count(size);
    spread.index.for_each(ranges.range_of(first), |range, entry| {
        // Data behind the end is dropped when the file becomes plain.
        if range >= end {
            return Ok(());
        }
        let tier = entry?.tier;
        let offset = ranges.start_of(range);
        let len = (size - offset).min(ranges.bytes());
        if tier == home { Ok(()) } else { visit(Away { offset, len, tier, next: offset + ranges.bytes() }) }
    })
}

impl EjectSurveyor<'_> {
    fn meet(&mut self, fd: &Fd, identity: &Identity, names: &[PathBuf]) -> Result<()> {
        let ((bytes, space), fate) = with_file(self.core, fd, identity, |file| {
            let elsewhere = readable_elsewhere(self.core, file)?;
            Ok((elsewhere, fate(self.core, file, identity, names, self.sites)?))
        })?;
        if bytes == 0 {
            return Ok(());
        }
        self.all.comes_home(bytes, space);
        match fate {
            Fate::Stays(placed) => {
                let site = self.sites.iter().find(|site| site.tier == placed.tier);
                self.in_place.stays(site.map_or("", |site| &site.name), bytes);
            }
            Fate::ComesHome(why) => {
                self.in_place.comes_home(bytes, space);
                let why = why.unwrap_or_else(|| "it is not wholly on one tier".into());
                self.in_the_way.push((names[0].clone(), why));
            }
        }
        Ok(())
    }

    fn ejection(self, options: EjectOptions) -> Ejection {
        let home = self.core.tiers.home();
        home.measure_again();
        let amounts = if options.in_place { self.in_place.clone() } else { self.all };
        let (room, left, in_place) = (home.room(), self.left, self.in_place);
        let mut ejection = Ejection { amounts, in_place, room, left, ..Ejection::default() };
        if room < ejection.amounts.space {
            let which =
                if options.in_place { "all that can't stay where it is" } else { "all that is elsewhere" };
            ejection.hindrance =
                Some(format!("tier {} has no room for {which}, beside its reserve", home.name));
            if options.in_place {
                ejection.left.extend(self.in_the_way);
            }
        }
        ejection
    }
}
