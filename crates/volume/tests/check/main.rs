//! The check of a volume: each kind of damage is found, reported with its code
//! and path, and repaired where that is promised; everything else stays
//! untouched.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod bed;
mod kinds;
mod limits;
mod mounted;
mod repairs;
mod sizes;
mod whole;
