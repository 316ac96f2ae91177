//! Modules for Braid in libraries of their own (LabStor §3.1): the parts that a module in Rust
//! uses, and those by which Braid has it carry operations out.
//!
//! A module is a [`Layer`](braid_contract::Layer) with a name and settings
//! ([`PluginModule`]); [`plugin!`] makes the library's function of it. Modules in C see the
//! same operations as `include/braid_module.h` declares them.
#![forbid(unsafe_code)]

mod bridge;
mod failure;
mod places;
mod plugin;
mod target;
#[cfg(test)]
mod tests;
mod values;

pub use braid_contract as contract;
pub use braid_sys::export_module;
pub use braid_sys::module as abi;
pub use failure::error_of;
pub use plugin::{Described, PluginModule, State, crash_to};
pub use serde;
pub use target::{Below, Served, capabilities_from, capabilities_to};

use braid_contract::Operation;

/// The header for modules in C.
#[must_use]
pub fn c_header() -> String {
    let names: Vec<&str> = Operation::ALL.iter().map(|operation| operation.name()).collect();
    abi::c_header(&names)
}
