//! The empty module: passes every operation to its child unchanged.
//!
//! It shows how a stack is composed and what a layer costs (one virtual call),
//! and is the template for a new module: copy the folder, and add the methods
//! of [`Layer`] that the module changes.

use crate::Module;
use braid_contract::{FileSystem, Layer, Result};
use serde::Deserialize;
use std::sync::Arc;

#[cfg(test)]
mod tests;

/// A file system that is equal to its child.
pub struct Noop {
    child: Arc<dyn FileSystem>,
}

/// No settings.
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

    fn new(_: &Settings, child: Arc<dyn FileSystem>) -> Result<Self> {
        Ok(Self { child })
    }
}
