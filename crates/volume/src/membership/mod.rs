//! Adding, removing and replacing tiers while the volume is in use. The control
//! socket of the daemon calls this; at a mount, `open` finishes operations that
//! a crash interrupted.
//!
//! The volume table on the home tier is authoritative, and switched atomically.
//! A tier that is removed is marked as *leaving* there first, which records an
//! operation with several steps (`finish_removals`).

mod add;
mod remove;
mod replace;
mod shared;

pub use remove::RemovedTier;
pub(crate) use remove::leave_out_removed;
pub(crate) use shared::{Membership, TierClaims, join};
