//! How mounts begin and end, those of the log file system too.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/seen.rs"]
mod seen;
#[path = "../common/users.rs"]
mod users;

mod as_user;
mod create;
mod log;
mod log_stack;
mod mount_helper;
mod nice;
mod umount;
