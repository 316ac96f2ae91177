//! The file system over tiers: one namespace, on the home tier's own file
//! system, whose files may be larger and faster than any one tier.
//!
//! [`Volume`] implements [`FileSystem`](braid_contract::FileSystem) over any
//! [`Store`](braid_contract::Store)s, and never names a concrete one. The
//! daemon opens it; front ends speak to it through the trait.
//!
//! The layers below are crates: `braid-home` (the namespace's directory),
//! `braid-index` (where ranges are), `braid-tiers`, `braid-core` (all I/O,
//! names and attributes, removal and recovery) and `braid-check`. This one has
//! the services that stand on them. Reading order: `placement` (where new
//! ranges go), `heat` and `movers` (which ranges move by themselves), `jobs`
//! (long moves on request), `membership`, `import`, `rehome` and `eject`, then
//! `open` and `volume` (how it is all put together).
#![forbid(unsafe_code)]

mod affected;
mod api;
mod background;
mod cache_work;
mod check;
mod config;
#[cfg(test)]
mod coord_tests;
mod eject;
mod explain;
mod forget;
mod fs;
mod heat;
mod import;
mod inode_bound;
mod job_work;
mod jobs;
mod membership;
mod movers;
mod notice;
mod occupancy;
mod open;
mod placement;
mod rehome;
mod scrub;
mod speeds;
mod status;
mod strays;
mod streams;
mod threads;
mod volume;
mod watch;

pub use affected::AffectedFile;
pub use api::{PlacementConfig, TierChange, TierOfUnknownSpeed};
pub use braid_check::{CheckOptions, CheckProgress, CheckReport, Problem, Severity};
#[cfg(feature = "failpoints")]
pub use braid_core::Failpoint;
pub use braid_core::Keeper;
pub use braid_core::handover::{CrashState, LiveState};
pub use braid_format::{
    FORMAT_VERSION, JobRecord, RANGE_SIZE_DEFAULT, RANGE_SIZE_MAX, RANGE_SIZE_MIN, RangeSize,
};
pub use braid_home::OpenError;
pub use braid_home::{discard_copy, settle_home};
pub use braid_tiers::{HomeConfig, MoverScope, MoversConfig, TierConfig};
pub use check::{check, check_with};
pub use config::{HEAT_BUDGET_DEFAULT, VolumeConfig};
pub use eject::{Amounts, EjectOptions, EjectProgress, Ejection, Stays};
pub use explain::{Explanation, FileLayout};
pub use import::ImportSurvey;
pub use jobs::{JobStatus, PARALLEL_MAX as PARALLEL_JOBS_MAX};
pub use membership::RemovedTier;
pub use movers::MoverStatus;
pub use rehome::{RehomeOutcome, RehomePhase, RehomeProgress, RehomeReport};
pub use status::{HotFile, VolumeStatus};
pub use strays::Strays;
pub use volume::Volume;
