//! Semantics that programs know from other file systems.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/in_libraries.rs"]
mod in_libraries;
#[path = "../common/users.rs"]
mod users;

mod attributes;
mod birth;
mod cache;
mod capabilities;
mod inodes;
mod kernel;
mod libraries;
mod limits;
mod memory_cache;
mod overlay;
mod sharing;
mod tmpfile;
mod transport;
mod xattr;
