//! The effects of a request beyond the file system: what its session knows and has open afterwards,
//! and what the kernel's caches have no more.

use crate::admit::{Bounds, Renamed};
use braid_contract::{FrontCache, HandleId, InodeId, OpenFlags, Operation, Reply, Request, Result};
use std::ffi::{OsStr, OsString};

/// A name in a directory.
type Name = (InodeId, OsString);

/// The effects that a request will have if it succeeds, as far as its reply does not show them.
pub(crate) struct Effects {
    operation: Operation,
    kind: Kind,
}

enum Kind {
    /// There are none, or the reply shows them.
    Plain,
    /// Names come, go, or lead elsewhere. The kernel has to know; there are none if there is no
    /// kernel.
    Names { names: Vec<Name>, renamed: Renamed },
    /// A file is made and opened, with a name or without.
    Create { name: Option<Name>, flags: OpenFlags },
    /// A file is opened.
    Open { ino: InodeId, flags: OpenFlags },
    /// A directory is opened.
    OpenDir { ino: InodeId },
    /// Attributes change.
    Attributes {
        /// Its size or time, which a kernel that writes back believes by itself.
        owned: bool,
    },
    /// An extended attribute changes.
    Xattr { ino: InodeId },
    /// The data of a file changes, if there is a kernel that has to know.
    Data { file: Option<InodeId> },
    /// Extended attributes are listed, those of the system only for root.
    Listxattr { root: bool },
}

impl Effects {
    /// The name was there already: the kernel would drop a mount there.
    pub(super) fn without_names(&mut self) {
        if let Kind::Create { name, .. } = &mut self.kind {
            *name = None;
        }
    }

    /// Has the kernel forget cached data that the request made stale.
    fn tell(&self, kernel: &dyn FrontCache, reply: &Reply) {
        let came = |(dir, name): &Name| kernel.names_came(*dir, std::slice::from_ref(name));
        match &self.kind {
            Kind::Names { names, renamed } => {
                names.iter().for_each(came);
                if let Reply::Link(Ok(entry)) = reply {
                    kernel.attributes_changed(entry.attr.ino);
                }
                renamed.iter().flatten().for_each(|ino| kernel.attributes_changed(*ino));
            }
            Kind::Create { name, .. } => name.iter().for_each(came),
            Kind::Attributes { owned } => match reply {
                Reply::Setattr(Ok(attr)) if *owned => kernel.data_changed(attr.ino),
                Reply::Setattr(Ok(attr)) => kernel.attributes_changed(attr.ino),
                _ => {}
            },
            Kind::Xattr { ino } => kernel.attributes_changed(*ino),
            Kind::Data { file } => file.iter().for_each(|ino| kernel.data_changed(*ino)),
            Kind::Plain | Kind::Open { .. } | Kind::OpenDir { .. } | Kind::Listxattr { .. } => {}
        }
    }
}

/// The parts of a session's file system that a request has effects on.
#[derive(Clone, Copy)]
pub(crate) struct Affected<'a> {
    pub(crate) bounds: &'a Bounds,
    pub(crate) kernel: Option<&'a dyn FrontCache>,
}

