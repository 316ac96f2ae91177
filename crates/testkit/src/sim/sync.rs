//! Syncs: the changes that each of them makes durable, and no others.

use super::inode::{Inode, ROOT};
use super::state::State;
use std::collections::BTreeSet;
use std::sync::Arc;

impl State {
    /// `fsync` or `fdatasync` of an inode.
    pub(super) fn sync(&mut self, ino: u64, data_only: bool) {
        if !self.dirty.contains(&ino) && self.names.is_empty() {
            return;
        }
        let Some(inode) = self.inodes.get(&ino) else { return };
        let is_dir = inode.live.is_dir();
        let upto = needed_meta(inode, data_only && !is_dir);
        if self.model.journal_order {
            let names = match data_only && !is_dir {
                true => inode.born,
                false => inode.names_seq,
            };
            self.commit_journal(upto.max(names));
        } else {
            self.commit_meta(ino, upto);
        }
        if is_dir || (self.model.fsync_names && !data_only) {
            self.sync_names(ino, is_dir);
        }
        if self.inodes.get(&ino).is_some_and(|inode| !inode.history.is_empty())
            && let Some(inode) = self.inode_mut(ino)
        {
            inode.commit_data();
            self.seq += 1;
            self.tidy(ino);
        }
        self.sweep();
    }

    /// `syncfs`: everything.
    pub(super) fn sync_all(&mut self) {
        if self.dirty.is_empty() && self.names.is_empty() {
            return;
        }
        self.seq += 1;
        self.commit_names(&self.names.iter().map(|op| op.seq).collect());
        for ino in std::mem::take(&mut self.dirty) {
            if let Some(inode) = self.inode_mut(ino) {
                inode.meta.clear();
                inode.history.clear();
                inode.base = inode.live.clone();
            }
        }
        self.sweep();
    }

    /// Makes all changes of metadata durable up to one of them.
    fn commit_journal(&mut self, upto: u64) {
        self.commit_names(&self.names.iter().map(|op| op.seq).take_while(|seq| *seq <= upto).collect());
        let dirty: Vec<u64> = self.dirty.iter().copied().collect();
        dirty.into_iter().for_each(|ino| self.commit_meta(ino, upto));
    }

    fn commit_meta(&mut self, ino: u64, upto: u64) {
        let pending = self.inodes.get(&ino).and_then(|inode| inode.meta.first());
        if pending.is_some_and(|meta| meta.seq <= upto)
            && let Some(inode) = self.inode_mut(ino)
        {
            inode.commit_meta(upto);
            self.seq += 1;
            self.tidy(ino);
        }
    }

    /// Notes that nothing of an inode is pending any more.
    fn tidy(&mut self, ino: u64) {
        if self.inodes.get(&ino).is_some_and(|inode| inode.is_clean()) {
            self.dirty.remove(&ino);
            if self.names.is_empty() {
                self.merge(ino);
            }
        }
    }

    /// Makes names durable: those in a directory, and where the model says so
    /// those that lead to the inode from the root.
    fn sync_names(&mut self, ino: u64, is_dir: bool) {
        let mut wanted = BTreeSet::new();
        if is_dir {
            wanted.extend(self.names.iter().filter(|op| op.changes_dir(ino)).map(|op| op.seq));
        }
        if self.model.fsync_names {
            self.names_up_to_root(ino, &mut wanted);
        }
        for op in self.names.iter().rev() {
            if wanted.contains(&op.seq) {
                wanted.extend(op.needs.iter().copied());
            }
        }
        if self.model.journal_order {
            let upto = wanted.last().copied().unwrap_or(0);
            return self.commit_journal(upto);
        }
        self.commit_names(&wanted);
    }

    fn names_up_to_root(&self, ino: u64, wanted: &mut BTreeSet<u64>) {
        let mut seen = BTreeSet::from([ROOT]);
        let mut todo = vec![ino];
        while let Some(ino) = todo.pop() {
            if !seen.insert(ino) {
                continue;
            }
            let links = self.inodes.get(&ino).map_or(&[][..], |inode| &inode.live.names);
            for link in links {
                let makes = |op: &&Arc<super::names::NameOp>| {
                    op.changes.iter().any(|change| {
                        change.new == Some(ino) && change.dir == link.dir && change.name == link.name
                    })
                };
                wanted.extend(self.names.iter().rev().find(makes).map(|op| op.seq));
                todo.push(link.dir);
            }
        }
    }
}

/// The last change of the inode's metadata that a sync of it covers.
fn needed_meta(inode: &Inode, data_only: bool) -> u64 {
    let mut covered = inode.meta.iter().rev().filter(|meta| !data_only || meta.change.is_needed());
    covered.next().map_or(0, |meta| meta.seq)
}
