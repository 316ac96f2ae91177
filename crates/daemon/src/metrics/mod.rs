//! Metrics for Prometheus: [`Address`] is where they are served, `table` lists
//! them, `listener` binds the address, and `http` answers. [`crate::serve`]
//! starts and ends it with the daemon.

mod address;
mod http;
mod listener;
mod modules;
mod table;

pub use address::{Address, FORM};
pub(crate) use http::Server;
pub(crate) use listener::Listener;
pub(crate) use table::exposition;
