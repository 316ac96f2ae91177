//! The state that a process needs to go on with the mount of another one. Used by
//! `session` and `front`.

use crate::coherence::Cached;
use crate::init::Agreed;
use crate::ledger::{OpenKind, OpenRecord};
use crate::open_table::OpensState;
use crate::rings::RingsState;
use braid_contract::InodeId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The state in memory of a mount in use: the agreement with the kernel, which
/// negotiates only once, and how files are open.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct FrontState {
    /// The version of the kernel's protocol.
    pub(crate) protocol: (u32, u32),
    pub(crate) agreed: Agreed,
    pub(crate) passthrough_refused: bool,
    pub(crate) opens: Vec<OpensState>,
    pub(crate) cached: Vec<(InodeId, Cached)>,
    /// Inodes whose data found no room, and the error to be reported.
    pub(crate) no_room: Vec<(u64, i32)>,
    /// Rings, if requests come by them.
    pub(crate) rings: Option<RingsState>,
}

impl FrontState {
    /// The same after a crash, of which only records of open files are left. All of it
    /// may be in the kernel's cache, and may have been written past that.
    pub(crate) fn after_crash(self, open: &[OpenRecord]) -> Self {
        let mut opens: BTreeMap<u64, OpensState> = BTreeMap::new();
        for record in open.iter().filter(|record| record.kind != OpenKind::Directory) {
            let of_inode = opens.entry(record.ino.0).or_insert_with(|| OpensState::new(record.ino));
            of_inode.add(record.kind, record.flags.write);
        }
        let cached = opens.keys().map(|ino| (InodeId(*ino), Cached::UNKNOWN)).collect();
        Self { opens: opens.into_values().collect(), cached, rings: None, ..self }
    }
}
