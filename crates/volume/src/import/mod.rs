//! Files that a tier's directory has of its own come into the namespace, where
//! they are: each becomes an object by one more name on its tier, gets a home
//! inode with its owner, mode, times and extended attributes, and loses its old
//! name when both are durable. No data is copied. The way in for people who
//! have a union of disks.
//!
//! Where home has something of the same name, that is what stays visible, and
//! the tier's file stays where it is; directories are merged. `jobs` calls this;
//! it may be ended at any moment and begun anew. `shared` is what it rests on, `walk` goes through the tier's
//! directory, `adopt` takes files over, many at a time.

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
