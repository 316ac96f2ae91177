//! The key-value front: translates between keys and values and the files of a directory,
//! and between the Redis protocol and keys and values. It holds no storage logic.
//!
//! Reading order: `held` (finding a directory), `files` (any file system's directory as
//! keys and values); `resp` (the protocol), `budget`, `client` (the state of a
//! connection), `commands`, `connection`, `server`.
#![forbid(unsafe_code)]

mod budget;
mod client;
mod commands;
mod connection;
mod files;
mod glob;
mod held;
mod limits;
mod listing;
mod resp;
mod server;

pub use files::FileBucket;
pub use held::{Held, resolve};
pub use listing::Listings;
pub use server::{Door, Identify, Server, Settings};
