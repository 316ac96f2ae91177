//! What a mounted volume tells Prometheus: [`Address`] says where, `table` what,
//! and `http` answers. [`crate::serve`] starts and ends it with the daemon.

mod address;
mod http;
mod table;

pub use address::{Address, FORM};
pub(crate) use http::{Listener, Server};
pub(crate) use table::exposition;
