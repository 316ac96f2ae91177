//! A volume over directories and simulated disks, used through its library.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[allow(dead_code, reason = "`conformance` uses the rest")]
#[path = "../common/mod.rs"]
mod common;

mod affected;
mod append_only;
mod attributes;
mod balance;
mod comes_and_goes;
mod handover;
mod jobs;
mod lifecycle;
mod moving;
mod names;
mod range_sizes;
mod read_ahead;
mod rehome;
mod rehome_crash;
mod room;
mod set_aside;
mod sharing;
mod spread;
mod times;
mod trace;
mod truncated;
mod upgrade;
mod whole;
