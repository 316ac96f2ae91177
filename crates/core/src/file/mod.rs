//! Regular files: all I/O on them.
//!
//! A plain file is its home file and nothing else; a spread file adds an index
//! and objects on other tiers, a whole file one object on one of them and no
//! index. Reads and writes hold the layout shared, so they run side by side;
//! spreading, truncating and moving a small file as a whole hold it alone. A
//! range moves beside both.

pub mod allocate;
pub mod choose;
mod copy;
pub(crate) mod emptying;
mod evacuate;
pub mod extents;
pub mod gather;
pub mod home_inode;
mod id_attr;
mod indexing;
pub mod leave;
mod leave_home;
mod load;
mod mark;
pub mod move_whole;
pub mod open;
pub mod owner;
mod pieces;
mod place;
mod preallocate;
pub mod presence;
mod range_move;
pub mod ranges;
pub mod read;
pub mod recover_whole;
mod release;
pub mod relocate;
pub mod seek;
pub mod set_id;
pub mod sync;
mod trim;
pub(crate) mod truncate;
pub mod whole;
mod whole_object;
pub mod write;
