//! The check of a volume: each kind of damage is found, told by its code and
//! its path, put right where that is promised, and nothing else is touched.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod bed;
mod kinds;
mod limits;
mod mounted;
mod repairs;
mod sizes;
mod whole;
