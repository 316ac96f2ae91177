//! Attacks, and doors that stay shut.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/users.rs"]
mod users;

mod braid;
mod doors;
mod home;
