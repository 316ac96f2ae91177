//! The memory store: objects in sealed memory files, up to a size. They do not
//! outlive the process.

mod account;
mod object;
mod pages;
mod store;

pub use store::MemoryStore;
