//! Adopting files, many at a time, in an order in which a crash loses none of
//! them:
//!
//! 1. each gets a second name on its tier, that of an object, and a home inode
//!    without a place in the namespace; both durable for all of them;
//! 2. the home inodes get their names, and further names of the same files are
//!    added, durably;
//! 3. the old names on the tier go, with those of files that need no object,
//!    and those left by an earlier, interrupted import.
//!
//! The leftovers of a crash in 1 are removed at the next mount
//! (`discard_unnamed`); those of a crash in 3 are found again as files that
//! home has already.

use super::shared::Importer;
use super::types::ImportObserver;
use super::walk::{WalkEntry, open_dir};
use braid_contract::{Access, Attr, Errno, Error, Fd, FileKind, ObjectId, RenameMode, Result, Store};
use braid_core::file::{adopt_object, end_use, take_object_id};
use braid_core::namespace::{ID_ATTRS, give_attributes, with_file};
use braid_format::Reason;
use braid_tiers::{Counts, Tier};
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Files that share two syncs of each file system.
const BATCH: usize = 256;

pub(super) struct Adopter<'a> {
    pub(super) importer: &'a Importer,
    tier: &'a Tier,
    store: &'a dyn Store,
    /// The tier's directory.
    root: Fd,
    /// Holds home inodes that have no name yet.
    unnamed: Fd,
    pub(super) observer: &'a mut dyn ImportObserver,
    batch: Vec<Adopted>,
    /// Further names of files: the first name at home, and the new one.
    links: Vec<Link>,
    /// Files that have their name at home: the old one is to go.
    old: Vec<Old>,
    /// Files and bytes that came in and are not reported yet.
    came: (u64, u64),
    /// First names of files with several, by inode number.
    linked: HashMap<u64, PathBuf>,
    /// The same for files that came in before an interruption, once they were
    /// looked for.
    linked_before: Option<HashMap<u64, PathBuf>>,
    /// Ranges may be counted beside this: by a walk of the names, which misses
    /// files that have none yet.
    beside_count: bool,
}

/// A file that has its object and home inode, but no name at home yet.
struct Adopted {
    path: PathBuf,
    /// Its name in the directory of unnamed inodes.
    unnamed: OsString,
    ino: u64,
    bytes: u64,
}

struct Link {
    first: PathBuf,
    path: PathBuf,
    ino: u64,
}

/// A name on the tier that is not needed any more.
struct Old {
    path: PathBuf,
    /// The file became an object.
    is_object: bool,
}

impl<'a> Adopter<'a> {
    pub(super) fn new(
        importer: &'a Importer,
        tier: &'a Tier,
        store: &'a dyn Store,
        (root, unnamed): (Fd, Fd),
        observer: &'a mut dyn ImportObserver,
    ) -> Self {
        let (batch, links, old, linked) = (Vec::new(), Vec::new(), Vec::new(), HashMap::new());
        Self {
            importer,
            tier,
            store,
            root,
            unnamed,
            observer,
            batch,
            links,
            old,
            came: (0, 0),
            linked,
            linked_before: None,
            beside_count: importer.core.tiers.counts() == Counts::Unknown,
        }
    }

    /// A regular file.
    pub(super) fn file(&mut self, met: &WalkEntry<'_>) -> Result<()> {
        let ino = met.attr.ino.0;
        if met.at_home.is_some() {
            if !self.is_in(met)? {
                return self.stays(met.path);
            }
            return self.is_old(met.path, true);
        }
        if met.attr.nlink > 1
            && let Some(first) = self.first_name(ino)?
        {
            self.links.push(Link { first, path: met.path.to_owned(), ino });
            return self.flush_if_many();
        }
        if ID_ATTRS.iter().any(|id| met.fd.get_xattr(OsStr::new(id), &mut []).is_ok()) {
            let what = "it was a file of a Braid volume: its data may be on other tiers of that";
            return Err(Error::new(Errno::EUCLEAN, what));
        }
        let unnamed = OsString::from(format!("{ino:x}"));
        self.make_unnamed(met, &unnamed).inspect_err(|_| drop(self.unnamed.remove_at(&unnamed, false)))?;
        if met.attr.nlink > 1 {
            self.linked.insert(ino, met.path.to_owned());
        }
        self.batch.push(Adopted { path: met.path.to_owned(), unnamed, ino, bytes: met.attr.size });
        self.flush_if_many()
    }

