//! A store that fails on request, in front of any other: for drills on a
//! mounted volume, and for tests of everything above.
//!
//! [`FaultRule`]s say what fails, how and when, in types or in text. The same
//! operations one after another meet the same faults.

mod control;
mod rule;
mod store;

pub use control::FaultControl;
pub use rule::{FaultKind, FaultOp, FaultRule, ParseFaultError};
pub use store::FaultStore;
