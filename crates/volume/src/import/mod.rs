//! Bringing a tier's own files into the namespace, without moving them: each
//! becomes an object by one more name on its tier, gets a home inode with its
//! owner, mode, times and extended attributes, and loses its old name when both
//! are durable. No data is copied. This is the migration path for users of a
//! union of disks.
//!
//! Where home has a file of the same name, that one stays visible, and the
//! tier's file stays where it is; directories are merged. Jobs call this; it
//! may be ended at any moment and started again. `shared` holds its state,
//! `walk` goes through the tier's directory, `adopt` takes over files, many at
//! a time.

mod adopt;
mod bring;
mod run;
mod shared;
mod survey;
mod types;
mod walk;

pub(crate) use shared::Importer;
pub(crate) use types::ImportObserver;
pub use types::ImportSurvey;
