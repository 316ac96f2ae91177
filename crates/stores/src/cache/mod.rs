//! A cache in memory of tiers' data, as a layer on a store (PolyStore §4.6). All tiers
//! of a volume share one budget ([`CacheMemory`]); each has a part of its own, so that
//! tiers never wait for each other's evictions: a larger one, the more reading from it
//! costs and the more it is read. A tier that is read as fast as memory has none, and
//! its reads pass by.
//!
//! Writes go to the store at once, and change the cache's copy; the data of the store
//! below is therefore always whole, and a crash loses nothing.

mod changes;
mod memory;
mod ranges;
mod store;
mod tier;

pub use memory::{CacheMemory, CacheShare};
pub use store::CacheStore;
pub use tier::CacheFigures;

/// Bytes of a range in the cache, unless the settings say so.
pub const RANGE_DEFAULT: u64 = 64 << 10;
