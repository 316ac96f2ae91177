//! The namespace: the home tier's own tree, seen through inode numbers.
//!
//! Names, permissions, links, extended attributes and the atomicity of
//! directory operations are the home file system's; what is added here is the
//! way from an inode number to an inode, and what spread files need when names
//! come and go.

mod again;
mod attr;
mod change;
mod copied;
mod dirs;
mod home;
mod inodes;
mod known;
mod locks;
mod make;
mod numbers;
mod own;
mod remove;
mod resolve;
mod walk;
mod xattrs;

pub(crate) use copied::{ID_ATTRS, copy_xattrs};
pub(crate) use dirs::DirHandle;
pub(crate) use home::{Home, Identity, RootGeneration, names_in};
pub(crate) use inodes::{Inode, InodeTable, Known, Shape};
pub(crate) use known::Found;
pub(crate) use locks::NameLocks;
pub(crate) use make::io_mode;
pub(crate) use numbers::Numbers;
pub(crate) use remove::DurabilityDependency;
pub(crate) use walk::Seen;
pub(crate) use xattrs::read_value;
