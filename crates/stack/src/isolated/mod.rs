//! Modules whose owner is not trusted: each runs in a process of its own (LabStor §3.1),
//! which may only compute, and talk to this one.
//!
//! `pipe` is the conversation, the same in both directions, in frames as `frame` has them: an
//! operation, operations of the file system below that it needs meanwhile, entries of
//! directories, the answer. `process` is this side, with a `pool` of conversations, `host` the
//! other one, which `sandbox` confines.

mod frame;
mod host;
mod module;
mod pipe;
mod pool;
mod process;
mod sandbox;

pub use host::run as run_host;
pub(crate) use module::{IsolatedLibrary, IsolatedModule};