impl Affected<'_> {
    /// The effects that a request will have. `renamed` are the inodes of names that go.
    pub(crate) fn effects(self, request: &Request<'_>, renamed: Renamed) -> Effects {
        Effects { operation: request.operation(), kind: self.kind(request, renamed) }
    }

    fn kind(self, request: &Request<'_>, renamed: Renamed) -> Kind {
        let is_watched = self.kernel.is_some();
        let name = |dir: InodeId, name: &OsStr| is_watched.then(|| (dir, name.to_owned()));
        let data = |handle: HandleId| {
            let open = is_watched.then(|| self.bounds.known.open(handle).ok()).flatten();
            Kind::Data { file: open.map(|opened| opened.ino) }
        };
        match *request {
            Request::Mknod { parent, name: new, .. }
            | Request::Mkdir { parent, name: new, .. }
            | Request::Symlink { parent, name: new, .. }
            | Request::Link { parent, name: new, .. }
            | Request::Unlink { parent, name: new, .. }
            | Request::Rmdir { parent, name: new, .. } => {
                Kind::Names { names: name(parent, new).into_iter().collect(), renamed }
            }
            Request::Rename { parent, name: old, new_parent, new_name, .. } => {
                let names = [name(parent, old), name(new_parent, new_name)];
                Kind::Names { names: names.into_iter().flatten().collect(), renamed }
            }
            Request::Create { parent, name: new, request, .. } => {
                Kind::Create { name: name(parent, new), flags: request.flags }
            }
            Request::Tmpfile { request, .. } => Kind::Create { name: None, flags: request.flags },
            Request::Open { ino, request, .. } => Kind::Open { ino, flags: request.flags },
            Request::OpenDir { ino, .. } => Kind::OpenDir { ino },
            Request::Setattr { changes, .. } => {
                Kind::Attributes { owned: changes.size.is_some() || changes.mtime.is_some() }
            }
            Request::Setxattr { ino, .. } | Request::Removexattr { ino, .. } => Kind::Xattr { ino },
            Request::Write { handle, .. } | Request::Fallocate { handle, .. } => data(handle),
            Request::CopyRange { to, .. } => data(to),
            Request::Listxattr { caller, .. } => Kind::Listxattr { root: caller.uid == 0 },
            Request::Lookup { .. }
            | Request::Forget { .. }
            | Request::Getattr { .. }
            | Request::Readlink { .. }
            | Request::Read { .. }
            | Request::Flush { .. }
            | Request::Release { .. }
            | Request::Fsync { .. }
            | Request::Seek { .. }
            | Request::ReadDir { .. }
            | Request::ReleaseDir { .. }
            | Request::SyncDir { .. }
            | Request::Statfs { .. }
            | Request::Getxattr { .. }
            | Request::Sync {}
            | Request::Path { .. } => Kind::Plain,
        }
    }

    /// Brings the kernel's caches and the session's knowledge up to date with a request that was
    /// carried out. Inodes and files given to the session beyond its bounds are taken back: then the
    /// reply becomes an error.
    pub(crate) fn apply(self, effects: &Effects, reply: &mut Reply) {
        if reply.error().is_some() {
            return;
        }
        if let Some(kernel) = self.kernel {
            effects.tell(kernel, reply);
        }
        if let Err(error) = self.note(&effects.kind, reply) {
            self.close_again(reply);
            *reply = effects.operation.failed(error);
        }
    }

    /// Notes inodes and files that a reply gives to the session, and hides what it may not see.
    fn note(self, kind: &Kind, reply: &mut Reply) -> Result<()> {
        let known = &self.bounds.known;
        match (kind, reply) {
            (
                _,
                Reply::Lookup(Ok(entry))
                | Reply::Mknod(Ok(entry))
                | Reply::Mkdir(Ok(entry))
                | Reply::Symlink(Ok(entry))
                | Reply::Link(Ok(entry)),
            ) => self.bounds.learn(entry.attr.ino),
            (
                Kind::Create { flags, .. },
                Reply::Create(Ok((entry, opened))) | Reply::Tmpfile(Ok((entry, opened))),
            ) => {
                let learnt = self.bounds.learn(entry.attr.ino);
                learnt.and_then(|()| known.opened(opened.handle, entry.attr.ino, *flags, false))
            }
            (Kind::Open { ino, flags }, Reply::Open(Ok(opened))) => {
                known.opened(opened.handle, *ino, *flags, false)
            }
            (Kind::OpenDir { ino }, Reply::OpenDir(Ok(handle))) => {
                known.opened(*handle, *ino, OpenFlags::default(), true)
            }
            (Kind::Listxattr { root: false }, Reply::Listxattr(Ok(names))) => {
                *names = without_trusted(names);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Closes what a reply would have given to the session.
    fn close_again(self, reply: &Reply) {
        match reply {
            Reply::Open(Ok(opened)) | Reply::Create(Ok((_, opened))) | Reply::Tmpfile(Ok((_, opened))) => {
                let _ = self.bounds.top.release(opened.handle);
            }
            Reply::OpenDir(Ok(handle)) => {
                let _ = self.bounds.top.release_dir(*handle);
            }
            _ => {}
        }
    }
}

/// Names of attributes without those that only root sees.
fn without_trusted(names: &[u8]) -> Vec<u8> {
    let kept = names.split_inclusive(|byte| *byte == 0).filter(|name| !name.starts_with(b"trusted."));
    kept.flatten().copied().collect()
}
