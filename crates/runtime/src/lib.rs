//! The runtime (LabStor §III-C): applications put requests into queues in shared memory, and
//! workers carry them out on the stack, without a call of the kernel on the way.
//!
//! `layout` is the layout of the memory, for both sides. On the side of the daemon, [`Runtime`]
//! lets sessions begin (`server`), each of which (`session`) sees the file system through a `view`
//! that makes the kernel's checks (`access`); `queue` takes requests out of the memory, `values`
//! adds keys and values to them, `worker` is a thread that serves queues, and `pool` gives each its
//! queues, as `policy` plans. Where sessions outlive a crash of the process, `ledger` has the
//! records for that, and `once` carries requests out so that another process can go on with them.
//! On the side of an application, [`Session`] is the file system.
#![forbid(unsafe_code)]

mod access;
mod admit;
mod asked;
mod client;
mod entries;
mod form;
mod found;
mod gate;
mod handover;
mod hello;
mod keeper;
mod layout;
mod ledger;
mod load;
mod once;
mod open;
mod policy;
mod polling;
mod pool;
mod queue;
mod recount;
mod server;
mod session;
mod values;
mod view;
mod words;
mod worker;

pub use client::{GivenLink, GroupsOf, LinkState, Options, Session};
pub use found::{Before, FoundSession, SessionFile};
pub use gate::{Gate, Pass};
pub use handover::{GivenSession, SessionState};
pub use keeper::SessionKeeper;
pub use layout::{DATA_MAX, DATA_MIN, DEPTH_MAX, Geometry, QUEUES_MAX};
pub use pool::{PolicyKind, Settings, WORKERS_MAX};
pub use server::Runtime;
pub use session::Mounted;
pub use values::Values;
pub use worker::Scheduler;
