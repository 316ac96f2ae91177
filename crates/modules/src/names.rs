//! The names by which inodes were found, for modules that decide by path.
//!
//! Requests have inode numbers, and a file system can't always find a file's
//! path by that. A module sees the names when they are looked up, created,
//! renamed and removed: [`Names`] remembers them for as long as the front end
//! remembers the inode. For directories it asks the child, which always knows
//! their paths. A hard link that was never looked up is not known.

use crate::State;
use crate::sync::Mutex;
use braid_contract::{
    DirEntry, DirSink, Entry, Errno, Error, FileKind, FileSystem, HandleId, InodeId, RenameMode, Reply,
    Request, Result, dispatch,
};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

/// Version of the format of [`Names::export`].
const VERSION: u32 = 2;

/// The names of inodes other than directories.
#[derive(Default)]
pub struct Names {
    known: Mutex<Known>,
}

/// A directory, and a name in it.
type Name = (InodeId, OsString);

#[derive(Default)]
struct Known {
    inodes: HashMap<InodeId, Inode>,
    names: HashMap<Name, InodeId>,
    /// Open directories.
    dirs: HashMap<HandleId, InodeId>,
}

#[derive(Default)]
struct Inode {
    lookups: u64,
    names: Vec<Name>,
    /// Where it was before its last name went, or was made without one.
    last: Option<Name>,
}

/// A directory, and the bytes of a name in it.
type ExportedName = (u64, Vec<u8>);

/// All names, in exported form.
#[derive(Default, Serialize, Deserialize)]
struct Exported {
    /// Number, lookups, names, the last name.
    inodes: Vec<(u64, u64, Vec<ExportedName>, Option<ExportedName>)>,
    /// Open directories.
    dirs: Vec<(u64, u64)>,
}

/// The effect of a successful request on names.
enum Step {
    Nothing,
    /// This name leads to an inode.
    Find(Name),
    /// The name is removed.
    Remove(Name),
    /// An inode without a name is made in a directory.
    Unnamed(InodeId),
    /// The first name becomes the second one.
    Rename(Name, Name, RenameMode),
    /// A directory is opened.
    Open(InodeId),
    /// The inodes in a directory are listed.
    List(InodeId),
}

/// Notes the inodes that a listing returns.
struct Noting<'a> {
    known: &'a Mutex<Known>,
    dir: InodeId,
    sink: &'a mut dyn DirSink,
}

impl DirSink for Noting<'_> {
    fn add(&mut self, entry: &DirEntry<'_>) -> bool {
        let taken = self.sink.add(entry);
        if let (Some(found), true) = (&entry.entry, taken) {
            self.known.lock().find((self.dir, entry.name.to_os_string()), found);
        }
        taken
    }
}

impl Names {
    /// Carries the request out on `child`, and notes its effect on names.
    pub fn carry(&self, request: Request<'_>, child: &dyn FileSystem) -> Reply {
        let step = self.step(&request);
        let reply = match (&step, request) {
            (Step::List(dir), Request::ReadDir { caller, handle, offset, plus, sink }) => {
                let sink = &mut Noting { known: &self.known, dir: *dir, sink };
                dispatch(child, Request::ReadDir { caller, handle, offset, plus, sink })
            }
            (_, request) => dispatch(child, request),
        };
        self.note(step, &reply);
        reply
    }

    /// The effect of the request on names. Forgets are applied here.
    fn step(&self, request: &Request<'_>) -> Step {
        let owned = |parent: &InodeId, name: &OsStr| (*parent, name.to_os_string());
        match request {
            Request::Lookup { parent, name, .. }
            | Request::Mknod { parent, name, .. }
            | Request::Symlink { parent, name, .. }
            | Request::Link { parent, name, .. }
            | Request::Create { parent, name, .. } => return Step::Find(owned(parent, name)),
            Request::Tmpfile { parent, .. } => return Step::Unnamed(*parent),
            Request::Unlink { parent, name, .. } => return Step::Remove(owned(parent, name)),
            Request::Rename { parent, name, new_parent, new_name, mode, .. } => {
                return Step::Rename(owned(parent, name), owned(new_parent, new_name), *mode);
            }
            Request::OpenDir { ino, .. } => return Step::Open(*ino),
            // A directory that was opened before the module was added is
            // unknown.
            Request::ReadDir { handle, plus: true, .. } => {
                return self.known.lock().dirs.get(handle).map_or(Step::Nothing, |dir| Step::List(*dir));
            }
            Request::Forget { ino, count } => self.known.lock().forget(*ino, *count),
            Request::ReleaseDir { handle } => {
                self.known.lock().dirs.remove(handle);
            }
            _ => {}
        }
        Step::Nothing
    }

