//! Known inodes and open files of a session.

use crate::ledger::{Ledger, OpenFile};
use braid_contract::{Errno, HandleId, InodeId, OpenFlags, Result};
use parking_lot::{Mutex, RwLock};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Inodes that a session may know at a time.
pub(crate) const INODES_MAX: usize = 1 << 17;
/// Files that it may have open at a time.
const HANDLES_MAX: usize = 4096;
/// The same of a session for others, which is all users of another mount.
const OF_OTHERS: (usize, usize) = (1 << 20, HANDLES_MOST);
/// Files that any session may have open.
pub(crate) const HANDLES_MOST: usize = 1 << 16;

/// A session's lookups of an inode.
#[derive(Clone, Copy, Debug, Default)]
struct Lookups {
    /// Lookups that it made and did not take back.
    count: u64,
    /// Those of them that the file system does not count: an earlier process did, which crashed.
    uncounted: u64,
    /// Requests under way that use it.
    users: u64,
    /// Lookups that are taken back when no request uses it any more: before, its number
    /// must not become that of another file.
    owed: u64,
}

impl Lookups {
    /// Takes lookups back; returns how many of these the file system counts.
    fn take_back(&mut self, count: u64) -> u64 {
        let uncounted = count.min(self.uncounted);
        (self.count, self.uncounted) = (self.count - count, self.uncounted - uncounted);
        count - uncounted
    }
}

/// Known inodes and open files of a session.
#[derive(Default)]
pub(crate) struct KnownFiles {
    inodes: Mutex<HashMap<InodeId, Lookups>>,
    handles: RwLock<HashMap<HandleId, OpenFile>>,
    /// The records that outlive this process.
    ledger: Option<Arc<Ledger>>,
    for_others: bool,
}

/// The contents of [`KnownFiles`], for the process that goes on.
#[derive(Debug, Default)]
pub(crate) struct Knowledge {
    /// Each with its lookups, and how many of these the file system does not count.
    pub(crate) inodes: Vec<(InodeId, u64, u64)>,
    pub(crate) handles: Vec<(HandleId, OpenFile)>,
}

impl KnownFiles {
    /// Nothing yet. All that comes is in the ledger, too, if there is one.
    pub(crate) fn kept_in(ledger: Option<Arc<Ledger>>, for_others: bool) -> Self {
        Self { ledger, for_others, ..Self::default() }
    }

    /// Inodes and files, at most.
    fn most(&self) -> (usize, usize) {
        if self.for_others { OF_OTHERS } else { (INODES_MAX, HANDLES_MAX) }
    }

    fn is_known(&self, ino: InodeId, count: u64) {
        if let Some(ledger) = &self.ledger {
            ledger.knows(ino, count);
        }
    }

    /// Notes a lookup.
    ///
    /// # Errors
    /// `ENFILE` if it knows too many inodes.
    pub(crate) fn learn(&self, ino: InodeId) -> Result<()> {
        let mut inodes = self.inodes.lock();
        if inodes.len() >= self.most().0 && !inodes.contains_key(&ino) {
            return Err(Errno::ENFILE.into());
        }
        let known = inodes.entry(ino).or_default();
        known.count += 1;
        self.is_known(ino, known.count);
        Ok(())
    }

    /// A request uses this inode from now on, if it is known. Returns whether it is.
    pub(crate) fn hold(&self, ino: InodeId) -> bool {
        self.inodes.lock().get_mut(&ino).map(|known| known.users += 1).is_some()
    }

    /// A request does not use it any more. Returns the lookups to be taken back.
    pub(crate) fn let_go(&self, ino: InodeId) -> u64 {
        let mut inodes = self.inodes.lock();
        let Some(known) = inodes.get_mut(&ino) else { return 0 };
        known.users = known.users.saturating_sub(1);
        if known.users > 0 {
            return 0;
        }
        let owed = std::mem::take(&mut known.owed);
        if known.count == 0 {
            inodes.remove(&ino);
        }
        owed
    }

    /// Checks that the inode was looked up: others may be out of the session's reach.
    ///
    /// # Errors
    /// `ESTALE` if not.
    pub(crate) fn has(&self, ino: InodeId) -> Result<()> {
        let is_known = self.inodes.lock().get(&ino).is_some_and(|known| known.count > 0);
        if is_known { Ok(()) } else { Err(Errno::ESTALE.into()) }
    }

    /// Takes lookups back, at most those that there are; returns how many are to be taken
    /// back now.
    pub(crate) fn forget(&self, ino: InodeId, count: u64) -> u64 {
        let mut inodes = self.inodes.lock();
        let Some(known) = inodes.get_mut(&ino) else { return 0 };
        let counted = known.take_back(count.min(known.count));
        self.is_known(ino, known.count);
        if known.users > 0 {
            known.owed += counted;
            return 0;
        }
        if known.count == 0 {
            inodes.remove(&ino);
        }
        counted
    }

