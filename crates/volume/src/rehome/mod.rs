//! Another directory becomes home while applications use the volume
//! ([`replace`](HomeReplacement::replace), alone or as a job).
//!
//! The home tree is copied while everything goes on, and what changes meanwhile
//! is noted (`changes`) and copied again (`passes`). At last the volume's barrier
//! is closed, what is left is copied, every inode and handle that somebody
//! holds is opened on the new home (`import`), the new home is made complete by
//! one atomic step (`commit`), and the volume rests on it when the barrier opens.
//! What a mount does with what a crash left of this stands in `braid-home`.

mod changes;
mod commit;
mod copier;
mod copy;
mod engine;
mod import;
mod passes;
mod progress;
mod replace;
mod state;

pub(crate) use changes::Changes;
pub(crate) use copier::{Bystanders, Held};
pub use progress::{RehomeOutcome, RehomePhase, RehomeProgress, RehomeReport};
pub(crate) use replace::HomeReplacement;
