//! Indexes and objects that no file leads to: those of files whose attribute was
//! lost, and those whose file is gone.

pub(crate) mod indexes;
mod lost_attr;
pub(crate) mod objects;
mod recheck;
