//! The program that serves a mount is exchanged while applications use it (LabStor §3.3,
//! live upgrade). `docs/upgrade.md` describes it from outside.
//!
//! Two processes talk through a socket pair (`wire`). The one that serves the mount starts its
//! [`Successor`], which reports its version to its [`Predecessor`] and checks the configuration.
//! Only then are requests held up, and the volume closed. The successor gets the
//! [suspended mount](SuspendedMount) with its whole state in memory ([packed](PackedMount)), goes
//! on, and reports that. If it does not, the predecessor goes on itself, from the same state.

mod attend;
pub(crate) mod departure;
mod launch;
mod packed;
mod predecessor;
mod settle;
mod successor;
mod suspended;
mod wire;

pub(crate) use attend::adopt;
pub use attend::attend;
pub use launch::Launch;
pub use predecessor::{Predecessor, ReceivedMount};

pub(crate) use packed::{CrashedMount, PackedMount, PackedState};
pub(crate) use settle::settle;
pub(crate) use successor::Successor;
pub(crate) use suspended::{
    BottomState, GuardedState, LogState, ProcessState, SuspendedMount, Suspension, ViewState,
};
