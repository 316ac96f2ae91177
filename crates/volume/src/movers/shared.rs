//! The state that movers share: the core, heat, and the files to be left alone.

use super::patience::Imbalance;
use super::rounds::Rounds;
use crate::heat::Heat;
use braid_contract::{MoveCount, Mover, TierId};
use braid_core::Core;
use braid_core::file::{effective_placement, is_pinned};
use braid_core::live::File;
use braid_format::FileKey;
use braid_tiers::MoverScope;
use braid_tiers::rate::Throttles;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Time for which a file that can't be moved is left alone.
const LATER_NS: u64 = 30_000_000_000;

/// Most files that are left alone.
const LATER_MAX: usize = 4096;

/// Ranges and bytes moved, by mover, source and target.
type MovedCounts = BTreeMap<(Mover, TierId, TierId), (u64, u64)>;

/// The movers of a volume.
pub(crate) struct Movers {
    pub(super) core: Arc<Core>,
    pub(crate) heat: Arc<Heat>,
    pub(super) throttles: Arc<Throttles>,
    pub(crate) rounds: Rounds,
    counts: Mutex<MovedCounts>,
    pub(super) imbalance: Mutex<Imbalance>,
    /// Files that are left alone, and until when.
    later: Mutex<HashMap<FileKey, u64>>,
}

impl Movers {
    pub(crate) fn new(core: &Arc<Core>, heat: &Arc<Heat>, throttles: &Arc<Throttles>) -> Self {
        Self {
            core: Arc::clone(core),
            heat: Arc::clone(heat),
            throttles: Arc::clone(throttles),
            rounds: Rounds::new(&core.environment, throttles),
            counts: Mutex::default(),
            imbalance: Mutex::default(),
            later: Mutex::default(),
        }
    }

    /// Data moved by movers since the mount.
    pub(crate) fn move_counts(&self) -> Vec<MoveCount> {
        let counts = self.counts.lock();
        let count =
            |((mover, from, to), (ranges, bytes)): (&(Mover, TierId, TierId), &(u64, u64))| MoveCount {
                mover: mover.name().to_owned(),
                from: self.core.tiers.name_of(*from),
                to: self.core.tiers.name_of(*to),
                reason: cause(*mover).to_owned(),
                ranges: *ranges,
                bytes: *bytes,
            };
        counts.iter().map(count).collect()
    }

    pub(super) fn count(&self, mover: Mover, from: TierId, to: TierId, bytes: u64) {
        let mut counts = self.counts.lock();
        let count = counts.entry((mover, from, to)).or_default();
        count.0 += 1;
        count.1 += bytes;
        drop(counts);
        self.rounds.moved(mover, bytes);
    }

    /// Leaves a file alone for a while.
    pub(super) fn leave_alone(&self, file: FileKey) {
        let now_ns = self.core.environment.monotonic_ns();
        let mut later = self.later.lock();
        if later.len() >= LATER_MAX {
            later.retain(|_, until_ns| *until_ns > now_ns);
        }
        if later.len() < LATER_MAX {
            later.insert(file, now_ns + LATER_NS);
        }
    }

    /// Whether a mover may move a file: it is not pinned, and is one of those
    /// that the mover is for.
    pub(super) fn may_move(&self, mover: Mover, file: &File) -> bool {
        !is_pinned(&self.core, file).unwrap_or(true)
            && self.moves(mover, effective_placement(&self.core, file).policy.usual_movers())
    }

    /// Whether a mover is for files whose policy has these movers.
    pub(crate) fn moves(&self, mover: Mover, of_policy: &[Mover]) -> bool {
        match self.rounds.config().scope(mover) {
            MoverScope::None => false,
            MoverScope::OfPolicy => of_policy.contains(&mover),
            MoverScope::All => true,
        }
    }

    pub(super) fn is_left_alone(&self, file: FileKey) -> bool {
        let now_ns = self.core.environment.monotonic_ns();
        self.later.lock().get(&file).is_some_and(|until_ns| *until_ns > now_ns)
    }
}

/// The cause of a mover's moves, in a word.
fn cause(mover: Mover) -> &'static str {
    match mover {
        Mover::Promote => "hot",
        Mover::Demote => "watermark",
        Mover::Balance => "imbalance",
    }
}
