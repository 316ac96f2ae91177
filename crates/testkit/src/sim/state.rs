//! The whole state of a disk: the visible and the durable one, and the changes
//! between. Operations on names are in `tree.rs`, those on files in `io.rs`,
//! syncs in `sync.rs`; all of them end in the few functions here.

use super::content::{BLOCK, Content};
use super::disk::{DiskConfig, Model};
use super::inode::{Body, Change, Dir, Inode, Meta, Node, ROOT};
use super::names::{NameChange, NameOp, Nodes, needs};
use braid_contract::{Errno, Result, Timestamp};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// How often each inode is open.
pub(super) type Opens = HashMap<u64, u32>;

/// The inputs of an operation from outside the state.
#[derive(Clone, Copy)]
pub(super) struct Context<'a> {
    pub(super) now: Timestamp,
    pub(super) opens: &'a Opens,
}

#[derive(Clone, Debug)]
pub(super) struct State {
    pub(super) inodes: BTreeMap<u64, Arc<Inode>>,
    /// Operations on names that may be lost, in order.
    pub(super) names: Vec<Arc<NameOp>>,
    /// Inodes with changes of metadata or data that may be lost.
    pub(super) dirty: BTreeSet<u64>,
    /// Inodes that no process can reach, but power loss may bring back.
    dead: Vec<u64>,
    /// Blocks in use, and how many there are.
    pub(super) used: u64,
    pub(super) capacity: u64,
    pub(super) next_ino: u64,
    /// Counts all changes and syncs.
    pub(super) seq: u64,
    pub(super) model: Model,
}

/// The tree as processes see it.
struct Live<'a>(&'a mut State);

/// The tree as it is durable.
struct Base<'a>(&'a mut State);

impl Nodes for Live<'_> {
    fn node_mut(&mut self, ino: u64) -> Option<&mut Node> {
        self.0.inode_mut(ino).map(Inode::live_mut)
    }
}

impl Nodes for Base<'_> {
    fn node_mut(&mut self, ino: u64) -> Option<&mut Node> {
        self.0.inode_mut(ino).map(|inode| Arc::make_mut(&mut inode.base))
    }
}

impl State {
    pub(super) fn empty(config: &DiskConfig, now: Timestamp) -> Self {
        let root = Node::new(0o040_755, Body::Dir(Dir::default()), now);
        Self {
            inodes: BTreeMap::from([(ROOT, Arc::new(Inode::settled(Arc::new(root))))]),
            names: Vec::new(),
            dirty: BTreeSet::new(),
            dead: Vec::new(),
            used: 0,
            capacity: config.capacity / BLOCK,
            next_ino: ROOT + 10,
            seq: 0,
            model: config.model,
        }
    }

    /// A state of which everything is durable, from its inodes; the counters of
    /// this one go on.
    pub(super) fn settled(&self, inodes: BTreeMap<u64, Arc<Inode>>) -> Self {
        let used = inodes.values().map(|inode| inode.live.allocated()).sum();
        Self {
            inodes,
            names: Vec::new(),
            dirty: BTreeSet::new(),
            dead: Vec::new(),
            used,
            capacity: self.capacity,
            next_ino: self.next_ino,
            seq: self.seq + 1,
            model: self.model,
        }
    }

    /// An inode that processes can reach.
    pub(super) fn inode(&self, ino: u64) -> Result<&Arc<Inode>> {
        self.inodes.get(&ino).filter(|inode| inode.alive).ok_or_else(|| Errno::ESTALE.into())
    }

    /// An inode as processes see it.
    pub(super) fn node(&self, ino: u64) -> Result<&Node> {
        Ok(&self.inode(ino)?.live)
    }

    /// The contents of a regular file.
    pub(super) fn content(&self, ino: u64) -> Result<&Content> {
        match &self.node(ino)?.body {
            Body::File(content) => Ok(content),
            Body::Dir(_) => Err(Errno::EISDIR.into()),
            _ => Err(Errno::EINVAL.into()),
        }
    }

    pub(super) fn inode_mut(&mut self, ino: u64) -> Option<&mut Inode> {
        self.inodes.get_mut(&ino).map(Arc::make_mut)
    }

    pub(super) fn next_seq(&mut self) -> u64 {
        self.seq += 1;
        self.seq
    }

    /// A path of an inode, for people.
    pub(super) fn path_of(&self, ino: u64) -> String {
        let mut path = String::new();
        let mut at = ino;
        while at != ROOT {
            let link = self.inodes.get(&at).and_then(|inode| inode.live.names.first());
            let Some(link) = link else { return format!("(unlinked){path}") };
            path = format!("/{}{path}", link.name.display());
            at = link.dir;
        }
        if path.is_empty() { "/".to_owned() } else { path }
    }

    /// Carries out a change of an inode's metadata that may be lost.
    pub(super) fn change(&mut self, now: Timestamp, ino: u64, change: Change) {
        let seq = self.next_seq();
        self.change_at(seq, now, ino, change);
    }

