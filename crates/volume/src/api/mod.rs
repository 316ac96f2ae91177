//! Requests to a volume beside the file system: about jobs and movers,
//! placement, tiers and home. The control socket of the daemon calls these.

mod eject;
mod home;
mod jobs;
mod placement;
mod tiers;

pub(crate) use home::Replacer;
pub use placement::PlacementConfig;
pub use tiers::{TierChange, TierOfUnknownSpeed};
