//! Wiring: from a stack file or flags to a mounted file system.
//!
//! [`config`] says what can be set, [`stack_file`] and [`flags`] read it,
//! [`validate`] refuses what can't work before anything is touched, [`serve`]
//! runs the daemon and [`check`] the offline check. `wire` opens the volume and
//! mounts the front end; `control` answers for a volume that is mounted, with
//! the help of `wire`, [`check`], `drill` and `replacement`. The command line is
//! the one caller.
#![forbid(unsafe_code)]

pub mod check;
pub mod config;
pub mod flags;
pub mod log;
pub mod refusal;
pub mod serve;
pub mod stack_file;
pub mod units;
pub mod validate;

mod control;
mod drill;
mod policy;
mod rehome;
mod replacement;
mod section;
mod signals;
mod volume_settings;
mod wire;
mod yaml;

pub use braid_sys::pass_on_no_files;
pub use config::Config;
pub use refusal::{Place, Refusal};
