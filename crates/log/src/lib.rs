//! The log-structured file system: `LabFS` of `LabStor`, on a device or in a file.
//!
//! The device has blocks of files, a log for each worker, and now and then an image of
//! all inodes, with which the logs begin anew. Inodes and directories are in memory, made
//! of image and logs when the file system is opened; the blocks in use are not written
//! down but follow from them. docs/log-format.md has the bytes, and the order in which
//! they get there.
//!
//! Reading order: `device`, and what is used as one (`disk`); `record` and `inode` (changes,
//! and the inodes that they change); `layout`, `tail`, `writer`, `journal` (how that becomes
//! durable);
//! `space`, `account`; `core`, `checkpoint`, `room`; `scan`, `load`, `open` (recovery); `ops` (the
//! operations), `fs` and `background`; `bucket` (keys and values); `handover` and `after_crash` (from
//! process to process); `salvage` (what can be read of a damaged one).
#![forbid(unsafe_code)]

mod account;
mod actor;
mod after_crash;
mod audit;
mod background;
mod blocks;
mod bucket;
mod check;
mod checkpoint;
mod codec;
mod core;
mod device;
mod direct;
mod directory;
mod disk;
mod extents;
mod failpoint;
mod fs;
mod handover;
mod inode;
mod journal;
mod kernel;
mod known;
mod layout;
mod load;
mod namespace;
mod open;
mod ops;
mod persistent;
mod record;
mod rings;
mod room;
mod salvage;
mod scan;
mod settings;
mod space;
mod sync;
mod table;
mod tail;
mod writer;

pub use after_crash::CrashedLog;
pub use bucket::LogBucket;
pub use check::{Checked, Figures, check, figures};
pub use device::{BLOCK, Device};
pub use disk::{Disk, Driver, Use, is_log_at, make_file};
#[cfg(feature = "failpoints")]
pub use failpoint::{Failpoint, set_failpoint};
pub use fs::LogFs;
pub use handover::LiveLog;
pub use known::{is_log, known};
pub use layout::{SIZE_MIN, WORKERS_MAX};
pub use open::{Owner, format};
pub use salvage::{Findings, NAMED_MAX, Salvaged, Trouble, repair};
pub use settings::Settings;
