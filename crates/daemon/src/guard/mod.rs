//! The part that outlives the process that serves a mount (LabStor §3.3, crash recovery): its
//! guard, a small process that keeps it, learns of every change (`link`, `wire`), and starts the
//! program again when the process crashes. `supervisor` is that process. `states` hands it
//! the state of modules, which it keeps (`kept`).

mod kept;
mod link;
mod states;
mod wire;

pub(crate) use kept::{KeptBottom, KeptState, KeptStates, Origin, STATE_MAX};
pub(crate) use link::{CrashProtection, Guarded};
pub(crate) use states::{Exchanged, States};
pub(crate) use wire::GuardMessage;
