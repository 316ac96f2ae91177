//! How the command line and a running daemon talk.
//!
//! One JSON object a line over a UNIX stream socket: [`protocol`] says what,
//! [`socket`] says where, [`client`] asks and [`server`] answers, with what
//! its [`handler`] knows. [`mounts`] reads the kernel's mount table, by which
//! both ends find each other, [`daemons`] finds those whose file system is not
//! mounted any more, and [`holders`] who uses it;
//! [`connection`] ends it. The command line and the daemon call this crate;
//! it knows nothing of volumes.
#![forbid(unsafe_code)]

pub mod client;
pub mod connection;
pub mod daemons;
pub mod handler;
pub mod holders;
pub mod mounts;
pub mod protocol;
pub mod server;
pub mod socket;

pub use client::{Breaker, Client, ClientError};
pub use handler::Handler;
pub use server::Server;
