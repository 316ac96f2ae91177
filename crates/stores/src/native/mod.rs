//! The kernel's native file systems, as [`braid_contract::NativeFd`] has them.
//!
//! The home tier and the directory stores get their root here, from
//! [`open_tier_dir`]; everything else is opened from that.

mod below;
mod calls;
mod dir;
mod fd;
mod words;

pub(crate) use dir::{mount_of, try_lock, write_back};
pub use dir::{open_dir, open_tier_dir};
pub use fd::KernelFd;
