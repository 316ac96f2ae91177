//! Regular files: all I/O on them.
//!
//! A plain file is its home file and nothing else; a spread file adds an index
//! and objects on other tiers, a whole file one object on one of them and no
//! index. Reads and writes hold the layout shared, so they run side by side;
//! what changes where bytes are (spreading, truncating, moving a range) holds it
//! alone.

pub(crate) mod ahead;
pub(crate) mod allocate;
pub(crate) mod choose;
pub(crate) mod copy;
pub(crate) mod gather;
pub(crate) mod leave;
pub(crate) mod open;
pub(crate) mod owner;
pub(crate) mod pieces;
pub(crate) mod place;
pub(crate) mod ranges;
pub(crate) mod read;
pub(crate) mod recover_whole;
pub(crate) mod relocate;
pub(crate) mod seek;
pub(crate) mod set_id;
pub(crate) mod sync;
pub(crate) mod truncate;
pub(crate) mod whole;
pub(crate) mod write;
