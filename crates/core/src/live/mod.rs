//! The live state of a volume: inodes and files in use, open handles, and
//! removals that are under way. Plain data; `file`, `namespace` and `reap` work
//! on it.

mod dir_handle;
mod freed;
mod handles;
mod in_use;
mod inode;
mod inode_table;
mod learning;
mod name_locks;
mod read_stream;
mod removals;
mod set_id;
mod space;
mod spread;
mod stream;
mod tag;
mod times;
mod writable;
mod write_stream;

pub use dir_handle::DirHandle;
pub use freed::Freed;
pub use handles::{Handles, OpenFile};
pub(crate) use in_use::AtRest;
pub use in_use::InUse;
pub(crate) use inode::HeldTimes;
pub use inode::{AheadAttrs, File, Inode, Layout, Shape};
pub use inode_table::{InodeTable, KnownInode};
pub use learning::Learning;
pub use name_locks::NameLocks;
pub use removals::{DurabilityDependency, MarksToRetire, RemovalState, Removals};
pub use spread::{AllocatedAhead, Spread};
pub use tag::Tag;
pub(crate) use times::Due;
pub use writable::keeping_capability;
pub(crate) use writable::{CAPABILITY, is_without};
