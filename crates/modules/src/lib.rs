//! Modules of an I/O stack: each wraps a file system and is one itself.
//!
//! One folder holds one module. A module is reachable from a stack file when
//! it is in [`WRAPPERS`]; the daemon alone builds stacks out of them. Nothing
//! here performs I/O of its own.
#![forbid(unsafe_code)]

pub mod noop;

use braid_contract::FileSystem;
use std::sync::Arc;

/// A module that wraps exactly one file system.
#[derive(Clone, Copy, Debug)]
pub struct Wrapper {
    /// The key that names the module in a stack file.
    pub name: &'static str,
    /// Puts the module on top of its child.
    pub wrap: fn(Arc<dyn FileSystem>) -> Arc<dyn FileSystem>,
}

/// Every wrapping module, by name.
pub const WRAPPERS: &[Wrapper] =
    &[Wrapper { name: noop::NAME, wrap: |child| Arc::new(noop::Noop::new(child)) }];

/// The module that a stack file calls `name`.
#[must_use]
pub fn wrapper(name: &str) -> Option<&'static Wrapper> {
    WRAPPERS.iter().find(|wrapper| wrapper.name == name)
}
