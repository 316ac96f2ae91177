//! Where the bytes of a tier are.

use braid_contract::{Fd, Store};
use parking_lot::RwLock;
use std::sync::Arc;

/// Where the bytes of a tier are.
pub enum Backend {
    /// In the files of the namespace itself, below this directory, which may be
    /// replaced.
    Home(RwLock<Fd>),
    /// In a store's objects, behind the tier's limiter of operations in flight.
    Store(Arc<dyn Store>),
}