    /// Undoes [`learn`](Self::learn) of a lookup that the file system took back itself.
    pub(crate) fn unlearn(&self, ino: InodeId) {
        let mut inodes = self.inodes.lock();
        let Some(known) = inodes.get_mut(&ino) else { return };
        known.count = known.count.saturating_sub(1);
        self.is_known(ino, known.count);
        if known.count == 0 && known.users == 0 {
            inodes.remove(&ino);
        }
    }

    /// Notes an open file.
    ///
    /// # Errors
    /// `EMFILE` if there are too many.
    pub(crate) fn opened(
        &self,
        handle: HandleId,
        ino: InodeId,
        flags: OpenFlags,
        directory: bool,
    ) -> Result<()> {
        let mut handles = self.handles.write();
        if handles.len() >= self.most().1 {
            return Err(Errno::EMFILE.into());
        }
        let opened = OpenFile { ino, flags, directory };
        if let Some(ledger) = &self.ledger {
            ledger.opened(handle, &opened);
        }
        handles.insert(handle, opened);
        Ok(())
    }

    /// Forgets an open file or directory; returns whether it is a directory.
    ///
    /// # Errors
    /// `EBADF` if there is none.
    pub(crate) fn close(&self, handle: HandleId) -> Result<bool> {
        let closed = self.handles.write().remove(&handle);
        if let Some(ledger) = self.ledger.as_ref().filter(|_| closed.is_some()) {
            ledger.closed(handle);
        }
        closed.map(|opened| opened.directory).ok_or_else(|| Errno::EBADF.into())
    }

    /// An open file.
    ///
    /// # Errors
    /// `EBADF` if there is none.
    pub(crate) fn open(&self, handle: HandleId) -> Result<OpenFile> {
        let opened = self.handles.read().get(&handle).copied();
        opened.filter(|opened| !opened.directory).ok_or_else(|| Errno::EBADF.into())
    }

    /// The open files and directories that are not among these.
    pub(crate) fn opened_but(&self, handles: &HashSet<HandleId>) -> Vec<HandleId> {
        self.handles.read().keys().filter(|handle| !handles.contains(handle)).copied().collect()
    }

    /// Whether a file is open for writing.
    ///
    /// # Errors
    /// `EBADF` if not.
    pub(crate) fn writable(&self, handle: HandleId) -> Result<()> {
        if self.open(handle)?.flags.write { Ok(()) } else { Err(Errno::EBADF.into()) }
    }

    /// The inode of an open directory.
    ///
    /// # Errors
    /// `EBADF` if it is none.
    pub(crate) fn directory(&self, handle: HandleId) -> Result<InodeId> {
        let opened = self.handles.read().get(&handle).copied().filter(|opened| opened.directory);
        opened.map(|opened| opened.ino).ok_or_else(|| Errno::EBADF.into())
    }

    /// All of it, which is then forgotten.
    pub(crate) fn take(&self) -> Knowledge {
        let known = std::mem::take(&mut *self.inodes.lock());
        let inode = |(ino, known): (InodeId, Lookups)| (ino, known.count + known.owed, known.uncounted);
        let inodes = known.into_iter().map(inode).collect();
        Knowledge { inodes, handles: self.handles.write().drain().collect() }
    }

    /// Takes over the knowledge of an earlier process, and notes it in the ledger.
    pub(crate) fn go_on(&self, known: Knowledge) {
        if let Some(ledger) = &self.ledger {
            known.inodes.iter().for_each(|(ino, count, _)| ledger.knows(*ino, *count));
            for (handle, opened) in &known.handles {
                ledger.opened(*handle, opened);
                ledger.mark_handle_delivered(*handle);
            }
        }
        self.found(known);
    }

    /// Takes over knowledge that is in the ledger already.
    pub(crate) fn found(&self, known: Knowledge) {
        let inodes = known.inodes.into_iter();
        let looked_up = |(ino, count, uncounted)| (ino, Lookups { count, uncounted, ..Lookups::default() });
        self.inodes.lock().extend(inodes.map(looked_up));
        self.handles.write().extend(known.handles);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lookup_that_was_never_counted_takes_no_other_one_back() {
        let (known, ino) = (KnownFiles::default(), InodeId(5));
        known.found(Knowledge { inodes: vec![(ino, 3, 2)], handles: Vec::new() });
        known.learn(ino).unwrap();
        known.unlearn(ino);
        // Of three, the file system counts one.
        assert_eq!(known.forget(ino, 3), 1);
        known.learn(ino).unwrap();
        assert!(known.hold(ino));
        known.learn(ino).unwrap();
        known.unlearn(ino);
        assert_eq!((known.let_go(ino), known.forget(ino, 9)), (0, 1));
        known.learn(ino).unwrap();
        known.unlearn(ino);
        assert!(known.has(ino).is_err());
    }
}
