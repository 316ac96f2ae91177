//! Communication between the command line and a running daemon.
//!
//! One JSON object a line over a UNIX stream socket: [`protocol`] has the
//! messages, [`socket`] the paths, [`client`] sends requests and [`server`]
//! answers them, through a [`handler`]. [`mounts`] reads the kernel's mount
//! table, by which both ends find each other, [`daemons`] finds those whose
//! file system is not mounted any more, and [`holders`] its users;
//! [`connection`] ends it. The command line and the daemon call this crate; it
//! knows nothing of volumes.
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
pub use handler::{Handler, VolumeHandler};
pub use server::{Server, caller_of};
