//! Operations on names that may be lost, and the dependencies of each.

use super::inode::{Body, Entry, KIND, Link, Node};
use braid_contract::Timestamp;
use std::ffi::OsStr;
use std::sync::Arc;

/// One name of a directory gets, changes or loses its inode.
#[derive(Clone, Debug)]
pub(super) struct NameChange {
    pub(super) dir: u64,
    pub(super) name: Arc<OsStr>,
    pub(super) old: Option<u64>,
    pub(super) new: Option<u64>,
}

/// An operation on names: all of its changes take place, or none.
#[derive(Clone, Debug)]
pub(super) struct NameOp {
    pub(super) seq: u64,
    pub(super) time: Timestamp,
    pub(super) changes: Vec<NameChange>,
    /// Earlier operations that must be durable if this one is.
    pub(super) needs: Vec<u64>,
    /// It gives a directory another parent.
    pub(super) moves_dir: bool,
}

impl NameOp {
    /// The directories that it changes.
    pub(super) fn dirs(&self) -> impl Iterator<Item = u64> {
        let first = self.changes.first().map(|change| change.dir);
        let second = self.changes.get(1).map(|change| change.dir).filter(|dir| Some(*dir) != first);
        first.into_iter().chain(second)
    }

    pub(super) fn changes_dir(&self, dir: u64) -> bool {
        self.changes.iter().any(|change| change.dir == dir)
    }

    pub(super) fn gives_name_to(&self, ino: u64) -> bool {
        self.changes.iter().any(|change| change.new == Some(ino))
    }

    pub(super) fn mentions(&self, ino: u64) -> bool {
        self.changes
            .iter()
            .any(|change| change.dir == ino || change.old == Some(ino) || change.new == Some(ino))
    }

    /// Carries it out on one version of the tree.
    pub(super) fn apply(&self, tree: &mut impl Nodes) {
        for (at, change) in self.changes.iter().enumerate() {
            if let Some(old) = change.old {
                self.take_name(tree, change, old);
            }
            if let Some(new) = change.new {
                // Unique for this entry, and in the order of making; the
                // numbers below are those of `.` and `..`.
                let cookie = (self.seq * 2 + at as u64 + 8).cast_signed();
                self.give_name(tree, change, new, cookie);
            }
            if let Some(dir) = tree.node_mut(change.dir) {
                dir.set_mtime(self.time, self.seq);
                dir.set_ctime(self.time, self.seq);
            }
        }
    }

    fn take_name(&self, tree: &mut impl Nodes, change: &NameChange, old: u64) {
        let Some(node) = tree.node_mut(old) else { return };
        node.names.retain(|link| link.dir != change.dir || link.name != change.name);
        node.set_ctime(self.time, self.seq);
        let was_dir = node.is_dir();
        if let Some(Node { body: Body::Dir(dir), .. }) = tree.node_mut(change.dir)
            && let Some(entry) = dir.entries.remove(&change.name)
        {
            dir.by_cookie.remove(&entry.cookie);
            dir.subdirs -= u32::from(was_dir);
        }
    }

    fn give_name(&self, tree: &mut impl Nodes, change: &NameChange, new: u64, cookie: i64) {
        let Some(node) = tree.node_mut(new) else { return };
        node.names.push(Link { dir: change.dir, name: change.name.clone() });
        node.set_ctime(self.time, self.seq);
        let kind = node.mode & KIND;
        let is_dir = node.is_dir();
        if let Some(Node { body: Body::Dir(dir), .. }) = tree.node_mut(change.dir) {
            dir.entries.insert(change.name.clone(), Entry { ino: new, kind, cookie });
            dir.by_cookie.insert(cookie, change.name.clone());
            dir.subdirs += u32::from(is_dir);
        }
    }
}

/// One version of the tree.
pub(super) trait Nodes {
    /// An inode of it.
    fn node_mut(&mut self, ino: u64) -> Option<&mut Node>;
}

/// The dependencies of an operation, among those before it that may be lost.
pub(super) fn needs(
    pending: &[Arc<NameOp>],
    changes: &[NameChange],
    gone_dir: Option<u64>,
    moves_dir: bool,
) -> Vec<u64> {
    let mut needs = Vec::new();
    let mut need = |seq: u64| {
        if !needs.contains(&seq) {
            needs.push(seq);
        }
    };
    let last = |wanted: &dyn Fn(&NameOp) -> bool| pending.iter().rev().find(|op| wanted(op)).map(|op| op.seq);
    // The operations on one directory are durable in order. A directory that
    // goes was emptied before.
    for dir in changes.iter().map(|change| change.dir).chain(gone_dir) {
        last(&|op| op.changes_dir(dir)).into_iter().for_each(&mut need);
    }
    // Directories change places in order, so that none gets below itself.
    if moves_dir {
        last(&|op| op.moves_dir).into_iter().for_each(&mut need);
    }
    // An inode does not lose a name before the names that it was given earlier
    // are found.
    for old in changes.iter().filter_map(|change| change.old) {
        pending.iter().filter(|op| op.gives_name_to(old)).for_each(|op| need(op.seq));
    }
    needs
}
