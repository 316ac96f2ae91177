//! The namespace: the home tier's own tree, seen through inode numbers.
//!
//! Names, permissions, links, extended attributes and the atomicity of
//! directory operations are the home file system's; added here are the way from
//! an inode number to an inode, and the care for spread files when names come
//! and go.

pub mod attr;
pub mod change;
pub mod copied;
pub mod dirs;
pub mod known;
pub mod lookup;
pub mod make;
pub mod remove;
pub mod resolve;
pub mod xattrs;
