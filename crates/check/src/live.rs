//! A file of a mounted volume, looked at while others use it.

use super::Check;
use super::file::Subject;
use braid_contract::{Fd, Result};
use braid_core::Core;
use braid_core::live::Layout;
use braid_core::namespace::known::found;
use braid_home::Identity;
use std::path::Path;
use std::sync::Arc;

impl Check<'_> {
    /// Keeps the file from being spread, cut or moved while it is looked at; a
    /// file that nobody has open is kept from being opened.
    pub(super) fn visit_beside_users(
        &mut self,
        core: &Core,
        path: &Path,
        fd: &Fd,
        identity: &Identity,
        strangers: &mut Vec<Subject>,
    ) -> Result<()> {
        let found = found(core, identity, Fd::clone(fd));
        let slot = found.inode.file.lock();
        let Some(file) = slot.upgrade() else {
            self.in_use = false;
            return self.visit_if_named(path, fd, strangers);
        };
        drop(slot);
        // What a move has copied so far would look left over.
        let still = match &*file.layout.read() {
            Layout::Plain => None,
            Layout::Spread(spread) => Some(spread.moving.clone()),
        };
        let _still = still.map(|moving| moving.hold());
        let layout = file.layout.read();
        self.in_use = true;
        let visited = self.visit_if_named(path, fd, strangers);
        self.in_use = false;
        drop(layout);
        visited
    }

    /// What was true when the name was read may not be any more.
    fn visit_if_named(&mut self, path: &Path, fd: &Fd, strangers: &mut Vec<Subject>) -> Result<()> {
        let identity = self.target.home.identify(&**fd)?;
        if identity.attr.nlink == 0 { Ok(()) } else { self.visit(path, fd, &identity, strangers) }
    }

    /// Ids of spread files that are open, with a name or without.
    pub(super) fn open_ids(&self) -> Vec<braid_contract::ObjectId> {
        let Some(core) = self.target.mounted else { return Vec::new() };
        let files = core.handles.files();
        files.iter().filter_map(|open| Arc::clone(&open.file).ahead()).map(|ahead| ahead.id).collect()
    }
}
