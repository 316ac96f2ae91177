//! The memory store: objects in sealed memory files, up to a size. Nothing of
//! it outlives the process.

mod account;
mod object;
mod pages;
mod store;

pub use store::MemoryStore;
