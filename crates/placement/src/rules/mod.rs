//! Rules of the stack file: the destinations of files, whatever the volume's
//! policy. The first rule whose condition holds counts, except rules that only
//! set a stream. Placement evaluates them before the policy; movers use them to
//! see whether a file is pinned.
//!
//! `list` has the rules, and `choose` is how they and policies decide together.
//! `condition` is the language of conditions: `facts` has their variables,
//! `types` the types of expressions, `check` refuses invalid ones, and `units`
//! reads sizes and durations in them.

mod check;
mod choose;
mod condition;
mod error;
mod facts;
mod list;
#[cfg(test)]
mod sample;
mod types;
mod units;

pub use choose::Chosen;
pub use condition::Condition;
pub use error::ConditionError;
pub use facts::Facts;
pub use list::{Rule, Rules};
