//! The kernel's native file systems, as [`braid_contract::NativeFd`].
//!
//! The home tier and the directory stores get their root here, from
//! [`open_tier_dir`]; everything else is opened from that.

mod below;
mod btrfs;
mod calls;
mod device;
mod dir;
mod fd;
mod kind;
mod machine;
mod own_mount;
mod words;

pub use device::{device_counters, device_dir};
pub(crate) use dir::{mount_of, try_lock, write_back};
pub use dir::{open_dir, open_tier_dir, with_access_times};
pub use fd::KernelFd;
pub use kind::usual_rates;
pub use machine::Machine;
