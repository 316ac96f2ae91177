//! The tiers of an open volume: their stores, room, health and load, and how
//! fast movers and jobs may go there ([`rate`]). The core and the check stand
//! on this crate.
#![forbid(unsafe_code)]

mod account;
mod config;
mod errors;
mod health;
mod latency;
mod limiter;
mod monitor;
mod order;
pub mod rate;
mod room;
mod settings;
mod threads;
mod tier;
mod tiers;

pub use account::{Account, act_for, present};
pub use config::{HomeConfig, MoversConfig, TierConfig};
pub use tier::{Backend, Place, Tier, TierParts};
pub use tiers::{Counts, Tiers, bit, cut_object};
