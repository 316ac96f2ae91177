//! Tiers come and go while the volume is in use: added, removed,
//! and replaced when they are lost. The control socket of the daemon calls
//! this; `open` finishes at a mount what a crash interrupted.
//!
//! The volume table of the home tier is what counts, and is switched
//! atomically. A tier that is removed is *leaving* in it first: that is the
//! record of an operation with several steps (`finish_removals`).

mod add;
mod remove;
mod replace;
mod shared;

pub use remove::RemovedTier;
pub(crate) use remove::leave_out_removed;
pub(crate) use shared::{Membership, TierClaims, join};
