//! The core of a volume: names, attributes and file I/O over the home tier and
//! the others. It knows the layers above as an [`Observer`] and a [`Placer`]
//! only.
//!
//! [`Core`] has the state that operations work on; [`live`] is the plain state in
//! it; [`mod@file`], [`namespace`], [`reap`], [`need`], [`recover`] and [`handover`]
//! are the operations, as functions over it.
#![forbid(unsafe_code)]

pub mod coord;
mod core;
mod failpoint;
pub mod file;
pub mod handover;
mod keeper;
pub mod live;
pub mod namespace;
pub mod need;
mod observer;
mod placer;
pub mod reap;
pub mod recover;

pub use crate::core::Core;
pub use failpoint::Failpoint;
pub use keeper::Keeper;
pub use observer::Observer;
pub use placer::Placer;
