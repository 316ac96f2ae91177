//! Rules: which files go where, whatever the volume's policy is, as the stack
//! file says. The first whose condition holds counts, of
//! those that say more than which stream files belong to. `file/place.rs` asks for
//! it before it asks a policy; movers ask whether a file is pinned.
//!
//! `list` has the rules, and `choose` is how they and policies decide together.
//! `condition` is the language of conditions: `facts` is what they are about,
//! `types` what their parts are, `check` refuses those that make no sense, and
//! `units` reads sizes and durations in them.

mod check;
mod choose;
mod condition;
mod error;
mod facts;
mod list;
mod types;
mod units;

pub use choose::Chosen;
pub use condition::Condition;
pub use error::ConditionError;
pub use facts::{Facts, Subject};
pub use list::{Rule, Rules};
