//! Locks enter the crate here.

pub(crate) use parking_lot::Mutex;
