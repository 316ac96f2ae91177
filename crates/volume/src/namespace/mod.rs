//! The namespace: the home tier's own tree, seen through inode numbers.
//!
//! Names, permissions, links, extended attributes and the atomicity of
//! directory operations are the home file system's; what is added here is the
//! way from an inode number to an inode, and what spread files need when names
//! come and go.

pub(crate) mod again;
pub(crate) mod attr;
pub(crate) mod change;
pub(crate) mod copied;
pub(crate) mod dirs;
pub(crate) mod known;
pub(crate) mod make;
pub(crate) mod remove;
pub(crate) mod resolve;
pub(crate) mod xattrs;
