//! The stores of tiers: one folder for each kind, each an implementation of
//! [`braid_contract::Store`], and the native file systems that some of them are
//! on. Only the daemon names them.
#![forbid(unsafe_code)]

pub mod cache;
pub mod dir;
pub mod fault;
pub mod files;
pub mod memory;
pub mod native;
pub mod zoned;
