//! Tiers: where data goes, how it moves, and how tiers come and go.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/in_zones.rs"]
mod in_zones;

mod durability;
mod eject;
mod hints;
mod import;
mod jobs;
mod log_tier;
mod memory;
mod movers;
mod placement;
mod rehome;
mod replace;
mod scrub;
mod space;
mod tiers;
mod whole;
mod zoned;
