//! Makes what one operation changed durable, by the child.

use crate::count::Count;
use braid_contract::{
    Attr, Caller, Context as _, FileKind, FileSystem, HandleId, InodeId, OpenFlags, Result,
};

/// The failure of a sync after a change that stays.
const STAYS: &str = "the change is made, and not known to be durable";

/// Makes changes durable. Counts each sync.
pub(super) struct Durable<'a> {
    pub(super) child: &'a dyn FileSystem,
    pub(super) syncs: &'a Count,
}

impl Durable<'_> {
    /// An open file.
    pub(super) fn file(&self, handle: HandleId, data_only: bool) -> Result<()> {
        self.syncs.one();
        self.child.fsync(&Caller::stack(), handle, data_only).context(STAYS)
    }

    /// The names of a directory, and its attributes.
    pub(super) fn directory(&self, ino: InodeId) -> Result<()> {
        let caller = Caller::stack();
        let Ok(handle) = self.child.open_dir(&caller, ino) else { return self.everything() };
        self.syncs.one();
        let done = self.child.sync_dir(&caller, handle);
        self.child.release_dir(handle)?;
        done.context(STAYS)
    }

    /// A file that may not be open.
    pub(super) fn closed_file(&self, ino: InodeId) -> Result<()> {
        let caller = Caller::stack();
        let request = OpenFlags { read: true, ..OpenFlags::default() };
        let Ok(opened) = self.child.open(&caller, ino, request.into()) else { return self.everything() };
        let done = self.file(opened.handle, false);
        self.child.release(opened.handle)?;
        done
    }

    /// For what can't be opened: it is of another kind, it was removed meanwhile, or its mode does
    /// not let the user read it who mounted.
    fn everything(&self) -> Result<()> {
        self.syncs.one();
        self.child.sync().context(STAYS)
    }

    /// The attributes of an inode. One without a name goes with its last open file, so that there
    /// is nothing to make durable.
    pub(super) fn attributes(&self, attr: &Attr) -> Result<()> {
        match attr.kind {
            _ if attr.nlink == 0 => Ok(()),
            FileKind::Regular => self.closed_file(attr.ino),
            FileKind::Directory => self.directory(attr.ino),
            _ => self.everything(),
        }
    }
}
