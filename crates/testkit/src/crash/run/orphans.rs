//! Operations on open files without a name: those that lost it, and those that
//! were made without one.

use super::super::op::Name;
use super::{Open, Run, room_or_none};
use braid_contract::{Caller, Errno, Error, InodeId, OpenFlags};
use std::ffi::OsStr;

impl Run<'_> {
    pub(super) fn create_unnamed(&mut self, step: usize) -> Result<(), Error> {
        let born_ns = self.machine.clock().wall_ns();
        let flags = OpenFlags { read: true, write: true, ..OpenFlags::default() };
        let made = self.fs().tmpfile(&Caller::root(), InodeId::ROOT, 0o644, 0, flags.into());
        let Some((entry, opened)) = room_or_none(made)? else { return Ok(()) };
        let ino = entry.attr.ino;
        let file = self.history.born(step, ino, born_ns);
        self.orphans.push(Open { file, ino, handle: opened.handle });
        Ok(())
    }

    pub(super) fn write_orphan(&mut self, at: u64, len: u64, step: usize) -> Result<(), Error> {
        match self.orphans.last().copied() {
            Some(open) => self.write_to(open, at, len, false, step),
            None => Ok(()),
        }
    }

    pub(super) fn sync_orphan(&mut self, step: usize) -> Result<(), Error> {
        match self.orphans.last().copied() {
            Some(open) => self.sync_open(open, false, step),
            None => Ok(()),
        }
    }

    pub(super) fn link_orphan(&mut self, name: Name, step: usize) -> Result<(), Error> {
        let Some(open) = self.orphans.last().copied() else { return Ok(()) };
        if self.history.file_of(name).is_some() {
            return Ok(());
        }
        let lost_one = self.history.lost_its_name(open.file);
        let parent = self.parent(name.dir())?;
        let linked = self.fs().link(&Caller::root(), open.ino, parent, OsStr::new(name.leaf()));
        match linked {
            Err(error) if lost_one && error.errno() == Errno::ENOENT => return Ok(()),
            Ok(_) if lost_one => {
                return Err(Error::new(Errno::EIO, "a file that had lost its last name got another"));
            }
            _ => {}
        }
        let linked = room_or_none(linked)?.is_some();
        self.history.renamed(step, vec![(name, Some(open.file))], linked);
        if linked {
            self.fs().forget(open.ino, 1);
            self.orphans.pop();
            self.open[name.at()] = Some(open);
        }
        Ok(())
    }
}
