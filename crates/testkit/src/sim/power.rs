//! Power loss: from the state of a disk at one moment to a state afterwards.

use super::choose::Chooser;
use super::clock::SimClock;
use super::content::{BLOCK, Bytes, Content, mask};
use super::disk::{Disk, DiskConfig};
use super::inode::{Body, Inode, Meta, Node, ROOT, Touch, UNIT};
use super::names::{NameOp, Nodes};
use super::state::State;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, OnceLock};

/// The state of a disk at one moment.
#[derive(Clone)]
pub struct Frozen {
    config: Arc<DiskConfig>,
    state: Arc<State>,
    clock: Arc<SimClock>,
    plan: Arc<OnceLock<Plan>>,
}

/// The common part of all outcomes of one state.
struct Plan {
    /// Where the file system has one order: the numbers of the changes of
    /// metadata that may be lost.
    journal: Vec<u64>,
    /// Otherwise: directories, each with its operations on names, by their
    /// place in the list.
    dirs: Vec<Vec<usize>>,
    /// For each operation the earlier ones that it needs, and the later ones
    /// that need it.
    before: Vec<Vec<usize>>,
    after: Vec<Vec<usize>>,
}

/// A tree in the making: the inodes of one outcome.
struct Tree(BTreeMap<u64, Arc<Node>>);

impl Nodes for Tree {
    fn node_mut(&mut self, ino: u64) -> Option<&mut Node> {
        self.0.get_mut(&ino).map(Arc::make_mut)
    }
}

impl Frozen {
    pub(super) fn new(config: Arc<DiskConfig>, state: Arc<State>, clock: SimClock) -> Self {
        Self { config, state, clock: Arc::new(clock), plan: Arc::default() }
    }

    /// Differs between two states of a disk that an effect lies between.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.state.seq
    }

    /// The disk as found after power loss; it has a clock of its own, which
    /// goes on from this moment. The same answers give the same disk.
    #[must_use]
    pub fn after_power_loss(&self, chooser: &mut dyn Chooser) -> Disk {
        let clock = Arc::new(self.clock.fork());
        let inodes = if self.config.volatile {
            State::empty(&self.config, clock.now()).inodes
        } else {
            Outcome { state: &self.state, plan: self.plan(), chooser }.inodes()
        };
        let state = self.state.settled(inodes);
        Disk::from_state(self.config.clone(), Arc::new(state), clock)
    }

    /// The disk after a crash of the processes alone: nothing is lost, and
    /// pending changes stay pending. It has a clock of its own.
    #[must_use]
    pub fn after_process_crash(&self) -> Disk {
        let mut state = State::clone(&self.state);
        state.bury_orphans();
        Disk::from_state(self.config.clone(), Arc::new(state), Arc::new(self.clock.fork()))
    }

    fn plan(&self) -> &Plan {
        self.plan.get_or_init(|| Plan::of(&self.state))
    }
}

impl fmt::Debug for Frozen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Frozen({})", self.config.name)
    }
}

impl Plan {
    fn of(state: &State) -> Self {
        let mut plan = Self { journal: Vec::new(), dirs: Vec::new(), before: Vec::new(), after: Vec::new() };
        if state.model.journal_order {
            plan.journal.extend(state.names.iter().map(|op| op.seq));
            let dirty = state.dirty.iter().filter_map(|ino| state.inodes.get(ino));
            plan.journal.extend(dirty.flat_map(|inode| inode.meta.iter().map(|meta| meta.seq)));
            plan.journal.sort_unstable();
        } else {
            plan.add_names(&state.names);
        }
        plan
    }

