//! A store that fails on request, in front of any other: for drills on a
//! mounted volume, and for tests of everything above.
//!
//! [`FaultRule`]s describe failures: operations, errors and times, in types or
//! in text. The same sequence of operations meets the same faults.

mod control;
mod rule;
mod store;

pub use control::FaultControl;
pub use rule::{FaultKind, FaultOp, FaultRule, ParseFaultError};
pub use store::FaultStore;
