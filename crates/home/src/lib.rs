//! The home tier: the directory that holds the namespace, and Braid's own state
//! there besides the indexes: attributes, jobs, the records of a replacement of
//! home. The index, the core and the check stand on this crate.
#![forbid(unsafe_code)]

mod dirs;
mod home;
mod identity;
pub mod job_files;
mod mounting;
mod numbers;
mod open_error;
mod replacement;
mod walk;

pub use dirs::{empty_dir, names_in};
pub use home::{Home, ReadRenewal, RootGeneration};
pub use identity::{Identity, Node};
pub use mounting::{clean_up, copy_begun, discard_copy, guard, settle_home};
pub use numbers::Numbers;
pub use open_error::OpenError;
pub use replacement::{INTENT, LIMBO, RECORD, read_label, read_record, remove_record, write_record};
pub use walk::Seen;

/// Leftovers in `.braid` of replacing a small file.
pub const TEMPORARIES: [&str; 5] = ["volume.new", "label.new", "counts.new", "heat.new", "speeds.new"];