    fn note(&self, step: Step, reply: &Reply) {
        match (step, reply) {
            (
                Step::Find(name),
                Reply::Lookup(Ok(entry))
                | Reply::Mknod(Ok(entry))
                | Reply::Symlink(Ok(entry))
                | Reply::Link(Ok(entry))
                | Reply::Create(Ok((entry, _))),
            ) => self.known.lock().find(name, entry),
            (Step::Unnamed(parent), Reply::Tmpfile(Ok((entry, _)))) => {
                self.known.lock().look_up(entry.attr.ino).last = Some((parent, OsString::new()));
            }
            (Step::Remove(name), Reply::Unlink(Ok(()))) => {
                self.known.lock().unname(&name);
            }
            (Step::Rename(from, to, mode), Reply::Rename(Ok(()))) => {
                self.known.lock().rename(&from, &to, mode);
            }
            (Step::Open(ino), Reply::OpenDir(Ok(handle))) => {
                self.known.lock().dirs.insert(*handle, ino);
            }
            _ => {}
        }
    }

    /// The paths that a request is about to change: of each inode or name in
    /// it. A file counts as changed when it is opened for writing, so
    /// operations on an open file have none.
    ///
    /// # Errors
    /// If `child` has no path for a directory; `EOPNOTSUPP` for a changing
    /// operation that is unknown here.
    pub fn changed_by(&self, request: &Request<'_>, child: &dyn FileSystem) -> Result<Vec<PathBuf>> {
        let at = |parent: &InodeId, name: &OsStr| -> Result<PathBuf> { Ok(child.path(*parent)?.join(name)) };
        match request {
            Request::Mknod { parent, name, .. }
            | Request::Mkdir { parent, name, .. }
            | Request::Symlink { parent, name, .. }
            | Request::Create { parent, name, .. }
            | Request::Unlink { parent, name, .. }
            | Request::Rmdir { parent, name, .. } => Ok(vec![at(parent, name)?]),
            Request::Rename { parent, name, new_parent, new_name, .. } => {
                Ok(vec![at(parent, name)?, at(new_parent, new_name)?])
            }
            Request::Link { ino, parent, name, .. } => {
                let mut paths = self.paths(*ino, child)?;
                paths.push(at(parent, name)?);
                Ok(paths)
            }
            // The kernel has a handle for the size and the times of files open for writing, its own
            // included.
            Request::Setattr { handle: Some(_), changes, .. } if !changes.changes_access() => Ok(Vec::new()),
            Request::Setattr { ino, .. }
            | Request::Setxattr { ino, .. }
            | Request::Removexattr { ino, .. } => self.paths(*ino, child),
            Request::Open { ino, request, .. } if request.flags.write => self.paths(*ino, child),
            // A file without a name; the operation that gives it one is judged.
            Request::Tmpfile { .. } => Ok(Vec::new()),
            Request::Write { .. } | Request::Fallocate { .. } | Request::CopyRange { .. } => Ok(Vec::new()),
            newer if newer.operation().changes() => Err(Errno::EOPNOTSUPP.into()),
            _ => Ok(Vec::new()),
        }
    }

    /// The paths of the names that led to the inode; none if its last name is
    /// gone.
    pub(crate) fn paths(&self, ino: InodeId, child: &dyn FileSystem) -> Result<Vec<PathBuf>> {
        let names = self.known.lock().inodes.get(&ino).map(|inode| inode.names.clone());
        match names {
            Some(names) => names.iter().map(|(parent, name)| Ok(child.path(*parent)?.join(name))).collect(),
            None => Ok(vec![child.path(ino)?]),
        }
    }

