//! The directory store: objects as sparse files in a directory of a mounted
//! native file system.
//!
//! An object is the file `.braid/data/<2 hex>/<32 hex>` below the tier's
//! directory (`docs/format.md`); offsets in the file are offsets in the object.

mod files;
mod held;
mod probe;
mod store;
mod tier;
mod unsynced;

pub use store::DirStore;
