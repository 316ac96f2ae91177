//! Sessions with the runtime, keys and values, and a daemon that is exchanged or crashes.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/crashing.rs"]
mod crashing;
#[path = "../common/in_libraries.rs"]
mod in_libraries;
#[path = "../common/in_use.rs"]
mod in_use;
#[path = "../common/seen.rs"]
mod seen;
#[path = "../common/users.rs"]
mod users;

mod direct;
mod exchange;
mod exchange_others;
mod kv;
mod repair;
mod restart;
mod restart_log;
mod restart_sessions;
mod restart_view;
mod runtime;
mod upgrade;
