//! The end of an ejection in place, for files that have a second name on their
//! tier: it becomes the only one. The volume is none any more; after an
//! interruption, this starts again from the beginning.
//!
//! Home's inode is authoritative until its name is gone, and that is removed
//! only when the tier has all of the file durably.

use super::in_place::{Site, split};
use braid_contract::{Access, Attr, Context, Errno, Error, Fd, FileKind, ObjectId, Result, SetTime, Shown};
use braid_core::namespace::give_attributes;
use braid_format::BRAID_DIR;
use braid_home::{Home, names_in};
use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::path::Path;

pub(super) struct Settlement<'a> {
    pub(super) home: &'a Home,
    pub(super) sites: &'a [Site],
}

/// The kind of a name at home.
enum HomeEntry<'a> {
    /// A file that stays on its tier.
    StayingFile(Fd, Attr, &'a Site, ObjectId),
    Dir,
    Other,
}

impl<'a> Settlement<'a> {
    pub(super) fn carry_out(&self) -> Result<()> {
        self.dress(Path::new(""))?;
        self.sites.iter().try_for_each(|site| site.store.sync_all())?;
        self.forget(Path::new(""))?;
        self.home.root().sync_fs()
    }

    fn meet(&self, dir: &Fd, path: &Path, name: &OsStr) -> Result<HomeEntry<'a>> {
        let fd = dir.open_at(name, Access::Path)?;
        let identity = match self.home.identify(&*fd) {
            // Another file system is mounted there.
            Err(error) if error.errno() == Errno::EXDEV => return Ok(HomeEntry::Other),
            identity => identity?,
        };
        if identity.kind() == FileKind::Directory {
            let is_braids = path.as_os_str().is_empty() && name == BRAID_DIR;
            return Ok(if is_braids { HomeEntry::Other } else { HomeEntry::Dir });
        }
        let attr = match self.home.id_attr(&*fd, &identity) {
            // Not made by Braid: the file was written since.
            Err(error) if error.errno() == Errno::EUCLEAN => None,
            attr => attr?,
        };
        let Some((whole, id)) = attr.and_then(|attr| Some((attr.kind.whole()?, attr.id))) else {
            return Ok(HomeEntry::Other);
        };
        match self.sites.iter().find(|site| site.tier == whole.tier) {
            Some(site) => Ok(HomeEntry::StayingFile(fd, identity.attr, site, id)),
            None => Err(Error::new(Errno::ENODEV, "its tier is not there")),
        }
    }

    /// Copies metadata from home to all names in and below a directory. Answers
    /// the tiers, as bits, on which the directory has no other entries: there
    /// it gets home's owner, mode and times; elsewhere it existed before.
    fn dress(&self, path: &Path) -> Result<u64> {
        let dir = self.home.open_dir(path)?;
        let attr = dir.stat()?.attr;
        let mut ours: HashMap<u64, HashSet<OsString>> = HashMap::new();
        for name in names_in(&*dir)? {
            let below = path.join(&name);
            let met = self.meet(&dir, path, &name);
            let on = match met.with_context(|| below.shown().to_string())? {
                HomeEntry::Other => 0,
                HomeEntry::Dir => self.dress(&below)?,
                HomeEntry::StayingFile(fd, attr, site, id) => {
                    let dressed = self.dress_file(&below, (&fd, &attr), site, id);
                    dressed.with_context(|| below.shown().to_string())?;
                    site.bit()
                }
            };
            for site in self.sites.iter().filter(|site| on & site.bit() != 0) {
                ours.entry(site.bit()).or_default().insert(name.clone());
            }
        }
        let mut dressed = 0;
        for site in self.sites.iter().filter(|_| !path.as_os_str().is_empty()) {
            let Some(names) = ours.get(&site.bit()) else { continue };
            let there = site.dir(path)?;
            if names_in(&*there)?.iter().all(|name| names.contains(name)) {
                give_attributes(&*dir, &attr, &*there).with_context(|| path.shown().to_string())?;
                dressed |= site.bit();
            }
        }
        Ok(dressed)
    }

    fn dress_file(&self, path: &Path, (fd, attr): (&Fd, &Attr), site: &Site, id: ObjectId) -> Result<()> {
        let object = site.store.object_file(id)?;
        // Users with write access to the directory may have removed it.
        site.link(self.home, path, &object, &mut Vec::new())?;
        // It has the access time of reads, if it was given one.
        let own = object.stat()?.attr;
        let atime = match own.btime {
            Some(made) if made != own.atime => attr.atime.max(own.atime),
            _ => attr.atime,
        };
        give_attributes(&**fd, &Attr { atime, ..*attr }, &*object)
    }

    /// Removes home's names in and below a directory, which keeps its times.
    fn forget(&self, path: &Path) -> Result<()> {
        let dir = self.home.open_dir(path)?;
        let attr = dir.stat()?.attr;
        let mut any = false;
        for name in names_in(&*dir)? {
            let below = path.join(&name);
            match self.meet(&dir, path, &name).with_context(|| below.shown().to_string())? {
                HomeEntry::Other => {}
                HomeEntry::Dir => self.forget(&below)?,
                HomeEntry::StayingFile(_, _, site, id) => {
                    if !site.has(&below, &site.store.object_file(id)?)? {
                        let what = format!("{} went from tier {} meanwhile", below.shown(), site.name);
                        return Err(Error::new(Errno::EBUSY, what));
                    }
                    remove_name(&dir, &attr, split(&below).1)?;
                    any = true;
                }
            }
        }
        if any {
            dir.set_times(Some(SetTime::At(attr.atime)), Some(SetTime::At(attr.mtime)))?;
        }
        Ok(())
    }
}

/// Removes a name. The mode of a directory may forbid even its owner to write
/// there.
fn remove_name(dir: &Fd, attr: &Attr, name: &OsStr) -> Result<()> {
    match dir.remove_at(name, false) {
        Err(error) if error.errno() == Errno::EACCES => {
            let mode = u32::from(attr.mode) & 0o7777;
            dir.set_mode(mode | 0o300)?;
            let removed = dir.remove_at(name, false);
            dir.set_mode(mode)?;
            removed
        }
        result => result,
    }
}
