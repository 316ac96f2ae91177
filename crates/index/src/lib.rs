//! Range indexes, which say where the ranges of files are, and marks of files
//! that may be ahead of their home inode, on the home tier. The core and the
//! volume stand on this crate.
#![forbid(unsafe_code)]

mod ballast;
mod dir;
mod index;
mod marks;
mod segments;
mod whole;

pub use ballast::BALLAST_LEN;
pub use dir::{Dirs, IndexDir, IndexState, ids_in};
pub use index::Index;
pub use whole::Whole;