    /// The same, as a part of the change with this number.
    pub(super) fn change_at(&mut self, seq: u64, now: Timestamp, ino: u64, change: Change) {
        let Some(inode) = self.inode_mut(ino) else { return };
        let before = inode.live.allocated();
        let mut meta = Meta { seq, time: now, change };
        // One write after another: their times are one change.
        if let Some(last) = inode.meta.last_mut()
            && matches!((&last.change, &meta.change), (Change::Touch, Change::Touch))
        {
            last.time = now;
            meta.seq = last.seq;
            inode.live_mut().apply(&meta);
        } else {
            inode.live_mut().apply(&meta);
            inode.meta.push(meta);
        }
        let after = inode.live.allocated();
        self.dirty.insert(ino);
        self.used = self.used + after - before;
    }

    /// Writes a part of a block; the caller has made sure that there is space.
    pub(super) fn write_block(&mut self, seq: u64, ino: u64, block: u64, at: usize, part: &[u8]) {
        let Some(inode) = self.inode_mut(ino) else { return };
        let before = inode.live.allocated();
        inode.write_block(seq, block, at, part);
        let after = inode.live.allocated();
        self.dirty.insert(ino);
        self.used = self.used + after - before;
    }

    /// Adds an inode without a name.
    pub(super) fn add_inode(&mut self, node: Node) -> u64 {
        let ino = self.next_ino;
        self.next_ino += 1;
        let mut inode = Inode::settled(Arc::new(node));
        inode.born = self.seq + 1;
        self.inodes.insert(ino, Arc::new(inode));
        ino
    }

    /// Carries out an operation on names, which may be lost. `gone_dir` is a
    /// directory that it removes.
    pub(super) fn change_names(
        &mut self,
        context: &Context<'_>,
        changes: Vec<NameChange>,
        gone_dir: Option<u64>,
        moves_dir: bool,
    ) {
        let needs = needs(&self.names, &changes, gone_dir, moves_dir);
        let op = NameOp { seq: self.next_seq(), time: context.now, changes, needs, moves_dir };
        op.apply(&mut Live(self));
        let op = Arc::new(op);
        for change in &op.changes {
            for ino in [Some(change.dir), change.old, change.new].into_iter().flatten() {
                if let Some(inode) = self.inode_mut(ino) {
                    inode.names_seq = op.seq;
                }
            }
        }
        self.names.push(op.clone());
        for old in op.changes.iter().filter_map(|change| change.old) {
            self.bury(old, context.opens);
        }
    }

    /// Ends the life of an inode that has no name and is not open.
    pub(super) fn bury(&mut self, ino: u64, opens: &Opens) {
        let doomed = self
            .inodes
            .get(&ino)
            .is_some_and(|inode| inode.alive && ino != ROOT && inode.live.names.is_empty())
            && !opens.contains_key(&ino);
        if doomed && let Some(inode) = self.inode_mut(ino) {
            inode.alive = false;
            let blocks = inode.live.allocated();
            self.used -= blocks;
            self.dead.push(ino);
            self.sweep();
        }
    }

    /// Forgets dead inodes that power loss can't bring back.
    pub(super) fn sweep(&mut self) {
        let dead = std::mem::take(&mut self.dead);
        for ino in dead {
            let named = self.inodes.get(&ino).is_some_and(|inode| !inode.base.names.is_empty());
            if named || self.names.iter().any(|op| op.mentions(ino)) {
                self.dead.push(ino);
            } else {
                self.inodes.remove(&ino);
                self.dirty.remove(&ino);
            }
        }
    }

    /// Makes operations on names durable.
    pub(super) fn commit_names(&mut self, wanted: &BTreeSet<u64>) {
        if wanted.is_empty() {
            return;
        }
        self.seq += 1;
        let (durable, pending) =
            std::mem::take(&mut self.names).into_iter().partition(|op| wanted.contains(&op.seq));
        let durable: Vec<Arc<NameOp>> = durable;
        self.names = pending;
        for op in &durable {
            op.apply(&mut Base(self));
        }
        if self.names.is_empty() {
            let of = |change: &NameChange| [Some(change.dir), change.old, change.new].into_iter().flatten();
            let changed = durable.iter().flat_map(|op| op.changes.iter().flat_map(of));
            changed.for_each(|ino| self.merge(ino));
        }
    }

    /// Merges the visible and the durable state of an inode without pending
    /// changes, even of names. Directories stay separate, since they change
    /// often and would be copied each time.
    pub(super) fn merge(&mut self, ino: u64) {
        if let Some(inode) = self.inode_mut(ino)
            && inode.is_clean()
            && !inode.live.is_dir()
        {
            inode.base = inode.live.clone();
        }
    }

    /// Removes all inodes without a name and without opens.
    pub(super) fn bury_orphans(&mut self) {
        let orphans = self.inodes.iter().filter(|(_, inode)| inode.alive && inode.live.names.is_empty());
        let orphans: Vec<u64> = orphans.map(|(ino, _)| *ino).collect();
        orphans.into_iter().for_each(|ino| self.bury(ino, &Opens::new()));
    }
}
