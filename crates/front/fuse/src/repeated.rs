//! Requests that an earlier process received and did not answer before it was killed: the
//! kernel sends them again, and they may have been carried out. Used by `ops`.
//!
//! A program still waits for the answer, and so the kernel still holds the locks of the
//! directory or file that the request is about: the state that it would have changed is as
//! it left it. So it mostly suffices to look: a name that is to be made and is there was
//! made, one that is to be removed and is not there was removed. Data and attributes are
//! set once more. An exchange of names would be undone by another: the earlier state is
//! noted before. A file that was opened is known by the request, closed, and opened anew.

use crate::convert::{caller, inode};
use crate::front::Front;
use crate::ledger::{OpenKind, OpenRecord};
use crate::open::Granted;
use crate::open_table::Grant;
use braid_contract::{Errno, HandleId, InodeId, OpenFlags, RenameMode, Result};
use fuser::{INodeNo, Request};
use std::ffi::OsStr;

/// A name, in a directory.
pub(crate) type Name<'a> = (INodeNo, &'a OsStr);

/// A rename that was noted before it was carried out.
pub(crate) struct Intent {
    /// Where its record is.
    at: usize,
    /// The inode that its first name led to.
    before: InodeId,
}

impl Front {
    /// Carries out `work`. If that fails with `sign` for a request that was sent before, it
    /// was carried out then; `done` answers its result.
    pub(crate) fn once<T>(
        &self,
        req: &Request,
        sign: Errno,
        work: impl FnOnce() -> Result<T>,
        done: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        match work() {
            Err(error) if req.is_sent_again() && error.errno() == sign => done(),
            result => result,
        }
    }

    /// The inode of a name, which does not count as looked up.
    fn named(&self, req: &Request, (parent, name): Name<'_>) -> Result<InodeId> {
        let ino = self.fs.lookup(&caller(req), inode(parent), name)?.attr.ino;
        self.fs.forget(ino, 1);
        Ok(ino)
    }

    /// Renames by `work`, once. The noted intention decides, for modes that need
    /// it.
    pub(crate) fn rename_once(
        &self,
        req: &Request,
        intent: Option<&Intent>,
        (from, to): (Name<'_>, Name<'_>),
        work: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        match intent.filter(|_| req.is_sent_again()) {
            // Both modes leave a name there, so that one that can't be looked up says nothing.
            Some(intent) if self.named(req, from)? != intent.before => Ok(()),
            Some(_) => work(),
            None => self.once(req, Errno::ENOENT, work, || self.named(req, to).map(drop)),
        }
    }

    /// Notes the state that shows later whether a rename of this mode was carried out. The
    /// answer is for [`settle`](Self::settle).
    pub(crate) fn intend(&self, req: &Request, mode: Option<RenameMode>, from: Name<'_>) -> Option<Intent> {
        let ledger = self.ledger.as_ref()?;
        if !matches!(mode, Some(RenameMode::Exchange | RenameMode::Whiteout)) {
            return None;
        }
        let earlier = if req.is_sent_again() { ledger.intended(req.identifier()) } else { None };
        let (at, before) = match earlier {
            Some(earlier) => earlier,
            None => {
                let before = self.named(req, from).ok()?;
                (ledger.intend(req.identifier(), before)?, before)
            }
        };
        Some(Intent { at, before })
    }

    /// A request that was [intended](Self::intend) is answered.
    pub(crate) fn settle(&self, intent: Option<Intent>) {
        if let Some((ledger, intent)) = self.ledger.as_ref().zip(intent) {
            ledger.settled(intent.at);
        }
    }

    /// Closes the file that this request opened when it was sent before.
    pub(crate) fn close_opened_before(&self, req: &Request) {
        let Some(ledger) = self.ledger.as_ref().filter(|_| req.is_sent_again()) else { return };
        if let Some(OpenRecord { handle, ino, flags, kind, .. }) = ledger.opened_by(req.identifier()) {
            // It was opened by an earlier process, and never used.
            let _ = match kind {
                OpenKind::Directory => self.fs.release_dir(handle),
                _ => self.release_file(ino, handle, flags),
            };
            ledger.closed(handle);
        }
    }

    /// Notes that a file was opened, before the answer says so.
    pub(crate) fn is_open(&self, req: &Request, ino: InodeId, flags: OpenFlags, granted: &Granted) {
        let kind = match &granted.grant {
            Grant::Cached => OpenKind::Cached,
            Grant::Direct => OpenKind::Direct,
            Grant::Passthrough(backing) => OpenKind::Passthrough(backing.raw()),
        };
        self.note_open(req, ino, flags, (granted.handle, kind));
    }

    /// Notes that a directory was opened, before the answer says so.
    pub(crate) fn directory_is_open(&self, req: &Request, ino: INodeNo, handle: HandleId) {
        self.note_open(req, inode(ino), OpenFlags::default(), (handle, OpenKind::Directory));
    }

    fn note_open(&self, req: &Request, ino: InodeId, flags: OpenFlags, (handle, kind): (HandleId, OpenKind)) {
        let Some(ledger) = &self.ledger else { return };
        let opener = [req.uid(), req.gid(), req.pid()];
        ledger.opened(&OpenRecord { handle, ino, flags, kind, opener, request: req.identifier() });
    }

    /// Closes a handle by `work`, once.
    pub(crate) fn close_once(
        &self,
        req: &Request,
        handle: HandleId,
        work: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let Some(ledger) = &self.ledger else { return work() };
        if req.is_sent_again() && !ledger.has(handle) {
            return Ok(());
        }
        let closed = work();
        ledger.closed(handle);
        closed
    }
}
