//! Regular files: the live state of those in use, and all I/O on them.
//!
//! [`File`] stands between the namespace's inode and the bytes. A plain file is
//! its home file and nothing else; a spread file adds an index and objects on
//! other tiers, a whole file one object on one of them and no index. Reads and writes hold the layout shared, so they run side by
//! side; what changes where bytes are (spreading, truncating, moving a range)
//! holds it alone.

mod ahead;
mod allocate;
mod choose;
mod copy;
mod gather;
mod handles;
mod leave;
mod live;
mod open;
mod pieces;
mod place;
mod ranges;
mod read;
mod relocate;
mod seek;
mod set_id;
mod spread;
mod sync;
mod truncate;
mod whole;
mod write;

pub(crate) use choose::{FileFacts, PlacementRequest};
pub(crate) use handles::{Handles, OpenFile};
pub(crate) use live::{Ahead, File, Layout};
pub(crate) use set_id::{may_set_group_id, take_set_id};
pub(crate) use spread::Spread;
