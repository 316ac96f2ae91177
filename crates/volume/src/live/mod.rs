//! The live state of a volume: what is in memory of inodes and files in use,
//! of open handles, and of removals that are under way. Plain data; `file`,
//! `namespace` and `reap` work on it.

mod dir_handle;
mod freed;
mod handles;
mod inode;
mod inode_table;
mod name_locks;
mod removals;
mod set_id;
mod spread;
mod tag;

pub(crate) use dir_handle::DirHandle;
pub(crate) use freed::Freed;
pub(crate) use handles::{Handles, OpenFile};
pub(crate) use inode::{Ahead, File, Inode, Layout, Shape};
pub(crate) use inode_table::{InodeTable, Known};
pub(crate) use name_locks::NameLocks;
pub(crate) use removals::{DurabilityDependency, ReclaimQueue, Removals};
pub(crate) use spread::{AllocatedAhead, Spread};
pub(crate) use tag::Tag;
