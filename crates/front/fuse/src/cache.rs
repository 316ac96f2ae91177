//! The kernel's cache of a mount, and when it can't be asked. [`Session`](crate::Session) makes it.

use crate::open_table::OpenTable;
use crate::refusals::Refusals;
use braid_contract::{Context, Errno, Error, FrontCache, InodeId};
use fuser::{BackingId, INodeNo, Notifier};
use parking_lot::RwLock;
use std::ffi::OsString;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Whether requests of the kernel are answered. Where they are not, it writes nothing back, and
/// would keep one that asks for that.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answers {
    /// How often this has changed: where it is odd, they are not. Held for reading by one that asks.
    turns: Arc<RwLock<u64>>,
}

impl Answers {
    /// Asks the kernel, if it is answered.
    fn ask<T>(&self, ask: impl FnOnce() -> T) -> Option<T> {
        // The requests that it makes may ask, too, while another thread waits to end this.
        let turns = self.turns.read_recursive();
        turns.is_multiple_of(2).then(ask)
    }

    /// Nothing is asked from now on. Answers whether those who do had their answer within
    /// `patience`; if not, it goes on.
    pub(crate) fn end(&self, patience: Duration) -> bool {
        self.turns.try_write_for(patience).map(|mut turns| *turns += 1).is_some()
    }

    pub(crate) fn begin_again(&self) {
        *self.turns.write() += 1;
    }

    pub(crate) fn turns(&self) -> u64 {
        *self.turns.read_recursive()
    }
}

/// What the front end and its caches share.
pub(crate) type Shared = (Arc<OpenTable<BackingId>>, Arc<Refusals>);

/// Inodes that one notification has the kernel forget.
const FORGET_BATCH: usize = 512;

/// The kernel's cache of a mount.
pub struct KernelCache {
    notifier: Notifier,
    answers: Answers,
    writes_back: bool,
    opens: Arc<OpenTable<BackingId>>,
    refusals: Arc<Refusals>,
}

impl KernelCache {
    pub(crate) fn new(
        notifier: Notifier,
        answers: Answers,
        writes_back: bool,
        (opens, refusals): Shared,
    ) -> Self {
        Self { notifier, answers, writes_back, opens, refusals }
    }

    /// Has the kernel look names up anew before it uses them again.
    ///
    /// # Errors
    /// If it can't: that came with Linux 6.16.
    pub fn look_up_anew(&self) -> io::Result<()> {
        self.notifier.increment_epoch()
    }

    /// Has the kernel write an inode back. That it did is all that it says: `refused` is the error of
    /// what was refused.
    fn have_written(
        &self,
        ino: InodeId,
        refused: impl FnOnce() -> Option<Errno>,
    ) -> braid_contract::Result<()> {
        // Afterwards, the data is for the process that goes on.
        let written = self.answers.ask(|| self.notifier.inval_inode(INodeNo(ino.0), 0, 0));
        let written = written.unwrap_or(Ok(())).map_err(Error::from);
        let refused = refused().map_or(Ok(()), |errno| Err(errno.into()));
        written.and(refused).context("writing back the kernel's cache")
    }
}

impl FrontCache for KernelCache {
    fn names_came(&self, dir: InodeId, names: &[OsString]) {
        let ino = INodeNo(dir.0);
        // A missing entry needs no drop.
        for name in names {
            let _ = self.notifier.inval_entry(ino, name);
        }
        // Its listing too.
        let _ = self.notifier.inval_inode(ino, 0, 0);
    }

    fn attributes_changed(&self, ino: InodeId) {
        let _ = self.notifier.inval_inode(INodeNo(ino.0), -1, 0);
    }

    fn data_changed(&self, ino: InodeId) {
        let _ = self.notifier.inval_inode(INodeNo(ino.0), 0, 0);
        if self.writes_back {
            // It believes its own size as long as it has the inode.
            let _ = self.notifier.prune(&[ino.0]);
        }
    }

    fn knows(&self, ino: InodeId) -> bool {
        // One that can't be asked gives them back, as far as is known.
        let asked = self.answers.ask(|| self.notifier.knows_inode(INodeNo(ino.0)));
        asked.and_then(io::Result::ok).unwrap_or(true)
    }

    fn forget(&self, inodes: &[InodeId]) -> braid_contract::Result<()> {
        for batch in inodes.chunks(FORGET_BATCH) {
            let batch: Vec<u64> = batch.iter().map(|ino| ino.0).collect();
            let pruned = self.answers.ask(|| self.notifier.prune(&batch)).unwrap_or(Ok(()));
            pruned.map_err(Error::from).context("having the kernel forget inodes")?;
        }
        Ok(())
    }

    fn write_back(&self, ino: InodeId) -> braid_contract::Result<()> {
        if !self.writes_back {
            return Ok(());
        }
        let before = self.refusals.count(ino);
        self.have_written(ino, || self.refusals.since(ino, before))
    }

    fn write_back_all(&self) -> braid_contract::Result<()> {
        if !self.writes_back {
            return Ok(());
        }
        // One that fails does not keep the others from it.
        let all = self.opens.perhaps_dirty().into_iter();
        let written = all.map(|ino| self.have_written(ino, || self.refusals.tell(ino)));
        written.fold(Ok(()), braid_contract::Result::and)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn what_is_asked_is_waited_for_and_nothing_is_afterwards() {
        let answers = Answers::default();
        let (asked, is_asked) = channel();
        let (answer, answered) = channel();
        let answers = &answers;
        std::thread::scope(|scope| {
            scope.spawn(move || {
                answers.ask(|| {
                    asked.send(()).unwrap();
                    answered.recv().unwrap();
                })
            });
            is_asked.recv().unwrap();
            assert!(!answers.end(Duration::from_millis(20)) && answers.turns() == 0);
            // Another one does not wait for that.
            assert_eq!(answers.ask(|| 1), Some(1));
            answer.send(()).unwrap();
            assert!(answers.end(Duration::from_secs(60)));
        });
        assert_eq!(answers.ask(|| 1), None);
        answers.begin_again();
        assert_eq!((answers.ask(|| 1), answers.turns()), (Some(1), 2));
    }
}