    /// The path of an inode that has no name: that of its last one, or for one that never
    /// had any, the directory's with a `/`. `None` if it is unknown.
    pub(crate) fn last_path(&self, ino: InodeId, child: &dyn FileSystem) -> Option<PathBuf> {
        let (parent, name) = self.known.lock().inodes.get(&ino)?.last.clone()?;
        Some(child.path(parent).ok()?.join(name))
    }

    /// All names.
    #[must_use]
    pub fn export(&self) -> State {
        let known = self.known.lock();
        let name = |(parent, name): &Name| (parent.0, name.as_bytes().to_vec());
        let inode = |(ino, inode): (&InodeId, &Inode)| {
            (ino.0, inode.lookups, inode.names.iter().map(name).collect(), inode.last.as_ref().map(name))
        };
        let exported = Exported {
            inodes: known.inodes.iter().map(inode).collect(),
            dirs: known.dirs.iter().map(|(handle, ino)| (handle.0, ino.0)).collect(),
        };
        // All of it can be serialized.
        State { version: VERSION, bytes: serde_json::to_vec(&exported).unwrap_or_default() }
    }

    /// Adds the names of another one.
    ///
    /// # Errors
    /// `EINVAL` if its version is unknown.
    pub fn import(&self, state: &State) -> Result<()> {
        state.expect_version(VERSION)?;
        let exported: Exported = serde_json::from_slice(&state.bytes)
            .map_err(|error| Error::new(Errno::EINVAL, format!("not a state of names: {error}")))?;
        let mut known = self.known.lock();
        for (ino, lookups, names, last) in exported.inodes {
            let inode = known.inodes.entry(InodeId(ino)).or_default();
            inode.lookups += lookups;
            let last = last.map(|(parent, name)| (InodeId(parent), OsString::from_vec(name)));
            inode.last = inode.last.take().or(last);
            for (parent, name) in names {
                known.name((InodeId(parent), OsString::from_vec(name)), InodeId(ino));
            }
        }
        known.dirs.extend(exported.dirs.iter().map(|(handle, ino)| (HandleId(*handle), InodeId(*ino))));
        Ok(())
    }
}

impl Known {
    fn find(&mut self, name: Name, entry: &Entry) {
        if entry.attr.kind == FileKind::Directory || name.1 == "." {
            return;
        }
        self.look_up(entry.attr.ino);
        self.name(name, entry.attr.ino);
    }

    fn look_up(&mut self, ino: InodeId) -> &mut Inode {
        let inode = self.inodes.entry(ino).or_default();
        inode.lookups += 1;
        inode
    }

    fn name(&mut self, name: Name, ino: InodeId) {
        let before = self.names.insert(name.clone(), ino);
        if before == Some(ino) {
            return;
        }
        // Two operations on one name may pass here in another order than below.
        if let Some(other) = before.and_then(|before| self.inodes.get_mut(&before)) {
            other.names.retain(|known| *known != name);
        }
        self.inodes.entry(ino).or_default().names.push(name);
    }

    fn unname(&mut self, name: &Name) -> Option<InodeId> {
        let ino = self.names.remove(name)?;
        if let Some(inode) = self.inodes.get_mut(&ino) {
            inode.names.retain(|known| known != name);
            inode.last = Some(name.clone());
        }
        Some(ino)
    }

    fn rename(&mut self, from: &Name, to: &Name, mode: RenameMode) {
        let (moved, replaced) = (self.unname(from), self.unname(to));
        if let Some(ino) = moved {
            self.name(to.clone(), ino);
        }
        if let Some(ino) = replaced.filter(|_| mode == RenameMode::Exchange) {
            self.name(from.clone(), ino);
        }
    }

    fn forget(&mut self, ino: InodeId, count: u64) {
        let Some(inode) = self.inodes.get_mut(&ino) else { return };
        inode.lookups = inode.lookups.saturating_sub(count);
        if inode.lookups == 0
            && let Some(inode) = self.inodes.remove(&ino)
        {
            for name in &inode.names {
                self.names.remove(name);
            }
        }
    }
}
