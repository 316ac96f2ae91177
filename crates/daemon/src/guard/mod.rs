//! What outlives the process that serves a mount (LabStor §3.3, crash recovery): its guard,
//! a small process that keeps it, learns of every change (`link`, `wire`), and starts the
//! program again when the process crashes. `supervisor` is that process.

mod link;
mod wire;

pub(crate) use link::Guarded;
pub(crate) use wire::Told;
