//! Wiring: from a stack file or flags to a mounted file system.
//!
//! [`config`] says what can be set, [`stack_file`] and [`flags`] read it,
//! [`validate`] refuses what can't work before anything is touched, [`serve`]
//! runs the daemon, [`check`] the offline check, [`eject`] takes a volume apart, [`calibrate`] measures tiers,
//! [`simulate`] replays a [`trace`].
//! `wire` opens the volume and mounts the front end; `control` answers for a
//! volume that is mounted, with the help of `wire`, [`check`], `drill`, `jobs`,
//! `tiers`, `replacement`, `reload` and `running`; [`metrics`] is what Prometheus reads. The command line is
//! the one caller.
#![forbid(unsafe_code)]

pub mod calibrate;
pub mod check;
pub mod config;
pub mod eject;
pub mod elsewhere;
pub mod flags;
pub mod log;
mod memory;
pub mod metrics;
pub mod own_files;
pub mod profile;
pub mod refusal;
pub mod rules;
pub mod serve;
pub mod simulate;
pub mod stack_file;
pub mod trace;
pub mod validate;

mod advice;
mod control;
mod device;
mod drill;
mod jobs;
mod module_settings;
mod modules;
mod movers;
mod ownership;
mod policy;
mod process;
mod rehome;
mod reload;
mod replacement;
mod require;
mod running;
mod section;
mod signals;
mod stack_text;
mod tiers;
mod volume_settings;
mod wire;
mod yaml;

pub use braid_sys::pass_on_no_files;
pub use config::Config;
pub use refusal::{Place, Refusal};
