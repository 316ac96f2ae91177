//! A regular file in use.

use super::codec::Seal;
use super::geometry::FRAMES;
use super::header::{Head, Trio};
use super::record::{self, Ranges};
use crate::sync::{Mutex, RwLock};
use braid_contract::{HandleId, InodeId};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

/// The headers of a group.
pub(crate) type Group = [Trio; FRAMES as usize];

/// Groups whose headers are remembered.
const GROUPS_MAX: usize = 32;

/// A file. Reads share its lock, changes have it to themselves.
pub(crate) struct File {
    pub(crate) ino: InodeId,
    pub(crate) state: RwLock<State>,
    /// The writes to this file with these numbers are durable.
    synced: Mutex<Ranges>,
    groups: Mutex<HashMap<u64, Arc<Group>>>,
    /// Numbers of torn versions that were found.
    torn: Mutex<HashSet<u64>>,
}

pub(crate) struct State {
    pub(crate) form: Form,
    /// As programs see it.
    pub(crate) size: u64,
    /// Number of the last write.
    pub(crate) last: u64,
    /// Frames with more than one slot, of which all but the newest will be given back, each with the
    /// pass that has done something for it last.
    pub(crate) untidy: BTreeMap<u64, u64>,
    /// So many times the file was tidied.
    pub(crate) passes: u64,
    /// There are holes among these.
    pub(crate) has_holes: bool,
    /// Nothing is left behind the size.
    pub(crate) is_trimmed: bool,
    /// The child's file, opened for tidying.
    pub(crate) own: Option<HandleId>,
}

/// How the data lies in the child's file.
pub(crate) enum Form {
    /// There is none. The next write decides.
    Empty,
    /// As it is.
    Plain,
    Framed(Arc<Format>),
}

/// The common part of all frames of a file.
pub(crate) struct Format {
    pub(crate) head: Head,
    pub(crate) seal: Seal,
}

impl File {
    pub(crate) fn new(ino: InodeId, form: Form, size: u64) -> Self {
        let state = State {
            form,
            size,
            last: 0,
            untidy: BTreeMap::new(),
            passes: 0,
            has_holes: false,
            is_trimmed: false,
            own: None,
        };
        Self {
            ino,
            state: RwLock::new(state),
            synced: Mutex::default(),
            groups: Mutex::default(),
            torn: Mutex::default(),
        }
    }

    /// All writes up to `last` are durable, but for those up to `doubted` that were not before.
    pub(crate) fn is_synced(&self, last: u64, doubted: u64) {
        let mut synced = self.synced.lock();
        let known = synced.last().map_or(0, |range| *range.end());
        let from = known.max(doubted) + 1;
        if from <= last {
            record::add(&mut synced, from..=last);
        }
    }

    /// What syncs made durable when the file was in use before.
    pub(crate) fn was_synced(&self, ranges: Ranges) {
        *self.synced.lock() = ranges;
    }

    /// What they made durable, if anything.
    pub(crate) fn synced(&self) -> Option<Ranges> {
        Some(self.synced.lock().clone()).filter(|ranges| !ranges.is_empty())
    }

    /// Whether a sync of the file made the write with this number durable.
    pub(crate) fn has_synced(&self, number: u64) -> bool {
        self.synced.lock().iter().any(|range| range.contains(&number))
    }

    /// Whether the torn version with this number was not found before.
    pub(crate) fn is_first_torn(&self, number: u64) -> bool {
        self.torn.lock().insert(number)
    }

    /// The headers of a group, if they are remembered.
    pub(crate) fn known_group(&self, group: u64) -> Option<Arc<Group>> {
        self.groups.lock().get(&group).cloned()
    }

    /// Remembers them. The caller has the state's lock, so that they are the newest.
    pub(crate) fn know_group(&self, group: u64, headers: Arc<Group>) {
        let mut groups = self.groups.lock();
        if groups.len() >= GROUPS_MAX && !groups.contains_key(&group) {
            groups.clear();
        }
        groups.insert(group, headers);
    }

    pub(crate) fn forget_groups(&self) {
        self.groups.lock().clear();
    }
}
