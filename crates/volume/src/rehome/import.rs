//! All inodes, files and directories in use, opened on the new home under the
//! numbers and handles that they have. This is prepared while operations are
//! held up, and put in place when the new home is complete; that can't fail.

use super::copier::{Copied, Copier, is_gone};
use super::copy::CopyTarget;
use super::passes::limbo_name;
use braid_contract::{Access, Context, Errno, Error, Fd, FileKind, HandleId, InodeId, NativeHandle, Result};
use braid_core::Core;
use braid_core::live::{DirHandle, File, Inode, KnownInode, Layout, OpenFile, Spread};
use braid_format::Header;
use braid_home::{Numbers, RootGeneration};
use braid_index::{Dirs, Index};
use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::sync::Arc;

/// The new state of everything in use.
pub(super) struct Import {
    generation: RootGeneration,
    dirs: Dirs,
    inodes: Vec<KnownInode>,
    files: Vec<(HandleId, OpenFile)>,
    open_dirs: Vec<(HandleId, DirHandle)>,
    /// Files that must not be used any more, even by those that still hold
    /// them.
    retired: Vec<Arc<File>>,
}

/// The inodes on the new home, by the number that the front end knows.
struct Inodes {
    moved: HashMap<InodeId, Arc<Inode>>,
    kept: Vec<(u64, InodeId)>,
    gone: HashSet<InodeId>,
}

