//! The mount as an export. A program of its own, so that no other test mounts at the time: the
//! server's handles name the device number that the mount had.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../common/mod.rs"]
mod common;

mod nfs;
