//! Regular files: all I/O on them.
//!
//! A plain file is its home file and nothing else; a spread file adds an index
//! and objects on other tiers, a whole file one object on one of them and no
//! index. Reads and writes hold the layout shared, so they run side by side;
//! what changes where bytes are (spreading, truncating, moving a range) holds it
//! alone.

pub mod ahead;
pub mod allocate;
pub mod choose;
pub mod copy;
pub mod gather;
pub mod leave;
pub mod open;
pub mod owner;
pub mod pieces;
pub mod place;
pub mod ranges;
pub mod read;
pub mod recover_whole;
pub mod relocate;
pub mod seek;
pub mod set_id;
pub mod sync;
pub(crate) mod truncate;
pub mod whole;
pub mod write;