impl Copier<'_> {
    /// Opens everything on the new home.
    pub(super) fn prepare_import(&mut self) -> Result<Import> {
        let (files, open_dirs) = (self.core.handles.all_files(), self.core.handles.all_dirs());
        self.copy_orphans(&files, &open_dirs)?;
        let turn = self.core.home.generation().turn() + 1;
        let known = self.core.inodes.all();
        let mut inodes = Inodes { moved: HashMap::new(), kept: Vec::new(), gone: HashSet::new() };
        for one in &known {
            self.move_inode(&one.inode, turn, &mut inodes)?;
        }
        let retired: Vec<Arc<File>> =
            known.iter().filter_map(|one| one.inode.file.lock().upgrade()).collect();
        let files = self.move_files(&files, &inodes)?;
        let open_dirs = self.move_dirs(&open_dirs, &mut inodes, turn)?;
        let mut generation = RootGeneration::open(self.new.root(), turn)?;
        let root = generation.root().stat()?.attr.ino.0;
        generation.set_numbers(Numbers::keeping(root, inodes.kept, inodes.gone));
        let moved = |one: &KnownInode| {
            let inode = inodes.moved.get(&one.inode.ino)?;
            Some(one.moved_to(inode))
        };
        let inodes = known.iter().filter_map(moved).collect();
        let dirs = Dirs::open(&*self.braid, self.core.tiers.home().id)?;
        Ok(Import { generation, dirs, inodes, files, open_dirs, retired })
    }

    /// Copies open files and directories that have no name. A file that can't be
    /// copied without one gets one in limbo, for as long as it takes to open it.
    fn copy_orphans(
        &mut self,
        files: &[(HandleId, Arc<OpenFile>)],
        dirs: &[(HandleId, Arc<DirHandle>)],
    ) -> Result<()> {
        for (_, open) in files {
            self.copy_orphan(open.file.data())?;
        }
        for (_, dir) in dirs {
            self.copy_orphan(&dir.descriptor())?;
        }
        Ok(())
    }

    fn copy_orphan(&mut self, old: &Fd) -> Result<()> {
        let identity = self.core.home.identify(&**old)?;
        let is_dir = identity.kind() == FileKind::Directory;
        if identity.attr.nlink > 0 {
            return Ok(());
        }
        let name = match self.copy_of(&identity) {
            Some(copied) => limbo_name(copied),
            None => {
                let context = "copying an open file without a name";
                if identity.kind() == FileKind::Regular
                    && self.make_unnamed(old, &identity).context(context)?
                {
                    return Ok(());
                }
                let name = OsString::from(format!("open-{:x}", identity.ino()));
                let limbo = Fd::clone(&self.limbo);
                self.make(old, &identity, CopyTarget { dir: &*limbo, name: &name }).context(context)?;
                // A removed directory is empty.
                self.pending.retain(|pending| pending.ino() != identity.ino());
                name
            }
        };
        if !is_dir && !self.orphans.contains(&name) {
            self.orphans.push(name);
        }
        Ok(())
    }

    fn copy_of_inode(&self, inode: &Inode) -> Option<&Copied> {
        let native = self.core.home.generation().numbers().native(inode.ino);
        let generation = inode.handle().map(NativeHandle::generation);
        self.known.get(&native).filter(|copied| Some(copied.generation) == generation)
    }

    fn move_inode(&self, inode: &Arc<Inode>, turn: u32, inodes: &mut Inodes) -> Result<()> {
        let Some(copied) = self.copy_of_inode(inode) else {
            return match self.still_has_name(inode)? {
                true => {
                    let what = format!("inode {} was not copied; nothing was changed", inode.ino.0);
                    Err(Error::new(Errno::EIO, what))
                }
                false => {
                    inodes.gone.insert(inode.ino);
                    Ok(())
                }
            };
        };
        let moved = Arc::new(inode.moved(copied.handle.clone(), turn));
        inodes.moved.insert(inode.ino, moved);
        if inode.ino != InodeId::ROOT {
            inodes.kept.push((copied.new_ino, inode.ino));
        }
        Ok(())
    }

    fn still_has_name(&self, inode: &Arc<Inode>) -> Result<bool> {
        let opened = self.core.inodes.open(&self.core.home, inode, Access::Path);
        match opened.and_then(|fd| self.core.home.identify(&*fd)) {
            Ok(identity) => Ok(identity.attr.nlink > 0),
            Err(error) if is_gone(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn move_files(
        &self,
        files: &[(HandleId, Arc<OpenFile>)],
        inodes: &Inodes,
    ) -> Result<Vec<(HandleId, OpenFile)>> {
        let mut handles: HashMap<InodeId, u32> = HashMap::new();
        for (_, open) in files {
            *handles.entry(open.file.inode.ino).or_default() += 1;
        }
        let mut moved: HashMap<InodeId, Arc<File>> = HashMap::new();
        let mut result = Vec::new();
        for (handle, open) in files {
            let ino = open.file.inode.ino;
            let file = match moved.get(&ino) {
                Some(file) => Arc::clone(file),
                None => {
                    let file = self.move_file(&open.file, inodes, handles[&ino]);
                    let file = file.with_context(|| format!("opening inode {} on the new home", ino.0))?;
                    moved.insert(ino, Arc::clone(&file));
                    file
                }
            };
            result.push((*handle, open.moved(file)));
        }
        Ok(result)
    }

    fn move_file(&self, file: &File, inodes: &Inodes, handles: u32) -> Result<Arc<File>> {
        let inode = inodes.moved.get(&file.inode.ino).ok_or(Errno::ESTALE)?;
        let copied = self.copy_of_inode(&file.inode).ok_or(Errno::ESTALE)?;
        let root = self.new.root();
        let opened = match root.open_handle(&copied.handle, Access::ReadWrite) {
            Ok(fd) => (fd, true),
            Err(_) if !file.can_write() => (root.open_handle(&copied.handle, Access::Read)?, false),
            Err(error) => return Err(error),
        };
        let layout = match &*file.layout.read() {
            Layout::Plain => Layout::Plain,
            Layout::Spread(spread) => {
                Layout::Spread(Box::new(spread.moved(self.index_on_new_home(spread, copied)?)))
            }
        };
        let moved = Arc::new(file.moved(Arc::clone(inode), opened, layout, handles));
        inode.file.lock().set(&moved);
        Ok(moved)
    }

    /// The index of a file on the new home.
    fn index_on_new_home(&self, spread: &Spread, copied: &Copied) -> Result<Index> {
        let Some(whole) = spread.index.whole() else { return self.dirs.open_index(spread.id()) };
        let fd = self.new.root().open_handle(&copied.handle, Access::Path)?;
        let identity = self.new.identify(&*fd)?;
        let header = Header {
            ino: identity.ino(),
            btime_ns: identity.btime_ns(),
            handle: identity.handle.clone(),
            ..spread.index.header().clone()
        };
        Ok(Index::of_whole(header, self.core.tiers.home().id, whole))
    }

    fn move_dirs(
        &self,
        dirs: &[(HandleId, Arc<DirHandle>)],
        inodes: &mut Inodes,
        turn: u32,
    ) -> Result<Vec<(HandleId, DirHandle)>> {
        let mut result = Vec::new();
        for (handle, dir) in dirs {
            let identity = self.core.home.identify(&*dir.descriptor())?;
            let copied = self.copy_of(&identity).ok_or(Errno::ESTALE)?;
            let inode = match inodes.moved.get(&dir.inode().ino) {
                Some(inode) => Arc::clone(inode),
                None => Arc::new(dir.inode().moved(copied.handle.clone(), turn)),
            };
            let fd = self.new.root().open_handle(&copied.handle, Access::Directory)?;
            result.push((*handle, dir.moved(&self.core.home, inode, fd)?));
        }
        Ok(result)
    }

    /// A copy that lost a name and has another must not have more links than
    /// the original.
    pub(super) fn take_extra_links(&mut self) -> Result<()> {
        for name in std::mem::take(&mut self.linked) {
            match self.limbo.open_at(&name, Access::Path) {
                Ok(fd) if fd.stat()?.attr.nlink > 1 => self.limbo.remove_at(&name, false)?,
                Err(error) if error.errno() != Errno::ENOENT => return Err(error),
                // The inode has no other name any more, or got one.
                _ => {}
            }
        }
        Ok(())
    }

    /// Removes the names in limbo of inodes that are open and have no name.
    pub(super) fn take_orphans_names(&mut self) -> Result<()> {
        for name in std::mem::take(&mut self.orphans) {
            match self.limbo.remove_at(OsStr::new(&name), false) {
                Err(error) if error.errno() != Errno::ENOENT => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}

impl Import {
    /// Switches the volume to the new home.
    pub(super) fn put_in_place(self, core: &Core, location: &str) {
        self.retired.iter().for_each(|file| file.retire());
        let root = Fd::clone(self.generation.root());
        core.home.switch_root(self.generation);
        core.index.switch_root(self.dirs);
        core.inodes.replace_all(self.inodes);
        core.handles.replace_all(self.files, self.open_dirs);
        core.tiers.home().switch_root(root, location.to_owned());
        core.removals.forget_dependencies();
    }
}
