//! The runtime (LabStor §III-C): applications put requests into queues in shared memory, and
//! workers carry them out on the stack, without a call of the kernel on the way.
//!
//! `layout` says where things are in the memory, for both sides. On the side of the daemon,
//! [`Runtime`] lets sessions begin (`server`), each of which (`session`) sees the file system
//! through a `view` that checks what the kernel would have checked (`access`); `queue` takes requests
//! out of the memory, `values` adds keys and values to them, `worker` is a thread that serves queues, and `pool` gives each its
//! queues, as `policy` plans. On the side of an application, [`Session`] is the file system.
#![forbid(unsafe_code)]

mod access;
mod admit;
mod client;
mod entries;
mod form;
mod gate;
mod handover;
mod hello;
mod layout;
mod load;
mod open;
mod policy;
mod polling;
mod pool;
mod queue;
mod server;
mod session;
mod values;
mod view;
mod words;
mod worker;

pub use client::{Options, Session};
pub use gate::{Gate, Pass};
pub use handover::{GivenSession, SessionState};
pub use layout::{DATA_MAX, DATA_MIN, DEPTH_MAX, Geometry, QUEUES_MAX};
pub use pool::{PolicyKind, Settings, WORKERS_MAX};
pub use server::Runtime;
pub use session::Mounted;
pub use values::Values;
pub use worker::Scheduler;
