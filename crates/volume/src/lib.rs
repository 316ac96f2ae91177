//! The file system over tiers: one namespace, on the home tier's own file
//! system, whose files may be larger and faster than any one tier.
//!
//! [`Volume`] implements [`FileSystem`](braid_contract::FileSystem) over
//! [`Store`](braid_contract::Store)s that it is given, and never names a
//! concrete one. The daemon opens it; front ends speak to it through the trait.
//!
//! Reading order: `format` (what is on disk), `index` (where ranges are),
//! `placement` (where new ones go), `tiers`, `file` (all I/O), `namespace`
//! (names and attributes), `reap` and `recover` (what goes on after a removal
//! or a crash), `volume` (how it is put together).
#![forbid(unsafe_code)]

mod affected;
mod background;
mod check;
mod config;
mod door;
mod file;
mod format;
mod fs;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod index;
mod migrate;
mod namespace;
mod open;
mod placement;
mod plant;
mod reap;
mod recover;
mod rehome;
mod replace;
mod status;
mod sync;
mod tiers;
mod volume;

pub use affected::{AffectedFile, AffectedRun};
pub use check::{CheckOptions, CheckProgress, CheckReport, Problem, Severity, check, check_with};
pub use config::{HomeConfig, LargeFiles, PolicyConfig, Reserve, TierConfig, VolumeConfig};
pub use format::FORMAT_VERSION;
pub use open::OpenError;
#[cfg(feature = "plant")]
pub use plant::Plant;
pub use rehome::{RehomePhase, RehomeProgress, RehomeReport, discard_copy, settle_home};
pub use status::{Explanation, Layout, Run, TierStatus, VolumeStatus};
pub use sync::Machine;
pub use tiers::TierState;
pub use volume::Volume;

/// Smallest range size in bytes.
pub const RANGE_SIZE_MIN: u32 = 64 << 10;
/// Largest range size in bytes.
pub const RANGE_SIZE_MAX: u32 = 64 << 20;
/// Range size of a new volume, unless its stack file says otherwise, in bytes.
pub const RANGE_SIZE_DEFAULT: u32 = 2 << 20;
