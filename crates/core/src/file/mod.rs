//! Regular files: all I/O on them.
//!
//! A plain file is its home file and nothing else; a spread file adds an index
//! and objects on other tiers, a whole file one object on one of them and no
//! index. Reads and writes hold the layout shared, so they run side by side;
//! spreading, truncating and moving a small file as a whole hold it alone. A
//! range moves beside both.
//!
//! The files stand in layers, each of which uses only itself and those below:
//!
//! * operations: `open`, `read`, `write`, `seek`, `allocate`, `truncate`,
//!   `gather`, `tier_leaves`;
//! * moves: `relocate`, `full_range`, `range_move`, `move_whole`, `leave_home`;
//! * layouts and how they change: `load`, `recover_whole`, `place`, `indexing`,
//!   `whole`, `copy`;
//! * attributes that tiers share: `access_time`, `collective`;
//! * durability: `mark`, `trim`, `release`, `emptying`, `sync`;
//! * parts on tiers: `whole_object`, `pieces`, `preallocate`, `extents`,
//!   `presence`, and the home file's: `home_inode`, `id_attr`;
//! * decisions and checks: `choose`, `ranges`, `owner`, `set_id`, `write_through`,
//!   `learned`.

pub(crate) mod access_time;
mod allocate;
pub(crate) mod choose;
mod clear;
pub(crate) mod collective;
mod copy;
mod demand;
pub(crate) mod emptying;

mod extents;
mod full_range;
mod gather;
pub(crate) mod home_inode;
mod id_attr;
mod indexing;
pub(crate) mod learned;
mod leave_home;
pub(crate) mod load;
pub(crate) mod mark;
mod move_whole;
pub(crate) mod open;
pub(crate) mod owner;
mod pieces;
mod place;
mod preallocate;
mod presence;
mod range_move;
mod ranges;
mod read;
mod read_ahead;
mod read_on;
pub(crate) mod recover_whole;
mod release;
mod relocate;
mod seek;
pub(crate) mod set_id;
mod share;
mod sync;
mod tier_leaves;
mod trim;
pub(crate) mod truncate;
pub(crate) mod unneeded;
mod whole;
mod whole_object;
mod write;
mod write_through;

pub use allocate::{allocate_file, copy_between};
pub use choose::{
    EffectivePlacement, PlacementRequest, TierChoice, choose, effective_placement, find_room, is_pinned,
    placed, stream_now,
};
pub use extents::allocated_on;
pub(crate) use extents::named_on;
pub use gather::gather;
pub use home_inode::update_home_inode;
pub use move_whole::moves_at_once;
pub use open::{close_file, end_use, end_use_entering, file_of, open_inode};
pub use owner::index_of;
pub use presence::concerns;
pub use ranges::{range_size_in, range_size_of, smallest_range};
pub use read::read_file;
pub use read_on::read_on;
pub use recover_whole::OwnerInode;
pub use relocate::{relocate, relocate_watched};
pub use seek::seek_file;
pub use set_id::clear_set_id;
pub use sync::{sync_file, sync_open};
pub use tier_leaves::{disown, prepare_leave};
pub use whole::{adopt_object, take_object_id};
pub use write::write_file;
