//! The tiers of an open volume: their stores, room, health and load, and how
//! fast movers and jobs may go there ([`rate`]). The core and the check stand
//! on this crate.
#![forbid(unsafe_code)]

mod abilities;
mod account;
mod backend;
mod basis;
mod config;
mod errors;
mod health;
mod latency;
mod limiter;
mod monitor;
mod objects;
mod order;
mod range_count;
pub mod rate;
mod room;
mod settings;
mod threads;
mod tier;
mod tiers;

pub use account::{Account, act_for, present};
pub use backend::Backend;
pub use config::{HomeConfig, MoverScope, MoversConfig, TierConfig};
pub use objects::{cut_object, next_data};
pub use range_count::RangeCount;
pub use tier::{Place, Tier, TierParts};
pub use tiers::{Counts, Tiers, bit};
