//! Wiring: from a stack file or flags to a mounted file system.
//!
//! [`config`] has the settings, [`stack_file`] and [`flags`] read them,
//! [`validate`] refuses impossible ones before anything is changed, [`serve`]
//! runs the daemon, [`supervisor`] keeps it, [`check`] the offline check, [`eject`] takes a volume
//! apart, [`calibrate`] measures tiers, [`simulate`] replays a [`trace`].
//! `wire` opens the volume and mounts the front end; `handle` is an open
//! volume. `control` handles requests for it, by `mount_control`, `jobs`, `tiers`,
//! `replacement`, `rehome`, `reload`, `running`, `drill` and [`check`];
//! [`metrics`] serves Prometheus, [`kv`] keys and values. The command line is the only caller.
#![forbid(unsafe_code)]

mod cache;
pub mod calibrate;
pub mod check;
pub mod config;
pub mod eject;
pub mod elsewhere;
pub mod flags;
pub mod frames;
pub mod kv;
pub mod learn;
pub mod log;
pub mod logfs;
mod memory;
pub mod metrics;
pub mod own_files;
pub mod profile;
pub mod refusal;
pub mod serve;
pub mod simulate;
pub mod stack_file;
pub mod streams;
pub mod supervisor;
pub mod tier_store;
pub mod trace;
pub mod upgrade;

pub use braid_stack as libraries;
mod users;
pub mod validate;
pub mod view;

mod advice;
mod after_crash;
mod beside;
mod bottom;
mod bottom_opener;
mod clock;
mod control;
mod cross_check;
pub mod debug;
mod device;
pub mod direct;
mod drill;
#[cfg(test)]
mod fake_member;
mod fuse_session;
mod guard;
mod handle;
mod hints;
mod job_reply;
mod jobs;
mod life;
mod modify;
mod module_settings;
mod modules;
mod mount_control;
mod movers;
pub mod nice;
mod ownership;
mod paths;
mod peer;
mod placement;
mod places;
mod policy;
mod process;
mod rehome;
mod reload;
mod replacement;
mod reply;
mod require;
mod rules;
mod running;
pub mod runtime;
pub mod schema;
mod scratch;
mod section;
mod serve_error;
mod signals;
mod source;
mod speed;
mod stack_changes;
mod stack_text;
mod succession;
mod text_file;
mod tiers;
mod values;
mod volume_settings;
mod volume_stack;
mod wire;
mod yaml;

pub use braid_sys::pass_on_no_files;
pub use config::Config;
pub use refusal::{Place, Refusal};
