//! The program that serves a mount is exchanged while applications use it (LabStor §3.3,
//! live upgrade). `docs/upgrade.md` describes it from outside.
//!
//! Two processes talk through a socket pair (`wire`): the one that serves the mount (the
//! [`Giver`]) starts the other one (the [`Heir`]), which reports its version and checks the
//! configuration. Only then are requests held up, and the volume closed. The heir gets its whole
//! state in memory (`state`), goes on, and reports that. If it does not, the giver goes on itself,
//! from the same state.

mod attend;
pub(crate) mod departure;
mod giver;
mod heir;
mod launch;
mod settle;
mod state;
mod wire;

pub(crate) use attend::adopt;
pub use attend::attend;
pub use heir::{Estate, Heir};
pub use launch::Launch;

pub(crate) use giver::Giver;
pub(crate) use settle::settle;
pub(crate) use state::{Handover, Inheritance, Remains, Text};
