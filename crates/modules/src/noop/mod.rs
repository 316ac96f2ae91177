//! The empty module: hands every operation to its child as it came.
//!
//! It shows that a stack is composition and what a layer costs (one virtual
//! call), and it is the template for a new module: copy the folder, and add the
//! methods of [`Layer`] that the module is for.

use crate::Module;
use braid_contract::{FileSystem, Layer};
use serde::Deserialize;
use std::sync::Arc;

#[cfg(test)]
mod tests;

/// A file system that is its child.
pub struct Noop {
    child: Arc<dyn FileSystem>,
}

/// There is nothing to set.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {}

impl Layer for Noop {
    fn child(&self) -> &dyn FileSystem {
        &*self.child
    }
}

impl Module for Noop {
    const NAME: &'static str = "noop";
    type Settings = Settings;

    fn new(_: &Settings, child: Arc<dyn FileSystem>) -> Self {
        Self { child }
    }
}
