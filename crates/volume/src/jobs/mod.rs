//! Jobs: long moves of data that were requested, and scrubs. A job visits files, moves
//! their ranges one by one through [`relocate`](braid_core::file::relocate) at
//! its own pace, can be paused, resumed and cancelled, and continues after the
//! daemon was restarted or killed.
//!
//! `list` has the jobs and says which may run, and `records` saves them;
//! `start` and `control` are the requests, `drain` the tiers that take no new
//! ranges. `run` carries a job out, and `moves` moves one file. `goal` says
//! which ranges move and where to, `targets` which tiers have room for them,
//! `shares` the share of a file that each tier is to have, and `pins` which
//! files stay in place.

mod control;
mod drain;
mod goal;
mod list;
mod moves;
mod pins;
mod records;
mod run;
mod shares;
mod start;
mod targets;

pub use list::PARALLEL_MAX;
pub(crate) use list::{Job, JobList, Rest, RunEnd, RunStop};
pub(crate) use pins::{pin_below, unpin_below};
pub use records::JobStatus;
pub(crate) use records::Jobs;
