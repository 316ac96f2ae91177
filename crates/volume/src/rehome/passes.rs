//! Passes over the home tree: one over all of it, and then over changes. Copies
//! that lose their name go to limbo, and from there to their next name or, in
//! the end, are removed.

use super::changes::{Change, ChangeSet};
use super::copier::{Copied, Copier, is_gone};
use super::copy::CopyTarget;
use braid_contract::{Access, Context, Errno, Fd, FileKind, NativeFd, RenameMode, Result, Shown};
use braid_core::live::Inode;
use braid_core::namespace::identify_name;
use braid_format::BRAID_DIR;
use braid_home::{Identity, names_in};
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::sync::Arc;

/// The name of a copy in limbo.
pub(super) fn limbo_name(copied: &Copied) -> OsString {
    format!("{:x}", copied.new_ino).into()
}

impl Copier<'_> {
    /// Copies the whole tree.
    pub(super) fn copy_tree(&mut self) -> Result<()> {
        let root = self.core.home.root();
        let identity = self.core.home.identify(&*root)?;
        let new_root = self.new.root();
        self.enter(&identity, &*new_root)?;
        self.pending.push(identity);
        self.copy_pending()
    }

    /// Fills the directories that are still empty.
    pub(super) fn copy_pending(&mut self) -> Result<()> {
        while let Some(identity) = self.pending.pop() {
            match self.copy_entries(&identity) {
                Err(error) if is_gone(&error) && !self.last => {}
                result => result?,
            }
        }
        Ok(())
    }

    fn copy_entries(&mut self, identity: &Identity) -> Result<()> {
        let handle = identity.handle.as_ref().ok_or(Errno::EOPNOTSUPP)?;
        let old = self.core.home.root().open_handle(handle, Access::Directory)?;
        let Some(copied) = self.copy_of(identity).cloned() else { return Ok(()) };
        let new = self.new.root().open_handle(&copied.handle, Access::Directory)?;
        let is_root = old.stat()?.attr.ino == self.core.home.root().stat()?.attr.ino;
        let names = names_in(&*old)?;
        self.was_read(identity, &*old)?;
        for name in names {
            if !(is_root && name == BRAID_DIR) {
                self.report()?;
                self.place(&*old, &*new, &name)?;
            }
        }
        // Creating its entries changed its times.
        let identity = self.core.home.identify(&*old)?;
        self.copy_attributes(&old, &identity, &new)
    }

    /// Makes this name in the new directory lead to the same inode as in the
    /// old one.
    pub(super) fn place(
        &mut self,
        old_dir: &dyn NativeFd,
        new_dir: &dyn NativeFd,
        name: &OsStr,
    ) -> Result<()> {
        let Some((fd, identity)) = self.look(old_dir, name)? else { return Ok(()) };
        match self.copy_of(&identity).cloned() {
            Some(copied) => self.give_name(&copied, identity.kind(), new_dir, name),
            None => match self.make(&fd, &identity, CopyTarget { dir: new_dir, name }) {
                // A removal during the copy is noted.
                Err(error) if is_gone(&error) && !self.last => Ok(()),
                result => result,
            },
        }
    }

    /// The inode that a name of the old home leads to, if it exists.
    fn look(&self, dir: &dyn NativeFd, name: &OsStr) -> Result<Option<(Fd, Identity)>> {
        match identify_name(self.core, dir, name) {
            Ok(found) => Ok(Some(found)),
            Err(error) if error.errno() == Errno::EXDEV => {
                tracing::warn!(name = %name.shown(), "something is mounted inside the home tier; it is not copied");
                Ok(None)
            }
            Err(error) if is_gone(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Gives an inode that has been copied one more name.
    fn give_name(
        &mut self,
        copied: &Copied,
        kind: FileKind,
        new_dir: &dyn NativeFd,
        name: &OsStr,
    ) -> Result<()> {
        match self.limbo.rename_at(&limbo_name(copied), new_dir, name, RenameMode::NoReplace) {
            Err(error) if error.errno() == Errno::EEXIST => return Ok(()),
            Err(error) if error.errno() == Errno::ENOENT => {}
            result => return result,
        }
        // A directory has a single name; its removal from there is noted.
        if kind == FileKind::Directory {
            return Ok(());
        }
        let fd = self.new.root().open_handle(&copied.handle, Access::Path)?;
        match fd.link_to(new_dir, name) {
            Err(error) if error.errno() == Errno::EEXIST => Ok(()),
            result => result.with_context(|| format!("linking {}", name.shown())),
        }
    }

    /// Copies changes.
    pub(super) fn copy_changes(&mut self, set: ChangeSet) -> Result<()> {
        let names: Vec<_> = set.names.into_values().collect();
        for (dir, names) in &names {
            self.take_names_away(dir, names)?;
        }
        for (dir, names) in &names {
            self.give_names(dir, names)?;
        }
        self.copy_pending()?;
        for change in set.inodes.into_values() {
            self.report()?;
            self.copy_change(&change)?;
        }
        self.copy_times_of_dirs()
    }

    /// A directory of the old home and its copy, if both exist.
    fn dir_pair(&self, dir: &Inode) -> Result<Option<(Fd, Identity, Fd)>> {
        let opened = self.core.inodes.path(&self.core.home, dir);
        let found = opened.and_then(|fd| Ok((self.core.home.identify(&*fd)?, fd)));
        match found {
            Ok((identity, old)) => {
                let Some(copied) = self.copy_of(&identity) else { return Ok(None) };
                let new = self.new.root().open_handle(&copied.handle, Access::Path)?;
                Ok(Some((old, identity, new)))
            }
            Err(error) if is_gone(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Removes names that lead elsewhere by now, or nowhere.
    fn take_names_away(&mut self, dir: &Arc<Inode>, names: &HashSet<OsString>) -> Result<()> {
        let Some((old, _, new)) = self.dir_pair(dir)? else { return Ok(()) };
        self.touched.insert(dir.ino, Arc::clone(dir));
        for name in names {
            let found = match new.open_at(name, Access::Path) {
                Err(error) if error.errno() == Errno::ENOENT => continue,
                result => self.new.identify(&*result?)?,
            };
            let wanted = self.look(&*old, name)?;
            let copied = wanted.as_ref().and_then(|(_, identity)| self.copy_of(identity));
            if copied.is_none_or(|copied| copied.new_ino != found.ino()) {
                self.put_in_limbo(&*new, name, &found)?;
            }
        }
        Ok(())
    }

    fn put_in_limbo(&mut self, new: &dyn NativeFd, name: &OsStr, found: &Identity) -> Result<()> {
        let limbo = format!("{:x}", found.ino());
        if found.kind() != FileKind::Directory && found.attr.nlink > 1 {
            self.linked.insert(OsString::from(&limbo));
        }
        match new.rename_at(name, &*self.limbo, OsStr::new(&limbo), RenameMode::NoReplace) {
            // Another of its names is in the way.
            Err(error) if error.errno() == Errno::EEXIST => new.remove_at(name, false),
            result => result,
        }
    }

    fn give_names(&mut self, dir: &Inode, names: &HashSet<OsString>) -> Result<()> {
        let Some((old, _, new)) = self.dir_pair(dir)? else { return Ok(()) };
        names.iter().try_for_each(|name| {
            self.report()?;
            self.place(&*old, &*new, name)
        })
    }

    fn copy_change(&mut self, change: &Change) -> Result<()> {
        let Change { inode, data } = change;
        let regular = inode.kind == FileKind::Regular;
        let old = match self.open_old(inode, regular) {
            Err(error) if is_gone(&error) => return Ok(()),
            result => result?,
        };
        let identity = match self.core.home.identify(&*old) {
            Err(error) if is_gone(&error) => return Ok(()),
            result => result?,
        };
        let Some(copied) = self.copy_of(&identity).cloned() else { return Ok(()) };
        let access = if regular { Access::ReadWrite } else { Access::Path };
        let new = self.new.root().open_handle(&copied.handle, access)?;
        if regular {
            self.copy_file(&old, &identity, &new, data)
        } else {
            self.copy_attributes(&old, &identity, &new)
        }
    }

    /// Opens an inode of the old home. One without a name is accessible only
    /// through a descriptor in use.
    pub(super) fn open_old(&self, inode: &Arc<Inode>, regular: bool) -> Result<Fd> {
        let live = inode.file.lock().upgrade();
        match live {
            Some(file) => Ok(Fd::clone(file.data())),
            None => {
                let access = if regular { Access::Read } else { Access::Path };
                self.core.inodes.open(&self.core.home, inode, access)
            }
        }
    }

    /// Restores the times of directories in which names changed.
    fn copy_times_of_dirs(&mut self) -> Result<()> {
        let touched = std::mem::take(&mut self.touched);
        for inode in touched.into_values() {
            let Some((old, identity, new)) = self.dir_pair(&inode)? else { continue };
            self.copy_attributes(&old, &identity, &new)?;
        }
        Ok(())
    }
}