    fn add_names(&mut self, names: &[Arc<NameOp>]) {
        let mut places = BTreeMap::new();
        self.after.resize(names.len(), Vec::new());
        for (at, op) in names.iter().enumerate() {
            for dir in op.dirs() {
                let place = *places.entry(dir).or_insert(self.dirs.len());
                if place == self.dirs.len() {
                    self.dirs.push(Vec::new());
                }
                self.dirs[place].push(at);
            }
            let needed = op.needs.iter().filter_map(|seq| names.binary_search_by_key(seq, |op| op.seq).ok());
            let needed: Vec<usize> = needed.collect();
            needed.iter().for_each(|before| self.after[*before].push(at));
            self.before.push(needed);
        }
    }
}

/// One outcome in the making.
struct Outcome<'a> {
    state: &'a State,
    plan: &'a Plan,
    chooser: &'a mut dyn Chooser,
}

impl Outcome<'_> {
    fn inodes(mut self) -> BTreeMap<u64, Arc<Inode>> {
        let state = self.state;
        let mut tree = Tree(state.inodes.iter().map(|(ino, inode)| (*ino, inode.base.clone())).collect());
        let cut = self.choose_names(&mut tree);
        prune(&mut tree);
        let made = tree.0.into_iter().filter_map(|(ino, node)| {
            let inode = state.inodes.get(&ino)?;
            if state.dirty.contains(&ino) {
                return Some((ino, Arc::new(Inode::settled(self.choose_inode(inode, node, cut)))));
            }
            let unchanged = Arc::ptr_eq(&node, &inode.live) && inode.alive;
            Some((ino, if unchanged { inode.clone() } else { Arc::new(Inode::settled(node)) }))
        });
        made.collect()
    }

    fn choose(&mut self, alternatives: usize) -> usize {
        if alternatives > 1 { self.chooser.choose(alternatives).min(alternatives - 1) } else { 0 }
    }

    /// Carries out those operations on names that are kept. Where the file
    /// system has one order, answers the last change that is kept.
    fn choose_names(&mut self, tree: &mut Tree) -> u64 {
        let plan = self.plan;
        if self.state.model.journal_order {
            let kept = self.choose(plan.journal.len() + 1);
            let cut = kept.checked_sub(1).map_or(0, |last| plan.journal[last]);
            self.state.names.iter().take_while(|op| op.seq <= cut).for_each(|op| op.apply(tree));
            return cut;
        }
        let mut fates = vec![None; self.state.names.len()];
        for ops in &plan.dirs {
            let kept = ops.iter().take_while(|op| fates[**op] == Some(true)).count();
            let open = ops[kept..].iter().take_while(|op| fates[**op].is_none()).count();
            let kept = kept + self.choose(open + 1);
            ops[..kept].iter().for_each(|op| decide(&mut fates, *op, true, &plan.before));
            ops[kept..].iter().for_each(|op| decide(&mut fates, *op, false, &plan.after));
        }
        for (op, fate) in self.state.names.iter().zip(fates) {
            if fate == Some(true) {
                op.apply(tree);
            }
        }
        0
    }

    /// Decides the resulting metadata and data of an inode.
    fn choose_inode(&mut self, inode: &Inode, mut node: Arc<Node>, cut: u64) -> Arc<Node> {
        let kept = if self.state.model.journal_order {
            inode.meta.iter().take_while(|meta| meta.seq <= cut).count()
        } else {
            self.choose(inode.meta.len() + 1)
        };
        let (kept, lost) = inode.meta.split_at(kept);
        if kept.is_empty() && inode.history.is_empty() {
            return node;
        }
        let made = Arc::make_mut(&mut node);
        kept.iter().for_each(|meta| made.apply(meta));
        if let Body::File(content) = &mut made.body {
            for (block, touches) in &inode.history {
                if block * BLOCK < content.size {
                    self.choose_block(content, *block, touches, kept, lost);
                }
            }
            content.mask(content.size);
        }
        node
    }

    /// Decides which version is found of a block, or of each of its units.
    fn choose_block(
        &mut self,
        content: &mut Content,
        block: u64,
        touches: &[Touch],
        kept: &[Meta],
        lost: &[Meta],
    ) {
        let clears = |meta: &&Meta| meta.change.clears(block);
        let after = kept.iter().rev().find(clears).map_or(0, |meta| meta.seq);
        let until = lost.iter().find(clears).map_or(u64::MAX, |meta| meta.seq);
        let mut versions: Vec<Arc<Bytes>> = Vec::with_capacity(touches.len() + 1);
        let base = content.data(block).cloned();
        versions.extend(base.clone());
        for touch in touches.iter().filter(|touch| touch.seq > after && touch.seq < until) {
            let mut version = touch.after.clone();
            let cuts = kept.iter().filter(|meta| meta.seq > touch.seq);
            cuts.filter_map(|meta| meta.change.masks(block)).for_each(|at| mask(&mut version, at));
            if versions.last().is_none_or(|last| *last != version) {
                versions.push(version);
            }
        }
        let Some(last) = versions.last() else { return };
        let found = match base {
            // A block is given to the file when it has been written, whole.
            None if self.state.model.tear && versions.len() > 1 => {
                if self.choose(2) == 0 {
                    return;
                }
                self.choose_units(&versions, content.size.saturating_sub(block * BLOCK))
            }
            None => match self.choose(versions.len() + 1) {
                0 => return,
                version => versions[version - 1].clone(),
            },
            Some(_) if versions.len() == 1 => last.clone(),
            Some(_) if self.state.model.tear => {
                self.choose_units(&versions, content.size.saturating_sub(block * BLOCK))
            }
            Some(_) => versions[self.choose(versions.len())].clone(),
        };
        content.put(block, found);
    }

    /// Decides the resulting version of each unit. Data beyond the end of the
    /// file is not visible.
    fn choose_units(&mut self, versions: &[Arc<Bytes>], visible: u64) -> Arc<Bytes> {
        let mut chosen = [versions.len() - 1; BLOCK as usize / UNIT];
        for (unit, chosen) in chosen.iter_mut().enumerate() {
            if (unit * UNIT) as u64 >= visible {
                break;
            }
            let of = |version: usize| &versions[version][unit * UNIT..(unit + 1) * UNIT];
            let mut different = vec![0];
            for version in 1..versions.len() {
                if different.last().is_none_or(|last| of(*last) != of(version)) {
                    different.push(version);
                }
            }
            // No choice: all versions are the same.
            if different.len() > 1 {
                *chosen = different[self.choose(different.len())];
            }
        }
        let first = chosen[0];
        if chosen.iter().all(|version| *version == first) {
            return versions[first].clone();
        }
        let mut bytes = [0; BLOCK as usize];
        for (unit, version) in chosen.into_iter().enumerate() {
            let place = unit * UNIT..(unit + 1) * UNIT;
            bytes[place.clone()].copy_from_slice(&versions[version][place]);
        }
        Arc::new(bytes)
    }
}

/// Decides an operation, and with it those that it can't be decided without.
fn decide(fates: &mut [Option<bool>], op: usize, kept: bool, along: &[Vec<usize>]) {
    if fates[op].is_none() {
        fates[op] = Some(kept);
        along[op].iter().for_each(|next| decide(fates, *next, kept, along));
    }
}

/// Forgets inodes that no name leads to.
fn prune(tree: &mut Tree) {
    let mut reached = BTreeSet::from([ROOT]);
    let mut todo = vec![ROOT];
    while let Some(dir) = todo.pop() {
        let entries = tree.0.get(&dir).and_then(|node| node.dir()).map(|dir| dir.entries.values());
        for entry in entries.into_iter().flatten() {
            if reached.insert(entry.ino) && entry.kind == 0o040_000 {
                todo.push(entry.ino);
            }
        }
    }
    if reached.len() == tree.0.len() {
        return;
    }
    tree.0.retain(|ino, _| reached.contains(ino));
    for node in tree.0.values_mut() {
        if node.names.iter().any(|link| !reached.contains(&link.dir)) {
            Arc::make_mut(node).names.retain(|link| reached.contains(&link.dir));
        }
    }
}
