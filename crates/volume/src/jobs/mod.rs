//! Jobs: what moves data for long and was started by somebody. A job goes
//! through files, moves their ranges one by one through
//! [`relocate`](crate::Volume::relocate) at its own pace, can be paused,
//! resumed and cancelled, and goes on after the daemon was restarted or killed.
//!
//! `list` is which jobs there are and which may run; `start` and `control`
//! are what can be asked for, `drain` which tiers they keep free, `run` how a job is carried out and `moves` what
//! that does to one file, `home` one that moves home, `import` one that brings files in, `goal` which ranges it moves and where to, `shares`
//! what each tier is to have of a file, `room` whether the rest can take what a
//! tier has, `pins` which files are left alone.

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
pub(crate) use list::{JobList, Rest, RunEnd, RunStop};
pub(crate) use pins::{pin_below, unpin_below};
pub use records::JobStatus;
pub(crate) use records::Jobs;
