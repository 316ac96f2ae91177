//! The FUSE front end: translates between the kernel's requests and the
//! [`FileSystem`](braid_contract::FileSystem) trait, and holds no storage
//! logic.
//!
//! Reading order: `session` (life of a mount), `serve` (its threads), `init` (negotiation with the
//! kernel), `front` (how one request is handled), `ops` (the requests), `open` and `open_table`
//! (how an open file's data travels), `coherence` and `invalidate` (the kernel's cache beside
//! direct writes), `ledger` and `repeated` (state that outlives a crash).
//!
//! # Left to the kernel
//!
//! - **Permissions**: `default_permissions` is always set; the kernel checks
//!   with the caller's whole identity, supplementary groups and ACLs included.
//! - **Locks**: neither POSIX nor BSD lock requests are negotiated, so the
//!   kernel keeps `fcntl` and `flock` locks itself. All processes that can
//!   reach the files do so through this mount, so these locks are complete; and
//!   a wait for one stays interruptible, which a lock request would not be (the
//!   library answers `ENOSYS` to interruptions).
//! - **Caching**: names, negative names and attributes for as long as the file
//!   system says; data by the mode of the open.
#![forbid(unsafe_code)]

mod buffer;
mod cache;
mod coherence;
mod config;
mod convert;
mod dir;
mod front;
mod groups;
mod handover;
mod init;
mod invalidate;
mod ledger;
mod mount;
mod no_room;
mod open;
mod open_table;
mod ops;
mod pause;
mod polling;
mod refusals;
mod repeated;
mod report;
mod rings;
mod serve;
mod session;

pub use cache::KernelCache;
pub use config::{CacheMode, FuseConfig};
pub use groups::of_thread as groups_of_thread;
pub use handover::FrontState;
pub use ledger::{Ledger, OpenKind, OpenRecord};
pub use mount::{access_times, generic_options, remount};
pub use session::{Again, Given, Holder, Session, Unmounter, mount, resume};
