//! Files that stay on their tier: each becomes an ordinary file of that tier's
//! directory, under the path that it has in the volume. No data is copied.
//!
//! As long as the volume is one, nothing is removed from it:
//!
//! 1. its object, cut to the file's size, gets a second name, which is the
//!    file's path, for each name that the file has. Like all objects, it still
//!    belongs to Braid's own user. Whether the tier can store the file's other
//!    metadata is found out before. A file for which any of this fails comes
//!    home.
//! 2. All of that is made durable, on all tiers; then the record marks the end
//!    of the volume, and the way of its ejection.
//!
//! The steps after the record can be repeated from the start
//! ([`settle`](super::settle)): names and directories on the tiers get the
//! metadata that they have at home; that is made durable; home's names of these
//! files are removed, durably; and only then the objects, with the rest of
//! `.braid`. So at any moment home has a name and the tier an object, or the
//! tier has the name.

use braid_contract::{Access, Attr, Errno, Error, Fd, NativeFd, ObjectId, Result, Store, TierId};
use braid_core::Core;
use braid_core::live::{File, Layout};
use braid_core::namespace::copy_xattrs;
use braid_home::{Home, Identity};
use braid_sys::is_privileged;
use braid_tiers::bit;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A tier that is a directory.
pub(super) struct Site {
    pub(super) tier: TierId,
    pub(super) name: String,
    pub(super) store: Arc<dyn Store>,
    root: Fd,
}

/// The state of a path on a tier.
enum PathState {
    Free,
    /// The same file.
    Same,
    /// Another inode, or one that is not a directory on the way there.
    Taken,
}

/// The plan for a file that has data on other tiers.
pub(super) enum Fate {
    Stays(StayingFile),
    /// It has to come home; with the reason, if it could stay otherwise.
    ComesHome(Option<String>),
}

/// A file that is whole on a tier.
pub(super) struct StayingFile {
    pub(super) tier: TierId,
    pub(super) id: ObjectId,
    pub(super) size: u64,
}

