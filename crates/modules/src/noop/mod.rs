//! The empty module: hands every operation to its child as it came.
//!
//! It shows that a stack is composition and what a layer costs (one virtual
//! call), and it is the template for a new module: copy the folder, and add the
//! methods of [`Layer`] that the module is for.

use braid_contract::{FileSystem, Layer};
use std::sync::Arc;

#[cfg(test)]
mod tests;

/// The key that names this module in a stack file.
pub const NAME: &str = "noop";

/// A file system that is its child.
pub struct Noop {
    child: Arc<dyn FileSystem>,
}

impl Noop {
    /// Wraps `child`.
    #[must_use]
    pub fn new(child: Arc<dyn FileSystem>) -> Self {
        Self { child }
    }
}

impl Layer for Noop {
    fn child(&self) -> &dyn FileSystem {
        &*self.child
    }
}
