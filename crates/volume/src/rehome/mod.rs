//! Making another directory home while applications use the volume
//! ([`replace`](HomeReplacement::replace), alone or as a job).
//!
//! The home tree is copied while the volume stays in use; changes are noted
//! (`changes`) and copied again (`passes`). At last the volume's barrier is
//! closed, the rest is copied, every inode and handle in use is opened on the
//! new home (`import`), the new home is completed by one atomic step
//! (`commit`), and the volume uses it when the barrier opens. `braid-home`
//! handles the leftovers of a crash at the next mount.

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