impl Site {
    /// `None` if the tier is no directory.
    pub(super) fn of(tier: TierId, name: &str, store: Arc<dyn Store>) -> Result<Option<Self>> {
        match store.directory() {
            Ok(root) => Ok(Some(Self { tier, name: name.to_owned(), store, root })),
            Err(error) if error.errno() == Errno::EOPNOTSUPP => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(super) fn bit(&self) -> u64 {
        bit(self.tier)
    }

    /// Opens a directory on the tier, if it exists.
    pub(super) fn dir(&self, path: &Path) -> Result<Fd> {
        self.root.open_below(path)
    }

    fn look(&self, path: &Path, object: &Attr) -> Result<PathState> {
        let (dir, name) = split(path);
        let there = self.dir(dir).and_then(|dir| dir.open_at(name, Access::Path));
        match there.and_then(|fd| fd.stat()) {
            // A mount over it is not on the tier's file system.
            Ok(stat) if stat.attr.ino == object.ino && stat.device == self.root.stat()?.device => {
                Ok(PathState::Same)
            }
            Ok(_) => Ok(PathState::Taken),
            Err(error) => match error.errno() {
                Errno::ENOENT => Ok(PathState::Free),
                Errno::ENOTDIR | Errno::ELOOP | Errno::EXDEV => Ok(PathState::Taken),
                _ => Err(error),
            },
        }
    }

    /// Whether this path is a name of the file.
    pub(super) fn has(&self, path: &Path, object: &Fd) -> Result<bool> {
        Ok(matches!(self.look(path, &object.stat()?.attr)?, PathState::Same))
    }

    /// Gives an object its name, unless it has it. `EEXIST` if the path is
    /// taken.
    pub(super) fn link(&self, home: &Home, path: &Path, object: &Fd, made: &mut Vec<PathBuf>) -> Result<()> {
        match self.look(path, &object.stat()?.attr)? {
            PathState::Same => Ok(()),
            PathState::Taken => Err(Error::new(Errno::EEXIST, self.taken())),
            PathState::Free => {
                let (dir, name) = split(path);
                object.link_to(&*self.make_dirs(home, dir, made)?, name)
            }
        }
    }

    fn taken(&self) -> String {
        format!("tier {} has something else of that name", self.name)
    }

    /// Opens a directory, and creates missing ones on the way. Created ones are
    /// noted, and accessible to Braid alone until the end.
    fn make_dirs(&self, home: &Home, path: &Path, made: &mut Vec<PathBuf>) -> Result<Fd> {
        match self.dir(path) {
            Err(error) if error.errno() == Errno::ENOENT => {}
            result => return result,
        }
        let (mut at, mut done) = (self.dir(Path::new(""))?, PathBuf::new());
        for name in path {
            done.push(name);
            at = match self.dir(&done) {
                Err(error) if error.errno() == Errno::ENOENT => {
                    at.make_dir_at(name, 0o700)?;
                    made.push(done.clone());
                    let dir = self.dir(&done)?;
                    prepare(&*home.open_dir(&done)?, &*dir, 0o700)?;
                    dir
                }
                result => result?,
            };
        }
        Ok(at)
    }

    /// Removes the names of an object again; answers whether it had any.
    fn unlink(&self, paths: &[PathBuf], object: &Fd) -> Result<bool> {
        let mut any = false;
        for path in paths {
            if self.has(path, object)? {
                let (dir, name) = split(path);
                self.dir(dir)?.remove_at(name, false)?;
                any = true;
            }
        }
        Ok(any)
    }
}

/// The tiers on which files can stay.
pub(super) fn sites(core: &Core) -> Result<Vec<Site>> {
    let there = core.tiers.stores().filter(|(tier, _)| !tier.is_absent() && tier.is_healthy());
    there.filter_map(|(tier, store)| Site::of(tier.id, &tier.name, store).transpose()).collect()
}

/// Decides about a file with these names. Changes nothing.
pub(super) fn fate(
    core: &Core,
    file: &File,
    identity: &Identity,
    names: &[PathBuf],
    sites: &[Site],
) -> Result<Fate> {
    let Layout::Spread(spread) = &*file.layout.read() else { return Ok(Fate::ComesHome(None)) };
    let (Some(whole), id, size) = (spread.index.whole(), spread.id(), spread.size()) else {
        return Ok(Fate::ComesHome(None));
    };
    let Some(site) = sites.iter().find(|site| site.tier == whole.tier) else {
        return Ok(Fate::ComesHome(None));
    };
    // A file without data needs no room; that of one that can't be recovered is
    // unknown.
    if size == 0 || core.index.is_unrecovered(id) {
        return Ok(Fate::ComesHome(None));
    }
    let own = core.home.braid()?.stat()?.attr;
    if !is_privileged() && (identity.attr.uid, identity.attr.gid) != (own.uid, own.gid) {
        return Ok(Fate::ComesHome(Some("it belongs to another user, and so can't be given there".into())));
    }
    if names.len() as u64 != u64::from(identity.attr.nlink) {
        return Ok(Fate::ComesHome(Some("it has a name outside of the volume".into())));
    }
    let object = match site.store.object_file(id) {
        // It was never synced: all zeros.
        Err(error) if error.errno() == Errno::ENOENT => return Ok(Fate::ComesHome(None)),
        object => object?.stat()?.attr,
    };
    for path in names {
        if matches!(site.look(path, &object)?, PathState::Taken) {
            return Ok(Fate::ComesHome(Some(site.taken())));
        }
    }
    Ok(Fate::Stays(StayingFile { tier: whole.tier, id, size }))
}

/// Gives a file its names on its tier, not durably. If that fails, the tier is
/// unchanged.
pub(super) fn name_in_place(
    core: &Core,
    fd: &Fd,
    placed: &StayingFile,
    names: &[PathBuf],
    sites: &[Site],
) -> Result<()> {
    let site = sites.iter().find(|site| site.tier == placed.tier).ok_or(Errno::ENODEV)?;
    let object = site.store.object_file(placed.id)?;
    if object.stat()?.attr.size != placed.size {
        site.store.truncate(placed.id, placed.size)?;
    }
    let mut made = Vec::new();
    let done = prepare(&**fd, &*object, 0o600)
        .and_then(|()| names.iter().try_for_each(|path| site.link(&core.home, path, &object, &mut made)));
    if done.is_err() {
        site.unlink(names, &object)?;
        for path in made.iter().rev() {
            let (dir, name) = split(path);
            site.dir(dir)?.remove_at(name, true)?;
        }
    }
    done
}

/// Makes a file come home: its names on tiers, which an interrupted ejection
/// may have given it, are removed, durably, before its object is.
pub(super) fn unplace(file: &File, names: &[PathBuf], sites: &[Site]) -> Result<()> {
    let Some(id) = file.spread_id() else { return Ok(()) };
    for site in sites {
        match site.store.object_file(id) {
            Err(error) if error.errno() == Errno::ENOENT => {}
            Err(error) => return Err(error),
            Ok(object) if object.stat()?.attr.nlink > 1 => {
                if site.unlink(names, &object)? {
                    site.store.sync_all()?;
                }
            }
            Ok(_) => {}
        }
    }
    Ok(())
}

/// Copies the metadata of the home inode, other than owner and times, to an
/// inode of a tier, without giving anyone access yet.
fn prepare(from: &dyn NativeFd, to: &dyn NativeFd, mode: u32) -> Result<()> {
    let copied = copy_xattrs(from, to);
    // This also revokes the rights that an access control list grants.
    to.set_mode(mode)?;
    copied
}

/// Splits a path into its directory and its name there.
pub(super) fn split(path: &Path) -> (&Path, &OsStr) {
    (path.parent().unwrap_or(Path::new("")), path.file_name().unwrap_or(OsStr::new(".")))
}
