//! Modules of a stack.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/crashing.rs"]
mod crashing;
#[path = "../common/in_libraries.rs"]
mod in_libraries;
#[path = "../common/users.rs"]
mod users;

mod frames;
mod isolated;
mod modify;
mod modules;
mod permissions;
mod reload;
mod throttle;
mod view;
