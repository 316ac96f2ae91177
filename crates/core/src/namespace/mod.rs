//! The namespace: the home tier's own tree, seen through inode numbers.
//!
//! Names, permissions, links, extended attributes and the atomicity of
//! directory operations are the home file system's; added here are the way from
//! an inode number to an inode, and the care for spread files when names come
//! and go.

mod attr;
mod change;
mod copied;
mod dirs;
mod known;
mod lookup;
mod make;
mod remove;
mod resolve;
mod xattrs;

pub use attr::get_attr;
pub use change::set_attr;
pub use copied::{ID_ATTRS, copy_xattrs, give_attributes};
pub use dirs::{open_directory, read_directory};
pub use known::{InodeRef, found, with_file};
pub use lookup::look_up;
pub use make::{make_dir, make_file, make_link, make_node, make_symlink, make_unnamed};
pub use remove::{remove_dir, remove_name, rename_name};
pub use resolve::{identify_name, path_of};
pub use xattrs::{get_xattr, list_xattr, read_value, remove_xattr, set_xattr};
