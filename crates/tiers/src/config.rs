//! The configuration of tiers and movers. The daemon fills these in from a
//! stack file or from command-line flags.

use braid_contract::{Fd, Mover, Store};
use braid_placement::{Reserve, TierProfile};
use std::sync::Arc;

/// The home tier: a directory of a mounted file system with extended
/// attributes.
#[derive(Clone)]
pub struct HomeConfig {
    /// The tier's name.
    pub name: String,
    /// Its directory, opened and locked.
    pub root: Fd,
    /// The name of its place in messages, such as the directory's path.
    pub location: String,
    /// Bandwidth relative to the other tiers; measured while running if `None`.
    pub weight: Option<f64>,
    /// Its calibrated performance, if any.
    pub profile: Option<TierProfile>,
    /// Space to be left free.
    pub reserve: Reserve,
}

/// A tier that holds data only.
#[derive(Clone)]
pub struct TierConfig {
    /// The tier's name.
    pub name: String,
    /// The store of its objects; `None` for a tier of the volume that is
    /// absent: its data answers `EIO`.
    pub store: Option<Arc<dyn Store>>,
    /// The name of the store's place in messages, such as its directory.
    pub location: String,
    /// Bandwidth relative to the other tiers; measured while running if `None`.
    pub weight: Option<f64>,
    /// Its calibrated performance, if any.
    pub profile: Option<TierProfile>,
    /// Space to be left free.
    pub reserve: Reserve,
}

/// The files that a mover moves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MoverScope {
    /// None: it is off.
    None,
    /// Those whose policy has this mover.
    OfPolicy,
    /// All of them.
    All,
}

impl MoverScope {
    /// Whether the mover is on.
    #[must_use]
    pub fn is_on(self) -> bool {
        self != Self::None
    }
}

/// Settings of the movers, which move ranges in the background.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct MoversConfig {
    /// Files whose frequently used ranges go to a faster tier.
    pub promote: MoverScope,
    /// Files whose cold ranges leave a full tier for slower ones.
    pub demote: MoverScope,
    /// Files whose ranges in use go from tiers that hold applications up to
    /// tiers that could do more.
    pub balance: MoverScope,
    /// Limit on reads of movers and jobs from a tier, and on their writes to
    /// it, in bytes a second; `None` is
    /// [`BANDWIDTH_DEFAULT`](Self::BANDWIDTH_DEFAULT) for movers, and no limit
    /// for jobs.
    pub bandwidth: Option<u64>,
    /// Bytes a second that jobs keep on a tier, however much they slow
    /// applications down.
    pub job_floor: u64,
    /// Share of a tier's space, 0 to 1, from which on it is relieved, and
    /// nothing is promoted to it.
    pub watermark_high: f64,
    /// Share of a tier's space, 0 to 1, below which relief ends.
    pub watermark_low: f64,
    /// Heat from which on a range counts as frequently used, 0 to 1.
    pub heat_threshold: f64,
    /// Factor by which operations of applications may slow down on a tier while
    /// movers and jobs use it, before those are throttled.
    pub latency_factor: f64,
}

impl MoversConfig {
    /// Limit of movers on a tier unless set otherwise, in bytes a second.
    pub const BANDWIDTH_DEFAULT: u64 = 50 << 20;

    /// Each mover, and the files that it moves.
    pub fn each(&self) -> [(Mover, MoverScope); 3] {
        Mover::ALL.map(|mover| (mover, self.scope(mover)))
    }

    /// The files that a mover moves.
    #[must_use]
    pub fn scope(&self, mover: Mover) -> MoverScope {
        match mover {
            Mover::Promote => self.promote,
            Mover::Demote => self.demote,
            Mover::Balance => self.balance,
        }
    }

    /// No movers.
    pub const NONE: Self = Self {
        promote: MoverScope::None,
        demote: MoverScope::None,
        balance: MoverScope::None,
        bandwidth: None,
        job_floor: 8 << 20,
        watermark_high: 0.9,
        watermark_low: 0.8,
        heat_threshold: 0.5,
        latency_factor: 2.0,
    };
}