    fn flush_if_many(&mut self) -> Result<()> {
        if self.batch.len() + self.links.len() + self.old.len() >= BATCH { self.flush() } else { Ok(()) }
    }

    /// Notes that home has the file, which is to be durable before the old name
    /// goes.
    fn is_old(&mut self, path: &Path, is_object: bool) -> Result<()> {
        self.old.push(Old { path: path.to_owned(), is_object });
        self.flush_if_many()
    }

    /// Whether home's file of that name is this one.
    fn is_in(&mut self, met: &WalkEntry<'_>) -> Result<bool> {
        let home = &self.importer.core.home;
        let fd = home.root().open_at(met.path.as_os_str(), Access::Path)?;
        let identity = home.identify(&*fd)?;
        match home.id_attr(&*fd, &identity)? {
            Some(attr) if attr.kind.whole().is_some() => {
                Ok(self.object(attr.id)?.is_some_and(|object| object.ino == met.attr.ino))
            }
            // An empty file has no object, and nothing to lose.
            None => Ok(met.attr.size == 0 && identity.kind() == FileKind::Regular && identity.size() == 0),
            Some(_) => Ok(false),
        }
    }

    /// The inode of the tier that is an object.
    fn object(&self, id: ObjectId) -> Result<Option<Attr>> {
        match self.store.object_file(id) {
            Ok(file) => Ok(Some(file.stat()?.attr)),
            Err(error) if error.errno() == Errno::ENOENT => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The name at home of a tier's file that came in under another of its
    /// names. Two files must not share an object.
    fn first_name(&mut self, ino: u64) -> Result<Option<PathBuf>> {
        if let Some(first) = self.linked.get(&ino) {
            return Ok(Some(first.clone()));
        }
        if self.linked_before.is_none() {
            self.linked_before = Some(self.find_linked()?);
        }
        Ok(self.linked_before.as_ref().and_then(|linked| linked.get(&ino).cloned()))
    }

    fn find_linked(&self) -> Result<HashMap<u64, PathBuf>> {
        let mut linked = HashMap::new();
        let home = &self.importer.core.home;
        home.walk(&mut |path, fd, identity| {
            let Some(attr) = home.id_attr(&**fd, identity).ok().flatten() else { return Ok(()) };
            if attr.kind.whole().is_some_and(|whole| whole.tier == self.tier.id)
                && let Some(object) = self.object(attr.id)?
                && object.nlink > 1
            {
                linked.insert(object.ino.0, path.to_owned());
            }
            Ok(())
        })?;
        Ok(linked)
    }

    fn stays(&mut self, path: &Path) -> Result<()> {
        self.observer.conflict(path);
        Ok(())
    }

    /// Adds a name to a file that came in, unless it did not after all.
    fn link(&mut self, home: &Fd, link: &Link) -> Result<bool> {
        if self.first_name(link.ino)?.as_ref() != Some(&link.first) {
            return Ok(false);
        }
        let file = home.open_at(link.first.as_os_str(), Access::Path)?;
        if !self.is_file_of(&file, link.ino)? {
            return Ok(false);
        }
        match file.link_to(&*parent(home, &link.path)?, name(&link.path)) {
            Err(error) if error.errno() == Errno::EEXIST => return Ok(false),
            result => result?,
        }
        self.importer.name_was_added(&*file)?;
        Ok(true)
    }

    /// Whether a file at home still is the one made from an inode of the tier.
    fn is_file_of(&self, file: &Fd, ino: u64) -> Result<bool> {
        let identity = self.importer.core.home.identify(&**file)?;
        Ok(match self.importer.core.home.id_attr(&**file, &identity)? {
            Some(attr) => self.object(attr.id)?.is_some_and(|object| object.ino.0 == ino),
            None => identity.size() == 0,
        })
    }

    fn add_links(&mut self, home: &Fd) -> Result<()> {
        for link in std::mem::take(&mut self.links) {
            match self.link(home, &link) {
                Ok(true) => {
                    self.importer.names_came(home, [&*link.path]);
                    self.old.push(Old { path: link.path, is_object: true });
                    self.came.0 += 1;
                }
                Ok(false) => self.stays(&link.path)?,
                Err(error) => self.observer.failed(&link.path, &error)?,
            }
        }
        Ok(())
    }

    fn make_unnamed(&self, met: &WalkEntry<'_>, unnamed: &OsStr) -> Result<()> {
        let (core, attr) = (&self.importer.core, met.attr);
        let fd = self.unnamed.create_at(unnamed, 0o600)?;
        give_attributes(&**met.fd, attr, &*fd)?;
        // A file without data is plain.
        if attr.size == 0 {
            return Ok(());
        }
        let identity = core.home.identify(&*fd)?;
        with_file(core, &fd, &identity, |file| {
            file.opened(false)?;
            let made = take_object_id(core, file).and_then(|id| {
                self.store.adopt(id, &**met.fd).map_err(|error| self.tier.note_error(error))?;
                adopt_object(core, file, self.tier, id, Reason::Asked)
            });
            let ended = end_use(core, file, false);
            made.and(ended)
        })
    }

    /// Carries out the pending steps: names home inodes, and removes old names.
    pub(super) fn flush(&mut self) -> Result<()> {
        let home = self.importer.core.home.root();
        self.give_names(&home)?;
        self.add_links(&home)?;
        self.let_go(&home)?;
        match std::mem::take(&mut self.came) {
            (0, _) => Ok(()),
            (files, bytes) => self.observer.came(files, bytes),
        }
    }

    fn give_names(&mut self, home: &Fd) -> Result<()> {
        let batch = std::mem::take(&mut self.batch);
        if batch.is_empty() {
            return Ok(());
        }
        self.store.sync_all().map_err(|error| self.tier.note_error(error))?;
        home.sync_fs()?;
        let mut named = Vec::with_capacity(batch.len());
        for adopted in batch {
            match self.give_name(home, &adopted) {
                Ok(()) => named.push(adopted),
                Err(error) if error.errno() == Errno::EEXIST => {
                    self.linked.remove(&adopted.ino);
                    self.give_back(&adopted)?;
                    self.stays(&adopted.path)?;
                }
                Err(error) => {
                    self.linked.remove(&adopted.ino);
                    self.give_back(&adopted)?;
                    self.observer.failed(&adopted.path, &error)?;
                }
            }
        }
        if self.beside_count {
            self.importer.core.tiers.distrust_counts();
        }
        self.importer.names_came(home, named.iter().map(|adopted| &*adopted.path));
        for Adopted { path, bytes, .. } in named {
            self.came = (self.came.0 + 1, self.came.1 + bytes);
            self.old.push(Old { path, is_object: true });
        }
        Ok(())
    }

    /// Removes the old names on the tier of files that have one at home.
    fn let_go(&mut self, home: &Fd) -> Result<()> {
        let old = std::mem::take(&mut self.old);
        if old.is_empty() {
            return Ok(());
        }
        home.sync_fs()?;
        let mut objects = old.iter().filter(|old| old.is_object).peekable();
        if objects.peek().is_some() {
            objects.try_for_each(|old| unless_gone(self.own(&old.path)))?;
            // Afterwards only the object's name leads there.
            self.store.sync_all().map_err(|error| self.tier.note_error(error))?;
        }
        old.iter().try_for_each(|old| unless_gone(self.root.remove_at(old.path.as_os_str(), false)))
    }

    /// Makes the file an object that only Braid can access. Its home inode has
    /// the owner.
    fn own(&self, path: &Path) -> Result<()> {
        let file = self.root.open_at(path.as_os_str(), Access::Path)?;
        let own = self.unnamed.stat()?.attr;
        file.set_owner(Some(own.uid), Some(own.gid))?;
        file.set_mode(0o600)
    }

    fn give_name(&self, home: &Fd, adopted: &Adopted) -> Result<()> {
        let dir = parent(home, &adopted.path)?;
        self.unnamed.rename_at(&adopted.unnamed, &*dir, name(&adopted.path), RenameMode::NoReplace)
    }

    /// Undoes the adoption of a file: the object is only another name of it.
    fn give_back(&self, adopted: &Adopted) -> Result<()> {
        let fd = self.unnamed.open_at(&adopted.unnamed, Access::Path)?;
        let identity = self.importer.core.home.identify(&*fd)?;
        if let Some(attr) = self.importer.core.home.id_attr(&*fd, &identity)? {
            self.store.remove(&[attr.id])?;
        }
        self.unnamed.remove_at(&adopted.unnamed, false)
    }

    /// Brings in a symbolic link, or another inode without data.
    pub(super) fn other(&mut self, met: &WalkEntry<'_>) -> Result<()> {
        if met.at_home.is_some() {
            return if self.is_same(met)? { self.is_old(met.path, false) } else { self.stays(met.path) };
        }
        let home = self.importer.core.home.root();
        let (dir, name) = (parent(&home, met.path)?, name(met.path));
        make_other(&dir, name, met.fd, met.attr)?;
        let made = dir.open_at(name, Access::Path)?;
        give_attributes(&**met.fd, met.attr, &*made)?;
        self.importer.names_came(&home, [met.path]);
        self.is_old(met.path, false)?;
        self.observer.came(0, 0)
    }

    /// Whether home has the same link.
    fn is_same(&self, met: &WalkEntry<'_>) -> Result<bool> {
        if (met.at_home, met.attr.kind) != (Some(FileKind::Symlink), FileKind::Symlink) {
            return Ok(false);
        }
        let theirs = self.importer.core.home.root().open_at(met.path.as_os_str(), Access::Path)?;
        Ok(theirs.read_link()? == met.fd.read_link()?)
    }
}

fn make_other(dir: &Fd, name: &OsStr, fd: &Fd, attr: &Attr) -> Result<()> {
    let node = |kind: u32, rdev: u32| dir.make_node_at(name, kind | u32::from(attr.mode) & 0o7777, rdev);
    match attr.kind {
        FileKind::Symlink => dir.make_symlink_at(name, OsStr::from_bytes(&fd.read_link()?)),
        FileKind::Fifo => node(0o010_000, 0),
        FileKind::Socket => node(0o140_000, 0),
        FileKind::CharDevice => node(0o020_000, attr.rdev),
        FileKind::BlockDevice => node(0o060_000, attr.rdev),
        FileKind::Regular | FileKind::Directory => Err(Error::new(Errno::EINVAL, "it has contents")),
    }
}

/// Ignores that a name on the tier is gone: users of the tier may remove it
/// meanwhile.
fn unless_gone(result: Result<()>) -> Result<()> {
    match result {
        Err(error) if error.errno() == Errno::ENOENT => Ok(()),
        result => result,
    }
}

/// The directory at home that `path` is in.
fn parent(home: &Fd, path: &Path) -> Result<Fd> {
    open_dir(home, path.parent().unwrap_or(Path::new("")))
}

fn name(path: &Path) -> &OsStr {
    path.file_name().unwrap_or(OsStr::new("."))
}
