//! The live state of a volume: inodes and files in use, open handles, and
//! removals that are under way. Plain data; `file`, `namespace` and `reap` work
//! on it.

mod dir_handle;
mod freed;
mod handles;
mod in_use;
mod inode;
mod inode_table;
mod name_locks;
mod removals;
mod set_id;
mod space;
mod spread;
mod tag;
mod times;
