//! The command's output, and its documents.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/in_zones.rs"]
mod in_zones;

mod documented;
mod figures;
mod life;
mod metrics;
mod output;
mod trace;
mod units;
mod watch;
