//! Metrics for Prometheus: [`Address`] says where they are asked for, `table`
//! which there are, `listener` takes the address, and `http` answers.
//! [`crate::serve`] starts and ends it with the daemon.

mod address;
mod http;
mod listener;
mod table;

pub use address::{Address, FORM};
pub(crate) use http::Server;
pub(crate) use listener::Listener;
pub(crate) use table::exposition;
